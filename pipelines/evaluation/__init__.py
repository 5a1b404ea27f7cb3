"""How a model is judged."""
