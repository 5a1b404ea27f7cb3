"""Downloads, converts and checks data sets."""
