"""The ALIAS generator: section 3.4, figures 4, 5 and 12, appendix A.2.

It generates the image from the person without clothes I_a, the pose P and the warped garment W(c, theta), guided by the
parse: `S` in 7 groups (`GROUPS`); `S_div`, where the part of the upper clothing left bare by the warped garment is an
eighth class; and that part alone, `M_misalign`.
"""
import dataclasses
import functools
import math
import zlib
from collections.abc import Iterator
from typing import Literal, NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models.core.layers import even, of_any_size, seed_input
from keras_models.viton.geometry import upsample
from keras_models.viton.layers import (
    EPSILON,
    GAIN,
    Convolution,
    Cost,
    check_size,
    convolution_cost,
    instance_norm,
    mean_of_places,
)

CHANNELS = (1024, 1024, 1024, 512, 256, 128, 64, 32)  # of figure 12's ResBlks, each at twice the previous size
MASKED = 5  # number of ResBlks that standardise the misaligned region separately (A.2)
INPUTS = 9  # channels of I_a, P and W(c, theta)
INJECTED = 16  # channels to which they are convolved before each ResBlk but the first, which has no other input
HIDDEN = 128  # channels between the parse and gamma and beta
GROUPS = ('background', 'lower body, face, feet', 'upper', 'hair', 'left arm', 'right arm', 'noise')
STEP = 2 ** (len(CHANNELS) - 1)  # scale of the first ResBlk
MULTIPLE = STEP // 2  # of sides; at 192 the first maps, of 1.5 pixels, get two and are cropped later

# Where the authors' code, and training on small data sets, differ from the paper.
PRESETS: dict[str, dict] = {
    'paper': {},
    'official': {'last_classes': 7, 'noise': True, 'spectral_norm': 'blocks', 'epsilon_of': 'picture', 'slope': 0.2,
                 'shortcut_relu': False, 'output_relu': True},
    'own_data': {'injected': 16, 'initial_gain': 1.0, 'lambda_cGAN': 0.0, 'lambda_percept': 0.0, 'lambda_L1': 50.0,
                 'learning_rate': 2e-3, 'decay_updates': None, 'beta_1': 0.9, 'beta_2': 0.999},
}


@dataclasses.dataclass
class Config:
    """Figure 12 by default.

    `size`: height and width of the image; `width` multiplies every channel count except inputs, classes and image.

    `last_classes`: classes of the parse that modulates without a mask: 8 is S_div, 7 is S. `noise`: add noise, times a
    learned scale per channel, to every activation before standardisation. `spectral_norm`: on all convolutions (A.2),
    or on those of ResBlks outside their normalisation. `epsilon_of`: epsilon in (7) is added to the variance of the
    region, or to the variance of an image that has the region's mean elsewhere, so that it weighs more in smaller
    regions. `slope`: of the rectifiers below zero. `shortcut_relu`: the learned shortcut has a rectifier too (figure
    4b). `output_relu`: so has the last convolution. `masked`: number of ResBlks that standardise the misaligned region
    separately; 0 in VITON-HD*, the baseline of table 1. Keys from `lambda_FM` on are for training (appendix A.3),
    except `lambda_L1`, the weight of the mean absolute difference to the true image, for runs too small to learn from
    the other losses alone. `feature_weights`: of the five layers of eq. (16), which has none; SPADE's are 1/32, 1/16,
    1/8, 1/4 and 1.
    """
    # the paper's settings, those of the published code, or those for small data sets
    preset: Literal['paper', 'official', 'own_data'] = 'paper'
    size: list[int] = dataclasses.field(default_factory=lambda: [1024, 768])
    width: float = 1.0
    injected: int = 0  # channels of the inputs before each ResBlk but the first; 0: the paper's 16, times width
    last_classes: Literal[7, 8] = 8
    noise: bool = False
    spectral_norm: Literal['all', 'blocks'] = 'all'
    epsilon_of: Literal['region', 'picture'] = 'region'
    slope: float = 0.0
    shortcut_relu: bool = True
    output_relu: bool = False
    initial_gain: float = GAIN  # of initial weights; normalised ones learn at rates relative to it
    masked: int = MASKED
    lambda_cGAN: float = 1.0  # weight of the adversarial loss; with 0 there is no discriminator and no L_FM
    lambda_FM: float = 10.0
    lambda_percept: float = 10.0  # weight of the perceptual loss
    feature_weights: list[float] = dataclasses.field(default_factory=lambda: [1.0] * 5)
    lambda_L1: float = 0.0
    learning_rate: float = 1e-4  # learning rate of the generator
    discriminator_rate: float = 4e-4  # learning rate of the discriminators
    # updates in which both rates fall to zero, along half a cosine; 0: they are constant; empty: train.steps
    decay_updates: int | None = 0
    beta_1: float = 0.0  # beta_1 of both Adam optimizers
    beta_2: float = 0.9  # beta_2 of both Adam optimizers

    def __post_init__(self):
        check_size(self.size, MULTIPLE, f'the image is doubled {len(CHANNELS) - 1} times')


