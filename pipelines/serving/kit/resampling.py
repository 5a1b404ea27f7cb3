"""Enlarge and reduce images as in training, with NumPy."""
import numpy as np


def resampled(pixels, whole, offset, shape):
    """Return a part of an enlarged or reduced image: a triangle filter two pixels wide in the coarser of the two.

    Args:
      pixels: levels [h, w, 3].
      whole: height and width of the rescaled image.
      offset, shape: the part's top and left, height and width in it.
    """
    for axis in (0, 1):
        given = pixels.shape[axis]
        pixel = np.float32(1 / np.float32(whole[axis] / given))  # of the rescaled image, in given pixels
        reach = max(pixel, np.float32(1))
        middles = (np.arange(offset[axis], offset[axis] + shape[axis], dtype=np.float32) + np.float32(0.5)) * pixel
        distances = np.abs(np.arange(given, dtype=np.float32) + np.float32(0.5) - middles[:, np.newaxis])
        weights = np.maximum(0, 1 - distances / reach)
        weights /= weights.sum(1, keepdims=True)
        pixels = np.moveaxis(np.tensordot(weights, pixels.astype(np.float32), (1, axis)), 0, axis)
    return pixels


def interpolated(values, axis, at):
    """Return values at fractional places along an axis, linear between the nearest two; beyond the ends, the ends'."""
    last = values.shape[axis] - 1
    at = np.clip(at, 0, last)
    before = np.minimum(at.astype(int), max(last - 1, 0))
    share = (at - before).astype(np.float32).reshape([-1 if each == axis else 1 for each in range(values.ndim)])
    after = np.minimum(before + 1, last)
    return np.take(values, before, axis) * (1 - share) + np.take(values, after, axis) * share


def nearest(labels, shape):
    """Return labels [h, w] at another height and width, each that of the nearest pixel."""
    for axis in (0, 1):
        given = labels.shape[axis]
        at = (np.arange(shape[axis], dtype=np.float32) + np.float32(0.5)) * np.float32(given / shape[axis])
        labels = np.take(labels, np.minimum(at.astype(int), given - 1), axis)
    return labels
