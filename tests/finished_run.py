"""A finished run in miniature, for the report: real events, a data set, predictions, and text that means harm."""
import os

import tensorflow as tf

from data_prep import records
from pipelines import config as configs
from pipelines import pipeline
from pipelines.artifacts import Artifact
from pipelines.stage import Context

HOSTILE = '<script src="http://evil.example/x.js">alert("1")</script>'
HOSTILE_KIND = '<b onclick=\'x()\'>|a*'
METRICS = {'overall': {'bleu': 87.654321, 'exact_match': 0.73333333},
           'date': {'bleu': 91.25, 'exact_match': 0.625},
           'number': {'bleu': 0.0, 'exact_match': 0.875}, HOSTILE_KIND: {'bleu': 55.5, 'exact_match': 1.0}}
FOUND = {'metrics': METRICS, 'blessed': False, 'reasons': ['bleu is 87.65, outside {\'min\': 90}'] * 2,
         'examples': 60, 'baseline': 'b' * 64}
RUN = {'steps': 8, 'resumed_at': 3, 'seconds': 4000.2, 'jit': False, 'replicas': 2, 'traces': 3,
       'parameters': {'transformer': 1234567}, 'last': {'validation/loss': 2.125},
       'averaged': {'validation/loss': 1.875}, 'averaged_checkpoints': ['ckpt-4', 'ckpt-8']}
SETTINGS = ['export.max_input_length=64', 'evaluate.slices=[kind]', 'evaluate.split=test',
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
    shards = []
    for split, count in {'train': 50, 'test': 60}.items():
        path = os.path.join(folder, f'Split-{split}', 'part-00000.tfrecord')
        writer = records.ShardWriter(path, ('inputs', 'targets'))
        for i in range(count):
            writer.write(b'%d' % i, inputs=1 + i % 7, targets=2 + i % 9)
        shards.append(writer.close())
    counts = {'train': {'read': 54, 'written': 50, 'dead_letters': 1, 'filtered_long': 3},
              'test': {'read': 60, 'written': 60, 'dead_letters': 0, 'filtered_long': 0}}
    records.write_manifest(folder, shards, ('inputs', 'targets'), counts,
                           {'languages': ['en', 'de'], 'vocabulary': {'size': 1000, 'sha256': 'c' * 64}})


def predictions():
    """Sixty rows; of every three the first is wrong, and of every five the baseline has the first wrong."""
    rows = [{'source': f'source {i} {HOSTILE if i % 3 == 0 else ""}', 'target': f'Ziel {i} & "mehr"',
             'kind': [HOSTILE_KIND, 'date', 'number'][i % 3]} for i in range(60)]
    return [{**row, 'candidate': row['target'] + (f' {HOSTILE}' if i % 3 == 0 else ''),
             'baseline': 'x' if i % 5 == 0 else row['target']} for i, row in enumerate(rows)]


def write_predictions(path, rows):
    def feature(value):
        if isinstance(value, str):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    with tf.io.TFRecordWriter(path) as writer:
        for row in rows:
            features = tf.train.Features(feature={key: feature(value) for key, value in row.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())


def make_context(root, rows, overrides=(), events=True):
    """An evaluate stage's context at its end, with real artifacts."""
    config = configs.load('demo_translation', [*SETTINGS, *overrides])
    names = ('examples', 'model_run', 'model', 'evaluation', 'report')
    folders = {name: os.path.join(root, name) for name in names}
    for folder in folders.values():
        os.makedirs(folder)
    write_examples(folders['examples'])
    write_predictions(os.path.join(folders['evaluation'], 'predictions.tfrecord'), rows)
    if events:
        write_events(os.path.join(folders['model_run'], 'tensorboard'))
    types = {'examples': 'Examples', 'model_run': 'ModelRun', 'model': 'Model'}
    inputs = {key: Artifact(i, kind, folders[key], f'{i}' * 64, RUN if key == 'model_run' else {})
              for i, (key, kind) in enumerate(types.items(), 1)}
    outputs = {key: folders[key] for key in ('evaluation', 'report')}
    return Context(config, inputs, outputs, [], dict(FOUND), pipeline.Pipeline(config, str(root), []))
