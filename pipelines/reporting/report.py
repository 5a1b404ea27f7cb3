"""Write an evaluation's `report.html`, one self-contained page, and `model_card.md`.

A section appears when its data exists, so the same page serves models of text and of images. Numbers are those the
stages recorded; the page adds only counts and quantiles.
"""
import collections
import datetime
import importlib.metadata
import math
import os
import platform
import re
import shlex
from typing import Any

import tensorflow as tf
import yaml
from babel import Locale, UnknownLocaleError
from markupsafe import Markup

from data_prep import UserError
from data_prep.core import records
from pipelines.core import artifacts
from pipelines.core import config as configs
from pipelines.core.config import Config
from pipelines.core.flow import flow
from pipelines.core.stage import Context
from pipelines.evaluation import chance, corpus, scorers
from pipelines.reporting import answers, data_section, figures, learning_curve, pages, reading, strips

LICENCES = {'cldr': 'made from Unicode CLDR data, under the Unicode licence (unicode.org/license.txt)',
            'digits': 'Optical Recognition of Handwritten Digits (Alpaydin, Kaynak 1998) by scikit-learn, CC BY 4.0'}
# Placeholders of a run that recorded nothing.
_NOTHING: dict = {'parameters': {}, 'resumed_at': 0, 'last': {}, 'averaged': {}, 'jit': False, 'foreign': {},
                  'notes': []}
_ERRORS = re.compile('error(_constant)?$|l1|_lab$|^misaligned$|lpips|fid')  # metrics where lower is better


def write(folder: str, context: Context, curve: learning_curve.Curve | None = None) -> str:
    """Write report and model card of an evaluation.

    Args:
      folder: output folder.
      context: the evaluate stage's, with its `properties` filled in and its predictions written.
      curve: the metric after training on halves of the data, if that was asked for.

    Returns:
      The path of `report.html`.
    """
    templates, facts = pages.environment(), gather(context, curve)
    for name in ('model_card.md', 'report.html'):
        text = templates.get_template(f'{name}.j2').render(facts)
        records.write_atomically(os.path.join(folder, name), text.encode())
    return os.path.join(folder, 'report.html')


def gather(context: Context, curve: learning_curve.Curve | None = None) -> dict[str, Any]:
    """Return everything the templates show, by the names they use; see `write`."""
    config, found, run = context.config, context.properties, context.inputs['model_run']
    manifest = records.read_manifest(context.inputs['examples'].uri)
    predictions = os.path.join(context.outputs['evaluation'], 'predictions.tfrecord')
    rows, tensorboard = answers.read(predictions), os.path.join(run.uri, 'tensorboard')
    found_curves = curves(tensorboard)
    measured, common_protocol = _metrics(config, found)
    facts = {'model': manifest.model, 'vocabulary': manifest.vocabulary, 'sha256': manifest.sha256,
             **manifest.properties}
    return {
        'config': config, 'model': vars(config.model), 'found': found, 'manifest': manifest,
        'run': {**_NOTHING, **run.properties},
        'date': datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%d %H:%M UTC'),
        'paper': config.model_spec.title,
        'verdict': 'BLESSED' if found['blessed'] else 'NOT_BLESSED',
        'reasons': list(dict.fromkeys(found['reasons'])),
        'metrics': measured, 'common_protocol': common_protocol, 'slices': _slices(config, found['metrics'], rows),
        'changes': _changes(config, found), 'draws': chance.DRAWS,
        'answers': answers.choose(rows, config.evaluate.slices, config.seed),
        'figures': _figures(found_curves, run.properties.get('resumed_at', 0)),
        'reading': reading.read(found_curves, rows, reading.certainties(predictions), config.data_spec.task,
                                keeps_best=bool(run.properties.get('best'))),
        'curve': curve and learning_curve.read(curve),
        'more': '' if learning_curve.refusal(config) else context.pipeline.command('learning_curve'),
        'training': _training(config, run.properties),
        'strips': strips.strips(tensorboard),
        'sheet': strips.sheet(os.path.join(context.outputs['evaluation'], 'pictures')),
        'asked': config.inference.describe(), 'worst': scorers.names(config)[-1],
        **data_section.gather(context, manifest),
        'data': {key: _plain(value) for key, value in sorted(facts.items()) if value},
        'languages': [_language(code) for code in manifest.properties.get('languages', [])],
        'licence': LICENCES.get(getattr(config.data, 'samples', ''), ''),
        'lineage': {key: (artifact, os.path.relpath(artifact.uri, context.pipeline.root))
                    for key, artifact in context.inputs.items()},
        'versions': _versions(), 'command': command(context), 'tensorboard': shlex.quote(tensorboard),
        'yaml': yaml.safe_dump(config.values, sort_keys=False, allow_unicode=True),
    }


