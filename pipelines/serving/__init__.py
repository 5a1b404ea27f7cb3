"""Exported models: where they lie, how they are loaded and run."""
