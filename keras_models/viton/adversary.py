"""Discriminators of several scales and the losses they give: appendix A.3 of VITON-HD, eqs. (10), (14) and (15).

The nets are pix2pixHD's PatchGANs (Wang et al. 2018, 3.2): each judges patches, the first those of the picture as it
is, the next those of the picture halved, and so on.
"""
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models.core.layers import even
from keras_models.core.losses import row_means
from keras_models.viton.layers import EPSILON, Convolution

KERNEL = 4  # height and width of all convolutions
FIRST, MOST = 64, 512  # channels
SLOPE = 0.2  # of the rectifiers below zero

Outputs = Sequence[list[tf.Tensor]]  # for each scale the maps of all layers, the decisions last


class Step(NamedTuple):
    """A convolution of one discriminator."""
    name: str
    stride: int
    maps: int
    channels: int
    normalised: bool

    @property
    def parameters(self) -> int:
        """It has no bias where instance normalisation would take it away."""
        return KERNEL ** 2 * self.maps * self.channels + (not self.normalised) * self.channels


def steps(maps: int, width: float, layers: int) -> Iterator[Step]:
    """C64-C128-C256-C512 for three `layers`, and the decisions."""
    for number in range(1, layers + 2):
        channels = even(min(FIRST * 2 ** (number - 1), MOST), width)
        yield Step(f'conv{number}', 2 if number <= layers else 1, maps, channels, number > 1)
        maps = channels
    yield Step('decisions', 1, maps, 1, False)


def build(name: str, maps: int, size: list[int], spectral: bool = False, width: float = 1.0, layers: int = 3,
          scales: int = 2) -> keras.Model:
    """The functional model: [B, H, W, maps] -> `Outputs`, of whose lists the last is [B, h, w, 1], a decision for each
    of the patches: the higher, the more it takes the patch for real.

    With spectral normalisation, what it keeps moves in every pass in training: of two passes in a step, one on what is
    real and one on what is not, only the first should be `training`, for both to be of the same weights.

    Args:
      maps: channels of what is judged and of what it is judged by.
      size: height and width.
      spectral: all convolutions are normalised (A.2).
      width: multiplies every channel count but those of inputs and decisions.
      layers: convolutions of stride 2; SPADE's code, which counts the next one too, calls the same net one of 4.
      scales: discriminators, each seeing the picture at half the last one's size.

    Raises:
      ValueError: the smallest maps have one place, and normalised would be zero whatever is seen.
    """
    import tensorflow_addons as tfa  # for those who train; the others only import this file
    halved = layers + scales - 1
    if max(size) <= 2 ** halved:
        raise ValueError(f'{name} halves its maps {halved} times, so a side must be over {2 ** halved}; the size is '
                         f'{size}')
    x = inputs = keras.Input([*size, maps], name='inputs')
    outputs = []
    for scale in range(scales):
        h, activations = x, []
        for step in steps(maps, width, layers):
            # SAME pads so that maps are halved; pix2pixHD's are one larger each time.
            h = Convolution(step.channels, KERNEL, step.stride, not step.normalised, spectral,
                            name=f'scale{scale}/{step.name}')(h)
            if step.normalised:  # in float32 whatever the layers compute in: sums of many need the digits
                h = tfa.layers.InstanceNormalization(center=False, scale=False, epsilon=EPSILON, dtype='float32',
                                                     name=f'scale{scale}/{step.name}_norm')(h)
            h = tf.cast(h, tf.float32) if step.name == 'decisions' else tf.nn.leaky_relu(h, SLOPE)
            activations.append(h)
        outputs.append(activations)
        x = tf.nn.avg_pool2d(x, 3, 2, 'SAME')  # means of the pixels there are
    return keras.Model(inputs, tuple(outputs), name=name)  # of a list of one Keras would take the one


def parameters(maps: int, width: float = 1.0, layers: int = 3, scales: int = 2) -> int:
    """Number of parameters, in closed form; what spectral normalisation keeps is none."""
    return scales * sum(step.parameters for step in steps(maps, width, layers))


def lsgan(real: Outputs, fake: Outputs) -> tuple[tf.Tensor, tf.Tensor]:
    """Least squares towards 1 and 0 (Mao et al. 2017, eq. 9), which is what A.3 means by eq. (10); summed over the
    scales and the discriminator's halved, as in pix2pixHD.

    Returns the generator's and the discriminator's loss, [B] each.
    """
    generator = tf.add_n([row_means((maps[-1] - 1) ** 2) for maps in fake])
    discriminator = tf.add_n([row_means((maps[-1] - 1) ** 2) for maps in real]
                             + [row_means(maps[-1] ** 2) for maps in fake])
    return generator, discriminator / 2


def hinge(real: Outputs, fake: Outputs) -> tuple[tf.Tensor, tf.Tensor]:
    """The hinge loss, which A.3 puts in place of eq. (14); the mean over the scales, as in SPADE.

    Returns the generator's and the discriminator's loss, [B] each.
    """
    generator = tf.add_n([-row_means(maps[-1]) for maps in fake])
    discriminator = tf.add_n([row_means(tf.nn.relu(1 - maps[-1])) for maps in real]
                             + [row_means(tf.nn.relu(1 + maps[-1])) for maps in fake])
    return generator / len(fake), discriminator / len(fake)


def feature_matching(real: Outputs, fake: Outputs) -> tf.Tensor:
    """Eq. (15): summed over the layers, but for the decisions, and the mean over the scales. Only `fake` has gradients.

    Returns [B].
    """
    found = [row_means(tf.abs(tf.stop_gradient(one) - other))
             for truth, made in zip(real, fake) for one, other in zip(truth[:-1], made[:-1])]
    return tf.add_n(found) / len(fake)
