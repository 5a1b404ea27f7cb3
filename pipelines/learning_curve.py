"""Measure what more data would bring: train on halves of it, and write a copy of the report with the curve.

    python -m pipelines.learning_curve --config my.yaml
    python -m pipelines.learning_curve --config my.yaml --set learning_curve.halvings=3

Run it after `python -m pipelines.run`. The same model is trained with the same settings, for as many steps, on a half
of the training examples and on a quarter of them, and evaluated on the same split as the whole. Nothing is pushed.
Flags for a Beam runner are passed on to the preparation of the halves.
"""
import dataclasses
import itertools
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
    halvings = context.config.learning_curve.halvings
    if (minutes := _minutes(context.inputs['model_run'])) is not None:
        print(f'learning_curve: the training so far took {minutes:.1f} minutes; each of {halvings} more will take '
              'about as long.', flush=True)
    parts = [half(context, number) for number in range(1, halvings + 1)]
    perform(parts, ['prepare'])  # what cannot be prepared is refused before anything is trained
    check_halves([_trained_on(context.inputs), *(_trained_on(part.outputs('prepare')) for part in parts)])
    perform(parts, _NEEDS)
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


def half(context: stage.Context, number: int) -> 'Pipeline':
    """Return the pipeline that trains on the examples left by `number` halvings.

    It takes the subwords of all of them, so that every model reads and writes the same tokens. Unreadable examples do
    not stop it: their number was accepted for all, and their share of a half may be above the limit by chance.
    """
    from pipelines.core.flow import flow
    pipeline, data = context.pipeline, context.pipeline.config.data
    fraction = data.train_fraction / 2 ** number
    overrides = {'data.train_fraction': fraction, 'data.max_dead_letters': 1.0}
    if getattr(data, 'subword_model', None) == '':
        name = context.config.data_spec.subwords
        overrides['data.subword_model'] = os.path.join(context.inputs['examples'].uri, name)
    return pipeline.variant([f'{key}={flow(value)}' for key, value in overrides.items()],
                            os.path.join(pipeline.root, FRACTIONS, f'{fraction:g}'))


def perform(parts: list['Pipeline'], stages: typing.Iterable[str]) -> None:
    for part in parts:
        for name in stages:
            part.perform(name, f'train_fraction {part.config.data.train_fraction:g}')


def check_halves(counts: list[int]) -> None:
    """Refuse parts that are not fewer and fewer examples.

    Args:
      counts: training examples of the whole, of its half, and so on.
    """
    if any(fewer >= more for more, fewer in itertools.pairwise(counts)):
        raise UserError(f'learning_curve.halvings: of {counts[0]:,} training examples, the halves have '
                        f'{", ".join(map(str, counts[1:]))}. Set it to less, or give more examples.')


def measured(context: stage.Context, parts: list['Pipeline']) -> 'Curve':
    """Return the curve of one metric.

    Args:
      parts: pipelines that have trained on a half of the data, a quarter, and so on.
    """
    import tensorflow as tf

    from pipelines.core.flow import flow
    from pipelines.evaluation import chance, corpus, predictions, scorers
    from pipelines.reporting import report
    from pipelines.reporting.learning_curve import Curve, Point
    config, names = context.config, scorers.names(context.config)
    metric = choose(names, config.evaluate.thresholds)
    runs = [context.inputs, *({key: artifact for name in _NEEDS for key, artifact in part.outputs(name).items()}
                              for part in parts)]
    points = [Point(_trained_on(run), run['evaluation'].properties['metrics']['overall'][metric],
                    _minutes(run['model_run']), run['model_run'].digest) for run in reversed(runs)]
    change = None
    if metric not in getattr(scorers.scorer(config), 'CORPUS', ()):
        whole, halved = ([predictions.of_model(row, 'candidate') for row in predictions.read(
            os.path.join(run['evaluation'].uri, PREDICTIONS), tf.io.gfile.GFile)] for run in runs[:2])
        counted = corpus.metric(metric, names.index(metric), getattr(config.data, 'target', ''))
        change = chance.change(counted, whole, halved, 0.95, config.seed)
    return Curve(metric, report.better(metric) == 'lower', points, change, config.data_spec.unit,
                 context.inputs['evaluation'].properties['examples'],
                 flow(config.train.init_from) if config.train.init_from else '')


def choose(names: typing.Sequence[str], thresholds: typing.Collection[str]) -> str:
    """Return the metric to draw: an optional one that the gate bounds, else the last that it bounds, or the last."""
    from pipelines.evaluation.thresholds import OPTIONAL
    bounded = [name for name in names if name in thresholds]
    return next((name for name in bounded if name in OPTIONAL), (bounded or names)[-1])


def _trained_on(outputs: typing.Mapping[str, typing.Any]) -> int:
    """Return the number of training examples, without those that were made from others."""
    from data_prep.core import records
    manifest = records.read_manifest(outputs['examples'].uri)
    return manifest.records('train') - manifest.counts['train'].get('made', 0)


def _minutes(run: typing.Any) -> float | None:
    return None if run.properties.get('resumed_at') else run.properties['seconds'] / 60


def check(config: 'Config') -> None:
    """Refuse what cannot be trained on a part of its data, or not from here."""
    from pipelines.reporting import learning_curve
    if reason := learning_curve.refusal(config):
        raise UserError(reason)


STAGE = stage.Stage('learning_curve', execute, needs=_NEEDS,
                    outputs={'learning_curve': 'LearningCurve', 'report': 'Report'},
                    sections=('data', 'input', 'model', 'inference', 'train', 'export', 'evaluate', 'learning_curve'),
                    check=check, takes_beam_flags=True)


def main(argv=None) -> None:
    if outputs := cli.main(STAGE, argv=argv):
        print(f'learning_curve: {os.path.join(outputs["report"].uri, "report.html")} has the curve.', flush=True)


if __name__ == '__main__':
    main(sys.argv[1:])
