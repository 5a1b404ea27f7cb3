"""PReLU nets: 'Delving Deep into Rectifiers' (He, Zhang, Ren, Sun 2015)."""
import dataclasses
import functools
import itertools
import re
from typing import Literal, NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models.core import initializers
from keras_models.core import optimizers as rules
from keras_models.core.layers import Cost, Dropout, convolution_cost, dense_cost, even
from keras_models.image import classification

Variant = Literal[14, 30, 'A', 'B', 'C']


def table_1(more: int = 0) -> list[str]:
    """The small net; `more`: convolutions of 256 x 2 x 2 added (2.2: sixteen make 30 weight layers).

    The first convolution is not padded, which gives the maps of 36 x 36 and 18 x 18 of He & Sun 2014, whose model E
    it is.
    """
    return ['7x7, 64, /2, pad 0', '3x3 maxpool, /3',
            *['2x2, 128'] * 4, '2x2 maxpool, /2',
            *['2x2, 256'] * (6 + more),
            'spp, {6, 3, 2, 1}', 'fc, 4096', 'fc, 4096']


def table_3(each: int, filters: tuple[int, int, int]) -> list[str]:
    """The large nets: `each` convolutions on maps of 56, 28 and 14; six in B and C, as their depth of 22 and their
    complexity say."""
    first, second, third = ([f'3x3, {n}'] * each for n in filters)
    return ['7x7, 96, /2', '2x2 maxpool, /2', *first, '2x2 maxpool, /2', *second, '2x2 maxpool, /2', *third,
            'spp, {7, 3, 2, 1}', 'fc, 4096', 'fc, 4096']


# A last dense layer, of the classes, follows in all.
VARIANTS: dict[Variant, list[str]] = {
    14: table_1(), 30: table_1(more=16),
    'A': table_3(5, (256, 512, 512)), 'B': table_3(6, (256, 512, 512)), 'C': table_3(6, (384, 768, 896))}
# Table 3's complexity in 10^10 operations, and top-1 and top-5 error in percent: of 14 table 2's (10 views, PReLU by
# channel), of 30 section 2.2's (ReLU), of A, B and C table 6's (several scales and views).
RESULTS: dict[Variant, tuple] = {
    14: (None, 32.64, 12.75), 30: (None, 38.56, 16.59), 'A': (1.90, 22.97, 6.28), 'B': (2.32, 22.85, 6.27),
    'C': (5.30, 21.59, 5.71)}


PRESETS: dict[str, dict] = {'paper': {}, 'own_data': dict(rules.OWN_DATA)}

# What a line of `layers` may be.
NOTATION = {'convolution': r'(\d+)x\1, (\d+)(?:, /(\d+))?(?:, pad (\d+))?', 'maxpool': r'(\d+)x\1 maxpool, /(\d+)',
            'spp': r'spp, \{(\d+(?:, ?\d+)*)\}', 'fc': r'fc, (\d+)'}


class Step(NamedTuple):
    """A convolution of `filters` filters, or a max-pooling (none); `pad`ded so much on every side."""
    name: str
    size: int
    stride: int
    pad: int = 0
    filters: int = 0


class Net(NamedTuple):
    """`layers`, read. `levels`: bins a side of the spatial pyramid pooling. `units`: of the hidden dense layers."""
    steps: list[Step]
    levels: list[int]
    units: list[int]


