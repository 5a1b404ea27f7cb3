"""Shared by all kinds of data: records, splits, the input pipeline, archives and statistics."""
