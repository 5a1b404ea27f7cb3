"""What every kind of data shares."""
