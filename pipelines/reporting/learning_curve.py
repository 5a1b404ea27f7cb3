"""Interpret a learning curve: a metric after training on halves of the examples, and whether more would help.

It foretells no number: of 582, 1,198 and 2,382 images of six animals, 50, 37 and 30% of 286 test images were wrong,
which a power law continues to 26%; 4,764 had 33% after as many steps, and 28% after twice as many.
"""
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from pipelines.evaluation import chance
from pipelines.reporting import figures

FEW = 30  # test examples below which an interval of their bootstrap is too narrow


@dataclasses.dataclass(frozen=True)
class Point:
    """A training on a part of the examples.

    Attributes:
      examples: the number trained on.
      value: the metric on the split that the gate evaluates.
      minutes: of the training; None if it was resumed, since only those of the last part are known.
      digest: of the training run.
    """
    examples: int
    value: float
    minutes: float | None
    digest: str


@dataclasses.dataclass(frozen=True)
class Curve:
    """A learning curve.

    Attributes:
      metric: name of the metric.
      lower: whether a lower value is better.
      points: by examples, fewest first; the last is the run that is reported.
      change: the metric's change from the second last point to the last, by a paired bootstrap; None for a metric over
        all examples at once, which cannot be drawn again.
      unit: plural of the examples, such as images.
      tested: examples evaluated.
      init_from: weights that every training started from; empty for random ones.
    """
    metric: str
    lower: bool
    points: Sequence[Point]
    change: chance.Change | None
    unit: str
    tested: int
    init_from: str = ''

    @property
    def words(self) -> str:
        return self.metric.replace('_', ' ')

    @property
    def gain(self) -> float:
        """Return the improvement from the second last point to the last; below 0 if the metric became worse."""
        half, whole = self.points[-2:]
        return (half.value - whole.value if self.lower else whole.value - half.value) + 0.0  # no -0


def refusal(config: Any) -> str:
    """Return why a configuration has no learning curve, in a sentence; empty if it has one."""
    if 'train' in config.model_spec.stages:
        return f'{config.model_spec.name} does not learn from a data set, so halves of it cannot be compared.'
    if not hasattr(config.data, 'train_fraction'):
        return f'data.module: {config.data_spec.name} has no key train_fraction, so it cannot prepare a half.'
    if not config.train.steps:
        return 'train.steps is 0: nothing is trained, so nothing would differ. Set it.'
    if config.evaluate.split == 'train':
        return 'evaluate.split is train, which differs between halves. Set it to test or validation.'
    if config.train.strategy == 'multi_worker_mirrored':
        return 'learning_curve trains on one machine. Set train.strategy to mirrored or one_device, and run that first.'
    return ''


def read(curve: Curve) -> dict[str, Any]:
    """Return what the report shows of a curve: sentences, a figure and a row for each point."""
    # As words, the counts stand at equal distances, as halves do.
    points = [(f'{point.examples:,}', point.value) for point in curve.points]
    figure = figures.lines(curve.words, {('', ''): points}, x=f'training {curve.unit}')
    return {'sentences': sentences(curve), 'figure': Markup(figure),  # noqa: S704 (figures escape)
            'metric': curve.words, 'unit': curve.unit, 'rows': [vars(point) for point in curve.points]}


def sentences(curve: Curve) -> list[str]:
    """Say how the metric changed with the examples, and whether that may be chance."""
    counts = [f'{point.examples:,}' for point in curve.points]
    said = [f'With {_and(counts)} training {curve.unit}, {curve.words} is '
            f'{_and([f"{point.value:.4g}" for point in curve.points])}.']
    if all(math.isfinite(point.value) for point in curve.points):
        said += _of_gain(curve, f'with {counts[-1]} in place of {counts[-2]}')
    if curve.init_from:
        said.append(f'All started from the weights of {curve.init_from}. If those were trained on this data, more of '
                    'it helps more than the curve shows.')
    return [*said, 'Each was trained once: with other seeds, these numbers vary further.']


def _of_gain(curve: Curve, more: str) -> list[str]:
    """Interpret the last gain.

    Args:
      more: the change of the number of examples, in words.
    """
    gain, change = curve.gain, curve.change
    if change is None or curve.tested < FEW:
        why = ('it is computed over all examples at once' if change is None else
               f'{curve.tested} test {curve.unit} are too few')
        return [f'It improved by {gain:.3g} {more}; whether that is chance cannot be estimated, because {why}.']
    least, most = sorted((-end if curve.lower else end) + 0.0 for end in (change.low, change.high))
    if least > 0:
        return [f'More data helps: it improved by {gain:.3g} {more}; by more than {least:.2g} with '
                f'{change.confidence:.0%} confidence, which allows for the chance of these {curve.tested:,} test '
                f'{curve.unit}. Give a training on more data more steps, too.']
    by = f'by {gain:.3g} {more}, which the chance of these {curve.tested:,} test {curve.unit} makes anything from '
    if most < 0:
        return [f'It became worse: it improved {by}{least:.2g} to {most:.2g}. With more data the steps may be too few: '
                'raise train.steps, or train once more with another seed.']
    return [f'It does not show that more data of this kind helps: it improved {by}{least:.2g} to {most:.2g}.']


def _and(words: Sequence[str]) -> str:
    return f'{", ".join(words[:-1])} and {words[-1]}'
