"""AlexNet: 'ImageNet Classification with Deep Convolutional Neural Networks' (Krizhevsky, Sutskever, Hinton 2012)."""
import dataclasses
from typing import Literal, NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models import classification, initializers
from keras_models import optimizers as rules
from keras_models.layers import (
    Cost,
    convolution_cost,
    dense_cost,
    even,
    local_response_normalization,
    three_dense,
    three_dense_activations,
    three_dense_logits,
    three_dense_score_map,
)


class Convolution(NamedTuple):
    """`apart`: its kernels see only the maps of their own tower. `bias`: the initial one (section 5)."""
    kernels: int
    size: int
    stride: int = 1
    apart: bool = False
    bias: float = 0.0
    normalised: bool = False
    pooled: bool = False


# Section 3.5. ReLU follows every one; local response normalization (3.3) and overlapping pooling (3.4) some.
CONVOLUTIONS = {
    'conv1': Convolution(96, 11, stride=4, normalised=True, pooled=True),
    'conv2': Convolution(256, 5, apart=True, bias=1.0, normalised=True, pooled=True),
    'conv3': Convolution(384, 3),
    'conv4': Convolution(384, 3, apart=True, bias=1.0),
    'conv5': Convolution(256, 3, apart=True, bias=1.0, pooled=True),
}
DENSE = 4096
PAD = (1, 2)  # The first convolution gives figure 2's 55 x 55 from 227, so a crop of 224 is padded by 3.
NEURONS = {'conv1': 253_440, 'conv2': 186_624, 'conv3': 64_896, 'conv4': 64_896, 'conv5': 43_264, 'fc6': 4096,
           'fc7': 4096, 'fc8': 1000}  # figure 2's caption


@dataclasses.dataclass
class Config(rules.Descent):
    """The paper's net by default. `classes` and `crop` are the data's when left empty; `width` multiplies every channel
    count but the classes. `towers: 1`: every kernel sees all maps."""
    classes: int | None = None
    crop: int | None = None
    width: float = 1.0
    towers: Literal[1, 2] = 2
    dropout: float = 0.5
    deviation: float = 0.01

    def __post_init__(self):
        if self.crop and self.crop < 64:
            raise ValueError(f'crop {self.crop} leaves nothing for the last pooling; give 64 or more')


class Towers(keras.layers.Layer):
    """Convolution, bias and ReLU on two towers that do not see each other's maps (section 3.2).

    Split and joined here: Keras's `groups=2` took 2.4 times as long to train on a CPU.
    """

    def __init__(self, kernels: int, size: int, weights, bias, name: str):
        super().__init__(name=name)
        self.kernels, self.size, self.initial = kernels, size, (weights, bias)

    def build(self, shape):
        weights, bias = self.initial
        self.kernel = self.add_weight('kernel', [self.size, self.size, shape[-1] // 2, self.kernels],
                                      initializer=weights)
        self.bias = self.add_weight('bias', [self.kernels], initializer=bias)

    def call(self, x):
        """[B, H, W, C] -> [B, H, W, kernels]: the first half of the kernels sees the first half of the maps."""
        halves = zip(tf.split(x, 2, -1), tf.split(self.kernel, 2, -1), tf.split(self.bias, 2))
        return tf.concat([tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(maps, kernel, 1, 'SAME'), bias))
                          for maps, kernel, bias in halves], -1)


def layers(config: Config) -> dict[str, keras.layers.Layer]:
    """Every layer that has weights or draws, by name."""
    c, made = config, []
    assert c.classes

    def weights():
        return initializers.fixed(c.deviation)
    for name, each in CONVOLUTIONS.items():
        kernels, bias = even(each.kernels, c.width), keras.initializers.Constant(each.bias)
        if each.apart and c.towers == 2:
            made.append(Towers(kernels, each.size, weights(), bias, name))
        else:
            made.append(keras.layers.Conv2D(kernels, each.size, each.stride, 'same' if each.stride == 1 else 'valid',
                                            activation='relu', kernel_initializer=weights(), bias_initializer=bias,
                                            name=name))
    made += three_dense(even(DENSE, c.width), c.classes, c.dropout, weights, bias=1.0)
    return {layer.name: layer for layer in made}


def convolutions(layers: dict[str, keras.layers.Layer], config: Config, image):
    """[B, H, W, 3] -> the last pooling's maps [B, h, w, 256 * width]; 6 x 6 from 224 x 224."""
    del config
    x = tf.pad(image, [[0, 0], PAD, PAD, [0, 0]])
    for name, each in CONVOLUTIONS.items():
        x = layers[name](x)
        if each.normalised:
            x = local_response_normalization(x)
        if each.pooled:
            x = tf.nn.max_pool2d(x, 3, 2, 'VALID')
    return x


dense, score_map, activations = three_dense_logits, three_dense_score_map, three_dense_activations


def costs(config: Config) -> list[Cost]:
    """Every layer's output, parameters and multiply-adds, in closed form."""
    c, found = config, []
    assert c.crop and c.classes
    side, maps = c.crop + sum(PAD), 3
    for name, each in CONVOLUTIONS.items():
        side = side if each.stride == 1 else (side - each.size) // each.stride + 1
        kernels = even(each.kernels, c.width)
        found.append(convolution_cost(name, each.size, maps // (c.towers if each.apart else 1), kernels, side))
        side, maps = (side - 3) // 2 + 1 if each.pooled else side, kernels
    units = even(DENSE, c.width)
    return [*found, dense_cost('fc6', side ** 2 * maps, units), dense_cost('fc7', units, units),
            dense_cost('fc8', units, c.classes)]


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """Figure 2, layer by layer, if this is the paper's net; its first neuron count fits no reading of the text."""
    if (config.width, config.crop, config.classes) != (1.0, 224, 1000):
        return None
    rows: list[tuple[str, ...]] = []
    for cost in costs(config):
        neurons = cost.side ** 2 * cost.channels
        rows.append((cost.name, f'{cost.side} x {cost.side} x {cost.channels}', f'{neurons:,}',
                     f'{NEURONS[cost.name]:,}', f'{cost.parameters:,}', f'{cost.macs / 1e6:.1f}'))
    return ('layer', 'output', 'neurons', 'figure 2', 'parameters', 'million multiply-adds'), rows


UNIT, METRICS = classification.UNIT, classification.METRICS
build, loss_fn, optimizers = classification.build, classification.loss_fn, classification.optimizers
parameters, macs, flops_per_unit = classification.parameters, classification.macs, classification.flops_per_unit
Inference, check = classification.Inference, classification.check
serving, predict = classification.serving, classification.predict
