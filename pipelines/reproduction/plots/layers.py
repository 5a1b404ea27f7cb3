"""An image net layer by layer, from its configuration: the drawing of figure 2 of Krizhevsky et al. 2012."""
import os
from collections.abc import Sequence

from matplotlib import figure, patches

from pipelines.reproduction.experiments import Exhibit, Figure, Study
from pipelines.reproduction.plots import trained

NAME = 'layers.png'
_TALLEST, _WIDEST, _APART, _ROW = 1.0, 0.4, 0.8, 1.35  # drawn sizes of the largest side and most maps; distances
_FILL, _INK, _FAINT = '#a9c4eb', '#21201d', '#8b949e'


def draw(study: Study, setting: str = '', towers: int = 1, joined: Sequence[str] = ()) -> Exhibit:
    """Return a row of neurons, million parameters and million multiply-adds for each layer and for the whole net.

    Args:
      towers: number of equal parts the maps are drawn in, one above the other.
      joined: the layers connected to all parts of the previous one.
    """
    run = trained.run(study, setting)
    config = trained.config(run.pipeline)
    assert config.model_spec.costs is not None
    costs = config.model_spec.costs(config.model)
    columns = {cost.name: {'neurons': cost.side ** 2 * cost.channels, 'million parameters': cost.parameters / 1e6,
                           'million multiply-adds': cost.macs / 1e6} for cost in costs}
    whole = {column: sum(found[column] for found in columns.values()) for column in columns[costs[0].name]}
    values = {(name, run.seed): found for name, found in {run.setting: whole, **columns}.items()}
    _picture(costs, towers, joined).savefig(os.path.join(study.out, NAME), dpi=150)
    title = 'Outputs of the layers: side x side places of so many maps'
    return Exhibit(values, [Figure(title, f'<img src="{NAME}" alt="{title}">')])


def _picture(costs, towers: int, joined: Sequence[str]):
    """Draw a box per layer and tower, as high as its side is long, its width the root of its maps; return a Figure."""
    side, maps = (max(getattr(cost, key) for cost in costs) for key in ('side', 'channels'))
    sizes = [(max(0.03, _TALLEST * cost.side / side), _WIDEST * (cost.channels / maps) ** 0.5) for cost in costs]
    page = figure.Figure(figsize=(1.2 * len(costs), 2 * towers), layout='constrained')
    axes = page.add_subplot()
    for n, (cost, (height, width)) in enumerate(zip(costs, sizes)):
        x = n * _APART
        for tower in range(towers):
            y = -tower * _ROW
            axes.add_patch(patches.Rectangle((x - width / 2, y - height / 2), width, height, facecolor=_FILL,
                                             edgecolor=_INK, linewidth=0.8))
            axes.text(x, y - height / 2 - 0.03, f'{cost.name}\n{cost.side} x {cost.side} x {cost.channels // towers}',
                      ha='center', va='top', fontsize=7, color=_INK)
            for other in range(towers) if n else ():
                if other == tower or cost.name in joined:
                    axes.plot([x - _APART + sizes[n - 1][1] / 2 + 0.02, x - width / 2 - 0.02], [-other * _ROW, y],
                              color=_FAINT, linewidth=0.8, zorder=0)
    axes.set(xlim=(-_APART / 2, (len(costs) - 0.5) * _APART), ylim=(0.1 - towers * _ROW + 0.4, 0.6), aspect=1)
    axes.axis('off')
    return page
