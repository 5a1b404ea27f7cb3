"""VGG: 'Very Deep Convolutional Networks for Large-Scale Image Recognition' (Simonyan & Zisserman 2015, arXiv v6)."""
import dataclasses
from collections.abc import Iterator
from typing import Literal

import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
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
    three_dense_score_map,
)
from keras_models.image import classification
from keras_models.weights import h5_file

Variant = Literal['A', 'A-LRN', 'B', 'C', 'D', 'E']

# Table 1's columns. All end in FC-4096, FC-4096, FC-1000 (here: the number of classes) and soft-max.
TABLE_1: dict[Variant, str] = {
    'A': '''conv3-64 maxpool
            conv3-128 maxpool
            conv3-256 conv3-256 maxpool
            conv3-512 conv3-512 maxpool
            conv3-512 conv3-512 maxpool''',
    'A-LRN': '''conv3-64 LRN maxpool
                conv3-128 maxpool
                conv3-256 conv3-256 maxpool
                conv3-512 conv3-512 maxpool
                conv3-512 conv3-512 maxpool''',
    'B': '''conv3-64 conv3-64 maxpool
            conv3-128 conv3-128 maxpool
            conv3-256 conv3-256 maxpool
            conv3-512 conv3-512 maxpool
            conv3-512 conv3-512 maxpool''',
    'C': '''conv3-64 conv3-64 maxpool
            conv3-128 conv3-128 maxpool
            conv3-256 conv3-256 conv1-256 maxpool
            conv3-512 conv3-512 conv1-512 maxpool
            conv3-512 conv3-512 conv1-512 maxpool''',
    'D': '''conv3-64 conv3-64 maxpool
            conv3-128 conv3-128 maxpool
            conv3-256 conv3-256 conv3-256 maxpool
            conv3-512 conv3-512 conv3-512 maxpool
            conv3-512 conv3-512 conv3-512 maxpool''',
    'E': '''conv3-64 conv3-64 maxpool
            conv3-128 conv3-128 maxpool
            conv3-256 conv3-256 conv3-256 conv3-256 maxpool
            conv3-512 conv3-512 conv3-512 conv3-512 maxpool
            conv3-512 conv3-512 conv3-512 conv3-512 maxpool''',
}
DENSE = 4096
# Table 2's millions of parameters, and table 3's best row: top-1 and top-5 error in percent at one scale.
RESULTS: dict[Variant, tuple] = {
    'A': (133, 29.6, 10.4), 'A-LRN': (133, 29.7, 10.5), 'B': (133, 28.7, 9.9), 'C': (134, 27.3, 8.8),
    'D': (138, 25.6, 8.1), 'E': (144, 25.5, 8.0)}

# 'Zero mean and 10^-2 variance' (3.1) is a standard deviation of 0.1, with which nothing is learned: A's first loss is
# near 10^9. He et al. 2015 (2.2) read it as a deviation of 0.01; then the loss is ln 1000. With `glorot`, the authors
# found later, deep nets need not start from net A. With `he` net A learns sooner: on twenty classes of Tiny ImageNet
# its top-1 error on validation after 1,300 of 1,500 steps was 74%, with `glorot` 82% (`vgg_a_tiny_imagenet_long`).
PRESETS: dict[str, dict] = {'paper': {}, 'official': {'stddev': 0.01},
                            'own_data': {**rules.OWN_DATA, 'weights': 'he'}}

# Layers of deeper nets that take the place of A's first four convolutions, of equal size; and the dense layers (3.1).
FROM_A = ('conv1_1', 'conv2_1', 'conv3_1', 'conv3_2', 'fc6', 'fc7', 'fc8')


