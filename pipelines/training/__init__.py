"""What trains a model: so far, what is said when a loss is not finite."""
