"""What the image classifiers share in training: building, loss, updates and cost.

A paper's file has `Config`, `layers`, `convolutions`, `dense`, `score_map`, `activations` and `costs`; the rest of what
a model module offers is that of this file, which finds the paper's functions by the module of its `Config`.
"""
import sys
import types

import tensorflow as tf
from tensorflow import keras

from keras_models.core import losses
from keras_models.core import optimizers as rules
from keras_models.core.layers import seed_input

TOP = 5  # ILSVRC's second measure
THROUGHPUT_UNIT = 'images'
METRICS = (f'top{TOP}_error', 'top1_error')


def paper(config) -> types.ModuleType:
    """The module a configuration is of."""
    return sys.modules[type(config).__module__]


def build(config) -> dict[str, keras.Model]:
    """The functional model, (image [B, crop, crop, 3], seed [2]) -> logits [B, classes]."""
    return {'classifier': over_crops(config, 'classifier')}


def over_crops(config, name: str) -> keras.Model:
    """A paper's net of that name, (image [B, crop, crop, 3], seed [2]) -> what its last layer gives [B, …]."""
    net, image, seed = paper(config), keras.Input([config.crop, config.crop, 3], name='image'), seed_input()
    layers = net.layers(config)
    found = net.dense(layers, config, net.convolutions(layers, config, image), seed, training=None)
    return keras.Model([image, seed], found, name=name)


def optimizers(config: rules.Descent) -> dict[str, keras.optimizers.Optimizer]:
    """Krizhevsky et al. 5; Simonyan & Zisserman 3.1; He et al. 2015, 3."""
    return {'classifier': rules.descent(config)}


def parameters(config) -> int:
    """Number of parameters, in closed form."""
    return sum(cost.parameters for cost in paper(config).costs(config))


def macs(config) -> int:
    """Multiply-adds of one image's forward pass: the operations of He et al. 2015."""
    return sum(cost.macs for cost in paper(config).costs(config))


def flops_per_unit(config) -> int:
    """Training operations an image: a multiply-add is two, and the backward pass costs two forward ones."""
    return 6 * macs(config)


def loss_fn(nets: dict, batch: dict, seed: tf.Tensor, training: bool, config):
    """Softmax cross-entropy, and the two errors of ILSVRC.

    A class that ties with the right one counts as before it, so a net that tells nothing apart is always wrong; so is
    one that gives NaN.

    Args:
      batch: `image` [B, crop, crop, 3] and `label` [B]; a row with label -1 counts nothing.

    Returns:
      Losses and metrics, each name -> (sum, normaliser).
    """
    label, real = tf.maximum(batch['label'], 0), tf.cast(batch['label'] >= 0, tf.float32)
    logits = tf.cast(nets['classifier']([batch['image'], seed], training=training), tf.float32)
    loss, _ = losses.cross_entropy(logits, label, config.label_smoothing)
    behind = logits < tf.gather(logits, label, axis=1, batch_dims=1)[:, None]
    rank = tf.reduce_sum(tf.cast(~behind, tf.int32), 1)  # 1: the only one of its score, and none above
    images = tf.reduce_sum(real)

    def error(k):
        return tf.reduce_sum(tf.cast(rank > k, tf.float32) * real), images
    return ({'classifier': (tf.reduce_sum(loss * real), images)},
            {'top1_error': error(1), f'top{TOP}_error': error(TOP)})
