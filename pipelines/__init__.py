"""The stages: prepare, train, export, evaluate, infra_validate, push; each is `python -m pipelines.<stage>`."""
