"""Metrics by slice, such as classes, or pairs by how much of a garment the warp leaves bare."""
import os
from collections.abc import Mapping, Sequence

import numpy as np

from pipelines.reporting import figures
from pipelines.reproduction.experiments import Exhibit, Figure, Study


def draw(study: Study, measures: Mapping[str, str], order: Sequence[str] = (), x: str = 'slice', minus: str = '',
         percent: bool = False) -> Exhibit:
    """Draw a figure per measure, with a line per run, and return rows `<setting>, <slice>`.

    When another setting's values are subtracted, also return a row `<setting>` with the share of slices that improve,
    `<metric> less in, %`.

    Args:
      measures: column -> the metric's name in the evaluation; a metric that was not evaluated is left out.
      order: the slices; by default all, in ascending order of each run's values.
      x: name of the slices' axis.
      minus: a setting; values become its value minus the other setting's with the same seed, that is, by how much the
        other is lower.
      percent: whether values are shown in percent.
    """
    values: dict[tuple[str, int], dict[str, float]] = {}
    shown = []
    for column, metric in measures.items():
        found = {(run.setting, run.seed): _of(run, metric, order, 100 if percent else 1) for run in study.runs}
        if minus:
            found = {(setting, seed): {name: found[minus, seed][name] - value for name, value in each.items()}
                     for (setting, seed), each in found.items() if setting != minus}
            for run, each in found.items():
                less = [value > 0 for value in each.values()]
                values.setdefault(run, {})[f'{metric} less in, %'] = 100 * float(np.mean(less)) if less else np.nan
        for (setting, seed), each in found.items():
            for name, value in each.items():
                values.setdefault((f'{setting}, {name}', seed), {})[column] = value
        series = {(setting, f'(seed {seed})'): [*each.items()] if order else [*enumerate(sorted(each.values()), 1)]
                  for (setting, seed), each in found.items() if each}
        if series:
            title = column + f': {minus} less the others' * bool(minus)
            png = os.path.join(study.out, f'{metric}_by_{x.replace(" ", "_")}.png')
            shown.append(Figure(title, figures.lines(title, series, x=x, png=png)))
    return Exhibit(values, shown)


def _of(run, metric: str, order: Sequence[str], factor: float) -> dict[str, float]:
    """Return slice -> the metric, where it is a number."""
    by_slice = run.pipeline.outputs('evaluate')['evaluation'].properties['metrics']
    return {name: factor * by_slice[name][metric] for name in order or by_slice
            if name != 'overall' and np.isfinite(by_slice.get(name, {}).get(metric, np.nan))}
