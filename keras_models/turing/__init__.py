"""The learning machine at play: games, lessons and inference."""
