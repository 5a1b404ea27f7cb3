"""Published metrics that compare images."""
