"""Beside a parser what one scores that learned nothing and lets every phrase end with the sentence."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.reproduction.experiments import Exhibit, Study

ROW = 'right branching'


def draw(study: 'Study') -> 'Exhibit':
    """A row for right branching, by the first setting's test sentences."""
    from pipelines.reproduction.experiments import Exhibit
    first = study.runs[0].setting
    return Exhibit({(ROW, run.seed): {'F1': found['right_branching_f1']} for run in study.runs if run.setting == first
                    for found in [run.pipeline.outputs('evaluate')['evaluation'].properties['metrics']['overall']]})
