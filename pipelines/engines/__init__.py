"""Engines that run Beam jobs, whole pipelines, and training on clusters."""
