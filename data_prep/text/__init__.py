"""Parallel text."""
