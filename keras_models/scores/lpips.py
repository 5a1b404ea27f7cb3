"""LPIPS, the learned perceptual image patch similarity (Zhang, Isola, Efros, Shechtman, Wang 2018), version 0.1.

Two pictures are as far apart as AlexNet's features of them, place by place, in the channels people were found to look
at. AlexNet is torchvision's, 'one weird trick' (Krizhevsky 2014): other widths than the paper's, and no normalisation.
"""
import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.weights import published

# Of a convolution, by its number among torchvision's `features`: kernels, size, stride.
CONVOLUTIONS = {0: (64, 11, 4), 3: (192, 5, 1), 6: (384, 3, 1), 8: (256, 3, 1), 10: (256, 3, 1)}
POOLED = (3, 6)  # the convolutions after a pooling
ALEXNET = 'torchvision\'s alexnet-owt-7be5be79.pth (download.pytorch.org/models)'
LIN = 'lpips/weights/v0.1/alex.pth of github.com/richzhang/PerceptualSimilarity'
EPSILON = 1e-10


def load(alexnet: str, lin: str) -> keras.Model:
    """AlexNet's features as LPIPS compares them: RGB levels 0..1 [B, H, W, 3], sides of 31 or more -> of each of the
    five layers w_l * y^_l, [B, H_l, W_l, C_l], y^ being of unit length at every place.

    Args:
      alexnet: torchvision's weights; `lin`: those of the channels.

    Raises:
      ModelError: a file cannot be read, or a weight is missing, has another shape or (`lin`) is below zero.
    """
    found, w = published.read(alexnet), _channel_weights(lin)
    image, features = keras.Input([None, None, 3], name='image'), []
    variables: dict[str, tf.Variable] = {}
    x = (image - published.MEAN) / published.DEVIATION
    for number, (kernels, size, stride) in CONVOLUTIONS.items():
        if number in POOLED:
            x = keras.layers.MaxPool2D(3, 2)(x)
        if stride > 1:
            x = keras.layers.ZeroPadding2D(2)(x)
        convolution = keras.layers.Conv2D(kernels, size, stride, 'valid' if stride > 1 else 'same', activation='relu')
        x = convolution(x)
        variables |= published.convolution(convolution, f'features.{number}')
        features.append(w[number] * x / (tf.norm(x, axis=-1, keepdims=True) + EPSILON))
    published.assign(variables, found, alexnet, ALEXNET)
    return keras.Model(image, features, name='lpips', trainable=False)


def _channel_weights(path: str) -> dict[int, np.ndarray]:
    """w_l [C_l] of eq. (1), by the convolution's number. In the file is what squares of differences are multiplied by,
    so w_l^2."""
    names = {number: f'lin{layer}.model.1.weight' for layer, number in enumerate(CONVOLUTIONS)}
    found = published.read(path)
    published.check({name: (1, 1, CONVOLUTIONS[number][0], 1) for number, name in names.items()}, found, path, LIN)
    for name in names.values():
        if not np.all(found[name] >= 0):
            raise ModelError(f'{path} has a {name} below zero, which makes no distance; give {LIN}')
    return {number: np.sqrt(found[name]).ravel() for number, name in names.items()}


def distance(net: keras.Model, made, true):
    """Eq. (1): over the places of a layer the mean squared length of w_l * (y^ - y^_0), summed over the layers.

    Args:
      net: of `load`.
      made, true: pictures [B, H, W, 3], levels 0..1, either one's order: d(a, b) = d(b, a).

    Returns:
      [B], 0 for the same picture.
    """
    return tf.add_n([tf.reduce_mean(tf.reduce_sum(tf.math.squared_difference(y, y_0), -1), [1, 2])
                     for y, y_0 in zip(net(made, training=False), net(true, training=False))])
