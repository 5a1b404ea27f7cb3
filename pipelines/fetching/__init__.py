"""Download, convert and check data sets."""
