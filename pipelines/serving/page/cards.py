"""Describe a model on its card: paper, verdict and metrics, as recorded by the pipeline that pushed it."""
import asyncio
import collections
import json
import os
from typing import Any

import tensorflow as tf

from pipelines.core import metadata
from pipelines.reporting import answers
from pipelines.serving import published, saved_model
from pipelines.serving.models import Model, Models, Version

_SHOWN = 6  # metrics shown on a card
_TITLES = {'text': 'Text to text', 'tree': 'Sentence to tree', 'image': 'Image to class', 'try_on': 'Virtual try-on',
           'play': 'A machine that learned a game', 'other': 'Model'}


class Cards:
    """Cards by version, each built once."""

    def __init__(self, models: Models):
        self._models = models
        self._known: dict[tuple[str, int], dict[str, Any]] = {}

    async def of(self, model: Model, version: Version) -> dict[str, Any]:
        key = model.name, version.number
        if key not in self._known:
            if len(self._known) > 100:
                self._known.clear()
            self._known[key] = await asyncio.get_running_loop().run_in_executor(None, _card, model, version)
        return self._known[key]

    async def report(self, model: Model, version: Version) -> bytes | None:
        card = await self.of(model, version)
        return await asyncio.get_running_loop().run_in_executor(None, _read, card['report_file'])

    async def confusions(self, model: Model, version: Version) -> dict[str, dict[str, int]]:
        """Return, for every class of the test set, the classes predicted for its images, with counts."""
        card = await self.of(model, version)
        if 'confusions' not in card:
            card['confusions'] = await asyncio.get_running_loop().run_in_executor(
                None, _confusions, card['predictions_file'])
        return card['confusions']


def kind(version: Version) -> str:
    """Return how a version can be tried: the task of its paper, or `other` if this project did not export it."""
    if not version.description:
        return 'other'
    inputs = version.signatures.get('serving_default')
    tasks = saved_model.spec_of(version.description).tasks
    if 'text' in tasks:
        return 'tree' if version.description['data_module'].endswith('treebank') else 'text'
    return tasks[0] if tasks and inputs else 'other'


def _card(model: Model, version: Version) -> dict[str, Any]:
    record = published.Version(version.path).record
    spec = saved_model.spec_of(version.description) if version.description else None
    prefix = f'{version.loaded.format}_' if version.loaded.format else ''
    folder = _evaluation(model.destination, record, f'{prefix}blessing')

    def path(output: str, file: str) -> str:
        return os.path.join(folder, f'{prefix}{output}', file) if folder else ''
    found = json.loads(_read(path('evaluation', 'metrics.json')) or '{}')
    metrics = found.get('metrics', {}).get('overall', {})
    which = kind(version)
    report = path('report', 'report.html')
    return {
        'name': model.name, 'version': version.number, 'format': version.loaded.format,
        'kind': which, 'title': _TITLES[which],
        'paper': spec.title if spec else '', 'pushed': record.get('pushed', ''),
        'rolled_back': 'rolled_back_to' in record,
        'verdict': 'blessed' if folder and tf.io.gfile.exists(path('blessing', 'BLESSED')) else '',
        'metrics': [(name.replace('_', ' '), f'{value:.4g}', found.get('protocol', {}).get(name, ''))
                    for name, value in list(metrics.items())[:_SHOWN]],
        'signatures': {name: signature for name, signature in version.signatures.items()},
        'languages': _languages(version.description), 'game': _game(version.description),
        'report_file': report, 'has_report': bool(report) and tf.io.gfile.exists(report),
        'predictions_file': path('evaluation', 'predictions.tfrecord')}


def _evaluation(destination: str, record: dict, name: str) -> str:
    """Return the folder of the evaluation that a version's blessing is from, or '' if it is not on this machine."""
    blessing = record.get('lineage', {}).get('artifacts', {}).get(name, {})
    root = metadata.root_of(os.path.join(destination, '.'))
    if not root or not blessing:
        return ''
    try:
        uris = {number: uri for number, uri, _ in metadata.opened(root).digests('ModelBlessing')}
    except Exception:  # show a card without metrics, whatever is wrong with the store
        return ''
    uri = uris.get(blessing.get('id'), '')
    place = os.path.join(root, *uri.rstrip('/').split('/')[-3:-1]) if uri else ''  # evaluate/<execution>
    return place if place and tf.io.gfile.isdir(place) else ''


def _read(path: str) -> bytes | None:
    if not path or not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, 'rb') as file:
        return file.read()


def _confusions(path: str) -> dict[str, dict[str, int]]:
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for row in answers.read(path) if path else []:
        if {'target', 'candidate'} <= row.keys():
            counts[row['target']][row['candidate']] += 1
    return {target: dict(found.most_common(6)) for target, found in counts.items()}


def _languages(description: dict) -> list[str]:
    data = description.get('config', {}).get('data', {})
    return [data[key] for key in ('source', 'target') if isinstance(data.get(key), str)]


def _game(description: dict) -> str:
    config = description.get('config', {})
    return config.get('model', {}).get('game') or config.get('data', {}).get('game') or ''
