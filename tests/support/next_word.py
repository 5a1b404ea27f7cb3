"""A tiny net with the Transformer's name and arguments, quick to trace, for tests of the trainer."""
import tensorflow as tf
from tensorflow import keras

from keras_models.core import layers


def build(config) -> dict[str, keras.Model]:
    """Takes the place of `transformer.build`: int32 [B, T] twice -> [B, T, vocab_size]."""
    inputs, targets = (keras.Input([None], dtype=tf.int32, name=name) for name in ('inputs', 'targets'))
    seed = layers.seed_input()
    embed = keras.layers.Embedding(config.vocab_size, 8, name='embed')
    x = embed(tf.roll(targets, 1, 1)) + tf.reduce_mean(embed(inputs), 1, keepdims=True)
    x = layers.Dropout(config.P_drop, 'dropout')(x, seed)
    x = keras.layers.Dense(config.vocab_size, name='logits')(x)
    return {'transformer': keras.Model([inputs, targets, seed], x)}
