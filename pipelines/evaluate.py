"""Evaluate the exported model with TFMA, against thresholds and against the newest blessed model.

    python -m pipelines.evaluate
    python -m pipelines.evaluate --set evaluate.thresholds.bleu.min=30
    python -m pipelines.evaluate --format tflite

Predictions of candidate and baseline are made once and written as two features. TFMA reads them through two SavedModels
that each return one feature, because its model-less mode cannot compare with a baseline. Without a threshold no model
is blessed.

If a model outputs images, its module has a `Scorer` that compares them, and TFMA aggregates the scorer's numbers.

With `--format` the same is done for what `export --to` wrote: candidate is that format, baseline the SavedModel, and
the bounds of a change are those of `evaluate.drift`.
"""
import collections
import json
import os
import sys
import typing
from collections.abc import Iterable, Iterator

from data_prep import UserError
from pipelines.core import cli, roles, stage
from pipelines.evaluation import scorers
from pipelines.formats.table import FORMATS
from pipelines.serving.layout import FORMAT

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.config import Config
    from pipelines.core.pipeline import Pipeline
    from pipelines.evaluation import chance

PREDICTIONS = 'predictions.tfrecord'
PICTURES = 'pictures'  # folder of <n>_<what>.png: images the scorer kept of the first examples
_BLOCK = 2048  # examples in memory at a time


def execute(context: stage.Context) -> None:
    baseline = newest_blessed(context.pipeline, context.inputs['model'].digest)
    models = {'candidate': context.inputs['model']} | ({'baseline': baseline} if baseline else {})
    judge(context, load(context.config, {name: os.path.join(model.uri, FORMAT) for name, model in models.items()}),
          baseline.digest if baseline else None)


def load(config: 'Config', saved_models: dict[str, str]) -> dict:
    """Load SavedModels by name, and refuse those that cannot be run on the data or scored."""
    from pipelines.core import compatibility
    from pipelines.serving import saved_model
    models = {name: saved_model.load(folder) for name, folder in saved_models.items()}
    for name, folder in saved_models.items():
        compatibility.check(os.path.dirname(folder), models[name].description, config.data,
                          'Export it again' if name == 'candidate' else 'Remove it to skip the comparison with it')
    for name, folder in saved_models.items():
        if roles.scorer(config.model_spec) and not hasattr(models[name], 'judged'):
            raise UserError(f'{os.path.dirname(folder)} was exported by an earlier version and cannot be scored. '
                            'Remove it to skip the comparison with it.')
    return models


def judge(context: stage.Context, models: dict, baseline: str | None, other: str = 'the blessed model') -> None:
    """Run models over the split, and write their evaluation, the candidate's blessing and its report.

    Args:
      models: by name, `candidate` and, unless there is none, `baseline`.
      baseline: digest of the latter.
      other: what the latter is, for reasons.
    """
    from data_prep.core import records
    from pipelines.core.pipeline import fresh
    from pipelines.evaluation import gate
    from pipelines.reporting import report
    config = context.config
    evaluation, blessing = fresh(context.outputs['evaluation']), fresh(context.outputs['blessing'])
    split = records.open_split(context.inputs['examples'].uri, config.evaluate.split)
    path = os.path.join(evaluation, PREDICTIONS)
    judges = write_predictions(config, split, models, path)
    metrics, validation = analyse(config, path, evaluation, list(models))
    context.properties.update(account(config, judges, evaluation))
    changes = compare(config, path) if baseline else None
    verdict = gate.decide(config.evaluate.thresholds, validation, changes, other)
    name = 'BLESSED' if verdict.blessed else 'NOT_BLESSED'
    records.write_atomically(os.path.join(blessing, name), '\n'.join(verdict.reasons).encode())
    context.properties.update(metrics=metrics, **verdict._asdict(), examples=len(split), baseline=baseline, other=other,
                              changes={name: vars(found) for name, found in (changes or {}).items()})
    records.write_atomically(os.path.join(evaluation, 'metrics.json'),
                             json.dumps(context.properties, indent=1).encode())
    overall = ', '.join(f'{name} {value:.4g}' for name, value in metrics['overall'].items())
    print(f'evaluate: {overall} on {len(split):,} {config.evaluate.split} examples; {name}: '
          f'{"; ".join(verdict.reasons)}.', flush=True)
    for sentence in context.properties['missing']:
        print(f'evaluate: {sentence}', flush=True)
    shown = scorers.names(config)[-1]
    if len(metrics) > 1:
        by_slice = sorted((values[shown], name) for name, values in metrics.items() if name != 'overall')
        print(f'evaluate: {shown} by {", ".join(config.evaluate.slices)}: '
              + ', '.join(f'{name} {value:.3g}' for value, name in by_slice), flush=True)
    report.write(fresh(context.outputs['report']), context)


