"""Interpret a learning curve: a metric after training on halves of the examples, and what more may bring."""
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from pipelines.evaluation import chance
from pipelines.reporting import figures


@dataclasses.dataclass(frozen=True)
class Point:
    """A training on a part of the examples.

    Attributes:
      examples: the number trained on.
      value: the metric on the split that the gate evaluates.
      seconds: time of the training.
      digest: of the training run.
    """
    examples: int
    value: float
    seconds: float
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
    """
    metric: str
    lower: bool
    points: Sequence[Point]
    change: chance.Change | None
    unit: str
    tested: int

    @property
    def words(self) -> str:
        return self.metric.replace('_', ' ')

    @property
    def gains(self) -> list[float]:
        """Improvement at each doubling, in the metric's units; below 0 if it became worse."""
        sign = -1 if self.lower else 1
        return [sign * (more.value - fewer.value) for fewer, more in itertools.pairwise(self.points)]

    @property
    def expected(self) -> float | None:
        """Return the metric expected with twice the examples; None unless the last doublings improved it.

        On a power law, a + b n^-c, each doubling gains a constant share of the one before (c > 0: less than it). The
        last two gains give that share; it is at most 1, since a gain that grew is chance or a run that was too short.
        """
        if len(self.gains) < 2 or min(self.gains[-2:]) <= 0:
            return None
        gain = self.gains[-1] * min(1.0, self.gains[-1] / self.gains[-2])
        last = self.points[-1].value
        if self.lower:
            return max(0.0, last - gain)
        return min(last + gain, 1.0 if max(point.value for point in self.points) <= 1 else 100.0)


def read(curve: Curve) -> dict[str, Any]:
    """Return what the report shows of a curve: sentences, a figure and a row for each point."""
    rows = [{'examples': point.examples, 'value': point.value, 'minutes': point.seconds / 60} for point in curve.points]
    return {'sentences': sentences(curve), 'figure': _figure(curve), 'metric': curve.words, 'unit': curve.unit,
            'expected': curve.expected, 'rows': rows}


def sentences(curve: Curve) -> list[str]:
    """Say how the metric changed with the examples, whether that may be chance, and what another doubling may bring."""
    counts = [f'{point.examples:,}' for point in curve.points]
    values = [f'{point.value:.4g}' for point in curve.points]
    said = [f'With {_and(counts)} training {curve.unit}, {curve.words} is {_and(values)}.']
    gain, change = curve.gains[-1], curve.change
    least, most = sorted(-end if curve.lower else end for end in (change.low, change.high)) if change else (gain, gain)
    if least > 0:
        sure = f', and with {change.confidence:.0%} confidence by more than {least:.2g}' if change else ''
        said.append(f'More data helps: the last doubling improved it by {gain:.3g}{sure}.')
        if curve.expected is not None:
            said.append(f'If gains go on as they did, {2 * curve.points[-1].examples:,} {curve.unit} would bring about '
                        f'{curve.expected:.3g}.')
    elif most < 0:
        said.append(f'All of the data did worse than half of it, by {-gain:.3g}: with more data, the steps may be too '
                    'few. Raise train.steps, or train once more with another seed.')
    else:
        by = (f' The last doubling improved it by {gain:.3g}, and in another test set of {curve.tested:,} {curve.unit} '
              f'that may be anything from {least:.2g} to {most:.2g}.' if change else '')
        said.append(f'It does not show that more data of this kind helps.{by}')
    return said


def _and(words: Sequence[str]) -> str:
    return f'{", ".join(words[:-1])} and {words[-1]}'


def _figure(curve: Curve) -> Markup:
    """Draw the metric by training examples; dashed, what twice as many may bring."""
    numbers, values = zip(*((point.examples, point.value) for point in curve.points))

    def draw() -> Figure:
        figure = Figure(figsize=(3.7, 2.5), layout='constrained')
        axes = figure.add_subplot()
        axes.set_title(curve.words)
        axes.plot(numbers, values, marker='o', markersize=4)
        ticks = [*numbers]
        if curve.expected is not None:
            ticks.append(2 * numbers[-1])
            axes.plot([numbers[-1], ticks[-1]], [values[-1], curve.expected], 'C0--', marker='o', markersize=4,
                      markevery=[1], fillstyle='none')
        axes.set_xscale('log', base=2)
        axes.set_xticks(ticks, [f'{number:,}' for number in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(f'training {curve.unit}')
        return figure
    return Markup(figures.drawn(draw, f'{curve.words} by training {curve.unit}'))  # noqa: S704 (figures escape)
