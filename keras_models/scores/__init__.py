"""Published measures that compare images."""
