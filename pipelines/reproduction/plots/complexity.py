"""Table 1 of Vaswani et al. 2017 in numbers: cost of layers that connect every position of a sequence to every other.

The paper's entries are orders of growth; here each has the constant one, for a given length and width.
"""
import math
import os
from collections.abc import Callable
from typing import NamedTuple

from matplotlib import figure as matplotlib_figure
from matplotlib.ticker import EngFormatter

from pipelines.core import config as configs
from pipelines.reporting import figures
from pipelines.reproduction.experiments import Exhibit, Figure, Study

COLUMNS = 'operations a layer', 'one after another', 'longest path'


class Layer(NamedTuple):
    """Three functions of length n, width d, kernel width k and neighbourhood r."""
    operations: Callable[[float, float, float, float], float]
    sequential: Callable[[float, float, float, float], float]
    path: Callable[[float, float, float, float], float]


LAYERS = {
    'Self-attention': Layer(lambda n, d, k, r: n ** 2 * d, lambda n, d, k, r: 1, lambda n, d, k, r: 1),
    'Recurrent': Layer(lambda n, d, k, r: n * d ** 2, lambda n, d, k, r: n, lambda n, d, k, r: n),
    'Convolutional': Layer(lambda n, d, k, r: k * n * d ** 2, lambda n, d, k, r: 1, lambda n, d, k, r: math.log(n, k)),
    'Self-attention (restricted)': Layer(lambda n, d, k, r: r * n * d, lambda n, d, k, r: 1, lambda n, d, k, r: n / r)}


def table(n: int, d: int, k: int, r: int) -> dict[str, dict[str, float]]:
    """Return table 1: kind of layer -> column of `COLUMNS` -> number.

    Args:
      n: positions of the sequence.
      d: width of a position's representation.
      k: kernel width of a convolution; its path length is that of dilated convolutions.
      r: neighbourhood of a restricted self-attention.
    """
    return {name: dict(zip(COLUMNS, (layer.operations(n, d, k, r), layer.sequential(n, d, k, r),
                                     layer.path(n, d, k, r)))) for name, layer in LAYERS.items()}


def separable(n: int, d: int, k: int) -> int:
    """Return the operations of a separable convolution: k for every number, then a d x d matrix product (section 4)."""
    return k * n * d + n * d ** 2


def point_wise(n: int, d: int) -> int:
    """Return the operations of a point-wise feed-forward layer, with a constant of one (section 4)."""
    return n * d ** 2


def draw(study: 'Study', config: str = 'wmt14_en_de_base', n: int = 64, k: int = 3, r: int = 16) -> 'Exhibit':
    """Compute table 1 for the width of a configuration's model, and draw its operations over sequence lengths."""
    d = configs.load(config).model.d_model
    found = table(n, d, k, r)
    found[f'Separable convolution, k = {n}'] = {COLUMNS[0]: separable(n, d, n)}
    found['Self-attention and point-wise layer'] = {
        COLUMNS[0]: found['Self-attention'][COLUMNS[0]] + point_wise(n, d)}
    title = f'Operations of a layer of width d = {d}, with k = {k} and r = {r}'
    picture = figures.drawn(lambda: _figure(title, d, k, r), title, os.path.join(study.out, 'complexity.png'))
    return Exhibit({(name, 0): row for name, row in found.items()}, [Figure(title, picture)])


def _figure(title: str, d: int, k: int, r: int):
    figure = matplotlib_figure.Figure(figsize=(5, 3.4), layout='constrained')
    axes = figure.add_subplot()
    lengths = [2 ** i for i in range(3, 14)]
    for name in LAYERS:
        axes.plot(lengths, [table(n, d, k, r)[name][COLUMNS[0]] for n in lengths], label=name)
    axes.axvline(d, linewidth=0.8, linestyle=':', color='C5', label='n = d')
    axes.set(title=title, xscale='log', yscale='log', xlabel='length n', ylabel='operations')
    for axis in axes.xaxis, axes.yaxis:  # plain text: a page's font cannot show $10^3$
        axis.set_major_formatter(EngFormatter(sep=''))
    axes.legend()
    return figure
