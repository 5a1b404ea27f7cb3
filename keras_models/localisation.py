"""Localisation by VGG: 'Very Deep Convolutional Networks …' (Simonyan & Zisserman 2015, arXiv v6), appendix A.

The last layer of a configuration of table 1 predicts the bounding box of an object. Parts that the appendix takes from
Sermanet et al. 2014, 'OverFeat', follow that paper: which boxes a net is trained on (`data_prep.imagenet.Input`), and
how predictions are merged (`boxes.py`).
"""
import dataclasses
from typing import Literal

import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError, vgg
from keras_models.core import optimizers as rules
from keras_models.core.layers import Cost
from keras_models.image import boxes, classification

THROUGHPUT_UNIT, PRESETS = classification.THROUGHPUT_UNIT, vgg.PRESETS
parameters, macs, flops_per_unit = classification.parameters, classification.macs, classification.flops_per_unit
TASKS, ENDS_IN_DENSE_LAYERS = ('image',), True
SERVING, SCORER = 'keras_models.image.localiser', 'keras_models.image.box_scorer'
STRIDE = 32  # pixels between positions of the dense view: five poolings
CORRECT = 0.5  # a box is right if it has more than this in common with a true one: ILSVRC's criterion
WARM_START_NAMES = {'localiser': 'classifier'}  # a localisation net starts from a trained classifier
LAST = 'fc8'

# Table 8: percentage of wrong boxes of the central crop for the right class, by fine-tuned layers and kind of box; S =
# 384.
TABLE_8: dict[tuple, float] = {('dense', 'shared'): 36.4, ('dense', 'per_class'): 34.3, ('all', 'per_class'): 33.1}


@dataclasses.dataclass
class Config(vgg.Config):
    """A configuration of VGG whose last layer predicts boxes.

    `boxes`: four numbers per class, of which those of the right class are trained (`per_class`; PCR), or four for all
    classes (`shared`; SCR). `fine_tune: dense` keeps the initial convolutions.
    """
    boxes: Literal['per_class', 'shared'] = 'per_class'  # one box per class (PCR), or one for all (SCR)
    fine_tune: Literal['all', 'dense'] = 'all'
    learning_rate: float = 1e-3  # initial learning rate
    monitor: Literal['box_error', 'loss'] = 'box_error'  # type: ignore[assignment]

    def __post_init__(self):
        super().__post_init__()
        if self.class_counts:
            raise ValueError('class_counts is for nets that choose a class, and a localiser predicts boxes; leave it '
                             'out')

    @property
    def paper(self) -> classification.Paper:
        return PAPER


def _widened(config: Config) -> Config:
    """Return the configuration of a classifier with as many outputs."""
    assert config.classes
    return dataclasses.replace(config, classes=4 * (config.classes if config.boxes == 'per_class' else 1))


def layers(config: Config) -> dict[str, keras.layers.Layer]:
    """Return `vgg.layers`, with layers that are not fine-tuned frozen."""
    made = vgg.layers(_widened(config))
    for layer in made.values():
        layer.trainable = config.fine_tune == 'all' or not isinstance(layer, keras.layers.Conv2D)
    return made


def costs(config: Config) -> list[Cost]:
    """Return the costs of `vgg.costs`."""
    return vgg.costs(_widened(config))


PAPER = dataclasses.replace(vgg.PAPER, layers=layers, costs=costs)


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """Return table 8, if this net has the size of the paper's."""
    if vgg.table(config) is None:
        return None
    nets = [dataclasses.replace(config, fine_tune=tuned, boxes=kind) for tuned, kind in TABLE_8]
    rows: list[tuple[str, ...]] = [(net.fine_tune, net.boxes, f'{parameters(net) / 1e6:.1f}', f'{error}')
                                   for net, error in zip(nets, TABLE_8.values())]
    return ('model.fine_tune', 'model.boxes', 'million parameters', 'box error, %'), rows


def build(config: Config) -> dict[str, keras.Model]:
    """Return the net: (image [B, crop, crop, 3], seed [2]) -> vectors [B, 4 * classes] or [B, 4], in crop sides."""
    return {'localiser': classification.over_crops(config, 'localiser')}


def optimizers(config: Config) -> dict[str, keras.optimizers.Optimizer]:
    """Return the optimizer of the classifiers."""
    return {'localiser': rules.descent(config)}


def of_classes(found: tf.Tensor, labels: tf.Tensor, config: Config) -> tf.Tensor:
    """Select the boxes of each row's `labels` [B, k] from outputs [B, …, 4 * classes] or [B, …, 4]: [B, …, k, 4]."""
    found = tf.reshape(tf.cast(found, tf.float32), tf.concat([tf.shape(found)[:-1], [found.shape[-1] // 4, 4]], 0))
    return tf.gather(found, labels if config.boxes == 'per_class' else tf.zeros_like(labels), axis=-2, batch_dims=1)


def loss_fn(nets: dict, batch: dict, seed: tf.Tensor, training: bool, config: Config):
    """Return the Euclidean loss: half the squared distance between predicted and true vector, in sides of the crop.

    (The paper gives no units; the half is Caffe's, the paper's framework. In pixels the loss would be 50,000 times as
    large, too large for the paper's rate of 10^-3.)

    Args:
      batch: `image` [B, crop, crop, 3], `label` [B] and `box` [B, 4]; rows without a box, NaN, are ignored.

    Returns:
      Losses and metrics, each name -> (sum, normaliser): besides the loss the fraction of wrong boxes, and the mean
      intersection over union, both for the right class.

    Raises:
      ModelError: the batch has no boxes.
    """
    if 'box' not in batch:
        raise ModelError('keras_models.localisation needs boxes, but the batches have none. '
                         'Set input.boxes: true.')
    true = batch['box']
    there = ~tf.math.is_nan(true[:, 0]) & (batch['label'] >= 0)
    label = tf.maximum(batch['label'], 0)[:, tf.newaxis]
    found = of_classes(nets['localiser']([batch['image'], seed], training=training), label, config)[:, 0]  # [B, 4]
    true = tf.where(there[:, tf.newaxis], true, tf.stop_gradient(found))
    common = boxes.iou(boxes.corners(found), boxes.corners(true))
    n = tf.reduce_sum(tf.cast(there, tf.float32))

    def total(x):
        return tf.reduce_sum(tf.where(there, tf.cast(x, tf.float32), 0.)), n
    return ({'localiser': total(tf.reduce_sum(tf.square(found - true), 1) / 2)},
            {'box_error': total(~(common > CORRECT)), 'mean_iou': total(common)})


def warm_start(nets: dict[str, keras.Model], weights: dict[str, dict[str, np.ndarray]]) -> None:
    """Start from a classification net ('trained on the same scales'; A.1), except the last layer.

    Args:
      weights: net -> variable's name, such as `conv1_1/kernel` -> value, of the same configuration.

    Raises:
      ModelError: one is missing, or has another shape here.
    """
    vgg.take_over([variable for variable in nets['localiser'].variables if not variable.name.startswith(f'{LAST}/')],
                  weights.get('localiser') or weights.get('classifier', {}),
                  'give those of a classification net of the same variant, width and crop')


def keras_weights(path: str, config: Config) -> dict[str, dict[str, np.ndarray]]:
    """Read `vgg.keras_weights` without the last layer."""
    [found] = vgg.keras_weights(path, config).values()
    return {'localiser': {name: value for name, value in found.items() if not name.startswith(f'{LAST}/')}}


weight_readers = {'.h5': keras_weights}
