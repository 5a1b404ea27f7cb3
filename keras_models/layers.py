"""Layers more than one paper uses."""
import zlib

import tensorflow as tf
from tensorflow import keras


class Dropout(keras.layers.Layer):
    """Dropout (Srivastava et al. 2014) whose draw is a pure function of the seed it is given and of its name.

    Keras's own keeps a generator that no checkpoint holds, so a resumed run would draw other masks. Here the trainer
    passes a pair (seed, step and replica); the layer's name tells its draw from the others'. XLA's generator lays its
    bits out differently, so a compiled run draws other masks than one that is not, each replayable.

    Args:
      rate: the fraction of units set to zero; the others are divided by `1 - rate`.
    """

    def __init__(self, rate: float, name: str):
        super().__init__(name=name)
        self.rate = rate
        self._site = zlib.crc32(name.encode()) & 0x7FFFFFFF

    def call(self, x, seed, training=None):
        """x: any shape; seed: int32 [2]. Returns x where not training."""
        if not training or not self.rate:
            return x
        return tf.nn.experimental.stateless_dropout(x, self.rate, seed + [self._site, 0], rng_alg='philox')


def seed_input():
    """The model input that carries a step's dropout seed: int32 [2], no batch axis."""
    return keras.Input(batch_size=2, shape=(), dtype=tf.int32, name='seed')