@dataclasses.dataclass
class Config(rules.Descent):
    """The paper's net `variant`, or `layers` in the notation of the tables, without the last dense one: `3x3, 256` (its
    stride `, /2`, its padding `, pad 0`), `2x2 maxpool, /2`, `spp, {7, 3, 2, 1}`, `fc, 4096`.

    `classes` and `crop` are the data's when left empty; `width` multiplies every channel count but the classes.
    `weights`: convolutions are drawn by (14), by (10), or as 2.2 reads Glorot and Bengio. `a`: what slopes begin with.
    """
    preset: Literal['paper', 'own_data'] = 'paper'  # the paper's rules, or those that learn small data sets
    max_drops: int = 2  # how often the learning rate is divided by `factor`
    variant: Variant = 'A'
    layers: list[str] = dataclasses.field(default_factory=list)
    classes: int | None = None
    crop: int | None = None
    width: float = 1.0
    # one slope a channel, one slope a layer, or no slope
    activation: Literal['prelu_channel', 'prelu_shared', 'relu'] = 'prelu_channel'
    a: float = 0.25
    weights: Literal['backward', 'forward', 'xavier'] = 'backward'
    dropout: float = 0.5  # share of the dense activations dropped in training

    def __post_init__(self):
        super().__post_init__()
        if min(sides(read(self), self.crop or 10 ** 6)) < 1:
            raise ValueError(f'crop {self.crop} leaves no map for spp; give a larger one, or layers with less pooling')


def read(config: Config) -> Net:
    """The net of a configuration.

    A 3 x 3 or 7 x 7 convolution is padded so that stride 1 keeps the size. For 2 x 2 no padding does: the first of a
    stage has none, the second 1, and so on, which keeps it every other time and shifts nothing.

    Raises:
      ValueError: a line is not in the tables' notation, or out of order.
    """
    lines = [_line(line) for line in config.layers or VARIANTS[config.variant]]
    if not re.fullmatch('(c|m)*c(c|m)*sf*', ''.join(kind[0] for kind, _ in lines)):
        raise ValueError('layers must be convolutions and maxpools, then one spp, then any fc')
    steps, stage = [], 1
    for kind, group in itertools.groupby(lines, lambda line: line[0]):
        found = [values for _, values in group]
        if kind == 'maxpool':
            for size, stride in found:
                steps.append(Step(f'pool{stage}', int(size), int(stride)))
                stage += 1
        elif kind == 'convolution':
            names = [f'conv{stage}_{n + 1}' for n in range(len(found))] if len(found) > 1 else [f'conv{stage}']
            for n, (name, (size, filters, stride, pad)) in enumerate(zip(names, found)):
                usual = (int(size) - 1) // 2 + (n % 2 if int(size) % 2 == 0 else 0)
                steps.append(Step(name, int(size), int(stride or 1), usual if pad is None else int(pad),
                                  even(int(filters), config.width)))
    levels = [int(n) for kind, values in lines if kind == 'spp' for n in values[0].split(',')]
    return Net(steps, levels, [even(int(values[0]), config.width) for kind, values in lines if kind == 'fc'])


def _line(line: str) -> tuple[str, tuple]:
    for kind, pattern in NOTATION.items():
        if match := re.fullmatch(pattern, line):
            return kind, match.groups()
    raise ValueError(f'layers: {line!r} is not in the notation of the paper\'s tables, as 3x3, 256 or 7x7, 96, /2 or '
                     '2x2 maxpool, /2 or spp, {7, 3, 2, 1} or fc, 4096')


