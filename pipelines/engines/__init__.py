"""Runners of Beam jobs."""
