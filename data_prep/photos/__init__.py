"""Make try-on samples from photographs of people and garments."""
