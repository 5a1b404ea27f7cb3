"""Evaluation metrics and scorers."""
