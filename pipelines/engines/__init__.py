"""Where Beam jobs run."""