@dataclasses.dataclass
class Config(rules.Descent):
    """Configuration `variant` of table 1.

    `classes` and `crop` default to the data's; `width` multiplies every channel count except the classes. `weights:
    normal` draws from N(0, stddev^2); with `glorot`, the authors found later, no pre-initialisation is needed; `he` is
    eq. (10) of He et al. 2015, derived for rectifiers.
    """
    # the paper's settings, those of the published code, or settings for small data sets
    preset: Literal['paper', 'official', 'own_data'] = 'paper'
    variant: Variant = 'D'
    classes: int | None = None
    crop: int | None = None
    width: float = 1.0
    dropout: float = 0.5  # fraction of dense activations dropped in training
    weights: Literal['normal', 'glorot', 'he'] = 'normal'
    stddev: float = 0.1  # standard deviation of the normal initial weights

    def __post_init__(self):
        super().__post_init__()
        if self.crop and self.crop < 32:
            raise ValueError(f'crop {self.crop} leaves no maps after five poolings; give 32 or more')

    @property
    def paper(self) -> classification.Paper:
        return PAPER


def steps(config: Config) -> Iterator[tuple[str, int, int]]:
    """Yield the column of table 1 as (name, size, channels): conv1_1 …, and `LRN` and `maxpool` with 0 channels."""
    stage, number = 1, 0
    for word in TABLE_1[config.variant].split():
        if word.startswith('conv'):
            number += 1
            size, channels = word.removeprefix('conv').split('-')
            yield f'conv{stage}_{number}', int(size), even(int(channels), config.width)
        else:
            yield word, 0, 0
        if word == 'maxpool':
            stage, number = stage + 1, 0


def layers(config: Config) -> dict[str, keras.layers.Layer]:
    """Return every layer with weights or randomness, by name."""
    c = config
    assert c.classes

    weights = {'normal': lambda: initializers.fixed(c.stddev), 'glorot': initializers.glorot,
               'he': lambda: initializers.he('forward')}[c.weights]
    made = [keras.layers.Conv2D(channels, size, padding='same', activation='relu', kernel_initializer=weights(),
                                name=name) for name, size, channels in steps(c) if channels]
    made += three_dense(even(DENSE, c.width), c.classes, c.dropout, weights)
    return {layer.name: layer for layer in made}


def convolutions(layers: dict[str, keras.layers.Layer], config: Config, image):
    """Map [B, H, W, 3] to the last pooling's maps [B, H/32, W/32, 512 * width], rounded down."""
    x = image
    for name, *_ in steps(config):
        if name == 'maxpool':
            x = tf.nn.max_pool2d(x, 2, 2, 'VALID')
        elif name == 'LRN':
            x = local_response_normalization(x)
        else:
            x = layers[name](x)
    return x


dense, score_map, activations = three_dense_logits, three_dense_score_map, three_dense_activations


def warm_start(nets: dict[str, keras.Model], weights: dict[str, dict[str, np.ndarray]]) -> None:
    """Pre-initialise (3.1) the first four convolutional and the last three dense layers from net A.

    The layers in between keep their random weights.

    Args:
      nets: of a deeper configuration, as returned by `build`.
      weights: net -> variable's name, such as `conv1_1/kernel` -> value, of configuration A; others are ignored.

    Raises:
      ModelError: one is missing, or has another shape here: another width, crop or number of classes.
    """
    take_over([variable for variable in nets['classifier'].variables if variable.name.split('/')[0] in FROM_A],
              weights.get('classifier', {}), 'give those of configuration A at the same width, crop and classes')


def take_over(variables: list[tf.Variable], weights: dict[str, np.ndarray], remedy: str) -> None:
    """Assign weights to variables by name; raises as `warm_start`, before any is assigned."""
    ours = {variable.name.split(':')[0]: variable for variable in variables}
    for name, variable in ours.items():
        found, shape = weights[name].shape if name in weights else 'nothing', tuple(variable.shape)
        if found != shape:
            raise ModelError(f'{name} has shape {shape} here, but the initial weights have {found}; {remedy}')
    for name, variable in ours.items():
        variable.assign(weights[name])