class Shape(NamedTuple):
    """Shape of a ResBlk at 1 / `step` of the image's size. The shortcut is learned if channels change."""
    name: str
    step: int
    before: int
    channels: int
    masked: bool
    classes: int

    @property
    def middle(self) -> int:
        return min(self.before, self.channels)

    @property
    def learned(self) -> bool:
        return self.before != self.channels


def injected(config: Config) -> int:
    """Return the channels of the inputs before each ResBlk but the first."""
    return config.injected or even(INJECTED, config.width)


def blocks(config: Config) -> Iterator[Shape]:
    """Yield figure 12's ResBlks, in order."""
    before = even(CHANNELS[0], config.width)
    for level, channels in enumerate(even(each, config.width) for each in CHANNELS):
        yield Shape(f'block_{level}', STEP // 2 ** level, before, channels, level < config.masked,
                    8 if level < MASKED else config.last_classes)
        before = channels + injected(config)


def noise_map(seed, batch, height: int, width: int):
    """Return standard normal noise [batch, height, width, 1], a pure function of the seed, int32 [2].

    It is made by Box and Muller from integers, which are the same with and without XLA, unlike random floats.
    """
    n = batch * height * width
    words = tf.random.stateless_uniform([(n + 1) // 2], seed, None, None, tf.uint64, alg='philox')
    uniform = (tf.cast(tf.bitcast(words, tf.uint32), tf.float32) + 0.5) * 2 ** -32  # [., 2]
    radius, angle = tf.sqrt(-2 * tf.math.log(uniform[:, 0])), 2 * math.pi * uniform[:, 1]
    normal = tf.stack([radius * tf.cos(angle), radius * tf.sin(angle)], 1)
    return tf.reshape(tf.reshape(normal, [-1])[:n], [batch, height, width, 1])


def seed_of(seed, site: str):
    """Return the seed of the noise at a site, such as `block_0/norm_1`, for the seed of all noise, int32 [2]."""
    return seed + [zlib.crc32(site.encode()) & 0x7FFFFFFF, 0]


def standardise(h, region, config: Config):
    """Standardise h [B, H, W, C] by eqs. (6) and (7): mean 0 and deviation 1 in a region, and 0 elsewhere.

    region: [B, H, W, 1], 1 inside and 0 outside.
    """
    dtype, h, region = h.dtype, tf.cast(h, tf.float32), tf.cast(region, tf.float32)  # long sums need the precision
    share = mean_of_places(region)
    share = tf.where(share == 0, 1.0, share)  # |Omega| over all pixels
    mu = mean_of_places(h * region) / share
    h = (h - mu) * region
    variance = mean_of_places(h ** 2) / share
    epsilon = EPSILON / share if config.epsilon_of == 'picture' else EPSILON
    return tf.cast(h * tf.math.rsqrt(variance + epsilon), dtype)


class AliasNorm(keras.layers.Layer):
    """ALIAS normalisation (figure 5).

    Args:
      shape: of its ResBlk.
      site: its full name, which distinguishes its noise.
    """

    def __init__(self, config: Config, shape: Shape, channels: int, site: str):
        super().__init__(name=site.split('/')[-1])
        spectral, self.masked, self.config = config.spectral_norm == 'all', shape.masked, config
        self.site = site
        convolution = functools.partial(Convolution, spectral=spectral, gain=config.initial_gain)
        self.shared = convolution(even(HIDDEN, config.width), activation='relu', name='shared')
        self.gamma = convolution(channels, name='gamma')
        self.beta = convolution(channels, name='beta')

    def build(self, shape):
        if self.config.noise:
            self.noise_scale = self.add_weight('noise_scale', [shape[-1]], initializer='zeros')

    def call(self, h, parse, M_misalign, noise, training=None):
        """Apply eq. (5): h [B, H, W, C], parse [B, H, W, classes], M_misalign [B, H, W, 1] -> as h.

        noise: the seed of all noise, int32 [2], or this site's own [B, H, W, 1].
        """
        if self.config.noise:
            with tf.control_dependencies([h]):  # otherwise all blocks' noise is made first and kept
                if noise.dtype == tf.int32:
                    noise = noise_map(seed_of(noise, self.site), *tf.unstack(tf.shape(h))[:3])
                noise = tf.cast(noise, h.dtype) * self.noise_scale
            h += noise
        if self.masked:
            h = standardise(h, M_misalign, self.config) + standardise(h, 1 - M_misalign, self.config)
        else:
            h = instance_norm(h)
        with tf.control_dependencies([h]):  # otherwise gamma and beta of all blocks are computed first and kept
            parse = tf.identity(parse)
        shared = self.shared(parse, training=training)
        # Not h * (1 + gamma): TensorFlow 2.15 crashes when it fuses a convolution with a scalar addition.
        return h + h * self.gamma(shared, training=training) + self.beta(shared, training=training)


def cropped(h, x):
    """Return the upper left part of h of x's height and width."""
    return h[:, :tf.shape(x)[1], :tf.shape(x)[2]]


class ResBlk(keras.layers.Layer):
    """ALIAS ResBlk (figure 4b): h [B, H, W, before] -> [B, H, W, channels]."""

    def __init__(self, config: Config, shape: Shape):
        super().__init__(name=shape.name)
        self.config, self.learned = config, shape.learned

        def norm(name, channels):
            return AliasNorm(config, shape, channels, f'{shape.name}/{name}')
        self.norm_0, self.norm_1 = norm('norm_0', shape.before), norm('norm_1', shape.middle)
        convolution = functools.partial(Convolution, spectral=True, gain=config.initial_gain)
        self.conv_0 = convolution(shape.middle, name='conv_0')
        self.conv_1 = convolution(shape.channels, name='conv_1')
        if shape.learned:
            self.norm_s = norm('norm_s', shape.before)
            self.conv_s = convolution(shape.channels, 1, bias=False, name='conv_s')

    def call(self, h, parse, M_misalign, noise, training=None):
        """Apply the block; see `AliasNorm`. noise: the seed, or the noise of each site by its full name."""
        def normal(norm, x):
            return norm(x, parse, M_misalign, noise[norm.site] if isinstance(noise, dict) else noise, training=training)

        def relu(x):
            return tf.nn.leaky_relu(x, self.config.slope)
        shortcut = h
        if self.learned:
            shortcut = normal(self.norm_s, h)
            shortcut = self.conv_s(relu(shortcut) if self.config.shortcut_relu else shortcut, training=training)
            with tf.control_dependencies([shortcut]):  # same for the two branches
                h = tf.identity(h)
        h = self.conv_0(relu(normal(self.norm_0, h)), training=training)
        return shortcut + self.conv_1(relu(normal(self.norm_1, h)), training=training)


def sites(shape: Shape) -> list[str]:
    """Return the full names of a ResBlk's normalisations."""
    return [f'{shape.name}/{name}' for name in ('norm_0', 'norm_1', 'norm_s')[:3 if shape.learned else 2]]


def noise_sizes(config: Config) -> dict[str, tuple[int, int]]:
    """Return height and width of the noise at every site; nothing without `noise`."""
    height, width = config.size
    return {site: (-(-height // shape.step), -(-width // shape.step))
            for shape in blocks(config) for site in sites(shape) if config.noise}


def noise_maps(config: Config, seed) -> dict[str, tf.Tensor]:
    """Return the noise of one image at every site, [1, h, w, 1] each; nothing without `noise`."""
    return {site: noise_map(seed_of(seed, site), 1, *size) for site, size in noise_sizes(config).items()}


def build(config: Config, noise_given: bool = False) -> dict[str, keras.Model]:
    """Return the functional model: a dict of inputs -> image [B, H, W, 3] in [-1, 1].

    Inputs are `inputs` [B, H, W, 9]: I_a, P and W(c, theta) in [-1, 1]; `S` [B, H, W, 7] in the order of GROUPS;
    `S_div` [B, H, W, 8], where 'upper' is the part the garment covers and the last class is M_misalign; `M_misalign`
    [B, H, W, 1]; and `seed` int32 [2]. The seed fixes the noise; without `noise` it has no effect. With `noise_given`,
    the noise of every site is an input of the site's name, as `noise_maps` gives it.
    """
    height, width = config.size
    sizes = {'inputs': INPUTS, 'S': len(GROUPS), 'S_div': len(GROUPS) + 1, 'M_misalign': 1}
    given = {name: keras.Input([height, width, channels], name=name) for name, channels in sizes.items()}
    given['seed'] = seed_input()
    if noise_given:
        given |= {site: keras.Input([*size, 1], name=site) for site, size in noise_sizes(config).items()}
    convolution = functools.partial(Convolution, spectral=config.spectral_norm == 'all', gain=config.initial_gain)
    h = None
    for level, shape in enumerate(blocks(config)):
        kernels = shape.before if h is None else injected(config)

        def resized(name, step=shape.step):
            return given[name][:, ::step, ::step]
        x = convolution(kernels, name=f'input_{level}')(resized('inputs'))
        if h is not None:
            x = tf.concat([cropped(upsample(h), x), x], -1)
        parse = resized('S_div' if shape.classes > len(GROUPS) else 'S')
        noise = {site: given[site] for site in sites(shape)} if noise_given and config.noise else given['seed']
        h = ResBlk(config, shape)(x, parse, resized('M_misalign'), noise)
    h = tf.nn.leaky_relu(h, config.slope) if config.output_relu else h
    picture = convolution(3, activation='tanh', name='output')(h)
    return {'alias': of_any_size(keras.Model(given, tf.cast(picture, tf.float32), name='alias'))}


def costs(config: Config) -> list[Cost]:
    """Return every convolution's output, parameters and multiply-adds, in closed form, and the scales of the noise."""
    found = []
    hidden = even(HIDDEN, config.width)
    for level, block in enumerate(blocks(config)):
        size = (-(-config.size[0] // block.step), -(-config.size[1] // block.step))

        def convolution(name, maps, kernels, kernel=3, bias=True, size=size):
            found.append(convolution_cost(name, size, kernel, maps, kernels, bias))
        convolution(f'input_{level}', INPUTS, injected(config) if level else block.before)
        for norm, channels in (('norm_0', block.before), ('norm_1', block.middle), ('norm_s', block.before)):
            if norm == 'norm_s' and not block.learned:
                continue
            convolution(f'{block.name}/{norm}/shared', block.classes, hidden)
            convolution(f'{block.name}/{norm}/gamma', hidden, channels)
            convolution(f'{block.name}/{norm}/beta', hidden, channels)
            if config.noise:
                found.append(Cost(f'{block.name}/{norm}/noise_scale', size, channels, channels, 0))
        convolution(f'{block.name}/conv_0', block.before, block.middle)
        convolution(f'{block.name}/conv_1', block.middle, block.channels)
        if block.learned:
            convolution(f'{block.name}/conv_s', block.before, block.channels, 1, False)
    convolution('output', block.channels, 3)
    return found


def parameters(config: Config) -> int:
    """Return the number of parameters, in closed form, without the state of spectral normalisation."""
    return sum(cost.parameters for cost in costs(config))


def macs(config: Config) -> int:
    """Return the multiply-adds of one image's forward pass."""
    return sum(cost.macs for cost in costs(config))
