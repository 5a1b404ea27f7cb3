"""Layers shared by VITON-HD's networks."""
from typing import NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models.core import rematerialisation

EPSILON = 1e-5  # PyTorch's, in all normalisations
WARM_UP = 5  # power iterations before the first pass, so that an untrained net is not scaled at random


GAIN = 0.02  # of initial weights, the authors' code


def xavier(gain: float = GAIN) -> keras.initializers.Initializer:
    """Return Glorot & Bengio 2010: N(0, gain^2 * 2 / (fan in + fan out))."""
    return keras.initializers.VarianceScaling(gain ** 2, 'fan_avg', 'untruncated_normal')


def mean_of_places(x):
    """Return the mean over height and width, [B, H, W, C] -> [B, 1, 1, C]: first over each row, then over rows.

    A single sum over all positions loses precision if neighbours are similar, as in photographs: for 1024 x 768 values
    in constant patches, normalised activations were off by 1.3e-2; this way they are off by 9e-6.
    """
    return tf.reduce_mean(tf.reduce_mean(x, 2, keepdims=True), 1, keepdims=True)


def instance_norm(x, epsilon: float = EPSILON):
    """Normalise [B, H, W, C] as Ulyanov et al. 2016, without learned parameters.

    Every channel of every image gets mean 0 and deviation 1 over height and width.
    """
    dtype, x = x.dtype, tf.cast(x, tf.float32)  # long sums need the precision
    row_mean, row_variance = tf.nn.moments(x, [2], keepdims=True)
    mean = tf.reduce_mean(row_mean, 1, keepdims=True)
    variance = tf.reduce_mean(row_variance + tf.math.squared_difference(row_mean, mean), 1, keepdims=True)
    scale = tf.math.rsqrt(variance + epsilon)
    return tf.cast(x * scale - mean * scale, dtype)


class BatchNormalization(keras.layers.BatchNormalization):
    """Keras's batch normalisation; a checkpoint takes the moving averages of the first replica.

    Of Keras's own it takes the mean over all replicas, for which every worker of a cluster would have to save, not the
    chief alone.
    """

    def add_weight(self, *args, **settings):
        if settings.get('synchronization') == tf.VariableSynchronization.ON_READ:
            settings['aggregation'] = tf.VariableAggregation.ONLY_FIRST_REPLICA
        return super().add_weight(*args, **settings)


class Convolution(keras.layers.Layer):
    """A convolution with SAME padding and, optionally, spectral normalisation (Miyato et al. 2018).

    With it, the kernel as a matrix W of `kernels` columns is divided by sigma = v^T W u in every forward pass. u and v
    are state, not parameters: the first pass of a training step advances the power iteration; otherwise they are
    constant, so that a trained net is deterministic. (The wrappers of tensorflow-addons and Keras write W / sigma into
    the kernel.) PyTorch's `weight_orig`, `weight_u`, `weight_v` are `kernel`, `u`, `v`, with v in the order of the
    kernel's axes: height, width, maps.

    Maps [B, H, W, C] to [B, ceil(H / stride), ceil(W / stride), kernels].
    """

    def __init__(self, kernels: int, size: int = 3, stride: int = 1, bias: bool = True, spectral: bool = False,
                 activation: str | None = None, name: str | None = None, gain: float = GAIN):
        super().__init__(name=name)
        self.gain = gain
        self.kernels, self.size, self.stride, self.has_bias, self.spectral = kernels, size, stride, bias, spectral
        self.activation = keras.activations.get(activation)

    def build(self, shape):
        # The kernel stays in float32 at any precision, which sigma needs.
        self.kernel = self.add_weight('kernel', [self.size, self.size, shape[-1], self.kernels], tf.float32,
                                      xavier(self.gain), experimental_autocast=False)
        if self.has_bias:
            self.bias = self.add_weight('bias', [self.kernels], initializer='zeros')
        if self.spectral:
            self.u = self._state('u', [self.kernels], 'random_normal')
            self.v = self._state('v', [self.size ** 2 * shape[-1]], 'zeros')
            for _ in range(WARM_UP):
                self._iterate()

    def _state(self, name, shape, initializer):
        return self.add_weight(name, shape, tf.float32, initializer, trainable=False, experimental_autocast=False,
                               synchronization=tf.VariableSynchronization.ON_READ,
                               aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)

    def _matrix(self):
        return tf.reshape(self.kernel, [-1, self.kernels])

    def _iterate(self):
        W = tf.stop_gradient(self._matrix())
        self.v.assign(tf.math.l2_normalize(tf.linalg.matvec(W, self.u), epsilon=1e-24))
        self.u.assign(tf.math.l2_normalize(tf.linalg.matvec(W, self.v, transpose_a=True), epsilon=1e-24))

    def weight(self, training: bool | None = False):
        """Return the kernel of this pass, [size, size, C, kernels]."""
        if not self.spectral:
            return self.kernel
        if training and not rematerialisation.repeating():
            self._iterate()
        # Times the inverse: the gradient of a quotient passes over the kernel three times more.
        return self.kernel * tf.math.reciprocal(tf.reduce_sum(self.v * tf.linalg.matvec(self._matrix(), self.u)))

    def fold(self) -> None:
        """Divide the kernel by sigma for good, for a net that trains no more."""
        self.kernel.assign(self.weight())
        self.spectral = False

    def call(self, x, training=None):
        # Otherwise all kernels are divided before the first is needed. With ALIAS's noise, which waits likewise, this
        # saves a try-on of 1024 x 768 1.3 of 4.8 GiB.
        with tf.control_dependencies([x]):
            kernel = tf.cast(self.weight(training), x.dtype)
        x = tf.nn.conv2d(x, kernel, self.stride, 'SAME')
        return self.activation(tf.nn.bias_add(x, self.bias) if self.has_bias else x)


def check_size(size: list[int], multiple: int, why: str) -> None:
    """Refuse a size that a network cannot take.

    Raises:
      ValueError: it is not a height and a width, or not a multiple.
    """
    if len(size) != 2 or any(side < 1 or side % multiple for side in size):
        raise ValueError(f'size must be a height and a width, multiples of {multiple} since {why}; it is {size}')


class Cost(NamedTuple):
    """Size and cost of a layer: its output's height and width, channels, parameters, multiply-adds per image."""
    name: str
    size: tuple[int, int]
    channels: int
    parameters: int
    macs: int


def convolution_cost(name: str, size: tuple[int, int], kernel: int, maps: int, kernels: int, bias: bool = True) -> Cost:
    """Return the cost of `kernels` of kernel x kernel x `maps` at height x width positions."""
    weights = kernel ** 2 * maps * kernels
    return Cost(name, size, kernels, weights + bias * kernels, weights * size[0] * size[1])
