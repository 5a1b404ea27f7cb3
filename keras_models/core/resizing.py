"""Resize images as PyTorch does, for networks trained there."""
import numpy as np
import tensorflow as tf


def bilinear(picture, height: int, width: int):
    """Resize [B, h, w, C] to [B, height, width, C], h and w at least 2, like torch's `interpolate` with bilinear mode.

    Corners are not aligned, and a reduced image is not smoothed first. `tf.image.resize` takes 0.7 of the time, but
    compiled by XLA it gives other pixels at three times the size.
    """
    for axis, n in (1, height), (2, width):
        size = picture.shape[axis]
        at = np.clip((np.arange(n) + 0.5) * size / n - 0.5, 0, size - 1)
        before = np.minimum(at.astype(np.int32), size - 2)
        share = (at - before).astype(np.float32).reshape([-1] + [1] * (3 - axis))
        first, second = (tf.gather(picture, before + step, axis=axis) for step in (0, 1))
        picture = first + (second - first) * share
    return picture


def nearest(picture, height: int, width: int):
    """Resize [B, h, w, C] to [B, height, width, C] like torch's `interpolate`: pixel floor(i * h / height) for i.

    (TensorFlow's own takes the pixel nearest the centre.)
    """
    for axis, n in (1, height), (2, width):
        step = np.float32(picture.shape[axis]) / np.float32(n)  # torch's precision, which matters at whole numbers
        picture = tf.gather(picture, (np.arange(n, dtype=np.float32) * step).astype(np.int32), axis=axis)
    return picture
