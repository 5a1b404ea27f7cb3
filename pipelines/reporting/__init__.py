"""Pages and plots for people to read."""