def newest_blessed(pipeline: 'Pipeline', candidate: str):
    """Return the newest blessed Model other than the candidate, or None."""
    import tensorflow as tf
    models = {outputs['model'].id: outputs['model'] for _, _, outputs in pipeline.metadata.completed('export')}
    for execution, _, outputs in pipeline.metadata.completed('evaluate'):
        if outputs['blessing'].properties.get('blessed'):
            for model in (models[i] for i in pipeline.metadata.inputs_of(execution) if i in models):
                if model.digest != candidate and tf.io.gfile.exists(model.uri):
                    return model
    return None


def write_predictions(config: 'Config', split, models: dict, path: str) -> dict:
    """Run every model over a split, in order and in batches of fixed shape, and write the predictions TFMA reads.

    A row holds its example's text and, under each model's name, either that model's outputs, best first (with their
    probabilities if there are several, and whether the output was well formed if the model reports that), or the
    scorer's numbers in the order of its `names`.

    Returns:
      The scorer of each model, if its module has one.
    """
    import tensorflow as tf
    judges = {name: judge for name in models if (judge := scorers.scorer(config))}
    rows = _judged(config, split, models, judges) if judges else _weighted(config, _answered(config, split, models))
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            writer.write(_example(row))
    return judges


def _blocks(config: 'Config', split) -> Iterator[tuple[list, list[dict]]]:
    """Yield inputs and rows of text for one block of the split at a time."""
    for start in range(0, len(split), _BLOCK):
        inputs, columns = config.data_spec.examples(split.read(range(start, min(start + _BLOCK, len(split)))))
        yield inputs, [dict(zip(columns, row)) for row in zip(*columns.values())]


def _answered(config: 'Config', split, models: dict) -> Iterator[dict]:
    """Yield rows with the models' outputs."""
    from pipelines.evaluation import decoded
    from pipelines.serving import saved_model
    jit = decoded.is_compiled(config)
    for inputs, rows in _blocks(config, split):
        for name, model in models.items():
            for row, result in zip(rows, saved_model.run(model, inputs, config.evaluate.batch_size, jit)):
                _usable(row, result)
                row[name] = result['answers']
                if 'probabilities' in result:
                    row[f'{name}_probabilities'] = result['probabilities']
                if 'well_formed' in result:
                    row[f'{name}_well_formed'] = float(result['well_formed'])
        yield from rows


def _weighted(config: 'Config', rows: Iterable[dict]) -> Iterable[dict]:
    """Return rows with their weights, if a metric needs them; see `corpus.Row`."""
    from pipelines.evaluation import predictions, thresholds
    if not {*scorers.names(config)} & {*thresholds.OPTIONAL}:
        return rows
    rows = [*rows]
    counts = collections.Counter(row['target'] for row in rows)
    return [row | {predictions.WEIGHT: 1 / counts[row['target']]} for row in rows]


def _judged(config: 'Config', split, models: dict, judges: dict) -> list[dict]:
    """Return rows with the scorers' numbers; every row holds the whole split's, so that TFMA's mean keeps them."""
    judged = []
    for inputs, rows in _blocks(config, split):
        for name, model in models.items():
            for row, found in zip(rows, judges[name](model, inputs, rows)):
                _usable(row, found)
                row[name] = found
        judged += rows
    for name, judge in judges.items():
        together = judge.corpus()
        for row in judged:
            row[name] = [{**row[name], **together}[metric] for metric in judge.names]
    # Slices that depend on the candidate's outputs.
    for row, found in zip(judged, judges['candidate'].slices()):
        row.update(found)
    return judged


def _usable(row: dict, result: dict) -> None:
    if result.get('error'):
        raise UserError(f'{row.get("file") or row["person"]} cannot be decoded now ({result["error"]}). '
                        'Remove the data set and run `python -m pipelines.prepare` again.')


def account(config: 'Config', judges: dict, folder: str) -> dict:
    """Return how the candidate's metrics were computed, and what `pipelines.verify` needs to compute them again.

    Also write the images its scorer kept.

    Returns:
      `protocol` by metric, and why some are `missing`; `whole`, metrics over all examples at once; the target's
      language; slices, thresholds and seed; and the SHA-256 of the `files` written.
    """
    from data_prep.core import files
    from pipelines.evaluation import corpus
    judge = judges.get('candidate')
    written = [PREDICTIONS, *(keep_pictures(judge.pictures, folder) if judge else ())]
    return {'protocol': judge.protocol() if judge else {name: corpus.protocol(name, config.data)
                                                        for name in scorers.names(config)},
            'missing': list(judge.missing.values()) if judge else [], 'whole': list(judge.CORPUS) if judge else [],
            'target': _target(config), 'slices': config.evaluate.slices, 'thresholds': config.evaluate.thresholds,
            'seed': config.seed, 'files': {name: files.sha256(os.path.join(folder, name))[0] for name in written}}


