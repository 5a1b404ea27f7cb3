"""Crop, mirror and colour images for a net, as TensorFlow operations with equal results eagerly and in a graph.

An image is rescaled until its shorter side is S, and a square of it is used (Krizhevsky et al. 2 and 4.1; Simonyan &
Zisserman 3.1; He et al. 2015, "Training"). In training the rescaled image never exists: only the part of the JPEG file
under the square is decoded, and resampled directly to the square's pixels. Resampling uses a triangle filter two pixels
wide in the coarser of the two images, so that reduced images are not aliased. Pixels are RGB levels, 0 to 255.
"""
import dataclasses
import functools
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import tensorflow as tf

from data_prep.image.resampling import SIDE

SMALL = 64  # squares up to this side are counted unenlarged: CIFAR-10's 50,000 then take 91 s instead of 150 s
LONGEST = 8  # largest aspect ratio: a file of 1 x 20,000 pixels, enlarged, would take more than 16 GB

# The decoder's default, a coarser transform that is no faster here, makes photographs one level less red and 1.2 less
# blue on average; this method equals Pillow's, pixel by pixel.
_DCT = 'INTEGER_ACCURATE'

_RATIOS = 1, 2, 4, 8  # by which the decoder can reduce a JPEG

# JPEG colours at half resolution are interpolated from neighbours, which are missing at a window's border.
_MARGIN = 2

# Side of a part up to which ScaleAndTranslate is faster than two products, with two threads: 64 x 64 pixels to 56 x 56
# take 56 instead of 158 us, 96 to 84 106 instead of 159, 128 to 112 178 instead of 193, 256 to 112 266 instead of 235.
_ONE_OPERATION = 96


@dataclasses.dataclass(frozen=True)
class Pixels:
    """Statistics of a training set's pixels, over the central squares of its images.

    Each image is rescaled until its shorter side is `SIDE`, and rounded to whole levels; a square of at most `SMALL` is
    counted as it is.

    Attributes:
      mean_image: [SIDE, SIDE, 3], the mean of the squares. (For small ones it is enlarged, which equals the mean of
        enlarged ones.)
      mean_rgb: [3], the mean of all pixels, with equal weight for every image.
      covariance: [3, 3], of red, green and blue over all pixels, divided by the number of pixels.
    """
    mean_image: np.ndarray
    mean_rgb: np.ndarray
    covariance: np.ndarray


class Place(NamedTuple):
    """Location of a square.

    Height and width of the rescaled image, top and left of the square in it, int32 [2] each, and whether the square is
    mirrored, a scalar.
    """
    whole: tf.Tensor
    offset: tf.Tensor
    mirrored: tf.Tensor


