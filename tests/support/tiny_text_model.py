"""A SavedModel with the exported signature that builds quickly, and helpers that query a pushed model."""
import hashlib
import json
import os

import tensorflow as tf

from pipelines import export
from pipelines.serving import pusher

WARMUP = os.path.join('assets.extra', 'tf_serving_warmup_requests')


class Shouter(tf.Module):
    """A text model with the exported signature: answers each line with `suffix` behind it."""

    def __init__(self, suffix):
        super().__init__()
        self.suffix = tf.Variable(suffix)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text')])
    def serve(self, text):
        lengths = tf.strings.length(text, 'UTF8_CHAR')
        return {'text': tf.strings.join([text, tf.fill(tf.shape(text), self.suffix)]),
                'score': -tf.cast(lengths, tf.float32), 'truncated': lengths > 20}


def save(folder, suffix):
    """Saves a model that answers with `suffix` below `folder`; returns its path."""
    module, path = Shouter(suffix), os.path.join(folder, str(ord(suffix)))
    tf.saved_model.save(module, path, signatures={'serving_default': module.serve})
    os.makedirs(os.path.join(path, 'assets.extra'))
    export.write_warmup(path, 'shouter', [{'text': 'a request'}])
    return path


def push_all(models, destination, suffixes):
    """Pushes one model after the other; returns the versions' folders."""
    return [pusher.publish(models[suffix], destination, {
        'pipeline': 'shouter', 'artifacts': {'model': {'digest': f'{ord(suffix):012x}'.ljust(64, '0')}}})
        for suffix in suffixes]


def answer(version, text='hi'):
    served = tf.saved_model.load(version).signatures['serving_default']
    return served(text=tf.constant([text]))['text'].numpy()[0].decode()


def served(destination):
    """What TensorFlow Serving would load."""
    return os.path.join(destination, max(filter(str.isdecimal, os.listdir(destination)), key=int))


def assert_whole(version):
    with open(os.path.join(version, 'landmark.json'), encoding='utf-8') as file:
        record = json.load(file)
    found = {}
    for directory, _, files in os.walk(version):
        for name in files:
            path = os.path.join(directory, name)
            with open(path, 'rb') as file:
                found[os.path.relpath(path, version)] = hashlib.sha256(file.read()).hexdigest()
    del found['landmark.json']
    assert found == record['files'] and 'saved_model.pb' in found
    assert record['version'] == int(os.path.basename(version))
