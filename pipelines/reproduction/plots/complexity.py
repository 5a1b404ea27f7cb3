"""Table 1 of Vaswani et al. 2017 in numbers: what connects every position of a sequence with every other, and its cost.

The paper's entries are orders; here each is taken with a constant of one, for a length and a width that can be named.
"""
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pipelines.reproduction.experiments import Exhibit, Study

COLUMNS = 'operations a layer', 'one after another', 'longest path'


class Layer(NamedTuple):
    """Three functions of the length n, the width d, the kernel's width k and the neighbourhood r."""
    operations: Callable[[float, float, float, float], float]
    sequential: Callable[[float, float, float, float], float]
    path: Callable[[float, float, float, float], float]


LAYERS = {
    'Self-attention': Layer(lambda n, d, k, r: n ** 2 * d, lambda n, d, k, r: 1, lambda n, d, k, r: 1),
    'Recurrent': Layer(lambda n, d, k, r: n * d ** 2, lambda n, d, k, r: n, lambda n, d, k, r: n),
    'Convolutional': Layer(lambda n, d, k, r: k * n * d ** 2, lambda n, d, k, r: 1, lambda n, d, k, r: math.log(n, k)),
    'Self-attention (restricted)': Layer(lambda n, d, k, r: r * n * d, lambda n, d, k, r: 1, lambda n, d, k, r: n / r)}


def table(n: int, d: int, k: int, r: int) -> dict[str, dict[str, float]]:
    """Table 1: kind of layer -> column of `COLUMNS` -> number.

    Args:
      n: positions of the sequence.
      d: width of what stands for a position.
      k: positions a convolution sees at once. Its path is that of dilated convolutions.
      r: positions a restricted self-attention sees.
    """
    return {name: dict(zip(COLUMNS, (layer.operations(n, d, k, r), layer.sequential(n, d, k, r),
                                     layer.path(n, d, k, r)))) for name, layer in LAYERS.items()}


def separable(n: int, d: int, k: int) -> int:
    """Operations of a separable convolution: k for every number, then a product with a d x d matrix (section 4)."""
    return k * n * d + n * d ** 2


def point_wise(n: int, d: int) -> int:
    """Operations of a point-wise feed-forward layer, with a constant of one (section 4)."""
    return n * d ** 2


def draw(study: 'Study', config: str = 'wmt14_en_de_base', n: int = 64, k: int = 3, r: int = 16) -> 'Exhibit':
    """Table 1 for the width of a configuration's model, and its operations for sequences of every length."""
    from pipelines.core import config as configs
    from pipelines.reporting import figures
    from pipelines.reproduction.experiments import Exhibit, Figure
    d = configs.load(config).model.d_model
    found = table(n, d, k, r)
    found[f'Separable convolution, k = {n}'] = {COLUMNS[0]: separable(n, d, n)}
    found['Self-attention and point-wise layer'] = {
        COLUMNS[0]: found['Self-attention'][COLUMNS[0]] + point_wise(n, d)}
    title = f'Operations of a layer of width d = {d}, with k = {k} and r = {r}'
    picture = figures.drawn(lambda: _figure(title, d, k, r), title, os.path.join(study.out, 'complexity.png'))
    return Exhibit({(name, 0): row for name, row in found.items()}, [Figure(title, picture)])


def _figure(title: str, d: int, k: int, r: int):
    from matplotlib.figure import Figure
    figure = Figure(figsize=(5, 3.4), layout='constrained')
    axes = figure.add_subplot()
    lengths = [2 ** i for i in range(3, 14)]
    for name in LAYERS:
        axes.plot(lengths, [table(n, d, k, r)[name][COLUMNS[0]] for n in lengths], label=name)
    axes.axvline(d, linewidth=0.8, linestyle=':', color='C5', label='n = d')
    axes.set(title=title, xscale='log', yscale='log', xlabel='length n', ylabel='operations')
    axes.legend()
    return figure
