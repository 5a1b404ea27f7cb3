"""Tables 1 and 2 of Simonyan & Zisserman 2015: layers, parameters and cost of the configurations."""
import itertools

from keras_models import vgg
from pipelines.reproduction.experiments import Exhibit, Figure, Study


def draw(study: Study, layers: bool = False) -> Exhibit:
    """Return weight layers, parameters and multiply-adds of every setting; with `layers`, table 1 itself too."""
    models = {run.setting: run.pipeline.config.model for run in study.runs}
    values = {(name, 0): {'weight layers': float(len(vgg.costs(model))),
                          'million parameters': vgg.parameters(model) / 1e6,
                          'billion multiply-adds': vgg.macs(model) / 1e9} for name, model in models.items()}
    return Exhibit(values, [Figure('Layers of each configuration', columns(models))] if layers else [])


def columns(models: dict) -> str:
    """Return a <table> of configurations side by side, with lines between poolings."""
    stages = {}
    for name, model in models.items():
        words = [f'conv{size}-{channels}' if channels else layer for layer, size, channels in vgg.steps(model)]
        stages[name] = [part.split() for part in ' '.join(words).split('maxpool')[:-1]]
    lines = [_line('th', stages)]
    for parts in zip(*stages.values()):
        lines += [_line('td', cells) for cells in itertools.zip_longest(*parts, fillvalue='')]
        lines.append(f'<tr><td colspan="{len(stages)}" style="text-align: center">maxpool</td></tr>')
    lines += [_line('td', cells) for cells in zip(*([f'FC-{cost.channels}' for cost in vgg.costs(model)[-3:]]
                                                    for model in models.values()))]
    return f'<table>{"".join(lines)}</table>'


def _line(kind: str, cells) -> str:
    return '<tr>' + ''.join(f'<{kind}>{cell}</{kind}>' for cell in cells) + '</tr>'
