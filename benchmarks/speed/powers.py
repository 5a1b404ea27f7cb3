"""Fit exponents and lines to costs by size, and draw them."""
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats


class Power(NamedTuple):
    """cost ~ size^exponent, by least squares of logarithms; `low` and `high` bound its 95% interval."""
    exponent: float
    low: float
    high: float

    def __str__(self):
        return f'{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]'


class Line(NamedTuple):
    """cost = fixed + each * size, neither below zero, by least squares of relative errors, of which `worst` is left."""
    fixed: float
    each: float
    worst: float


def power(sizes: Sequence[float], costs: Sequence[float]) -> Power:
    """Fit a power to three points or more; the interval is Student's, from the points' distances to the line."""
    found = scipy.stats.linregress(np.log(sizes), np.log(costs))
    reach = scipy.stats.t.ppf(0.975, len(sizes) - 2) * np.nan_to_num(found.stderr)  # none of a constant
    return Power(float(found.slope), float(found.slope - reach), float(found.slope + reach))


def line(sizes: Sequence[float], costs: Sequence[float]) -> Line:
    x, y = np.asarray(sizes, float), np.asarray(costs, float)
    scale = x.max()
    (fixed, each), _ = scipy.optimize.nnls(np.stack([1 / y, x / scale / y], 1), np.ones(len(y)))
    return Line(float(fixed), float(each / scale), float(np.abs((fixed + each / scale * x) / y - 1).max()))
