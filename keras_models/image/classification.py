"""Training of image classifiers: building, loss, updates and cost, shared by the papers.

A paper's module collects its own functions in a `Paper`, which its `Config` names; the other parts of a model module
come from this file.
"""
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.core import losses
from keras_models.core import optimizers as rules
from keras_models.core.layers import Cost, seed_input

TOP = 5  # k of ILSVRC's second measure
THROUGHPUT_UNIT = 'images'
METRICS = (f'top{TOP}_error', 'top1_error')


Layers = dict[str, keras.layers.Layer]


@dataclasses.dataclass(frozen=True)
class Paper:
    """Functions that define a paper's net; maps are float [B, h, w, C].

    Attributes:
      layers: (config) -> every layer with weights or randomness, by name.
      convolutions: (layers, config, image [B, H, W, 3]) -> maps, for images of any size.
      dense: (layers, config, maps of a crop, seed, training) -> logits [B, classes].
      score_map: (layers, config, maps) -> logits at every position of a crop, [B, h', w', classes].
      activations: (layers, config, maps) -> the last hidden layer's outputs at every position.
      costs: (config) -> every layer's output, parameters and multiply-adds; None if they are not given.
    """
    layers: Callable[[Any], Layers]
    convolutions: Callable[[Layers, Any, tf.Tensor], tf.Tensor]
    dense: Callable[..., tf.Tensor]
    score_map: Callable[[Layers, Any, tf.Tensor], tf.Tensor]
    activations: Callable[[Layers, Any, tf.Tensor], tf.Tensor]
    costs: Callable[[Any], list[Cost]] | None = None


class Config(Protocol):
    """Keys of a paper's configuration that this file reads."""
    classes: int | None
    crop: int | None
    label_smoothing: float
    class_counts: list[int]

    @property
    def paper(self) -> Paper: ...


def build(config: Config) -> dict[str, keras.Model]:
    """Return the functional model, (image [B, crop, crop, 3], seed [2]) -> logits [B, classes]."""
    return {'classifier': over_crops(config, 'classifier')}


def over_crops(config: Config, name: str) -> keras.Model:
    """Return a paper's net under a name: (image [B, crop, crop, 3], seed [2]) -> outputs of its last layer [B, …]."""
    paper, image, seed = config.paper, keras.Input([config.crop, config.crop, 3], name='image'), seed_input()
    layers = paper.layers(config)
    found = paper.dense(layers, config, paper.convolutions(layers, config, image), seed, training=None)
    return keras.Model([image, seed], found, name=name)


def optimizers(config: rules.Descent) -> dict[str, keras.optimizers.Optimizer]:
    """Return the optimizer of Krizhevsky et al. 5; Simonyan & Zisserman 3.1; He et al. 2015, 3."""
    return {'classifier': rules.descent(config)}


def parameters(config: Config) -> int:
    """Return the number of parameters, in closed form."""
    return sum(cost.parameters for cost in _costs(config))


def macs(config: Config) -> int:
    """Return the multiply-adds of one image's forward pass: the operations of He et al. 2015."""
    return sum(cost.macs for cost in _costs(config))


def flops_per_unit(config: Config) -> int:
    """Return the training operations per image: two per multiply-add, and a backward pass costs two forward ones."""
    return 6 * macs(config)


def _costs(config: Config) -> list[Cost]:
    assert config.paper.costs is not None
    return config.paper.costs(config)


def loss_fn(nets: dict, batch: dict, seed: tf.Tensor, training: bool, config: Config):
    """Return the softmax cross-entropy and ILSVRC's two errors.

    A class tied with the right one ranks before it, so a net whose scores are all equal is always wrong; so is one that
    gives NaN. With `class_counts`, the loss is the logit-adjusted one of Menon et al. 2021, equation 10 with tau = 1.

    Args:
      batch: `image` [B, crop, crop, 3] and `label` [B]; rows with label -1 are ignored. If images were mixed, also the
        `other` label [B] and the share of the first that was `kept` [B]; the loss is the mean weighted by shares, and
        errors are those of the first.

    Returns:
      Losses and metrics, each name -> (sum, normaliser).
    """
    label, real = tf.maximum(batch['label'], 0), tf.cast(batch['label'] >= 0, tf.float32)
    logits = tf.cast(nets['classifier']([batch['image'], seed], training=training), tf.float32)
    adjusted = _adjusted(logits, config)
    loss, _ = losses.cross_entropy(adjusted, label, config.label_smoothing)
    if 'kept' in batch:
        rest, _ = losses.cross_entropy(adjusted, tf.maximum(batch['other'], 0), config.label_smoothing)
        loss = batch['kept'] * loss + (1 - batch['kept']) * rest
    behind = logits < tf.gather(logits, label, axis=1, batch_dims=1)[:, None]
    rank = tf.reduce_sum(tf.cast(~behind, tf.int32), 1)  # 1: the unique largest score
    images = tf.reduce_sum(real)

    def error(k):
        return tf.reduce_sum(tf.cast(rank > k, tf.float32) * real), images
    return ({'classifier': (tf.reduce_sum(loss * real), images)},
            {'top1_error': error(1), f'top{TOP}_error': error(TOP)})


def _adjusted(logits: tf.Tensor, config: Config) -> tf.Tensor:
    """Return logits [B, classes] plus the logarithms of the classes' shares by `class_counts`, if there are any.

    The logits then estimate log P(image | class), so the largest one minimises the mean of the classes' errors. Shares
    are smoothed as the labels are: a class with a share of 0.99 of the images has one of 0.94 of labels smoothed by
    0.1, and a net that had to make up for the rest would never predict it.

    Raises:
      ModelError: there are more or fewer counts than classes.
    """
    counts = config.class_counts
    if not counts:
        return logits
    if len(counts) != logits.shape[-1]:
        raise ModelError(f'model.class_counts has {len(counts):,} numbers, but there are {logits.shape[-1]:,} classes. '
                         'Give one for each class folder, in alphabetical order')
    shares = tf.constant(counts, tf.float32) / float(sum(counts))
    return logits + tf.math.log((1 - config.label_smoothing) * shares + config.label_smoothing / len(counts))
