"""Engines that run Beam jobs and whole pipelines."""
