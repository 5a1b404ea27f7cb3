"""The geometric matching module: section 3.3, figure 11, appendix A.2; after CP-VTON's (Wang et al. 2018).

It predicts theta from the garment region S^_c of the predicted parse, the pose P, the clothing-agnostic image I_a and
the garment c; the thin-plate spline of theta warps c to W(c, theta).
"""
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models.core import initializers
from keras_models.core.layers import dense_cost, even
from keras_models.core.losses import row_means
from keras_models.viton import geometry
from keras_models.viton.layers import EPSILON, BatchNormalization, Cost, check_size, convolution_cost

# Convolutions of figure 11: size, stride and channels.
EXTRACTOR = ((4, 2, 64), (4, 2, 128), (4, 2, 256), (4, 2, 512), (3, 1, 512), (3, 1, 512))
REGRESSION = ((4, 2, 512), (4, 2, 256), (3, 1, 128), (3, 1, 64))
PERSON = {'parse_cloth': 1, 'pose': 3, 'agnostic': 3}  # the first extractor's inputs, in the order of their channels
CLOTH = {'cloth': 3}
SMALLEST = 32
SQUARES = (1, 4, 16)  # sides of `mask_loss`, in pixels

# Where the authors' code, and training on small data sets, differ from the paper.
PRESETS: dict[str, dict] = {
    'paper': {},
    'official': {'order': 'relu_norm', 'extent': 0.9, 'control_points': 'columns', 'pixels': 'corners'},
    'own_data': {'lambda_const': 0.01, 'lambda_mask': 5.0, 'learning_rate': 1e-3, 'decay_updates': None},
}


@dataclasses.dataclass
class Config:
    """Figure 11 by default.

    `size`: height and width the network works at; `width` multiplies every channel count except those of the inputs and
    of the correlation, which has one per position.

    `order`: of normalisation and ReLU in the extractors. `grid`: control points per side; the next two keys are
    `Spline`'s. `synchronized`: batch normalisation over all replicas, which XLA cannot compile. Keys from
    `lambda_const` on are for training (appendix A.3).
    """
    # the paper's settings, those of the published code, or those for small data sets
    preset: Literal['paper', 'official', 'own_data'] = 'paper'
    size: list[int] = dataclasses.field(default_factory=lambda: [256, 192])
    width: float = 1.0
    order: Literal['norm_relu', 'relu_norm'] = 'norm_relu'
    grid: int = 5
    extent: float = 1.0  # points and pixels lie in [-extent, extent]; below 1 it shows the middle
    control_points: Literal['rows', 'columns'] = 'rows'  # theta's first axis
    # coordinates at the centres of pixels, or from corner to corner
    pixels: Literal['centres', 'corners'] = 'centres'
    synchronized: bool = False
    lambda_const: float = 0.04
    lambda_mask: float = 0.0  # weight of the difference of the warped mask and the true garment; the paper has none
    learning_rate: float = 2e-4  # learning rate of Adam
    # updates in which the rate falls to zero, along half a cosine; 0: it is constant; empty: train.steps
    decay_updates: int | None = 0
    beta_1: float = 0.5  # beta_1 of Adam
    beta_2: float = 0.999  # beta_2 of Adam

    def __post_init__(self):
        check_size(self.size, SMALLEST, 'the maps are halved five times and more')
        if self.grid < 2:
            raise ValueError(f'grid must be 2 or more control points per side; it is {self.grid}')


def spline(config: Config) -> geometry.Spline:
    """Return the spline whose grid samples W(c, theta) at any size: `sample(c, grid(theta, height, width))`."""
    return geometry.Spline(config.grid, config.extent, config.control_points, config.pixels)


def second_order(theta, spline: geometry.Spline):
    """Return L_const, eq. (12), of theta [B, 2, n, n]: [B].

    The neighbours of a control point above and below it, and left and right of it, should be equally far from it and on
    one line. Slopes are compared by cross-multiplication, S(p, p0) = S(p, p1) as dy0 dx1 = dy1 dx0, so that vertical
    ones stay finite. The sum is over control points with all four neighbours.
    """
    n = theta.shape[-1]
    moved = tf.cast(theta, tf.float32) + tf.reshape(tf.constant(spline.P.T, tf.float32), [2, n, n])
    p = moved[:, :, 1:-1, 1:-1]
    neighbours = (moved[:, :, :-2, 1:-1], moved[:, :, 2:, 1:-1], moved[:, :, 1:-1, :-2], moved[:, :, 1:-1, 2:])
    d0, d1, d2, d3 = (neighbour - p for neighbour in neighbours)  # [B, 2, n - 2, n - 2]

    def unlike(one, other):
        lengths = [tf.sqrt(tf.reduce_sum(d ** 2, 1) + 1e-12) for d in (one, other)]  # finite gradients at 0
        slopes = one[:, 1] * other[:, 0] - other[:, 1] * one[:, 0]
        return tf.abs(lengths[0] - lengths[1]) + tf.abs(slopes)
    return tf.reduce_sum(unlike(d0, d1) + unlike(d2, d3), [1, 2])


def mask_loss(warped, worn):
    """Return the mean absolute difference of two masks [B, H, W, 1], each of them averaged over squares: [B].

    A pixel's difference only says where edges are a pixel apart. Squares of 4 and 16 pixels see them from further away.
    """
    def apart(side):
        return row_means(tf.abs(tf.nn.avg_pool2d(warped - worn, side, side, 'SAME')))
    return tf.add_n([apart(side) for side in SQUARES]) / len(SQUARES)


