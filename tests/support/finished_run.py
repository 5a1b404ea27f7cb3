"""A small finished run for the report: real events, a data set, predictions, and hostile text."""
import hashlib
import os
import pathlib
import random

import tensorflow as tf

from data_prep import wmt
from data_prep.core import records, statistics
from data_prep.text import subwords
from pipelines.core import config as configs
from pipelines.core import pipeline
from pipelines.core.artifacts import Artifact
from pipelines.core.stage import Context

HOSTILE = '<script src="http://evil.example/x.js">alert("1")</script>'
HOSTILE_KIND = '<b onclick=\'x()\'>|a*'
METRICS = {'overall': {'bleu': 87.654321, 'exact_match': 0.73333333},
           'date': {'bleu': 91.25, 'exact_match': 0.625},
           'number': {'bleu': 0.0, 'exact_match': 0.875}, HOSTILE_KIND: {'bleu': 55.5, 'exact_match': 1.0}}
FOUND = {'metrics': METRICS, 'blessed': False, 'reasons': ['bleu is 87.65, outside {\'min\': 90}'] * 2,
         'failed': ['bleu'], 'examples': 60, 'baseline': 'b' * 64}
RUN = {'steps': 8, 'resumed_at': 3, 'seconds': 4000.2, 'jit': False, 'replicas': 2, 'traces': 3,
       'hardware': 'a processor, 2 cores',
       'parameters': {'transformer': 1234567}, 'last': {'validation/loss': 2.125},
       'averaged': {'validation/loss': 1.875}, 'averaged_checkpoints': ['ckpt-4', 'ckpt-8']}
SETTINGS = ['inference.max_input_length=64', 'evaluate.slices=[kind]', 'evaluate.split=test',
            'evaluate.thresholds={bleu: {min: 90}, exact_match: {max_drop: 0.02}}']


def write_events(folder):
    """A run killed after step 6 and resumed at 3: steps 4 to 6 are there twice. An image is no curve."""
    for first, last, offset in ((1, 6, 100.0), (4, 8, 0.0)):
        with tf.summary.create_file_writer(folder).as_default():
            for step in range(first, last + 1):
                tf.summary.scalar('loss', offset + step, step)
                tf.summary.scalar('tokens_per_second', 12000.0, step)
            tf.summary.scalar('validation/loss', offset + 0.5, last)
            tf.summary.image('picture', tf.zeros([1, 2, 2, 3]), step=1)


def write_examples(folder):
    """Fifty training and sixty test pairs; the test split is of other words, longer, and of a kind that means harm."""
    draw = random.Random(0)

    def row(letters, shortest, kind):
        text = ' '.join(draw.choices(letters, k=draw.randint(shortest, shortest + 4)))
        return text, f'{text} {draw.choice(letters)}'.upper(), kind
    lines = {'train': [row('abcd', 2, 'date') for _ in range(50)], 'test': [row('cxyz', 6, HOSTILE_KIND)
                                                                           for _ in range(60)]}
    vocabulary = subwords.learn([text for rows in lines.values() for row in rows for text in row[:2]],
                                subwords.Config(vocab_size=26))
    (pathlib.Path(folder) / wmt.SUBWORDS).write_bytes(vocabulary)
    encode, shards = subwords.encoder(vocabulary), []
    for split, rows in lines.items():
        writer = records.ShardWriter(os.path.join(folder, f'Split-{split}', 'part-00000.tfrecord'), wmt.LENGTHS)
        for row in rows:
            ids = dict(zip(wmt.LENGTHS, encode(list(row[:2]))))
            features = {name: bytes_feature(text) for name, text in zip(('source', 'target', 'kind'), row)}
            features |= {name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids[name])) for name in ids}
            writer.write(serialize(features), **{name: len(ids[name]) for name in ids})
        shards.append(writer.close())
    counts = {'train': {'read': 54, 'written': 50, 'dead_letters': 1, 'filtered_long': 3, 'in_test': 2},
              'test': {'read': 60, 'written': 60, 'dead_letters': 0, 'filtered_long': 0}}
    records.write_manifest(folder, shards, wmt.LENGTHS, counts, {
        'languages': ['en', 'de'], 'vocabulary': {'size': 26, 'sha256': hashlib.sha256(vocabulary).hexdigest()}})


def predictions():
    """Sixty rows; of every three the first is wrong, and of every five the baseline has the first wrong."""
    rows = [{'source': f'source {i} {HOSTILE if i % 3 == 0 else ""}', 'target': f'Ziel {i} & "mehr"',
             'kind': [HOSTILE_KIND, 'date', 'number'][i % 3]} for i in range(60)]
    return [{**row, 'candidate': row['target'] + (f' {HOSTILE}' if i % 3 == 0 else ''),
             'baseline': 'x' if i % 5 == 0 else row['target']} for i, row in enumerate(rows)]


def bytes_feature(text):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))


def serialize(features):
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write_predictions(path, rows):
    def feature(value):
        if isinstance(value, str):
            return bytes_feature(value)
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            writer.write(serialize({key: feature(value) for key, value in row.items()}))


def make_context(root, rows, overrides=(), events=True):
    """An evaluate stage's context at its end, with real artifacts."""
    config = configs.load('demo_translation', [*SETTINGS, *overrides])
    types = {'examples': 'Examples', 'model_run': 'ModelRun', 'model': 'Model', 'statistics': 'ExampleStatistics',
             'schema': 'Schema', 'anomalies': 'ExampleAnomalies'}
    folders = {name: os.path.join(root, name) for name in (*types, 'evaluation', 'report')}
    for folder in folders.values():
        os.makedirs(folder)
    write_examples(folders['examples'])
    statistics.describe(*(folders[name] for name in ('examples', 'statistics', 'schema', 'anomalies')))
    write_predictions(os.path.join(folders['evaluation'], 'predictions.tfrecord'), rows)
    if events:
        write_events(os.path.join(folders['model_run'], 'tensorboard'))
    inputs = {key: Artifact(i, kind, folders[key], f'{i}' * 64, RUN if key == 'model_run' else {})
              for i, (key, kind) in enumerate(types.items(), 1)}
    outputs = {key: folders[key] for key in ('evaluation', 'report')}
    return Context(config, inputs, outputs, [], dict(FOUND), pipeline.Pipeline(config, str(root), []))
