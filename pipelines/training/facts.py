"""Facts of a training run, as `run.json`, lineage and the report have them."""
import collections
import dataclasses
from typing import Any

import tensorflow as tf

from pipelines.core import machine


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The facts of one run.

    Attributes:
      steps: updates of the weights, or lessons.
      resumed_at: the step it began with.
      seconds: of this process, since then.
      jit: whether XLA compiled the step.
      replicas: of the strategy.
      parameters: net -> how many.
      last: metric -> the last validation's value.
      averaged: metric -> its value with the averaged weights; empty where nothing was trained.
      averaged_checkpoints: the checkpoints whose mean the weights are.
      traces: of the step, one for each bucket.
      vocabulary: SHA-256 of the data's subwords, if it has any.
      agnostic: whose rules made the data's clothing-agnostic people, if it has any.
      foreign: source, licence and files of weights others trained, if the run began with such.
      notes: how the configuration differs from the paper, in words.
      hardware: what it ran on, in words.
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
    traces: int = 0
    vocabulary: str | None = None
    agnostic: str | None = None
    foreign: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    hardware: str = dataclasses.field(default_factory=lambda: machine.describe(_gpus()))


def _gpus() -> list[str]:
    """Models of this process's GPUs, with how many there are of each: `8 x NVIDIA A100`."""
    models = collections.Counter(tf.config.experimental.get_device_details(gpu).get('device_name', 'GPU')
                                 for gpu in tf.config.list_physical_devices('GPU'))
    return [f'{count} x {model}' for model, count in models.items()]