class Step(NamedTuple):
    """A convolution of figure 11 and its output's size; all but the extractors' last are normalised."""
    name: str
    kernel: int
    stride: int
    maps: int
    channels: int
    size: tuple[int, int]

    @property
    def normalised(self) -> bool:
        return self.name not in (f'person/conv{len(EXTRACTOR)}', f'cloth/conv{len(EXTRACTOR)}')


def steps(config: Config) -> Iterator[Step]:
    """Yield the convolutions of both extractors and of the regression, in order."""
    height, width = config.size

    def chain(part, table, maps, height, width):
        for number, (kernel, stride, channels) in enumerate(table, 1):
            height, width = -(-height // stride), -(-width // stride)
            yield Step(f'{part}/conv{number}', kernel, stride, maps, even(channels, config.width), (height, width))
            maps = even(channels, config.width)
    for part, inputs in (('person', PERSON), ('cloth', CLOTH)):
        yield from chain(part, EXTRACTOR, sum(inputs.values()), height, width)
    height, width = height // 16, width // 16
    yield from chain('regression', REGRESSION, height * width, height, width)


def correlation(person, cloth):
    """Correlate every position of one map with every position of the other, [B, h, w, C] each.

    Features have length 1, so correlations are cosines. Returns [B, h, w, h w]: at a position of the garment, one
    channel for each position of the person, counted down the columns.
    """
    height, width, channels = person.shape[1:]
    # In float32, because the epsilon, 1e-12, is zero in float16.
    person, cloth = (tf.cast(tf.math.l2_normalize(tf.cast(features, tf.float32), -1), features.dtype)
                     for features in (person, cloth))
    person = tf.reshape(tf.transpose(person, [0, 2, 1, 3]), [-1, width * height, channels])
    cloth = tf.reshape(cloth, [-1, height * width, channels])
    return tf.reshape(tf.matmul(cloth, person, transpose_b=True), [-1, height, width, width * height])


def _layers(config: Config, step: Step, x, order: str, weights: Callable, gamma: Callable):
    # For even sides SAME pads like PyTorch's padding=1, and multiples of 64 have only even sides.
    x = keras.layers.Conv2D(step.channels, step.kernel, step.stride, 'same', kernel_initializer=weights(),
                            name=step.name)(x)
    if not step.normalised:
        return tf.nn.relu(x)
    norm = BatchNormalization(momentum=0.9, epsilon=EPSILON, gamma_initializer=gamma(),
                              synchronized=config.synchronized, name=step.name.replace('conv', 'norm'))
    return tf.nn.relu(norm(x)) if order == 'norm_relu' else norm(tf.nn.relu(x))


def build(config: Config) -> dict[str, keras.Model]:
    """Return the functional model: a dict of inputs -> theta [B, 2, grid, grid] in (-1, 1), for `spline(config).grid`.

    Inputs are `parse_cloth` S^_c [B, h, w, 1] in [0, 1], and `pose`, `agnostic` I_a and `cloth` [B, h, w, 3] in [-1,
    1]. Initial weights are those of the authors' code.
    """
    given = {name: keras.Input([*config.size, channels], name=name) for name, channels in {**PERSON, **CLOTH}.items()}

    def follow(part, x, *how):
        for step in steps(config):
            x = _layers(config, step, x, *how) if step.name.startswith(part) else x
        return x

    def extract(part, inputs):
        return follow(part, tf.concat([given[name] for name in inputs], -1), config.order,
                      lambda: initializers.fixed(0.02), lambda: keras.initializers.RandomNormal(1.0, 0.02))

    def uniform():  # PyTorch's own: within 1 / sqrt(inputs)
        return keras.initializers.VarianceScaling(1 / 3, 'fan_in', 'uniform')
    x = follow('regression', correlation(extract('person', PERSON), extract('cloth', CLOTH)), 'norm_relu', uniform,
               keras.initializers.Ones)
    x = tf.transpose(x, [0, 3, 1, 2])  # the order of published weights
    x = keras.layers.Dense(2 * config.grid ** 2, 'tanh', kernel_initializer=uniform(), name='regression/linear')(
        tf.reshape(x, [-1, math.prod(x.shape[1:])]))
    theta = tf.reshape(x, [-1, 2, config.grid, config.grid])
    return {'geometric_matching': keras.Model(given, theta, name='geometric_matching')}


def costs(config: Config) -> list[Cost]:
    """Return every layer's output, trainable parameters and multiply-adds, in closed form.

    Normalisation is counted with its convolution.
    """
    found = []
    for step in steps(config):
        if step.name == 'regression/conv1':
            places, features = step.maps, even(EXTRACTOR[-1][2], config.width)
            size = config.size[0] // 16, config.size[1] // 16
            found.append(Cost('correlation', size, places, 0, places ** 2 * features))
        cost = convolution_cost(step.name, step.size, step.kernel, step.maps, step.channels)
        found.append(cost._replace(parameters=cost.parameters + 2 * step.channels * step.normalised))
    last = dense_cost('regression/linear', step.channels * math.prod(step.size), 2 * config.grid ** 2)
    return [*found, Cost(last.name, (1, 1), last.channels, last.parameters, last.macs)]


def parameters(config: Config) -> int:
    """Return the number of trainable parameters, in closed form."""
    return sum(cost.parameters for cost in costs(config))


def macs(config: Config) -> int:
    """Return the multiply-adds of one pair's forward pass, without the warp."""
    return sum(cost.macs for cost in costs(config))
