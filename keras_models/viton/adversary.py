"""Multi-scale discriminators and their losses: appendix A.3 of VITON-HD, eqs. (10), (14) and (15).

The nets are pix2pixHD's PatchGANs (Wang et al. 2018, 3.2): each judges patches, the first on the image itself, the next
on the image at half size, and so on.
"""
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models.core.layers import even, of_any_size
from keras_models.core.losses import row_means
from keras_models.viton.layers import EPSILON, Convolution

KERNEL = 4  # height and width of all convolutions
FIRST, MOST = 64, 512  # channels of the first layer, and at most
SLOPE = 0.2  # slope of the rectifiers below zero

Outputs = Sequence[list[tf.Tensor]]  # for each scale the maps of all layers, decisions last


class Step(NamedTuple):
    """A convolution of one discriminator."""
    name: str
    stride: int
    maps: int
    channels: int
    normalised: bool

    @property
    def parameters(self) -> int:
        """Number of parameters; without a bias if instance normalisation would cancel it."""
        return KERNEL ** 2 * self.maps * self.channels + (not self.normalised) * self.channels


def steps(maps: int, width: float, layers: int) -> Iterator[Step]:
    """Yield C64-C128-C256-C512 for three `layers`, and the decisions."""
    for number in range(1, layers + 2):
        channels = even(min(FIRST * 2 ** (number - 1), MOST), width)
        yield Step(f'conv{number}', 2 if number <= layers else 1, maps, channels, number > 1)
        maps = channels
    yield Step('decisions', 1, maps, 1, False)


def build(name: str, maps: int, size: list[int], spectral: bool = False, width: float = 1.0, layers: int = 3,
          scales: int = 2) -> keras.Model:
    """Return the functional model [B, H, W, maps] -> `Outputs`.

    The last map of each scale is [B, h, w, 1], a decision per patch: the higher, the more real.

    With spectral normalisation, the power iteration advances in every training pass. If a step has two passes, on real
    and generated images, only the first should be `training`, so that both use the same weights.

    Args:
      maps: channels of the judged image and its condition.
      size: height and width.
      spectral: normalise all convolutions (A.2).
      width: multiplies every channel count except inputs and decisions.
      layers: convolutions of stride 2; SPADE's code also counts the next one and calls the same net one of 4.
      scales: discriminators, each on the image at half the previous size.

    Raises:
      ValueError: the smallest maps have one position, so normalised maps would be zero for any input.
    """
    import tensorflow_addons as tfa  # only needed for training
    halved = layers + scales - 1
    if max(size) <= 2 ** halved:
        raise ValueError(f'{name} halves its maps {halved} times, so each side must be over {2 ** halved}; the size is '
                         f'{size}')
    x = inputs = keras.Input([*size, maps], name='inputs')
    outputs = []
    for scale in range(scales):
        h, activations = x, []
        for step in steps(maps, width, layers):
            # SAME padding halves maps exactly; pix2pixHD's are one larger each time.
            h = Convolution(step.channels, KERNEL, step.stride, not step.normalised, spectral,
                            name=f'scale{scale}/{step.name}')(h)
            if step.normalised:  # float32 at any precision, which long sums need
                h = tfa.layers.InstanceNormalization(center=False, scale=False, epsilon=EPSILON, dtype='float32',
                                                     name=f'scale{scale}/{step.name}_norm')(h)
            h = tf.cast(h, tf.float32) if step.name == 'decisions' else tf.nn.leaky_relu(h, SLOPE)
            activations.append(h)
        outputs.append(activations)
        x = tf.nn.avg_pool2d(x, 3, 2, 'SAME')  # means of the existing pixels
    return of_any_size(keras.Model(inputs, tuple(outputs), name=name))  # Keras would unpack a list of one


def parameters(maps: int, width: float = 1.0, layers: int = 3, scales: int = 2) -> int:
    """Return the number of parameters, in closed form, without the state of spectral normalisation."""
    return scales * sum(step.parameters for step in steps(maps, width, layers))


def lsgan(real: Outputs, fake: Outputs) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the generator's and the discriminator's least-squares loss, [B] each.

    Least squares towards 1 and 0 (Mao et al. 2017, eq. 9) is what A.3 means by eq. (10). It is summed over the scales,
    and the discriminator's is halved, as in pix2pixHD.
    """
    generator = tf.add_n([row_means((maps[-1] - 1) ** 2) for maps in fake])
    discriminator = tf.add_n([row_means((maps[-1] - 1) ** 2) for maps in real]
                             + [row_means(maps[-1] ** 2) for maps in fake])
    return generator, discriminator / 2


def hinge(real: Outputs, fake: Outputs) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the generator's and the discriminator's hinge loss, [B] each.

    A.3 uses it instead of eq. (14); it is the mean over the scales, as in SPADE.
    """
    generator = tf.add_n([-row_means(maps[-1]) for maps in fake])
    discriminator = tf.add_n([row_means(tf.nn.relu(1 - maps[-1])) for maps in real]
                             + [row_means(tf.nn.relu(1 + maps[-1])) for maps in fake])
    return generator / len(fake), discriminator / len(fake)


def feature_matching(real: Outputs, fake: Outputs) -> tf.Tensor:
    """Return the feature matching loss, eq. (15), [B].

    It is summed over the layers, except the decisions, and averaged over the scales. Only `fake` has gradients.
    """
    found = [row_means(tf.abs(tf.stop_gradient(one) - other))
             for truth, made in zip(real, fake) for one, other in zip(truth[:-1], made[:-1])]
    return tf.add_n(found) / len(fake)
