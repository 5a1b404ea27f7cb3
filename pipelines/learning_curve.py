"""Measure what more data would bring: train on halves of it, and write the report again with the curve.

    python -m pipelines.learning_curve --config my.yaml
    python -m pipelines.learning_curve --config my.yaml --set learning_curve.halvings=3

Run it after `python -m pipelines.run`. The same model is trained with the same settings, for as many steps, on a half
of the training examples and on a quarter of them, and evaluated on the same split as the whole. Nothing is pushed.
Flags for a Beam runner are given to the preparation of the halves.
"""
import dataclasses
import json
import os
import sys
import typing

from data_prep import UserError
from pipelines.core import cli, stage
from pipelines.evaluate import PREDICTIONS

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.config import Config
    from pipelines.core.pipeline import Pipeline
    from pipelines.reporting.learning_curve import Curve

_NEEDS = ('prepare', 'train', 'export', 'evaluate')
FRACTIONS = 'fractions'  # folder in the pipeline root that holds a pipeline root for each fraction


def execute(context: stage.Context) -> None:
    from data_prep.core import records
    from pipelines.core.pipeline import fresh
    from pipelines.reporting import learning_curve, report
    minutes = context.inputs['model_run'].properties['seconds'] / 60
    print(f'learning_curve: training on all of the data took {minutes:.1f} minutes; each of '
          f'{context.config.learning_curve.halvings} more will take about as long.', flush=True)
    parts = []
    for number in range(1, context.config.learning_curve.halvings + 1):
        fraction, part = half(context, number)
        for name in _NEEDS:
            part.perform(name, f'{fraction:g} of the training data')
        parts.append(part)
    curve = measured(context, parts)
    context.properties.update(dataclasses.asdict(curve))
    records.write_atomically(os.path.join(context.outputs['learning_curve'], 'learning_curve.json'),
                             json.dumps(context.properties, indent=1).encode())
    evaluation = context.inputs['evaluation']
    evaluated = dataclasses.replace(context, outputs=context.outputs | {'evaluation': evaluation.uri},
                                    properties=evaluation.properties)
    report.write(fresh(context.outputs['report']), evaluated, curve)
    for sentence in learning_curve.sentences(curve):
        print(f'learning_curve: {sentence}', flush=True)


def half(context: stage.Context, number: int) -> tuple[float, 'Pipeline']:
    """Return the fraction of the training examples after `number` halvings, and the pipeline that trains on it.

    It takes the subwords of all the data, so that every model reads and writes the same tokens.
    """
    pipeline, data = context.pipeline, context.pipeline.config.data
    fraction = data.train_fraction / 2 ** number
    overrides = [f'data.train_fraction={fraction}']
    if getattr(data, 'subword_model', None) == '':
        subwords = os.path.join(context.inputs['examples'].uri, context.config.data_spec.subwords)
        overrides.append(f'data.subword_model={subwords}')
    return fraction, pipeline.variant(overrides, os.path.join(pipeline.root, FRACTIONS, f'{fraction:g}'))


def measured(context: stage.Context, parts: list['Pipeline']) -> 'Curve':
    """Return the curve of the metric that the gate bounds first, or else of the one shown by slice.

    Args:
      parts: pipelines that have trained on a half of the data, a quarter, and so on.
    """
    import tensorflow as tf

    from data_prep.core import records
    from pipelines.evaluation import chance, corpus, predictions, scorers
    from pipelines.reporting import report
    from pipelines.reporting.learning_curve import Curve, Point
    config, names = context.config, scorers.names(context.config)
    metric = next((name for name in names if name in config.evaluate.thresholds), names[-1])
    runs = [context.inputs, *({key: artifact for name in _NEEDS for key, artifact in part.outputs(name).items()}
                              for part in parts)]
    points = [Point(records.read_manifest(run['examples'].uri).records('train'),
                    run['evaluation'].properties['metrics']['overall'][metric],
                    run['model_run'].properties['seconds'], run['model_run'].digest) for run in reversed(runs)]
    change = None
    if metric not in getattr(scorers.scorer(config), 'CORPUS', ()):
        whole, halved = ([predictions.of_model(row, 'candidate') for row in predictions.read(
            os.path.join(run['evaluation'].uri, PREDICTIONS), tf.io.gfile.GFile)] for run in runs[:2])
        counted = corpus.metric(metric, names.index(metric), getattr(config.data, 'target', ''))
        change = chance.change(counted, whole, halved, 0.95, config.seed)
    return Curve(metric, report.better(metric) == 'lower', points, change, config.data_spec.unit,
                 context.inputs['evaluation'].properties['examples'])


def check(config: 'Config') -> None:
    """Refuse what cannot be trained on a part of its data, or not from here."""
    if stage.name_of('train', config) != 'train':
        raise UserError(f'{config.model_spec.name} does not learn from a data set, so halves of it cannot be compared.')
    if not hasattr(config.data, 'train_fraction'):
        raise UserError(f'data.module: {config.data_spec.name} has no key train_fraction, so it cannot prepare a half.')
    if config.train.strategy == 'multi_worker_mirrored':
        raise UserError('learning_curve trains on one machine. Set train.strategy to mirrored or one_device.')


STAGE = stage.Stage('learning_curve', execute, needs=_NEEDS,
                    outputs={'learning_curve': 'LearningCurve', 'report': 'Report'},
                    sections=('data', 'input', 'model', 'inference', 'train', 'export', 'evaluate', 'learning_curve'),
                    check=check)


def main(argv=None) -> None:
    if outputs := cli.main(STAGE, argv=argv):
        print(f'learning_curve: {os.path.join(outputs["report"].uri, "report.html")} has the curve.', flush=True)


if __name__ == '__main__':
    main(sys.argv[1:])