def curves(tensorboard_dir: str) -> dict[str, list[tuple[int, float]]]:
    """Read the scalars of a TensorBoard directory.

    Args:
      tensorboard_dir: the event files' folder; a missing or empty one gives no curves.

    Returns:
      Tag -> (step, value), sorted by step. For a step repeated by a resumed run, the last value counts.
    """
    found: dict[str, dict[int, float]] = {}
    for tag, plugin, step, tensor in strips.events(tensorboard_dir):
        if plugin == 'scalars':
            found.setdefault(tag, {})[step] = float(tf.make_ndarray(tensor))
    return {tag: sorted(values.items()) for tag, values in found.items()}


def _figures(found: dict[str, list[tuple[int, float]]], resumed_at: int) -> list[Markup]:
    """Draw a figure for every quantity, with training and validation; each net's loss is a quantity of its own."""
    groups: dict[str, dict[tuple[str, str], list]] = {}
    for tag, points in found.items():
        base = tag.removeprefix('validation/')
        title, _, part = base.partition('/')
        if title == 'loss' and part:
            title, part = f'loss of {part}', ''
        side = 'validation' if tag != base else 'training' if f'validation/{tag}' in found else ''
        groups.setdefault(title, {})[part, side] = points
    groups.pop('steps_per_second', None)  # the rate of tokens or images is more useful
    marks = [resumed_at] if resumed_at else []
    return [Markup(figures.lines(_words(title), series, marks))  # noqa: S704 (figures escape)
            for title, series in groups.items()]


def _words(name: str) -> str:
    """Write `learning_rate` as learning rate; the paper's symbols, such as L_CE, stay."""
    return re.sub('(?<=[a-z])_', ' ', name)


def _metrics(config: Config, found: dict) -> tuple[list[dict], str]:
    """Return what the page says of each metric, those with thresholds first, and the protocol they have in common."""
    by_slice, rows = found['metrics'], []
    for name, value in by_slice['overall'].items():
        bounds = config.evaluate.thresholds.get(name, {})
        checked = bounds.keys() & ({'min', 'max'} if not found.get('baseline') else bounds.keys())
        passed = name not in found['failed'] if checked and 'failed' in found else None
        rows.append({'name': name, 'value': value, 'thresholds': _plain(bounds), 'passed': passed,
                     'better': better(name),
                     'protocol': found.get('protocol', {}).get(name) or corpus.protocol(name, config.data),
                     'is_fraction': all(0 <= values.get(name, 0) <= 1 for values in by_slice.values())})
    parts = [(row['protocol'] or '').split('; ') for row in rows]
    common = [part for part in parts[0] if len(rows) > 1 and all(part in other for other in parts[1:])]
    for row, own in zip(rows, parts):
        row['protocol'] = '; '.join(part for part in own if part not in common)
    return sorted(rows, key=lambda row: not row['thresholds']), '; '.join(common)


def _changes(config: Config, found: dict) -> list[dict]:
    """Return each metric's change from the blessed model, and where its interval is drawn, from -100 to 100."""
    rows = []
    for name, change in found.get('changes', {}).items():
        bounds: dict[str, Any] = config.evaluate.thresholds.get(name, {})
        bound = -bounds['max_drop'] if 'max_drop' in bounds else bounds.get('max_rise')
        drawn = {part: change[part] for part in ('low', 'value', 'high')} | {'bound': bound}
        largest = max(abs(x) for x in drawn.values() if x is not None) or 1
        rows.append({'name': name, **change, 'better': better(name),
                     'percent': f'{100 * (1 - change["confidence"]):g}',
                     'drawn': {part: x if x is None else round(95 * x / largest, 1) for part, x in drawn.items()}})
    return rows


