"""Exported models: push, load, predict, and serve over REST, gRPC and a web page."""
