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
from keras_models.core.layers import Cost, Dropout, convolution_cost, dense_cost, even, of_any_size
from keras_models.image import classification

Variant = Literal[14, 30, 'A', 'B', 'C']


def table_1(more: int = 0) -> list[str]:
    """Return the small net; `more`: added convolutions of 256 x 2 x 2 (2.2: sixteen make 30 weight layers).

    The first convolution is not padded, which gives the maps of 36 x 36 and 18 x 18 of model E in He & Sun 2014.
    """
    return ['7x7, 64, /2, pad 0', '3x3 maxpool, /3',
            *['2x2, 128'] * 4, '2x2 maxpool, /2',
            *['2x2, 256'] * (6 + more),
            'spp, {6, 3, 2, 1}', 'fc, 4096', 'fc, 4096']


def table_3(each: int, filters: tuple[int, int, int]) -> list[str]:
    """Return the large nets: `each` convolutions on maps of 56, 28 and 14.

    B and C have six, which follows from their depth of 22 and their complexity.
    """
    first, second, third = ([f'3x3, {n}'] * each for n in filters)
    return ['7x7, 96, /2', '2x2 maxpool, /2', *first, '2x2 maxpool, /2', *second, '2x2 maxpool, /2', *third,
            'spp, {7, 3, 2, 1}', 'fc, 4096', 'fc, 4096']


# All end in a further dense layer for the classes.
VARIANTS: dict[Variant, list[str]] = {
    14: table_1(), 30: table_1(more=16),
    'A': table_3(5, (256, 512, 512)), 'B': table_3(6, (256, 512, 512)), 'C': table_3(6, (384, 768, 896))}
# Table 3's complexity in 10^10 operations, and top-1 and top-5 error in percent: for 14 from table 2 (10 views, PReLU
# by channel), for 30 from section 2.2 (ReLU), for A, B and C from table 6 (several scales and views).
RESULTS: dict[Variant, tuple] = {
    14: (None, 32.64, 12.75), 30: (None, 38.56, 16.59), 'A': (1.90, 22.97, 6.28), 'B': (2.32, 22.85, 6.27),
    'C': (5.30, 21.59, 5.71)}


PRESETS: dict[str, dict] = {'paper': {}, 'own_data': dict(rules.OWN_DATA)}

# Notation of a line of `layers`.
NOTATION = {'convolution': r'(\d+)x\1, (\d+)(?:, /(\d+))?(?:, pad (\d+))?', 'maxpool': r'(\d+)x\1 maxpool, /(\d+)',
            'spp': r'spp, \{(\d+(?:, ?\d+)*)\}', 'fc': r'fc, (\d+)'}


class Step(NamedTuple):
    """A convolution of `filters` filters, or a max-pooling (0 filters), padded by `pad` on every side."""
    name: str
    size: int
    stride: int
    pad: int = 0
    filters: int = 0


class Net(NamedTuple):
    """A parsed net. `levels`: bins per side of the spatial pyramid pooling. `units`: of the hidden dense layers."""
    steps: list[Step]
    levels: list[int]
    units: list[int]


@dataclasses.dataclass
class Config(rules.Descent):
    """The paper's net `variant`, or `layers` in the notation of its tables, without the last dense layer.

    `layers` has lines such as `3x3, 256` (with stride `, /2`, padding `, pad 0`), `2x2 maxpool, /2`, `spp, {7, 3, 2,
    1}` and `fc, 4096`. `classes` and `crop` default to the data's; `width` multiplies every channel count except the
    classes. `weights`: initial weights of convolutions by (14), by (10), or by 2.2's reading of Glorot and Bengio. `a`:
    initial slope.
    """
    preset: Literal['paper', 'own_data'] = 'paper'  # the paper's training rules, or rules for small data sets
    max_drops: int = 2  # most times the learning rate is divided by `factor`
    variant: Variant = 'A'
    layers: list[str] = dataclasses.field(default_factory=list)
    classes: int | None = None
    crop: int | None = None
    width: float = 1.0
    # one slope per channel, one per layer, or none (ReLU)
    activation: Literal['prelu_channel', 'prelu_shared', 'relu'] = 'prelu_channel'
    a: float = 0.25
    weights: Literal['backward', 'forward', 'xavier'] = 'backward'
    dropout: float = 0.5  # fraction of dense activations dropped in training

    def __post_init__(self):
        super().__post_init__()
        if min(sides(read(self), self.crop or 10 ** 6)) < 1:
            raise ValueError(f'crop {self.crop} leaves no map for spp; give a larger one, or layers with less pooling')

    @property
    def paper(self) -> classification.Paper:
        return PAPER


