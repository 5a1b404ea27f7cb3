"""Models a training step on several accelerators: compute at a share of the peak, and a ring's exchange.

Nothing here was measured on an accelerator; `benchmarks/cost_model.py` says what is assumed, and puts it beside what
has been published. What accelerators can do is in `accelerators.yaml`.
"""
import pathlib
from typing import Literal, NamedTuple

import yaml

Scheme = Literal['data', 'sharded', 'single']
FLOAT = 4  # bytes; weights and gradients are float32 whatever layers compute in
ASSUMED = 0.75  # the share of the ceiling that a step reaches, where none was measured


class Accelerator(NamedTuple):
    """A row of `accelerators.yaml`. `beyond` is 0 where no more than are `together` were ever meant."""
    peak: float
    bandwidth: float
    together: int
    precision: str
    source: str
    beyond: float = 0


class Work(NamedTuple):
    """A training step of a whole batch.

    Attributes:
      flops: in all.
      parameters: that learn.
      rows: that can be divided among replicas.
      share: of the ceiling that such a step reaches.
      dense_flops, dense_parameters: those of the dense layers, 0 where they are not told apart.
      dense_inputs: how many values of a row each dense layer takes in.
    """
    flops: float
    parameters: int
    rows: int
    share: float
    dense_flops: float = 0
    dense_parameters: int = 0
    dense_inputs: tuple[int, ...] = ()


def accelerators() -> dict[str, Accelerator]:
    return {name: Accelerator(**row) for name, row in yaml.safe_load((
        pathlib.Path(__file__).with_name('accelerators.yaml')).read_text()).items()}


def exchanged(step: Work, n: int, scheme: Scheme = 'data') -> float:
    """Bytes the busiest of n replicas sends a step.

    A ring that sums v values sends 2 (n - 1) / n v from every replica. Sharded dense layers need every layer's inputs
    of the whole batch on every replica, and its gradients summed: as many bytes as a ring's sum of rows x inputs, by
    gathering and scattering. On one device, that takes the first layer's inputs in and gives their gradients out.
    """
    values = step.parameters
    if scheme != 'data':
        inputs = step.dense_inputs if scheme == 'sharded' else step.dense_inputs[:1]
        values = step.parameters - step.dense_parameters + step.rows * sum(inputs)
    return 2 * (n - 1) / n * FLOAT * values


def seconds(step: Work, on: Accelerator, n: int, scheme: Scheme = 'data', overlap: bool = False) -> float:
    """Of a step on n replicas."""
    alone = step.dense_flops if scheme == 'single' else 0
    compute = ((step.flops - alone) / n + alone) / (on.peak * step.share)
    exchange = exchanged(step, n, scheme) / (on.bandwidth if n <= on.together else min(on.bandwidth, on.beyond))
    return max(compute, exchange) if overlap else compute + exchange


