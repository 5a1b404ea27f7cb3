"""Learned slopes of PReLU (He et al. 2015, table 1)."""
import os
import re

import numpy as np

from pipelines.core.config import Config
from pipelines.reporting import figures
from pipelines.reproduction.experiments import Exhibit, Figure, Study
from pipelines.training import checkpoints


def draw(study: Study) -> Exhibit:
    """Return the mean of a_i over the channels of every layer, for every run that learns slopes.

    Rows are layers, followed by `mean of conv2` and so on for a stage's layers; columns are settings.
    """
    values: dict[tuple[str, int], dict[str, float]] = {}
    series = {}
    for run in study.runs:
        slopes = learned(run.pipeline.outputs('train')['model_run'].uri, run.pipeline.config)
        if not slopes:  # ReLU
            continue
        series[run.setting, f'(seed {run.seed})'] = list(slopes.items())
        stages: dict[str, list[float]] = {}
        for layer, slope in slopes.items():
            stages.setdefault(f'mean of {re.split("_", layer)[0]}' if '_' in layer else '', []).append(slope)
        stages.pop('', None)
        for row, slope in {**slopes, **{stage: float(np.mean(found)) for stage, found in stages.items()}}.items():
            values.setdefault((row, run.seed), {})[run.setting] = slope
    title, png = 'mean slope below zero, by layer', os.path.join(study.out, 'slopes.png')
    return Exhibit(values, [Figure(title, figures.lines(title, series, x='layer', png=png))])


def learned(run: str, config: Config) -> dict[str, float]:
    """Return the mean slope of every PReLU layer, in the net's order; `run` is a ModelRun's folder."""
    weights = checkpoints.read(checkpoints.find(run, config.model_spec))['classifier']
    layers = [layer.removesuffix('/prelu/a') for layer in weights if layer.endswith('/prelu/a')]
    layers.sort(key=lambda layer: (layer.startswith('fc'), layer))  # convolutions are named conv<stage>_<n>
    return {layer: float(np.mean(weights[f'{layer}/prelu/a'])) for layer in layers}
