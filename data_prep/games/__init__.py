"""Board games, for examinations."""
