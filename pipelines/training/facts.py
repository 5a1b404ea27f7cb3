"""Facts of a training run, as stored in `run.json` and lineage and shown in the report."""
import collections
import dataclasses
from typing import Any

import tensorflow as tf

from pipelines.core import machine


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """Facts of one run.

    Attributes:
      steps: weight updates, or lessons.
      resumed_at: the step it started at.
      seconds: time of this process since then.
      jit: whether XLA compiled the step.
      replicas: number of replicas.
      parameters: net -> number of parameters.
      last: metric -> value of the last validation.
      averaged: metric -> its value with the averaged weights; empty if nothing was trained.
      averaged_checkpoints: the checkpoints averaged for the weights; the best alone, if there is one.
      best: metric, value and step of the best validation, if one was monitored.
      traces: traces of the step, one per bucket.
      vocabulary: SHA-256 of the data's subwords, if it has any.
      agnostic: rules of the data's clothing-agnostic people, if it has any.
      foreign: source, licence and files of published weights the run started from, if any.
      notes: sentences on how the configuration differs from the paper.
      hardware: see `machine.describe`.
    """
    steps: int
    resumed_at: int
    seconds: float
    jit: bool
    replicas: int
    parameters: dict[str, int]
    last: dict[str, float]
    averaged: dict[str, float] = dataclasses.field(default_factory=dict)
    averaged_checkpoints: list[str] = dataclasses.field(default_factory=list)
    best: dict[str, Any] = dataclasses.field(default_factory=dict)
    traces: int = 0
    vocabulary: str | None = None
    agnostic: str | None = None
    foreign: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    hardware: str = dataclasses.field(default_factory=lambda: machine.describe(_gpus()))


def _gpus() -> list[str]:
    """Return the models of this process's GPUs with their number, such as `8 x NVIDIA A100`."""
    models = collections.Counter(tf.config.experimental.get_device_details(gpu).get('device_name', 'GPU')
                                 for gpu in tf.config.list_physical_devices('GPU'))
    return [f'{count} x {model}' for model, count in models.items()]
