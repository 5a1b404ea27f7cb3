"""What all sides of a comparison start from, the same in every environment: NumPy alone makes it."""
import math
from collections.abc import Sequence

import numpy as np


def weights(shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Kernels [..., in, out] of variance 2 / fan-in (He et al. 2015), biases of small numbers, in the order given."""
    draw = np.random.default_rng(0)
    return [draw.normal(0, 0.01 if len(shape) == 1 else math.sqrt(2 / math.prod(shape[:-1])), shape).astype(np.float32)
            for shape in shapes]


def pictures(number: int, side: int) -> np.ndarray:
    """float32 [number, side, side, 3], of mean 0."""
    return np.random.default_rng(1).normal(0, 1, (number, side, side, 3)).astype(np.float32)
