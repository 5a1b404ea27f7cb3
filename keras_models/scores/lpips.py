"""LPIPS, the learned perceptual image patch similarity (Zhang, Isola, Efros, Shechtman, Wang 2018), version 0.1.

The distance of two images compares AlexNet's features, position by position, weighted by channels fitted to human
judgements. AlexNet is torchvision's, 'one weird trick' (Krizhevsky 2014): other widths than the paper's, and no
normalisation.
"""
import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.weights import published

# Convolutions by number among torchvision's `features`: kernels, size, stride.
CONVOLUTIONS = {0: (64, 11, 4), 3: (192, 5, 1), 6: (384, 3, 1), 8: (256, 3, 1), 10: (256, 3, 1)}
POOLED = (3, 6)  # the convolutions after a pooling
ALEXNET = 'torchvision\'s alexnet-owt-7be5be79.pth (download.pytorch.org/models)'
LIN = 'lpips/weights/v0.1/alex.pth of github.com/richzhang/PerceptualSimilarity'
EPSILON = 1e-10


def load(alexnet: str, lin: str) -> keras.Model:
    """Return AlexNet's features for LPIPS: RGB 0..1 [B, H, W, 3], sides of 31 or more -> w_l * y^_l of five layers.

    Each is [B, H_l, W_l, C_l], with y^ of unit length at every position.

    Args:
      alexnet: torchvision's weights; `lin`: weights of the channels.

    Raises:
      ModelError: a file cannot be read, or a weight is missing, has another shape or (`lin`) is negative.
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
    """Return w_l [C_l] of eq. (1) by the convolution's number; the file has w_l^2, factors of squared differences."""
    names = {number: f'lin{layer}.model.1.weight' for layer, number in enumerate(CONVOLUTIONS)}
    found = published.read(path)
    published.check({name: (1, 1, CONVOLUTIONS[number][0], 1) for number, name in names.items()}, found, path, LIN)
    for name in names.values():
        if not np.all(found[name] >= 0):
            raise ModelError(f'{path} has a negative {name}, which gives no distance; give {LIN}')
    return {number: np.sqrt(found[name]).ravel() for number, name in names.items()}


def distance(net: keras.Model, made, true):
    """Return eq. (1): the mean over a layer's positions of the squared length of w_l * (y^ - y^_0), summed over layers.

    Args:
      net: as returned by `load`.
      made, true: images [B, H, W, 3], levels 0..1, in either order: d(a, b) = d(b, a).

    Returns:
      [B], 0 for equal images.
    """
    return tf.add_n([tf.reduce_mean(tf.reduce_sum(tf.math.squared_difference(y, y_0), -1), [1, 2])
                     for y, y_0 in zip(net(made, training=False), net(true, training=False))])
