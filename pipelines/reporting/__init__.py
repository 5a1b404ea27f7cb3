"""What reports are made of: so far, the reading of a run."""
