"""What every command shares: configuration, stages, artifacts."""