def sides(net: Net, side: int) -> list[int]:
    """Of a square picture's maps, after every step."""
    found = [side]
    for step in net.steps:
        found.append((found[-1] + 2 * step.pad - step.size) // step.stride + 1)
    return found


class PReLU(keras.layers.Layer):
    """Eq. (1): f(y) = max(0, y) + a min(0, y), with a learned for every channel, or one for all (`shared`)."""

    def __init__(self, a: float, shared: bool, name: str):
        super().__init__(name=name)
        self.initial, self.shared = a, shared

    def build(self, shape):
        self.a = self.add_weight('a', [1 if self.shared else shape[-1]],
                                 initializer=keras.initializers.Constant(self.initial))

    def call(self, y):
        """[..., C] -> the same."""
        # -relu(-y) is min(0, y): a small net's step took 4% longer with tf.minimum, no less with a gradient by hand.
        return tf.nn.relu(y) - self.a * tf.nn.relu(-y)


def layers(config: Config) -> dict[str, keras.layers.Layer]:
    """Every layer that has weights or draws, by name."""
    c, net, made = config, read(config), []
    a = 0.0 if c.activation == 'relu' else c.a

    def add(layer):
        made.append(layer)
        if c.activation != 'relu':
            made.append(PReLU(a, c.activation == 'prelu_shared', f'{layer.name}/prelu'))
    for step in net.steps:
        if step.filters:
            weights = initializers.xavier() if c.weights == 'xavier' else initializers.he(c.weights, a)
            add(keras.layers.Conv2D(step.filters, step.size, step.stride, 'same' if _same(step) else 'valid',
                                    kernel_initializer=weights, name=step.name))
    for n, units in enumerate(net.units, 1):
        # As in 2.2: smaller than (14) would have it, since pictures are not normalised.
        add(keras.layers.Dense(units, kernel_initializer=initializers.fixed(0.01), name=f'fc{n}'))
        made.append(Dropout(c.dropout, f'fc{n}/dropout'))
    made.append(keras.layers.Dense(c.classes, kernel_initializer=initializers.fixed(0.001),
                                   name=f'fc{len(net.units) + 1}'))
    return {layer.name: layer for layer in made}


def _same(step: Step) -> bool:
    return step.stride == 1 and step.size == 2 * step.pad + 1


def _activated(layers: dict[str, keras.layers.Layer], name: str, x):
    return layers.get(f'{name}/prelu', tf.nn.relu)(layers[name](x))


def convolutions(layers: dict[str, keras.layers.Layer], config: Config, image):
    """[B, H, W, 3] -> the last convolution's activations [B, h, w, C]; 14 x 14 from 224 x 224 in A, B and C."""
    x = image
    for step in read(config).steps:
        if not step.filters:
            x = tf.nn.max_pool2d(x, step.size, step.stride, 'VALID')
            continue
        if step.pad and not _same(step):
            x = tf.pad(x, [[0, 0], [step.pad] * 2, [step.pad] * 2, [0, 0]])
        x = _activated(layers, step.name, x)
    return x


def bins(side: int, n: int) -> list[tuple[int, int]]:
    """Begin and end of the n bins of a side; neighbours overlap where n does not divide it (He et al. 2014, 'Spatial
    Pyramid Pooling', appendix A: begins are rounded down, ends up)."""
    return [(i * side // n, -(-(i + 1) * side // n)) for i in range(n)]


def spp(maps, levels: list[int]):
    """Spatial pyramid pooling: the largest value in each of n x n bins, for every level n.

    [B, side, side, C] -> [B, sum of n^2 * C].
    """
    side, found = maps.shape[1], []
    for n in levels:
        if side % n == 0:
            pooled = tf.nn.max_pool2d(maps, side // n, side // n, 'VALID')
            found.append(tf.reshape(pooled, [-1, n ** 2 * maps.shape[-1]]))
        else:
            found += [tf.reduce_max(maps[:, top:bottom, left:right], [1, 2])
                      for (top, bottom), (left, right) in itertools.product(bins(side, n), repeat=2)]
    return tf.concat(found, -1)


def sliding_spp(maps, levels: list[int], side: int):
    """`spp` of every side x side window of larger maps.

    A bin's values at all places of the window are one pooling of stride 1, shifted; bins of one size share it.

    [B, h, w, C] -> [B, h - side + 1, w - side + 1, sum of n^2 * C].
    """
    h, w = tf.shape(maps)[1] - side + 1, tf.shape(maps)[2] - side + 1

    @functools.cache
    def pooled(height, width):
        return tf.nn.max_pool2d(maps, [height, width], 1, 'VALID')
    return tf.concat([pooled(bottom - top, right - left)[:, top:top + h, left:left + w] for n in levels
                      for (top, bottom), (left, right) in itertools.product(bins(side, n), repeat=2)], -1)


def _hidden(layers: dict[str, keras.layers.Layer], net: Net, x, seed=None, training: bool | None = False):
    """The dense layers but the last, [..., bins * C] -> [..., units]; without any, the pyramid's bins."""
    for n in range(len(net.units)):
        x = _activated(layers, f'fc{n + 1}', x)
        if seed is not None:
            x = layers[f'fc{n + 1}/dropout'](x, seed, training=training)
    return x


def _last(layers: dict[str, keras.layers.Layer], net: Net) -> keras.layers.Layer:
    return layers[f'fc{len(net.units) + 1}']


def dense(layers: dict[str, keras.layers.Layer], config: Config, maps, seed=None, training: bool | None = False):
    """Square maps [B, side, side, C] -> logits [B, classes]. Nothing is dropped without a seed."""
    net = read(config)
    return _last(layers, net)(_hidden(layers, net, spp(maps, net.levels), seed, training))


def activations(layers: dict[str, keras.layers.Layer], config: Config, maps):
    """Maps of any size [B, h, w, C] -> the last hidden layer's activations for every window as large as a crop's maps
    (14 x 14 in the paper), [B, h', w', units]."""
    net = read(config)
    assert config.crop
    return _hidden(layers, net, sliding_spp(maps, net.levels, sides(net, config.crop)[-1]))


def score_map(layers: dict[str, keras.layers.Layer], config: Config, maps):
    """'Testing': the same -> logits, [B, h', w', classes]; one where `dense` has one."""
    return _last(layers, read(config))(activations(layers, config, maps))


def costs(config: Config) -> list[Cost]:
    """Every layer's output, parameters (slopes too) and multiply-adds, in closed form."""
    c, net, maps, found = config, read(config), 3, []
    assert c.crop and c.classes
    slopes = {'prelu_channel': lambda n: n, 'prelu_shared': lambda n: 1, 'relu': lambda n: 0}[c.activation]
    for step, side in zip(net.steps, sides(net, c.crop)[1:]):
        if step.filters:
            cost = convolution_cost(step.name, step.size, maps, step.filters, side)
            found.append(cost._replace(parameters=cost.parameters + slopes(step.filters)))
            maps = step.filters
    n = sum(level ** 2 for level in net.levels) * maps
    for number, units in enumerate(net.units, 1):
        cost = dense_cost(f'fc{number}', n, units)
        found.append(cost._replace(parameters=cost.parameters + slopes(units)))
        n = units
    return [*found, dense_cost(f'fc{len(net.units) + 1}', n, c.classes)]


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """The paper's nets, if this is one of them: weight layers, parameters, operations beside table 3's, and the errors
    the paper found."""
    if config.layers or (config.width, config.crop, config.classes) != (1.0, 224, 1000):
        return None
    rows: list[tuple[str, ...]] = []
    for variant, (operations, top1, top5) in RESULTS.items():
        net = dataclasses.replace(config, variant=variant)
        ours = macs(net) / 1e10
        paper = f'{operations:.2f} ({ours / operations - 1:+.1%})' if operations else ''
        rows.append((str(variant), str(len(costs(net))), f'{parameters(net) / 1e6:.1f}', f'{ours:.2f}', paper,
                     f'{top1}', f'{top5}'))
    return ('model.variant', 'weight layers', 'million parameters', '10^10 operations', 'table 3', 'top-1 error, %',
            'top-5 error, %'), rows


THROUGHPUT_UNIT, METRICS = classification.THROUGHPUT_UNIT, classification.METRICS
build, loss_fn, optimizers = classification.build, classification.loss_fn, classification.optimizers
parameters, macs, flops_per_unit = classification.parameters, classification.macs, classification.flops_per_unit
TASKS, SERVING, ENDS_IN_DENSE_LAYERS = ('image',), 'keras_models.image.serving', True
