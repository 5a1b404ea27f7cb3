"""People in garments, from the first pairs of an evaluation: one row per pair."""
import os
from collections.abc import Sequence

import tensorflow as tf

from pipelines import evaluate
from pipelines.reporting import contact_sheet
from pipelines.reproduction.experiments import Exhibit, Figure, Study


def draw(study: Study, given: Sequence[str] = ('person', 'garment'), made: Sequence[str] = ('reconstruction',),
         rows: int = 6) -> Exhibit:
    """Draw one image for each seed.

    Args:
      given: columns of the first setting, from `pipelines.reporting.strips.WHAT`.
      made: columns of every setting.
      rows: most pairs shown.
    """
    shown = []
    for seed in dict.fromkeys(run.seed for run in study.runs):
        runs = [run for run in study.runs if run.seed == seed]
        columns = [(runs[0], what, what) for what in given]
        columns += [(run, what, f'{run.setting}: {what}' if len(runs) > 1 else what) for run in runs for what in made]
        folders = {run.setting: os.path.join(run.pipeline.outputs('evaluate')['evaluation'].uri, evaluate.PICTURES)
                   for run in runs}
        paths = [[(os.path.join(folders[run.setting], f'{n}_{what}.png'), title) for run, what, title in columns]
                 for n in range(rows)]
        there = [row for row in paths if all(tf.io.gfile.exists(path) for path, _ in row)]
        name = f'tried_on_{seed}.png'
        contact_sheet.draw_rows(os.path.join(study.out, name), [
            [contact_sheet.Labelled(tf.io.read_file(path).numpy(), title) for path, title in row] for row in there])
        picture = f'<img src="{name}" alt="People in garments, one row per pair">'
        shown.append(Figure(f'seed {seed}', picture, shows_data=True))
    return Exhibit({}, shown)
