"""A small Transformer that learns in seconds to copy words, though not always, so that a beam has much to choose."""
import pathlib

import numpy as np
import tensorflow as tf

from keras_models import transformer
from keras_models.transformer import EOS, PAD

PIECES = ['<pad>', '<s>', '</s>', '<unk>', *(f'▁{i}' for i in range(4, 30))]
BASE = {'vocab_size': len(PIECES), 'N': 1, 'd_model': 16, 'd_ff': 32, 'h': 2}


def sentences(n, seed):
    """Ids of `n` sentences of 1 to 9 words, each ending in EOS."""
    draw = np.random.default_rng(seed)
    return [[*draw.integers(4, len(PIECES), draw.integers(1, 10)).tolist(), EOS] for _ in range(n)]


def batch(rows, length):
    return tf.constant([row + [PAD] * (length - len(row)) for row in rows])


def trained(c, steps=120):
    """The nets of a configuration: a word is translated by itself or, less often, by the next one, sometimes twice."""
    tf.keras.utils.set_random_seed(1)
    nets = transformer.build(c)
    net, optimizer, draw = nets['transformer'], tf.keras.optimizers.Adam(5e-3), np.random.default_rng(1)

    @tf.function
    def step(inputs, targets):
        with tf.GradientTape() as tape:
            found, _ = transformer.loss_fn(nets, {'inputs': inputs, 'targets': targets}, tf.zeros([2], tf.int32),
                                           False, c)
            loss = tf.divide(*found['transformer'])
        weights = net.trainable_weights
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
    for number in range(steps):
        source = sentences(48, 100 + number)
        target = [[min(i + int(draw.random() < 0.3), len(PIECES) - 1) for i in row[:-1]
                   for _ in range(1 + int(draw.random() < 0.2))] + [EOS] for row in source]
        step(batch(source, 10), batch(target, 19))
    return nets


def save(nets, folder: pathlib.Path) -> None:
    np.savez(folder / 'weights.npz', *nets['transformer'].get_weights())


def load(c, folder: pathlib.Path):
    """The nets that were saved, of the same configuration."""
    nets, saved = transformer.build(c), np.load(folder / 'weights.npz')
    nets['transformer'].set_weights([saved[name] for name in saved.files])
    return nets
