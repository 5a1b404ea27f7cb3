"""What image nets share beyond training: serving and scoring."""
