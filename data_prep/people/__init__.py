"""People and garments."""
