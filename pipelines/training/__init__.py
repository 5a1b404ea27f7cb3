"""Training: the trainer, its loop, checkpoints and devices."""
