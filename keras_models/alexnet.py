"""AlexNet: 'ImageNet Classification with Deep Convolutional Neural Networks' (Krizhevsky, Sutskever, Hinton 2012)."""
import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models.core import initializers
from keras_models.core import optimizers as rules
from keras_models.core.layers import (
    Cost,
    convolution_cost,
    dense_cost,
    even,
    local_response_normalization,
    three_dense,
    three_dense_activations,
    three_dense_logits,
)
from keras_models.image import classification


class Convolution(NamedTuple):
    """A convolutional layer.

    `apart`: its kernels see only the maps of their own tower. `bias`: initial value (section 5). `stddev`: of its
    initial weights, if different from the configuration's.
    """
    kernels: int
    size: int
    stride: int = 1
    apart: bool = False
    bias: float = 0.0
    normalised: bool = False
    pooled: bool = False
    stddev: float | None = None


class Net(NamedTuple):
    """Layers of a variant: convolutions, then either locally connected layers or the three dense ones.

    `pad`: padding of the image. `pooling`: whether pooling stays inside (VALID) or reaches over the edge (SAME).
    `smallest`: the smallest crop that leaves any maps.
    """
    convolutions: Mapping[str, Convolution]
    local: Mapping[str, Convolution]
    pad: tuple[int, int]
    pooling: str
    smallest: int

    def pooled(self, side: int) -> int:
        return -(-side // 2) if self.pooling == 'SAME' else (side - 3) // 2 + 1


NETS = {
    # Section 3.5. A nonlinearity follows every layer; local response normalisation (3.3) and overlapping pooling (3.4)
    # follow some. The first convolution gives figure 2's 55 x 55 from 227, so a crop of 224 is padded by 3.
    'imagenet': Net({
        'conv1': Convolution(96, 11, stride=4, normalised=True, pooled=True),
        'conv2': Convolution(256, 5, apart=True, bias=1.0, normalised=True, pooled=True),
        'conv3': Convolution(384, 3),
        'conv4': Convolution(384, 3, apart=True, bias=1.0),
        'conv5': Convolution(256, 3, apart=True, bias=1.0, pooled=True),
    }, {}, pad=(1, 2), pooling='VALID', smallest=64),
    # The four layers of 3.1 and 3.3, which footnote 3 leaves to cuda-convnet: layers-conv-local-11pct.cfg there. Its
    # normalisation came after the first pooling and over nine maps; here it follows 3.3 and 3.5.
    'cifar10': Net({
        'conv1': Convolution(64, 5, normalised=True, pooled=True, stddev=1e-4),
        'conv2': Convolution(64, 5, normalised=True, pooled=True, stddev=0.01),
    }, {
        'local3': Convolution(64, 3, stddev=0.04),
        'local4': Convolution(32, 3, stddev=0.04),
    }, pad=(0, 0), pooling='SAME', smallest=1),
}
DENSE = 4096
# With normal weights of deviation 0.01 this net stays at chance in half of the runs on small data, see `Config`.
PRESETS: dict[str, dict] = {'paper': {}, 'own_data': {**rules.OWN_DATA, 'weights': 'glorot'}}
NEURONS = {'conv1': 253_440, 'conv2': 186_624, 'conv3': 64_896, 'conv4': 64_896, 'conv5': 43_264, 'fc6': 4096,
           'fc7': 4096, 'fc8': 1000}  # figure 2's caption


@dataclasses.dataclass
class Config(rules.Descent):
    """The paper's net by default, or `variant: cifar10`, its small one, without towers and dropout.

    `classes` and `crop` default to the data's; `width` multiplies every channel count except the classes. `towers: 1`:
    every kernel sees all maps. `activation` and `normalisation` are the alternatives compared in 3.1 and 3.3. `weights:
    normal` draws from N(0, stddev^2) and sets some biases to 1, as in section 5; `glorot` is Glorot & Bengio's 2010
    with biases of 0: with biases of 1, half of the runs were at chance for twenty classes after 400 steps at rates of
    0.002 to 0.03.
    """
    preset: Literal['paper', 'own_data'] = 'paper'  # the paper's training rules, or rules for small data sets
    variant: Literal['imagenet', 'cifar10'] = 'imagenet'
    classes: int | None = None
    crop: int | None = None
    width: float = 1.0
    towers: Literal[1, 2] = 2
    activation: Literal['relu', 'tanh'] = 'relu'
    normalisation: bool = True
    dropout: float = 0.5  # fraction of dense activations dropped in training
    weights: Literal['normal', 'glorot'] = 'normal'
    stddev: float = 0.01  # standard deviation of the normal initial weights

    def __post_init__(self):
        super().__post_init__()
        if self.crop and self.crop < self.net.smallest:
            raise ValueError(f'crop {self.crop} leaves no maps for the last pooling; give {self.net.smallest} or more')

    @property
    def net(self) -> Net:
        return NETS[self.variant]

    @property
    def paper(self) -> classification.Paper:
        return PAPER


class Towers(keras.layers.Layer):
    """Convolution, bias and nonlinearity on two towers that do not see each other's maps (section 3.2).

    Maps are split and joined explicitly, because Keras's `groups=2` took 2.4 times as long to train on a CPU.
    """

    def __init__(self, kernels: int, size: int, activation: str, weights, bias, name: str):
        super().__init__(name=name)
        self.kernels, self.size, self.initial = kernels, size, (weights, bias)
        self.activation = keras.activations.get(activation)

    def build(self, shape):
        weights, bias = self.initial
        self.kernel = self.add_weight('kernel', [self.size, self.size, shape[-1] // 2, self.kernels],
                                      initializer=weights)
        self.bias = self.add_weight('bias', [self.kernels], initializer=bias)

    def call(self, x):
        """[B, H, W, C] -> [B, H, W, kernels]: the first half of the kernels sees the first half of the maps."""
        halves = zip(tf.split(x, 2, -1), tf.split(self.kernel, 2, -1), tf.split(self.bias, 2))
        return tf.concat([self.activation(tf.nn.bias_add(tf.nn.conv2d(maps, kernel, 1, 'SAME'), bias))
                          for maps, kernel, bias in halves], -1)


class LocallyConnected(keras.layers.Layer):
    """A convolution with separate kernels and biases at every position, and the nonlinearity: cuda-convnet's `local`.

    One matrix product per position. Keras's layer of that name lacks 'same' padding in this form, or multiplies by one
    matrix over all pairs of positions.
    """

    def __init__(self, kernels: int, size: int, activation: str, weights, name: str):
        super().__init__(name=name)
        self.kernels, self.size, self.initial = kernels, size, weights
        self.activation = keras.activations.get(activation)

    def build(self, shape):
        _, h, w, maps = shape
        self.kernel = self.add_weight('kernel', [h, w, self.size ** 2 * maps, self.kernels], initializer=self.initial)
        self.bias = self.add_weight('bias', [h, w, self.kernels], initializer='zeros')

    def call(self, x):
        """[B, h, w, C] -> [B, h, w, kernels]."""
        windows = tf.image.extract_patches(x, [1, self.size, self.size, 1], [1, 1, 1, 1], [1, 1, 1, 1], 'SAME')
        return self.activation(tf.einsum('bhwi,hwio->bhwo', windows, self.kernel) + self.bias)


def layers(config: Config) -> dict[str, keras.layers.Layer]:
    """Return every layer with weights or randomness, by name."""
    c, net, made = config, config.net, []
    assert c.classes
    one = float(c.weights == 'normal')

    def weights(stddev: float | None = None):
        if c.weights == 'glorot':
            return initializers.glorot()
        return initializers.fixed(c.stddev if stddev is None else stddev)
    for name, each in net.convolutions.items():
        kernels, bias = even(each.kernels, c.width), keras.initializers.Constant(each.bias * one)
        if each.apart and c.towers == 2:
            made.append(Towers(kernels, each.size, c.activation, weights(each.stddev), bias, name))
        else:
            made.append(keras.layers.Conv2D(
                kernels, each.size, each.stride, 'same' if each.stride == 1 else 'valid', activation=c.activation,
                kernel_initializer=weights(each.stddev), bias_initializer=bias, name=name))
    if net.local:
        made += [LocallyConnected(even(each.kernels, c.width), each.size, c.activation, weights(each.stddev), name)
                 for name, each in net.local.items()]
        made.append(keras.layers.Dense(c.classes, kernel_initializer=weights(), name='fc5'))
    else:
        made += three_dense(even(DENSE, c.width), c.classes, c.dropout, weights, bias=one, activation=c.activation)
    return {layer.name: layer for layer in made}


def convolutions(layers: dict[str, keras.layers.Layer], config: Config, image):
    """Map [B, H, W, 3] to the last pooling's maps [B, h, w, C * width].

    They are 6 x 6 x 256 from 224 x 224, and in CIFAR-10's net 6 x 6 x 64 from 24 x 24.
    """
    net = config.net
    x = tf.pad(image, [[0, 0], net.pad, net.pad, [0, 0]])
    for name, each in net.convolutions.items():
        x = layers[name](x)
        if each.normalised and config.normalisation:
            x = local_response_normalization(x)
        if each.pooled:
            x = tf.nn.max_pool2d(x, 3, 2, net.pooling)
    return x


def dense(layers: dict[str, keras.layers.Layer], config: Config, maps, seed=None, training: bool | None = False):
    """Map a crop's maps [B, side, side, C] to logits [B, classes]; without a seed nothing is dropped."""
    if not config.net.local:
        return three_dense_logits(layers, config, maps, seed, training)
    return layers['fc5'](_locals(layers, config, maps))


def activations(layers: dict[str, keras.layers.Layer], config: Config, maps):
    """Map [B, h, w, C] of any size to the last hidden layer, [B, h - side + 1, w - side + 1, units]."""
    if not config.net.local:
        return three_dense_activations(layers, config, maps)
    side, channels = layers[next(iter(config.net.local))].kernel.shape[0], maps.shape[-1]
    windows = tf.image.extract_patches(maps, [1, side, side, 1], [1, 1, 1, 1], [1, 1, 1, 1], 'VALID')
    found = _locals(layers, config, tf.reshape(windows, [-1, side, side, channels]))
    return tf.reshape(found, [*tf.unstack(tf.shape(windows)[:3]), found.shape[-1]])


def score_map(layers: dict[str, keras.layers.Layer], config: Config, maps):
    """Map [B, h, w, C] of any size to logits at every position, [B, h - side + 1, w - side + 1, classes]."""
    return layers['fc5' if config.net.local else 'fc8'](activations(layers, config, maps))


def _locals(layers: dict[str, keras.layers.Layer], config: Config, maps):
    """Apply the locally connected layers to a crop's maps: [B, side, side, C] -> [B, units]."""
    for name in config.net.local:
        maps = layers[name](maps)
    return tf.reshape(maps, [-1, math.prod(maps.shape[1:])])


def costs(config: Config) -> list[Cost]:
    """Return every layer's output, parameters and multiply-adds, in closed form."""
    c, net, found = config, config.net, []
    assert c.crop and c.classes
    side, maps = c.crop + sum(net.pad), 3
    for name, each in net.convolutions.items():
        side = side if each.stride == 1 else (side - each.size) // each.stride + 1
        kernels = even(each.kernels, c.width)
        found.append(convolution_cost(name, each.size, maps // (c.towers if each.apart else 1), kernels, side))
        side, maps = net.pooled(side) if each.pooled else side, kernels
    for name, each in net.local.items():
        kernels = even(each.kernels, c.width)
        shared = convolution_cost(name, each.size, maps, kernels, side)
        found.append(shared._replace(parameters=shared.parameters * side ** 2))
        maps = kernels
    inputs, units = side ** 2 * maps, even(DENSE, c.width)
    if net.local:
        return [*found, dense_cost('fc5', inputs, c.classes)]
    return [*found, dense_cost('fc6', inputs, units), dense_cost('fc7', units, units),
            dense_cost('fc8', units, c.classes)]


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """Return figure 2, layer by layer, for the paper's net; its first neuron count fits no reading of the text."""
    if (config.variant, config.width, config.crop, config.classes) != ('imagenet', 1.0, 224, 1000):
        return None
    rows: list[tuple[str, ...]] = []
    for cost in costs(config):
        neurons = cost.side ** 2 * cost.channels
        rows.append((cost.name, f'{cost.side} x {cost.side} x {cost.channels}', f'{neurons:,}',
                     f'{NEURONS[cost.name]:,}', f'{cost.parameters:,}', f'{cost.macs / 1e6:.1f}'))
    return ('layer', 'output', 'neurons', 'figure 2', 'parameters', 'million multiply-adds'), rows


def optimizers(config: Config) -> dict[str, keras.optimizers.Optimizer]:
    """Return section 5's optimizer; in CIFAR-10's net convolutions do not decay (layer-params-conv-local-11pct.cfg)."""
    spared = tuple(config.net.convolutions) if config.net.local else ()
    return {'classifier': rules.descent(config, spared)}


PAPER = classification.Paper(layers, convolutions, dense, score_map, activations, costs)
THROUGHPUT_UNIT, METRICS = classification.THROUGHPUT_UNIT, classification.METRICS
build, loss_fn = classification.build, classification.loss_fn
parameters, macs, flops_per_unit = classification.parameters, classification.macs, classification.flops_per_unit
TASKS, SERVING, ENDS_IN_DENSE_LAYERS = ('image',), 'keras_models.image.serving', True
