"""Shared test code: data, small models, commands in their own processes, and pytest plugins."""
