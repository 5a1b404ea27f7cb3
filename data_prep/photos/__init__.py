"""Photographs of people and of garments -> what a try-on sample is made of."""
