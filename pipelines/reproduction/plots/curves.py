"""Curves of training and validation: one line per run, one colour per setting."""
import math
import os
import re
from collections.abc import Sequence

from pipelines.reporting import figures, report
from pipelines.reproduction.experiments import Exhibit, Figure, Study


def draw(study: Study, of: Sequence[str], exp: bool = False, percent: bool = False, log: bool = False) -> Exhibit:
    """Draw a figure of each of some scalars over steps.

    Args:
      of: their names in TensorBoard, such as `top1_error` of training and `validation/top1_error`.
      exp, percent: how values are transformed, as in a `Measure`.
      log: whether the vertical axis is logarithmic.
    """
    found = {(run.setting, f'(seed {run.seed})'): report.curves(os.path.join(
        run.pipeline.outputs('train')['model_run'].uri, 'tensorboard')) for run in study.runs}
    shown = []
    for tag in of:
        series = {line: [(step, _value(value, exp, percent)) for step, value in curves[tag]]
                  for line, curves in found.items() if curves.get(tag)}
        if series:
            side, _, name = tag.rpartition('validation/')
            title = f'{"validation" if side or tag != name else "training"}: {name.replace("_", " ")}' + ', %' * percent
            png = os.path.join(study.out, f'{re.sub("[^a-z0-9]+", "_", tag.lower())}.png')
            shown.append(Figure(title, figures.lines(title, series, log=log, png=png)))
    return Exhibit({}, shown)


def _value(value: float, exp: bool, percent: bool) -> float:
    value = math.exp(min(value, 700.0)) if exp else value  # larger values overflow
    return 100 * value if percent else value