class View:
    """Prepare images for a net.

    Args:
      pixels: statistics of the training set.
      crop, square, flip, colour, mean, standardise, dct_scaling: see `data_prep.imagenet.Input`.
      scales: the least and largest S.
    """

    def __init__(self, pixels: Pixels, crop: int, scales: tuple[int, int], square: bool, flip: bool, colour: float,
                 mean: Literal['pixel', 'rgb', 'none'], standardise: bool = False, dct_scaling: bool = False):
        self.crop, self.scales, self.square, self.flip, self.mean = crop, scales, square, flip, mean
        self.dct_scaling = dct_scaling
        self._colours = (colour * principal_colours(pixels.covariance)).astype(np.float32) if colour else None
        # With a border of one pixel, every position in the mean image lies between pixels.
        self._mean_image = np.pad(pixels.mean_image, [(1, 1), (1, 1), (0, 0)], 'edge')[np.newaxis].astype(np.float32)
        self._mean_rgb = pixels.mean_rgb.astype(np.float32)
        self._unit = deviations(pixels.covariance) if standardise else None

    @property
    def scale(self) -> int:
        """The scale of validation, Q = (S_min + S_max) / 2 (Simonyan & Zisserman 4.1)."""
        return sum(self.scales) // 2

    def training(self, encoded: tf.Tensor, size: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return a random crop at a random scale, possibly mirrored, with altered colours; all drawn from `seed` alone.

        Args:
          encoded: a JPEG file, a scalar string.
          size: int32 [2], its height and width.
          seed: int32 [2].

        Returns:
          float32 [crop, crop, 3].
        """
        place = self.drawn(size, seed)
        less = self._mean(place.whole, place.offset, tf.constant([self.crop, self.crop]))
        if self._colours is not None:
            alpha = tf.random.stateless_normal([3], tf.random.experimental.stateless_fold_in(seed, 1), alg='philox')
            less = _by_rows(tf.subtract, less, tf.linalg.matvec(self._colours, alpha))
        image = self._centred(self._crop(encoded, size, place), less)
        return tf.cond(place.mirrored, lambda: tf.reverse(image, [1]), lambda: image) if self.flip else image

    def central(self, encoded: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        """Return the central crop at the scale of validation; see `training`; nothing is random."""
        place = self.middle(size)
        less = self._mean(place.whole, place.offset, tf.constant([self.crop, self.crop]))
        return self._centred(self._crop(encoded, size, place), less)

    def _crop(self, encoded: tf.Tensor, size: tf.Tensor, place: Place) -> tf.Tensor:
        return crop_jpeg(encoded, size, place.whole, place.offset, self.crop, self.dct_scaling)

    def drawn(self, size: tf.Tensor, seed: tf.Tensor) -> Place:
        """Draw the location of the square for `training`."""
        least, largest = self.scales
        u = tf.random.stateless_uniform([4], seed, alg='philox')
        whole = rescaled(size, least + _up_to(u[0], largest - least))
        inside, space = self._space(whole)
        return Place(whole, inside + _up_to(u[1:3], space - self.crop), (u[3] < 0.5) & self.flip)

    def middle(self, size: tf.Tensor) -> Place:
        """Return the location of the square for `central`."""
        whole = rescaled(size, self.scale)
        inside, space = self._space(whole)
        return Place(whole, inside + (space - self.crop) // 2, tf.constant(False))

    def picture(self, encoded: tf.Tensor, scale: tf.Tensor | int) -> tf.Tensor:
        """Return the area that crops are taken from: the rescaled image or, with `square`, its centre.

        Args:
          encoded: a JPEG or PNG file of any size, grey or colour, a scalar string; transparency is dropped.
          scale: the shorter side.

        Returns:
          float32 [h, w, 3]; for an aspect ratio above `LONGEST`, the middle of the image.
        """
        return self.located(encoded, scale)[0]

    def located(self, encoded: tf.Tensor, scale: tf.Tensor | int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the result of `picture`, and the part of the whole image it shows.

        The part is float32 [4]: its left, upper, right and lower end in fractions of width and height.
        """
        pixels, whole = self._rescalable(encoded, scale)
        inside, space = self._space(whole)
        shown = tf.minimum(space, LONGEST * tf.reduce_min(whole))
        inside += (space - shown) // 2
        image = self._centred(resampled(pixels, tf.shape(pixels)[:2], whole, inside, shown),
                              self._mean(whole, inside, shown))
        ends = tf.stack([inside, inside + shown]) / whole  # [2, 2], float64
        return image, tf.cast(tf.reshape(tf.reverse(ends, [1]), [4]), tf.float32)

    def _rescalable(self, encoded: tf.Tensor, scale: tf.Tensor | int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return a file's pixels, and height and width of the image rescaled to `scale`."""
        def all_pixels():
            pixels = decoded(encoded)
            return pixels, rescaled(tf.shape(pixels)[:2], scale)

        def reduced():
            size = tf.io.extract_jpeg_shape(encoded)[:2]
            whole = rescaled(size, scale)
            return _halved(functools.partial(decoded, encoded), halvings(size, whole)), whole
        return tf.cond(tf.io.is_jpeg(encoded), reduced, all_pixels) if self.dct_scaling else all_pixels()

    def _centred(self, image: tf.Tensor, mean: tf.Tensor) -> tf.Tensor:
        """Subtract a mean, [h, w, 3] or [3], from levels [h, w, 3]; optionally divide by the standard deviation."""
        image = _by_rows(tf.subtract, image, mean)
        return image if self._unit is None else _by_rows(tf.divide, image, self._unit)

    def _space(self, whole: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the area of the rescaled image for crops: top and left, height and width, int32 [2] each."""
        if not self.square:
            return tf.zeros_like(whole), whole
        space = tf.zeros_like(whole) + tf.reduce_min(whole)
        return (whole - space) // 2, space

    def _mean(self, whole: tf.Tensor, offset: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
        """Return the mean to subtract at `offset` of the rescaled image, [*shape, 3] or [3].

        The mean image is scaled to the area that crops are taken from.
        """
        if self.mean != 'pixel':
            return tf.constant(self._mean_rgb if self.mean == 'rgb' else np.zeros(3, np.float32))
        inside, space = self._space(whole)
        middles = tf.cast(tf.stack([offset - inside, offset - inside + shape - 1]), tf.float32) + 0.5
        places = middles * SIDE / tf.cast(space, tf.float32) + 0.5  # of the first and last pixel, including the border
        corners = tf.reshape(places / (SIDE + 1), [1, 4])
        return tf.image.crop_and_resize(self._mean_image, corners, [0], shape)[0]


def _by_rows(operation: Callable, image: tf.Tensor, other: tf.Tensor | np.ndarray) -> tf.Tensor:
    """Apply an operation to an image, [h, w, 3] or [3], and a colour [3] or an array of the image's shape.

    A colour is first repeated to a whole row: processing three numbers at a time, 224 x 224 pixels take 0.33 ms instead
    of 0.06 ms.
    """
    if len(image.shape) == len(other.shape):
        return operation(image, other)
    shape = tf.shape(image)
    rows = tf.reshape(image, [shape[0], 3 * shape[1]])
    return tf.ensure_shape(tf.reshape(operation(rows, tf.tile(other, shape[1:2])), shape), image.shape)


def _up_to(u: tf.Tensor, largest: tf.Tensor | int) -> tf.Tensor:
    """Map uniform numbers on [0, 1) to uniform whole numbers from 0 to `largest`."""
    return tf.cast(u * tf.cast(largest + 1, tf.float32), tf.int32)


def decoded(encoded: tf.Tensor, ratio: int = 1) -> tf.Tensor:
    """Decode a JPEG or PNG file, grey or colour, to uint8 [h, w, 3]; transparency is dropped.

    Args:
      ratio: 1, 2, 4 or 8, by which the sides of a JPEG are divided, rounded up.
    """
    return tf.io.decode_jpeg(encoded, channels=3, ratio=ratio, dct_method=_DCT)  # reads PNG as well


def in_square(boxes: tf.Tensor, place: Place, crop: int, inside: float) -> tf.Tensor:
    """Return the box of which a square shows most, in the square's coordinates.

    Args:
      boxes: [k, 4], their left, upper, right and lower ends in fractions of the whole image; NaN where there is none.
      inside: a box counts if the square shows some of it, and at least this fraction.

    Returns:
      float32 [4]: its centre from the left and from above, width and height, in sides of the square; parts outside the
      square are not cut off. NaN if no box counts.
    """
    size, offset = (tf.cast(tf.reverse(each, [0]), tf.float32) for each in place[:2])
    low, high = ((ends * size - offset) / crop for ends in (boxes[:, :2], boxes[:, 2:]))  # [k, 2], of x and y
    area = tf.reduce_prod(high - low, 1)
    shown = tf.reduce_prod(tf.clip_by_value(high, 0, 1) - tf.clip_by_value(low, 0, 1), 1)
    counts = (shown > 0) & (shown >= inside * area)
    centre = (low + high) / 2
    centre = tf.where(place.mirrored, tf.constant([1., 0.]) + tf.constant([-1., 1.]) * centre, centre)
    best = tf.argmax(tf.where(counts, shown, -1.))
    return tf.where(tf.reduce_any(counts), tf.concat([centre, high - low], 1)[best], np.nan)


def rescaled(size: tf.Tensor, scale: tf.Tensor | int) -> tf.Tensor:
    """Return height and width, int32 [2], of an image of `size` [2] whose shorter side becomes `scale`."""
    short = tf.reduce_min(size)
    return (2 * scale * size + short) // (2 * short)


def resampled(pixels: tf.Tensor, size: tf.Tensor, whole: tf.Tensor, offset: tf.Tensor, shape: tf.Tensor,
              start: tf.Tensor | int = 0) -> tf.Tensor:
    """Return a part of an enlarged or reduced image.

    This is ScaleAndTranslate with a triangle filter and antialiasing. Unless the part is known to be small when the
    graph is built (`_ONE_OPERATION`), it is computed, to the bit the same, as two products with sparse matrices: 375 x
    500 pixels to 256 x 341 take 0.7 ms of a core instead of 2.3 ms. Their sixty operations take some 0.1 ms to start,
    eagerly more than ScaleAndTranslate, so callers outside a graph should build one.

    Args:
      pixels: [h, w, 3], uint8 or float32: the image, or as much of it as the part needs.
      size: int32 [2], height and width of the image.
      whole: int32 [2], height and width of the rescaled image.
      offset: int32 [2], top and left of the part in the rescaled image.
      shape: int32 [2], of the part.
      start: int32 [2], top and left of `pixels` in the image.

    Returns:
      float32 [*shape, 3].
    """
    ratio = tf.cast(whole, tf.float64) / tf.cast(size, tf.float64)
    moved = tf.cast(start, tf.float64) * ratio - tf.cast(offset, tf.float64)
    ratio, moved = tf.cast(ratio, tf.float32), tf.cast(moved, tf.float32)
    given, wanted = tf.shape(pixels), tf.get_static_value(shape)
    with tf.device('CPU:0'):  # a GPU adds in another order
        if wanted is not None and wanted.prod() <= _ONE_OPERATION ** 2:
            return tf.raw_ops.ScaleAndTranslate(images=pixels[tf.newaxis], size=shape, scale=ratio, translation=moved,
                                                kernel_type='triangle', antialias=True)[0]
        rows, columns = _weights(given[:2], shape, ratio, moved)
        flat = tf.reshape(tf.cast(pixels, tf.float32), [given[0], -1])
        reduced = tf.sparse.sparse_dense_matmul(rows, flat)  # [shape[0], 3 w]
        # Transpose the small products, not the images, which takes twice as long.
        reduced = tf.transpose(tf.sparse.sparse_dense_matmul(columns, tf.transpose(reduced)))  # [shape[0], 3 shape[1]]
        return tf.reshape(reduced, [shape[0], shape[1], 3])


def _weights(given: tf.Tensor, wanted: tf.Tensor, ratio: tf.Tensor,
             moved: tf.Tensor) -> tuple[tf.SparseTensor, tf.SparseTensor]:
    """Return the matrices of row weights and of column weights, the latter for each colour.

    Their shapes are [wanted, given] and [3 wanted, 3 given], float32. They equal what ScaleAndTranslate computes
    internally, including rounding, for both axes at once.

    Args:
      given, wanted: int32 [2], heights and widths.
      ratio: float32 [2], size of a given pixel in wanted pixels.
      moved: float32 [2], where the first given pixel begins, in wanted pixels.
    """
    pixel = 1 / ratio[:, tf.newaxis]  # [2, 1], in given pixels
    reach = tf.maximum(pixel, 1)
    middles = (tf.range(tf.reduce_max(wanted), dtype=tf.float32) + 0.5) * pixel - pixel * moved[:, tf.newaxis]
    last = given[:, tf.newaxis] - 1
    first, final = (tf.clip_by_value(tf.cast(at, tf.int32), 0, last) for at in (
        tf.math.ceil(middles - reach - 0.5), tf.floor(middles + reach - 0.5)))
    places = first[..., tf.newaxis] + tf.range(tf.reduce_max(final - first) + 1)
    distances = tf.abs(tf.cast(places, tf.float32) + 0.5 - middles[..., tf.newaxis])
    weights = tf.maximum(0., 1 - distances * (1 / reach)[..., tf.newaxis])
    inside = (middles >= 0) & (middles <= tf.cast(last + 1, tf.float32))
    weights = tf.where((places <= final[..., tf.newaxis]) & inside[..., tf.newaxis], weights, 0.)
    weights *= tf.math.divide_no_nan(1., tf.cumsum(weights, -1)[..., -1:])  # added serially, unlike a sum
    places = tf.minimum(places, last[..., tf.newaxis])

    def matrix(side, colours):
        n, colour = wanted[side], tf.range(colours)[:, tf.newaxis]
        columns = colours * places[side, :n, tf.newaxis] + colour  # [n, colours, some]
        lines = tf.broadcast_to(colours * tf.range(n)[:, tf.newaxis, tf.newaxis] + colour, tf.shape(columns))
        indices = tf.cast(tf.reshape(tf.stack([lines, columns], -1), [-1, 2]), tf.int64)
        values = tf.reshape(tf.tile(weights[side, :n, tf.newaxis], [1, colours, 1]), [-1])
        return tf.SparseTensor(indices, values, colours * tf.cast(tf.stack([n, given[side]]), tf.int64))
    return matrix(0, 1), matrix(1, 3)


def halvings(size: tf.Tensor, whole: tf.Tensor) -> tf.Tensor:
    """Return how often an image of `size` can be halved, three times at most, and stay as large as `whole`."""
    enough = tf.reduce_all(size >= whole * tf.constant(_RATIOS[1:])[:, tf.newaxis], 1)
    return tf.reduce_sum(tf.cast(enough, tf.int32))


def _halved(decode: Callable[[int], tf.Tensor], times: tf.Tensor) -> tf.Tensor:
    """Return what `decode` returns for the ratio 2^times; a ratio must be known when the graph is built."""
    return tf.switch_case(times, [functools.partial(decode, ratio) for ratio in _RATIOS])


def crop_jpeg(encoded: tf.Tensor, size: tf.Tensor, whole: tf.Tensor, offset: tf.Tensor, crop: int,
              dct_scaling: bool = False) -> tf.Tensor:
    """Decode, rescale and crop a JPEG file, with no more work than the crop needs.

    Args:
      encoded: the file, a scalar string.
      size: int32 [2], its height and width.
      whole: int32 [2], those of the rescaled image.
      offset: int32 [2], top and left of the crop in that.
      dct_scaling: whether the decoder reduces the image first, if that leaves enough.

    Returns:
      float32 [crop, crop, 3].
    """
    if dct_scaling:
        times = halvings(size, whole)
        size = -(-size // tf.bitwise.left_shift(1, times))  # rounded up, as the decoder does
    a_pixel = tf.cast(size, tf.float64) / tf.cast(whole, tf.float64)
    reach = tf.maximum(a_pixel, 1) + _MARGIN
    first, last = (tf.cast(at, tf.float64) * a_pixel for at in (offset, offset + crop))
    start = tf.maximum(tf.cast(first - reach, tf.int32), 0)
    stop = tf.minimum(tf.cast(last + reach, tf.int32) + 1, size)

    def decode(ratio=1):
        return tf.io.decode_and_crop_jpeg(encoded, tf.concat([start, stop - start], 0), channels=3, ratio=ratio,
                                          dct_method=_DCT)
    pixels = _halved(decode, times) if dct_scaling else decode()
    return tf.ensure_shape(resampled(pixels, size, whole, offset, tf.constant([crop, crop]), start), [crop, crop, 3])


def deviations(covariance: np.ndarray) -> np.ndarray:
    """Return the standard deviations of red, green and blue, float32 [3], by which levels are divided.

    A colour that is the same everywhere, such as those that a fluorescence microscope leaves at 0, has none, or by
    rounding a slightly negative variance. So each is at least one level.

    Args:
      covariance: [3, 3], of levels.
    """
    return np.sqrt(np.maximum(np.diag(covariance), 1)).astype(np.float32)


def principal_colours(covariance: np.ndarray) -> np.ndarray:
    """Return the matrix [3, 3] that alters colours in Krizhevsky et al. 4.1: [p1, p2, p3] diag(l1, l2, l3).

    Its product with (a1, a2, a3) is added to every pixel. The paper's l belong to intensities from 0 to 1; for levels
    from 0 to 255 they would be 65,025 times as large, and a deviation of 0.1 would change an image by hundreds of
    levels. So l are the eigenvalues of the covariance of levels / 255, and the sum is again in levels.

    Args:
      covariance: [3, 3], of levels.
    """
    eigenvalues, vectors = np.linalg.eigh(covariance)
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[np.newaxis], 0)
    return vectors * np.sign(largest) * eigenvalues / 255  # fixes the sign of the vectors, so that runs repeat