def keras_weights(path: str, config: Config) -> dict[str, dict[str, np.ndarray]]:
    """Read the .h5 weight files Keras Applications publishes for VGG16 (here D) and VGG19 (E).

    Those networks take BGR images less their mean. The first kernels' channels are reversed here, so that RGB images
    less the same mean (123.68, 116.779, 103.939) give the same outputs. Nothing in the file is executed.

    Returns:
      net -> variable's name, such as `conv1_1/kernel` -> value, for all variables of the net.

    Raises:
      ModelError: it is not such a file, or is of another net: expected and found shapes are listed.
    """
    theirs = {name: f'block{name[4]}_conv{name[6:]}' for name, _, channels in steps(config) if channels}
    theirs |= {'fc6': 'fc1', 'fc7': 'fc2', 'fc8': 'predictions'}
    found = h5_file.read(path)
    expected = {theirs[name]: shapes for name, shapes in _shapes(config).items()}
    shapes = {layer: [value.shape for value in values] for layer, values in found.items() if values}
    if shapes != expected:
        differ = [layer for layer in {**expected, **shapes} if expected.get(layer) != shapes.get(layer)]
        raise ModelError(f'{path} does not fit configuration {config.variant}: '
                         f'expected {_listed(expected, differ)}; found {_listed(shapes, differ)}')
    found['block1_conv1'][0] = found['block1_conv1'][0][:, :, ::-1]
    return {'classifier': {f'{name}/{part}': value for name, layer in theirs.items()
                           for part, value in zip(('kernel', 'bias'), found[layer])}}


weight_readers = {'.h5': keras_weights}


def _shapes(config: Config) -> dict[str, list[tuple[int, ...]]]:
    """Return layer -> shapes of its kernel and bias."""
    maps, found = 3, {}
    for name, size, channels in steps(config):
        if channels:
            found[name], maps = [(size, size, maps, channels), (channels,)], channels
    for cost in costs(config)[-3:]:
        found[cost.name] = [(cost.macs // cost.channels, cost.channels), (cost.channels,)]
    return found


def _listed(shapes: dict[str, list[tuple[int, ...]]], layers: list[str]) -> str:
    return ', '.join(f'{layer} {" ".join(map(str, shapes[layer]))}' if layer in shapes else f'no {layer}'
                     for layer in layers)


def costs(config: Config) -> list[Cost]:
    """Return every layer's output, parameters and multiply-adds, in closed form."""
    c, maps, found = config, 3, []
    assert c.crop and c.classes
    side = c.crop
    for name, size, channels in steps(c):
        if channels:
            found.append(convolution_cost(name, size, maps, channels, side))
            maps = channels
        elif name == 'maxpool':
            side //= 2
    units = even(DENSE, c.width)
    return [*found, dense_cost('fc6', side ** 2 * maps, units), dense_cost('fc7', units, units),
            dense_cost('fc8', units, c.classes)]


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """Return tables 2 and 3, if this net has the size of the paper's.

    For every configuration: weight layers, parameters, cost, and the paper's errors at a single test scale.
    """
    if (config.width, config.crop, config.classes) != (1.0, 224, 1000):
        return None
    rows: list[tuple[str, ...]] = []
    for variant, (millions, top1, top5) in RESULTS.items():
        net = dataclasses.replace(config, variant=variant)
        ours = parameters(net) / 1e6
        rows.append((variant, str(len(costs(net))), f'{ours:.1f}', f'{millions} ({ours / millions - 1:+.1%})',
                     f'{macs(net) / 1e9:.2f}', f'{top1}', f'{top5}'))
    return ('model.variant', 'weight layers', 'million parameters', 'table 2', 'billion multiply-adds',
            'top-1 error, %', 'top-5 error, %'), rows


PAPER = classification.Paper(layers, convolutions, dense, score_map, activations, costs)
THROUGHPUT_UNIT, METRICS = classification.THROUGHPUT_UNIT, classification.METRICS
build, loss_fn, optimizers = classification.build, classification.loss_fn, classification.optimizers
parameters, macs, flops_per_unit = classification.parameters, classification.macs, classification.flops_per_unit
TASKS, SERVING, ENDS_IN_DENSE_LAYERS = ('image',), 'keras_models.image.serving', True
