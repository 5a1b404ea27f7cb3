"""Stages of the pipeline: prepare, train, export, evaluate, infra_validate, push; see `python -m pipelines.<stage>`."""
