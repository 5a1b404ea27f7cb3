"""Reports, model cards, figures and contact sheets."""