def keep_pictures(pictures: list[dict[str, bytes]], folder: str) -> list[str]:
    """Write the images a scorer kept, and return their names below `folder`."""
    import tensorflow as tf

    from data_prep.core import records
    tf.io.gfile.makedirs(os.path.join(folder, PICTURES))
    named = {os.path.join(PICTURES, f'{n}_{what}.png'): picture
             for n, of_example in enumerate(pictures) for what, picture in of_example.items()}
    for name, picture in named.items():
        records.write_atomically(os.path.join(folder, name), picture)
    return [*named]


def _target(config: 'Config') -> str:
    """Return the target's language, which decides the tokens of `bleu_tokenised`; empty for other data."""
    return getattr(config.data, 'target', '')


def _example(row: dict) -> bytes:
    import tensorflow as tf
    feature = {}
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        if not values:  # such as the boxes of an image that has none
            continue
        feature[name] = (tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode() for text in values]))
                         if isinstance(values[0], str) else
                         tf.train.Feature(float_list=tf.train.FloatList(value=values)))
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)


def analyse(config: 'Config', predictions: str, folder: str, models: list[str]) -> tuple[dict, object]:
    """Run TFMA over a file of predictions.

    Returns:
      Metrics by slice (`overall`, or a slice's value), and TFMA's validation result if there are thresholds.
    """
    import tensorflow_model_analysis as tfma
    eval_config = tfma_config(config, models)
    judge = roles.scorer(config.model_spec)
    shared = [tfma.default_eval_shared_model(
        pick_column(name, os.path.join(folder, 'columns', name), numbers=judge is not None), tags=['serve'],
        eval_config=eval_config, model_name=name if len(models) > 1 else '') for name in models]
    tfma.run_model_analysis(eval_shared_model=shared if len(shared) > 1 else shared[0], eval_config=eval_config,
                            data_location=predictions, output_path=folder)
    found: dict[str, dict[str, float]] = {}
    result = tfma.load_eval_result(folder, model_name='candidate' if len(models) > 1 else None)
    for slice_key, values in result.slicing_metrics:
        name = ', '.join(str(value) for _, value in slice_key) if slice_key else 'overall'
        found[name] = {metric: _number(value) for metric, value in values[''][''].items()
                       if not metric.endswith('_diff') and not (slice_key and judge and metric in judge.CORPUS)}
    validation = tfma.load_validation_result(folder) if config.evaluate.thresholds else None
    return found, validation


def _number(value: dict) -> float:
    [number] = value.values()
    return float(number)


def pick_column(column: str, folder: str, numbers: bool = False) -> str:
    """Write a SavedModel that returns one feature of its example, a list of strings or numbers; return `folder`."""
    import tensorflow as tf
    feature = tf.io.RaggedFeature(tf.float32 if numbers else tf.string)

    class Column(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'examples')], autograph=False)
        def serve(self, examples):
            return tf.io.parse_example(examples, {column: feature})[column].to_tensor()
    module = Column()
    tf.saved_model.save(module, folder, signatures={'serving_default': module.serve})
    return folder


def tfma_config(config: 'Config', models: list[str]):
    """Return the configuration's metrics, slices and thresholds as TFMA's EvalConfig."""
    import tensorflow_model_analysis as tfma

    from pipelines.evaluation import metrics
    specs = [tfma.ModelSpec(name=name if len(models) > 1 else '', signature_name='serving_default',
                            label_key='target', is_baseline=name == 'baseline') for name in models]
    metric_configs = []
    for place, name in enumerate(scorers.names(config)):
        bounds = config.evaluate.thresholds.get(name)
        # Thresholds apply to the whole split, not to each slice, which may be too small for BLEU to count a 4-gram.
        thresholds = [tfma.PerSliceMetricThreshold(
            slicing_specs=[tfma.SlicingSpec()],
            threshold=_threshold(tfma, bounds, 'baseline' in models))] if bounds else []
        arguments = {'name': name, 'place': place, 'target': _target(config)}
        metric_configs.append(tfma.MetricConfig(class_name=metrics.CorpusMetric.__name__, module=metrics.__name__,
                                                config=json.dumps(arguments), per_slice_thresholds=thresholds))
    return tfma.EvalConfig(
        model_specs=specs, metrics_specs=[tfma.MetricsSpec(metrics=metric_configs)],
        slicing_specs=[tfma.SlicingSpec(), *(tfma.SlicingSpec(feature_keys=[key]) for key in config.evaluate.slices)])


