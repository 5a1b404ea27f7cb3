"""Training: the trainer, its loop, checkpoints, devices and learning by play."""
