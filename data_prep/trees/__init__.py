"""Constituency trees."""