def _threshold(tfma, bounds: dict, with_baseline: bool):
    result = tfma.MetricThreshold()
    if 'min' in bounds:
        result.value_threshold.lower_bound.value = bounds['min']
    if 'max' in bounds:
        result.value_threshold.upper_bound.value = bounds['max']
    if not with_baseline or 'confidence' in bounds:  # then `chance` decides
        return result
    if 'max_drop' in bounds:
        result.change_threshold.direction = tfma.MetricDirection.HIGHER_IS_BETTER
        result.change_threshold.absolute.value = -bounds['max_drop']
    if 'max_rise' in bounds:
        result.change_threshold.direction = tfma.MetricDirection.LOWER_IS_BETTER
        result.change_threshold.absolute.value = bounds['max_rise']
    return result


def compare(config: 'Config', predictions: str) -> dict[str, 'chance.Change']:
    """Return each metric's change from the blessed model, with its interval; not of metrics over all examples at once.

    Without a `confidence` in its thresholds, the interval is one of 95% at each end.
    """
    import tensorflow as tf

    from pipelines.evaluation import chance, corpus
    from pipelines.evaluation import predictions as stored
    rows = list(stored.read(predictions, tf.io.gfile.GFile))
    candidate, baseline = ([stored.of_model(row, model) for row in rows] for model in ('candidate', 'baseline'))
    whole = getattr(scorers.scorer(config), 'CORPUS', ())
    changes = {}
    for place, name in enumerate(scorers.names(config)):
        if name not in whole:
            bounds: dict[str, typing.Any] = config.evaluate.thresholds.get(name, {})
            changes[name] = chance.change(corpus.metric(name, place, _target(config)), candidate, baseline,
                                          bounds.get('confidence', 0.95), config.seed)
    return changes


def check(config: 'Config') -> None:
    """Refuse a threshold that bounds nothing, and a split or network that does not exist."""
    from data_prep.core import files
    from pipelines.evaluation import thresholds
    judge = scorers.scorer(config)
    known = scorers.known(config)
    for name, path in config.evaluate.networks.items():
        if not judge:
            raise UserError(f'evaluate.networks.{name}: no metric of {config.model_spec.name} uses networks. '
                            'Leave it out.')
        if not files.exists(path):
            raise UserError(f'evaluate.networks.{name}: there is no file {path}. Give a file of published weights, or '
                            'leave it out.')
    for key in ('thresholds', 'drift'):
        for name, bounds in getattr(config.evaluate, key).items():
            if judge and name in judge.missing:
                raise UserError(f'evaluate.{key}.{name}: {judge.missing[name]}')
            if name not in known:
                raise UserError(f'evaluate.{key}: there is no metric {name!r}. Known metrics: {", ".join(known)}.')
            thresholds.check(f'evaluate.{key}.{name}', bounds, name not in getattr(judge, 'CORPUS', ()), key == 'drift')
    if config.evaluate.split not in config.data_spec.splits:
        raise UserError(f'evaluate.split must be one of {", ".join(config.data_spec.splits)}; '
                        f'it is {config.evaluate.split!r}.')


def compared_with(pipeline: 'Pipeline') -> dict:
    """Return what else evaluation depends on: the baseline, and the sizes and times of the metrics' networks."""
    import tensorflow as tf
    found = newest_blessed(pipeline, pipeline.outputs('export')['model'].digest)
    stats = {path: tf.io.gfile.stat(path) for path in pipeline.config.evaluate.networks.values()}
    return {'baseline': found.digest if found else None,
            'networks': {path: [stat.length, stat.mtime_nsec] for path, stat in stats.items()}}


STAGE = stage.Stage('evaluate', execute, needs=('prepare', 'train', 'export'),
                    outputs={'evaluation': 'ModelEvaluation', 'blessing': 'ModelBlessing', 'report': 'Report'},
                    sections=('model', 'evaluate'),
                    roles=('data', 'model', 'serving', 'scorer'), extra_inputs=compared_with,
                    watched=lambda config: config.evaluate.networks.values(), check=check)


def main(argv=None) -> None:
    flags = cli.parser('evaluate', __doc__)
    flags.add_argument('--format', choices=[*FORMATS], help='evaluate this format instead, see `export --to`')
    args, _ = flags.parse_known_args(argv)
    cli.main(stage.get(f'evaluate-{args.format}') if args.format else STAGE, flags, argv)


if __name__ == '__main__':
    main(sys.argv[1:])
