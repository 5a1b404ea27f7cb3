"""Model a training step on several accelerators: compute at a share of the peak, and a ring all-reduce.

Nothing here was measured on an accelerator; `benchmarks/speed/cost_model.py` states the assumptions and compares the
model with published figures. Data of the accelerators are in `accelerators.yaml`.
"""
import pathlib
from typing import Literal, NamedTuple

import yaml

Scheme = Literal['data', 'sharded', 'single']
FLOAT = 4  # bytes; weights and gradients are float32 at any precision of the layers
ASSUMED = 0.75  # share of the ceiling that a step reaches, if not measured


class Accelerator(NamedTuple):
    """A row of `accelerators.yaml`. `beyond` is 0 if more than `together` cannot be connected."""
    peak: float
    bandwidth: float
    together: int
    precision: str
    source: str
    beyond: float = 0


class Work(NamedTuple):
    """A training step of a whole batch.

    Attributes:
      flops: operations in total.
      parameters: trainable parameters.
      rows: rows that can be divided among replicas.
      share: share of the ceiling that such a step reaches.
      dense_flops, dense_parameters: those of the dense layers; 0 if they are not distinguished.
      dense_inputs: values per row that each dense layer receives.
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
    """Return the bytes that the busiest of n replicas sends per step.

    A ring sum of v values sends 2 (n - 1) / n v from every replica. Sharded dense layers need every layer's inputs of
    the whole batch on every replica, and their gradients summed: by gathering and scattering, as many bytes as a ring
    sum of rows x inputs. A single device for the dense layers receives the first layer's inputs and sends their
    gradients.
    """
    values = step.parameters
    if scheme != 'data':
        inputs = step.dense_inputs if scheme == 'sharded' else step.dense_inputs[:1]
        values = step.parameters - step.dense_parameters + step.rows * sum(inputs)
    return 2 * (n - 1) / n * FLOAT * values


def seconds(step: Work, on: Accelerator, n: int, scheme: Scheme = 'data', overlap: bool = False) -> float:
    """Return the seconds of a step on n replicas."""
    alone = step.dense_flops if scheme == 'single' else 0
    compute = ((step.flops - alone) / n + alone) / (on.peak * step.share)
    exchange = exchanged(step, n, scheme) / (on.bandwidth if n <= on.together else min(on.bandwidth, on.beyond))
    return max(compute, exchange) if overlap else compute + exchange


