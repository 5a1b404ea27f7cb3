"""A small classifier with the functions of a paper's module, and a data set's assets with a mean of zero.

Its convolutions pad nothing, so every place of its score map is a crop of the picture.
"""
import dataclasses
import functools
import io

import numpy as np
import tensorflow as tf
from PIL import Image
from tensorflow import keras

from data_prep.image import augmentation
from keras_models.core.layers import seed_input
from keras_models.image import classification
from keras_models.image.classification import loss_fn  # noqa: F401 (as a paper's file has it)
from keras_models.image.serving import Inference, predict, serving  # noqa: F401


@dataclasses.dataclass
class Config:
    classes: int | None = 7
    crop: int | None = 12
    label_smoothing: float = 0.0
    class_counts: list[int] = dataclasses.field(default_factory=list)

    @property
    def paper(self) -> classification.Paper:
        return PAPER


def layers(config):
    made = [keras.layers.Conv2D(4, 3, activation='relu', name='conv1'), keras.layers.MaxPool2D(2, name='pool1'),
            keras.layers.Dense(16, 'relu', name='fc2'), keras.layers.Dense(config.classes, name='fc3')]
    return {layer.name: layer for layer in made}


def convolutions(layers, config, image):
    return layers['pool1'](layers['conv1'](image))  # [B, H, W, 3] -> [B, (H - 2) / 2, (W - 2) / 2, 4]


def dense(layers, config, maps, seed=None, training=False):
    return layers['fc3'](layers['fc2'](tf.reshape(maps, [-1, maps.shape[1] * maps.shape[2] * maps.shape[3]])))


def activations(layers, config, maps):
    side = (config.crop - 2) // 2
    hidden = tf.nn.conv2d(maps, tf.reshape(layers['fc2'].kernel, [side, side, 4, 16]), 1, 'VALID')
    return tf.nn.relu(hidden + layers['fc2'].bias)


def score_map(layers, config, maps):
    return layers['fc3'](activations(layers, config, maps))


PAPER = classification.Paper(layers, convolutions, dense, score_map, activations)


def build(config):
    image, seed = keras.Input([config.crop, config.crop, 3], name='image'), seed_input()
    made = layers(config)
    logits = dense(made, config, convolutions(made, config, image))
    return {'classifier': keras.Model([image, seed], logits, name='classifier')}


def randomised(config, seed=0):
    """Nets whose every weight is random and large enough to tell pictures apart."""
    return randomised_net(build(config), seed)


def randomised_net(nets, seed=0):
    draw = np.random.default_rng(seed)
    for weight in nets['classifier'].weights:
        weight.assign(draw.normal(0, 0.2 if len(weight.shape) == 1 else (2 / np.prod(weight.shape[:-1])) ** 0.5,
                                  weight.shape))
    first = nets['classifier'].weights[0]
    first.assign(first / 100)  # pixels are levels; larger logits would make every posterior 0 or 1
    return nets


class Assets:
    """Stand in for those of data_prep.imagenet, with a mean image of zero."""

    def __init__(self, classes=7, scale=16):
        self.names = [f'n{i:04}' for i in range(classes)]
        self.descriptions = [f'thing {i}, a thing' for i in range(classes)]
        view = augmentation.View(augmentation.Pixels(np.zeros([256, 256, 3]), np.zeros(3), np.zeros([3, 3])), crop=12,
                                scales=(scale, scale), square=False, flip=False, colour=0, mean='pixel')
        self.scale, self.picture, self.located, self.central = view.scale, view.picture, view.located, view.central


def photograph(height=20, width=30, seed=0):
    """Smooth coloured noise, uint8 [height, width, 3]."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)
    return np.asarray(Image.fromarray(coarse).resize([width, height], Image.Resampling.BICUBIC))


def encoded(format: str, **kwargs) -> bytes:
    """A photograph in a file's bytes. Pillow writes it: TensorFlow must not start while tests are collected."""
    Image.fromarray(photograph(**kwargs)).save(file := io.BytesIO(), format, quality=95)
    return file.getvalue()


jpeg = functools.partial(encoded, 'JPEG')
png = functools.partial(encoded, 'PNG')
