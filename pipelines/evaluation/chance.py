"""Estimate how much of a metric's change from the blessed model could be chance: the paired bootstrap.

Koehn 2004: test sets of the same size are drawn from the examples, with replacement, the same ones for both models; how
their metrics' change varies is how the change would vary from test set to test set. An interval of confidence c has two
ends, each of which the true change crosses in 1 - c of all cases, so each end alone is a test at that level.
"""
import dataclasses

import numpy as np
from scipy import stats

from pipelines.evaluation import corpus

DRAWS = 2_000  # test sets drawn: the ends of a 95% interval then vary by 3% of its width
_BATCH = 1 << 21  # indices drawn at a time, 16 MB
FOUND = 0.95  # probability with which the smallest difference that can be found is found


@dataclasses.dataclass(frozen=True)
class Change:
    """A metric's change from the blessed model to the candidate, and what chance adds to it.

    Attributes:
      value: candidate - blessed.
      low, high: ends of the interval; each is crossed by chance with probability 1 - confidence.
      confidence: of each end alone.
      smallest: the smallest true difference that this test set finds in `FOUND` of all cases; 0 if unknown, because
        every test set drawn gives the same change.
      examples: size of the test set.
    """
    value: float
    low: float
    high: float
    confidence: float
    smallest: float
    examples: int


def change(metric: corpus.Metric, candidate: list[corpus.Row], blessed: list[corpus.Row], confidence: float,
           seed: int) -> Change:
    """Compare two models on the same examples.

    Args:
      candidate, blessed: their answers, example by example in the same order.
      confidence: of each end of the interval, between 0.5 and 1.
      seed: decides the test sets drawn, so that the verdict repeats.
    """
    counts = np.concatenate([np.array([metric.counts(row) for row in rows], np.float64)
                             for rows in (candidate, blessed)], 1)

    def statistic(drawn: np.ndarray, axis: int) -> np.ndarray:
        sums = counts[np.moveaxis(drawn, axis, -1)].sum(-2)
        return np.apply_along_axis(
            lambda each: metric.score(each[:metric.size]) - metric.score(each[metric.size:]), -1, sums)
    rows = np.arange(len(counts))
    value = float(statistic(rows, -1))
    if np.array_equal(counts[:, :metric.size], counts[:, metric.size:]):  # nothing differs, and nothing can be drawn
        return Change(0.0, 0.0, 0.0, confidence, 0.0, len(counts))
    if len(counts) == 1:  # every test set drawn from one example is itself
        return Change(value, value, value, confidence, 0.0, len(counts))
    found = stats.bootstrap((rows,), statistic, n_resamples=DRAWS, batch=max(1, _BATCH // len(counts)), vectorized=True,
                            confidence_level=2 * confidence - 1, method='percentile',
                            random_state=np.random.default_rng(seed))
    smallest = (stats.norm.ppf(confidence) + stats.norm.ppf(FOUND)) * found.standard_error
    low, high = map(float, found.confidence_interval)
    return Change(value, low, high, confidence, float(smallest), len(counts))


def refusal(name: str, found: Change, bounds: dict, other: str = 'the blessed model') -> str:
    """Return why a change is outside its bound, or nothing.

    Args:
      name: the metric.
      bounds: `max_drop` or `max_rise`, `confidence`, and `in_doubt`: whether a change that may be on either side of the
        bound blocks (the default) or passes.
      other: the model it changed from.
    """
    key = 'max_drop' if 'max_drop' in bounds else 'max_rise'
    bound, sign = bounds[key], -1 if key == 'max_drop' else 1
    best, worst = sorted((sign * found.low, sign * found.high))
    worse, percent = {'max_drop': 'drop', 'max_rise': 'rise'}[key], f'{100 * found.confidence:g}%'
    if bounds.get('in_doubt', 'block') == 'pass':
        return '' if best <= bound else (f'{name} changed by {found.value:+.4g} from {other}; with {percent} '
                                         f'confidence, the {worse} is {best:.4g} or more, and {key} is {bound:g}')
    return '' if worst <= bound else (f'{name} changed by {found.value:+.4g} from {other}; with {percent} '
                                      f'confidence, the {worse} may be up to {worst:.4g}, and {key} is {bound:g}')