def read(config: Config) -> Net:
    """Parse the net of a configuration.

    A 3 x 3 or 7 x 7 convolution is padded so that stride 1 keeps the size. No padding does so for 2 x 2: in each stage
    the paddings alternate between 0 and 1, which keeps the size every other time without a shift.

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
    raise ValueError(f'layers: {line!r} is not in the notation of the paper\'s tables: 3x3, 256 or 7x7, 96, /2 or '
                     '2x2 maxpool, /2 or spp, {7, 3, 2, 1} or fc, 4096')


def sides(net: Net, side: int) -> list[int]:
    """Return the sides of a square image's maps after every step."""
    found = [side]
    for step in net.steps:
        found.append((found[-1] + 2 * step.pad - step.size) // step.stride + 1)
    return found


class PReLU(keras.layers.Layer):
    """Eq. (1): f(y) = max(0, y) + a min(0, y), with a learned a per channel, or one for all channels (`shared`)."""

    def __init__(self, a: float, shared: bool, name: str):
        super().__init__(name=name)
        self.initial, self.shared = a, shared

    def build(self, shape):
        self.a = self.add_weight('a', [1 if self.shared else shape[-1]],
                                 initializer=keras.initializers.Constant(self.initial))

    def call(self, y):
        """Apply it to [..., C]."""
        # -relu(-y) is min(0, y): with tf.minimum a small net's step took 4% longer; a manual gradient gained nothing.
        return tf.nn.relu(y) - self.a * tf.nn.relu(-y)


class SpatialPyramid(keras.layers.Layer):
    """`spp` as a layer: a net's pooling fits the images it is given, not those it was built for."""

    def __init__(self, levels: list[int]):
        super().__init__(name='spp')
        self.levels = levels

    def call(self, maps):
        """Pool [B, side, side, C] to [B, sum of n^2 * C]."""
        return spp(maps, self.levels)


def layers(config: Config) -> dict[str, keras.layers.Layer]:
    """Return every layer with weights, randomness or a shape that follows the image's, by name."""
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
    made.append(SpatialPyramid(net.levels))
    for n, units in enumerate(net.units, 1):
        # As in 2.2: smaller than by (14), because images are not normalised.
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
    """Map [B, H, W, 3] to the last convolution's maps [B, h, w, C]; 14 x 14 from 224 x 224 in A, B and C."""
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
    """Return start and end of the n bins of a side; neighbours overlap if n does not divide it.

    He et al. 2014, 'Spatial Pyramid Pooling', appendix A: starts are rounded down, ends up.
    """
    return [(i * side // n, -(-(i + 1) * side // n)) for i in range(n)]


def spp(maps, levels: list[int]):
    """Pool over a spatial pyramid: the largest value in each of n x n bins, for every level n.

    Maps [B, side, side, C] to [B, sum of n^2 * C].
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
    """Apply `spp` to every side x side window of larger maps.

    A bin's values at all positions of the window are a pooling of stride 1, shifted; bins of one size share it.

    Maps [B, h, w, C] to [B, h - side + 1, w - side + 1, sum of n^2 * C].
    """
    h, w = tf.shape(maps)[1] - side + 1, tf.shape(maps)[2] - side + 1

    @functools.cache
    def pooled(height, width):
        return tf.nn.max_pool2d(maps, [height, width], 1, 'VALID')
    return tf.concat([pooled(bottom - top, right - left)[:, top:top + h, left:left + w] for n in levels
                      for (top, bottom), (left, right) in itertools.product(bins(side, n), repeat=2)], -1)


def _hidden(layers: dict[str, keras.layers.Layer], net: Net, x, seed=None, training: bool | None = False):
    """Apply all dense layers but the last, [..., bins * C] -> [..., units]; without any, return the bins."""
    for n in range(len(net.units)):
        x = _activated(layers, f'fc{n + 1}', x)
        if seed is not None:
            x = layers[f'fc{n + 1}/dropout'](x, seed, training=training)
    return x


def _last(layers: dict[str, keras.layers.Layer], net: Net) -> keras.layers.Layer:
    return layers[f'fc{len(net.units) + 1}']


def dense(layers: dict[str, keras.layers.Layer], config: Config, maps, seed=None, training: bool | None = False):
    """Map square maps [B, side, side, C] to logits [B, classes]; without a seed nothing is dropped."""
    net = read(config)
    return _last(layers, net)(_hidden(layers, net, layers['spp'](maps), seed, training))


def activations(layers: dict[str, keras.layers.Layer], config: Config, maps):
    """Map [B, h, w, C] of any size to the last hidden layer for every window of a crop's size, [B, h', w', units].

    A crop's maps are 14 x 14 in the paper.
    """
    net = read(config)
    assert config.crop
    return _hidden(layers, net, sliding_spp(maps, net.levels, sides(net, config.crop)[-1]))


def score_map(layers: dict[str, keras.layers.Layer], config: Config, maps):
    """Map [B, h, w, C] of any size to logits, [B, h', w', classes] ('Testing'); a crop's maps give one position."""
    return _last(layers, read(config))(activations(layers, config, maps))


def build(config: Config) -> dict[str, keras.Model]:
    """Return the net of `classification.build`; it takes square images of other sizes too, as spp allows."""
    return {name: of_any_size(net) for name, net in classification.build(config).items()}


def costs(config: Config) -> list[Cost]:
    """Return every layer's output, parameters (slopes too) and multiply-adds, in closed form."""
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
    """Return the paper's nets, if this is one of them: weight layers, parameters, operations, and errors."""
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


PAPER = classification.Paper(layers, convolutions, dense, score_map, activations, costs)
THROUGHPUT_UNIT, METRICS = classification.THROUGHPUT_UNIT, classification.METRICS
loss_fn, optimizers = classification.loss_fn, classification.optimizers
parameters, macs, flops_per_unit = classification.parameters, classification.macs, classification.flops_per_unit
TASKS, SERVING, ENDS_IN_DENSE_LAYERS, ANY_SIZE = ('image',), 'keras_models.image.serving', True, True
