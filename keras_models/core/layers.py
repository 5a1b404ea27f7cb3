"""Layers used by several papers."""
import math
import zlib
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow import keras


class Dropout(keras.layers.Layer):
    """Dropout (Srivastava et al. 2014) whose mask is a pure function of its seed and its name.

    Keras's own dropout keeps a generator that checkpoints do not hold, so a resumed run would draw other masks. Here
    the trainer passes a seed (of seed, step and replica), and the layer's name distinguishes its draws. Masks are the
    same with and without XLA.

    Args:
      rate: fraction of units set to zero, in steps of 2^-16; the others are divided by `1 - rate`.
    """

    def __init__(self, rate: float, name: str):
        super().__init__(name=name)
        self.rate = rate
        self._site = zlib.crc32(name.encode()) & 0x7FFFFFFF

    def call(self, x, seed, training=None):
        """Drop units of x, of any shape, by seed, int32 [2]; returns x unchanged when not training."""
        if not training or not self.rate:
            return x
        # Each word gives four 16-bit draws. Random floats and a selection by them took 1.5 times as long on a CPU (1.8
        # instead of 1.3 ms for 3,500 x 512), and XLA draws other floats than the graph does, but the same words.
        n, dropped = tf.size(x), round(self.rate * 2 ** 16)
        words = tf.random.stateless_uniform([(n + 3) // 4], seed + [self._site, 0], None, None, tf.uint64,
                                            alg='philox')
        draws = tf.reshape(tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:n], tf.shape(x))
        return x * (tf.cast(draws >= dropped, x.dtype) * (1 / (1 - dropped / 2 ** 16)))


def by_name(nets: dict[str, keras.Model]) -> dict[str, dict[str, tf.Variable]]:
    """Return every net's variables under readable keys, so that checkpoints do not depend on the order of layers.

    An exported module tracks these instead of the nets: for a Keras model TensorFlow also saves every layer as a
    separate function, which took 25 of 60 seconds for VITON-HD, and which nothing calls.
    """
    return {net: {variable.name.split(':')[0].replace('/', ':'): variable for variable in model.variables}
            for net, model in nets.items()}


def of_any_size(net: keras.Model) -> keras.Model:
    """Let a convolutional network, or a part of one, take images of other sizes, which Keras would refuse."""
    net.input_spec = None
    return net


def shared(function: Callable, **options) -> Callable:
    """Compile a function that several signatures of an exported module call.

    What is returned is no tf.function: TensorFlow would trace one held as an attribute again, and save it by itself,
    though nothing calls it. For VITON-HD that took 2.2 of 9.2 CPU seconds and 1.5 of 4.8 MB.
    """
    compiled = tf.function(function, autograph=False, **options)
    return lambda *args: compiled(*args)


def count_params(net) -> int:
    """Return the number of parameters of a net, trainable or not."""
    return sum(variable.shape.num_elements() for variable in net.variables)


def seed_input():
    """Return the model input for a step's dropout seed: int32 [2], without a batch axis.

    Keras would take `batch_size=2` for a global batch, and refuse to divide it among more than two replicas.
    """
    return keras.Input(type_spec=tf.TensorSpec([2], tf.int32, 'seed'))


def local_response_normalization(a):
    """Normalise as Krizhevsky et al. 2012, 3.3: b^i = a^i / (k + alpha * sum of (a^j)^2 over the n maps around i)^beta.

    With the paper's k = 2, n = 5, alpha = 1e-4, beta = 0.75. (Caffe divides alpha by n; the paper does not.)

    [B, H, W, C] -> the same.
    """
    # In float32, because there is no kernel for bfloat16.
    return tf.cast(tf.nn.local_response_normalization(tf.cast(a, tf.float32), 5 // 2, 2.0, 1e-4, 0.75), a.dtype)


def even(channels: int, width: float) -> int:
    """Return `channels` times `width`, rounded to an even number, because AlexNet halves it."""
    return max(2, 2 * round(channels * width / 2))


class Cost(NamedTuple):
    """Size and cost of a layer: its output's side and channels, parameters, multiply-adds per image."""
    name: str
    side: int
    channels: int
    parameters: int
    macs: int


def convolution_cost(name: str, size: int, maps: int, kernels: int, side: int) -> Cost:
    """Return the cost of `kernels` of size x size x `maps` at side x side positions."""
    weights = size ** 2 * maps * kernels
    return Cost(name, side, kernels, weights + kernels, weights * side ** 2)


def dense_cost(name: str, inputs: int, units: int) -> Cost:
    return Cost(name, 1, units, inputs * units + units, inputs * units)


def three_dense(units: int, classes: int, rate: float, weights: Callable[[], keras.initializers.Initializer],
                bias: float = 0.0, activation: str = 'relu') -> list[keras.layers.Layer]:
    """Return the last layers of AlexNet and VGG: fc6 and fc7 with ReLU and dropout, and fc8, which gives the logits."""
    made = []
    for name in ('fc6', 'fc7'):
        made += [keras.layers.Dense(units, activation, kernel_initializer=weights(),
                                    bias_initializer=keras.initializers.Constant(bias), name=name),
                 Dropout(rate, f'{name}/dropout')]
    return [*made, keras.layers.Dense(classes, kernel_initializer=weights(), name='fc8')]


def three_dense_logits(layers: dict[str, keras.layers.Layer], config, maps, seed=None, training: bool | None = False):
    """Map a crop's maps [B, side, side, C] to logits [B, classes]; without a seed nothing is dropped."""
    del config
    x = tf.reshape(maps, [-1, math.prod(maps.shape[1:])])
    for name in ('fc6', 'fc7'):
        x = layers[name](x)
        if seed is not None:
            x = layers[f'{name}/dropout'](x, seed, training=training)
    return layers['fc8'](x)


def three_dense_activations(layers: dict[str, keras.layers.Layer], config, maps):
    """Map [B, h, w, C] of any size to fc7's outputs at every position, [B, h - side + 1, w - side + 1, units].

    Simonyan & Zisserman 2015, 3.2: fc6 becomes a convolution over the side x side positions it saw in training. It is
    computed as a matrix product, which takes 0.1 to 0.4 of the time of `conv2d` on a CPU.
    """
    del config
    side = math.isqrt(layers['fc6'].kernel.shape[0] // maps.shape[-1])
    x = tf.image.extract_patches(maps, [1, side, side, 1], [1, 1, 1, 1], [1, 1, 1, 1], 'VALID')
    return layers['fc7'](layers['fc6'](x))


def three_dense_score_map(layers: dict[str, keras.layers.Layer], config, maps):
    """Map [B, h, w, C] of any size to logits at every position, [B, h - side + 1, w - side + 1, classes]."""
    return layers['fc8'](three_dense_activations(layers, config, maps))