def better(name: str) -> str:
    """Return which way a metric is better, higher or lower."""
    return 'lower' if _ERRORS.search(name) else 'higher'


def _slices(config: Config, by_slice: dict[str, dict[str, float]], rows: list[dict]) -> list[dict]:
    """Return metrics by slice, sorted by the last metric, worst first; slices without it come last.

    A BLEU of 0 is left out, as a footnote explains.
    """
    counts = collections.Counter(row[key] for row in rows for key in config.evaluate.slices if key in row)
    result = [{'name': name, 'count': counts[name],
               'values': {metric: value for metric, value in values.items() if value or not metric.startswith('bleu')}}
              for name, values in by_slice.items() if name != 'overall']
    last = scorers.names(config)[-1]
    sign = -1 if _ERRORS.search(last) else 1

    def worst(row: dict):
        value = sign * row['values'].get(last, 0)
        return math.isnan(value), value, row['name']
    return sorted(result, key=worst)


def _training(config: Config, run: dict) -> dict[str, str]:
    """Describe the training run, from recorded facts only."""
    facts = {}
    if 'parameters' in run:
        facts['parameters'] = ', '.join(f'{name} {count:,}' for name, count in run['parameters'].items())
    if 'steps' in run:
        facts['steps'] = f'{run["steps"]:,}'
    if 'seconds' in run:
        facts['time'] = _duration(run['seconds'])
    if 'hardware' in run:
        facts['hardware'] = run['hardware']
    if run.get('resumed_at'):
        facts['steps'] += f', resumed at {run["resumed_at"]:,}'
        facts['time'] += ' since the last resume'
    facts['strategy'] = config.train.strategy
    if 'replicas' in run:
        facts['strategy'] += f', {run["replicas"]} replica' + 's' * (run['replicas'] > 1)
    if 'jit' in run:
        facts['compiled by XLA'] = 'yes' if run['jit'] else 'no'
    if run.get('averaged_checkpoints'):
        names = run['averaged_checkpoints']
        facts['weights'] = names[0] if len(names) == 1 else (
            f'mean of {len(names)} checkpoints, {names[0]} to {names[-1]}')
    if best := run.get('best'):
        facts['weights'] += f', the best {best["metric"]} in validation: {best["value"]:.4g}'
    if config.train.ema:
        facts['weights'] = f'moving average, momentum {config.train.ema:g}, of {facts["weights"]}'
    return facts | {'seed': str(config.seed)}


def _versions() -> dict[str, str]:
    found = {}
    for name, package in {'Landmark': 'landmark', 'TensorFlow': 'tensorflow', 'Keras': 'keras'}.items():
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[name] = 'from source'
    source = artifacts.commit()
    return found | {'Python': platform.python_version()} | ({'commit': source} if source else {})


def command(context: Context) -> str:
    """Return the command that repeats this run: its configuration file, and every value that differs from the file."""
    values = flat(context.config.values)
    try:
        base = flat(configs.load(context.config.source).values)
    except UserError:  # the file has been moved
        base = values
    changed = [f'--set {shlex.quote(f"{key}={flow(value)}")}' for key, value in values.items()
               if key not in base or base[key] != value]
    return ' '.join([context.pipeline.command('run'), *changed])


def flat(values: dict) -> dict:
    """Flatten nested sections to `section.key`."""
    return {f'{section}.{key}' if key else section: item for section, value in values.items()
            for key, item in (value if isinstance(value, dict) else {'': value}).items()}


def _language(code: str) -> str:
    """Name a language, such as `German (de)`; what is no code stays as it is."""
    try:
        name = Locale.parse(code, sep='-' if '-' in code else '_').get_display_name('en')
    except (UnknownLocaleError, ValueError):
        return code
    return f'{name} ({code})'


def _plain(value) -> str:
    """Format a value as text, such as `min 90, max_drop 1`; hashes are shortened."""
    if isinstance(value, dict):
        return ', '.join(f'{key} {_plain(item)}' for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ', '.join(map(_plain, value))
    return value[:12] if isinstance(value, str) and re.fullmatch('[0-9a-f]{64}', value) else str(value)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours} h {minutes} min' if hours else f'{minutes} min {rest} s' if minutes else f'{rest} s'
