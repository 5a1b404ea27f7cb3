"""Add the right-branching baseline, a parser that learned nothing, beside the trained parsers."""
from pipelines.reproduction.experiments import Exhibit, Study

ROW = 'right branching'


def draw(study: 'Study') -> 'Exhibit':
    """Return a row for the right-branching baseline, on the first setting's test sentences."""
    first = study.runs[0].setting
    return Exhibit({(ROW, run.seed): {'F1': found['right_branching_f1']} for run in study.runs if run.setting == first
                    for found in [run.pipeline.outputs('evaluate')['evaluation'].properties['metrics']['overall']]})
