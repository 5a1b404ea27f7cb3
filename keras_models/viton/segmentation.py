"""The segmentation generator G_S: section 3.2, figure 10, appendix A.2.

It predicts S^, the parse of the person wearing garment c, from the clothing-agnostic parse S_a, the pose P and c.
"""
import dataclasses
from collections.abc import Iterator
from typing import Literal, NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models.core.layers import Dropout, even, of_any_size, seed_input
from keras_models.viton.geometry import upsample
from keras_models.viton.layers import GAIN, Convolution, Cost, check_size, convolution_cost, instance_norm

CLASSES = 13
CHANNELS = {'agnostic_parse': CLASSES, 'pose': 3, 'cloth': 3, 'cloth_mask': 1, 'noise': 1}
WIDTHS = (64, 128, 256, 512, 1024)  # of figure 10's ConvBlks, each at half the previous size
SMALLEST = 2 ** len(WIDTHS)  # smallest side: maps of 1 x 1 have no deviation to normalise by

# Where the authors' code, and training on small data sets, differ from the paper.
PRESETS: dict[str, dict] = {
    'paper': {},
    'official': {'inputs': ['cloth_mask', 'cloth', 'agnostic_parse', 'pose', 'noise'], 'convolve_upsampled': True,
                 'dropout': 0.5, 'output': 'sigmoid'},
    'own_data': {'initial_gain': 1.0, 'interpolate_parse': True, 'lambda_cGAN': 0.0, 'learning_rate': 1e-3,
                 'decay_updates': None},
}


@dataclasses.dataclass
class Config:
    """Figure 10 by default.

    `size`: height and width the network works at; `width` multiplies every channel count except inputs and classes.

    `inputs`: in the order of their channels. `convolve_upsampled`: a normalised 3x3 convolution follows each
    upsampling. `dropout`: of the activations of the two deepest ConvBlks. `output`: function that gives probabilities.
    Keys from `interpolate_parse` on are for training (appendix A.3).
    """
    # the paper's settings, those of the published code, or those for small data sets
    preset: Literal['paper', 'official', 'own_data'] = 'paper'
    size: list[int] = dataclasses.field(default_factory=lambda: [256, 192])
    width: float = 1.0
    inputs: list[str] = dataclasses.field(default_factory=lambda: ['agnostic_parse', 'pose', 'cloth'])
    convolve_upsampled: bool = False
    dropout: float = 0.0
    output: Literal['softmax', 'sigmoid'] = 'softmax'
    initial_gain: float = GAIN  # of initial weights; normalised ones learn at rates relative to it
    # the true parse is made smaller by bilinear interpolation, like the inputs; otherwise by nearest pixels
    interpolate_parse: bool = False
    lambda_cGAN: float = 1.0  # weight of the adversarial loss; with 0 there is no discriminator
    lambda_CE: float = 10.0  # weight of the cross-entropy
    learning_rate: float = 4e-4  # learning rate of the generator
    discriminator_rate: float = 4e-4  # learning rate of the discriminators
    # updates in which both rates fall to zero, along half a cosine; 0: they are constant; empty: train.steps
    decay_updates: int | None = 0
    beta_1: float = 0.5  # beta_1 of both Adam optimizers
    beta_2: float = 0.999  # beta_2 of both Adam optimizers

    def __post_init__(self):
        check_size(self.size, SMALLEST, f'the maps are halved {len(WIDTHS) - 1} times and normalised')
        if not self.inputs or len({*self.inputs}) < len(self.inputs) or not {*self.inputs} <= {*CHANNELS}:
            raise ValueError(f'inputs must name one or more of {", ".join(CHANNELS)}, each once; it is {self.inputs}')


class Step(NamedTuple):
    """A convolution of figure 10, on maps at 1 / 2^level of the size."""
    name: str
    maps: int
    channels: int
    level: int


def steps(config: Config) -> Iterator[Step]:
    """Yield figure 10's: ConvBlks conv1 … conv9 of two each, up6 … up9 if there are any, and the classes."""
    widths = [even(each, config.width) for each in WIDTHS]
    maps = sum(CHANNELS[name] for name in config.inputs)
    for level, channels in enumerate(widths):
        yield Step(f'conv{level + 1}_1', maps, channels, level)
        yield Step(f'conv{level + 1}_2', channels, channels, level)
        maps = channels
    for level in reversed(range(len(widths) - 1)):
        channels, number = widths[level], 2 * len(widths) - 1 - level
        if config.convolve_upsampled:
            yield Step(f'up{number}', maps, channels, level)
            maps = channels
        yield Step(f'conv{number}_1', channels + maps, channels, level)
        yield Step(f'conv{number}_2', channels, channels, level)
        maps = channels
    yield Step('conv9_3', maps, CLASSES, 0)


class Normalised(Convolution):
    """A convolution, instance normalisation and ReLU: half of a ConvBlk."""

    def call(self, x, training=None):
        return tf.nn.relu(instance_norm(super().call(x, training=training)))


def build(config: Config) -> dict[str, keras.Model]:
    """Return the functional model: a dict of inputs -> logits [B, h, w, 13], for `probabilities`.

    Inputs are those of `config.inputs` [B, h, w, channels], and `seed` int32 [2] of dropout. `agnostic_parse` S_a has
    one channel per class, `pose` and `cloth` are in [-1, 1], `cloth_mask` in [0, 1]. In the authors' code `noise` is 1
    where a standard normal draw exceeds 1, else 0, and `cloth` is multiplied by its mask.
    """
    given = {name: keras.Input([*config.size, CHANNELS[name]], name=name) for name in config.inputs}
    seed = seed_input()
    *inner, last = steps(config)
    layers = {step.name: Normalised(step.channels, name=step.name, gain=config.initial_gain) for step in inner}

    def conv_blk(number, x):
        return layers[f'conv{number}_2'](layers[f'conv{number}_1'](x))
    skipped: list = []
    x, deepest = tf.concat(list(given.values()), -1), len(WIDTHS)
    for number in range(1, deepest + 1):
        x = conv_blk(number, tf.nn.max_pool2d(x, 2, 2, 'VALID') if skipped else x)
        if number >= deepest - 1:
            x = Dropout(config.dropout, f'conv{number}/dropout')(x, seed)
        skipped.append(x)
    skipped.pop()
    for number in range(deepest + 1, 2 * deepest):
        x = upsample(x)
        x = layers[f'up{number}'](x) if config.convolve_upsampled else x
        x = conv_blk(number, tf.concat([skipped.pop(), x], -1))
    logits = Convolution(last.channels, name=last.name, gain=config.initial_gain)(x)
    return {'segmentation': of_any_size(keras.Model({**given, 'seed': seed}, logits, name='segmentation'))}


def probabilities(logits, config: Config):
    """Return S^ of logits [..., 13], by softmax (figure 10), or by a sigmoid per class."""
    return tf.nn.softmax(logits) if config.output == 'softmax' else tf.sigmoid(logits)


def costs(config: Config) -> list[Cost]:
    """Return every convolution's output, parameters and multiply-adds, in closed form."""
    height, width = config.size
    return [convolution_cost(step.name, (height >> step.level, width >> step.level), 3, step.maps, step.channels)
            for step in steps(config)]


def parameters(config: Config) -> int:
    """Return the number of parameters, in closed form."""
    return sum(cost.parameters for cost in costs(config))


def macs(config: Config) -> int:
    """Return the multiply-adds of one image's forward pass."""
    return sum(cost.macs for cost in costs(config))
