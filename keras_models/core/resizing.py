"""Resizing of images as PyTorch does it, for networks trained there."""
import numpy as np
import tensorflow as tf


def bilinear(picture, height: int, width: int):
    """[B, h, w, C] -> [B, height, width, C], h and w at least 2; as torch's `interpolate`, not aligning corners: a
    smaller picture is not smoothed before.

    `tf.image.resize` takes 0.7 of the time, but compiled by XLA it gives other pixels at three times the size.
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
    """[B, h, w, C] -> [B, height, width, C]; as torch's `interpolate`: pixel i is that at i * h / height, rounded
    down. (TensorFlow's own takes the one nearest the centre.)"""
    for axis, n in (1, height), (2, width):
        step = np.float32(picture.shape[axis]) / np.float32(n)  # torch's digits too: they decide at whole numbers
        picture = tf.gather(picture, (np.arange(n, dtype=np.float32) * step).astype(np.int32), axis=axis)
    return picture
