"""Structure and cost of nets, in closed form from their configurations, without running them."""
import html
import itertools

from keras_models.viton import chain
from pipelines.reproduction.experiments import Exhibit, Figure, Study


def draw(study: Study, network: str = '', digits: int = 9, layers: bool = True) -> Exhibit:
    """Return weight layers, parameters and multiply-adds of every setting, and a table of their layers.

    Args:
      network: which network, for a model of several.
      digits: operations are shown in units of 10^digits.
      layers: whether to show the table of layers.
    """
    values: dict[tuple[str, int], dict[str, float]] = {}
    columns: dict[str, list] = {}
    for run in study.runs:
        module, config = run.pipeline.config.model_spec, run.pipeline.config.model
        if network:
            module, config = chain.PARTS[network], chain.part(config, network)
        costs = module.costs(config)
        values[run.setting, run.seed] = {
            'weight layers': len([cost for cost in costs if cost.macs]),
            'million parameters': sum(cost.parameters for cost in costs) / 1e6,
            f'10^{digits} operations': sum(cost.macs for cost in costs) / 10 ** digits}
        columns.setdefault(run.setting, costs)
    return Exhibit(values, [Figure('Layers', _table(columns))] if layers else [])


def _table(columns: dict) -> str:
    """Return a table with layers side by side: the n-th of every setting in one row."""
    head = ''.join(f'<th>{html.escape(name)}</th>' for name in columns)
    rows = [''.join(f'<td>{html.escape(_words(cost))}</td>' for cost in row)
            for row in itertools.zip_longest(*columns.values())]
    return f'<table><tr>{head}</tr>' + ''.join(f'<tr>{row}</tr>' for row in rows) + '</table>'


def _words(cost) -> str:
    """Describe a layer as `conv1: 112 x 112 x 96, 14,208 parameters, 0.177 G`; empty for None."""
    if cost is None:
        return ''
    size = getattr(cost, 'size', None) or (cost.side, cost.side)
    return (f'{cost.name}: {" x ".join(map(str, (*size, cost.channels)))}, {cost.parameters:,} parameters, '
            f'{cost.macs / 1e9:.3g} G')
