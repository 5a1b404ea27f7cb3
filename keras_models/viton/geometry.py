"""What VITON-HD does to pixels between its networks: thin-plate splines, sampling, blurring.

A position is (x, y), -1 and 1 at the outer edges of a picture, so pixel i of n has its centre at (2 i + 1) / n - 1 and
a position means the same place whatever the size.
"""
from typing import Literal

import numpy as np
import tensorflow as tf


class Spline:
    """The thin-plate spline of the geometric matching module (section 3.3): theta says by how much every control point
    is moved, and the plane in between is bent as little as can be.

    It interpolates f(p) = a + b x + c y + sum over k of w_k U(|p - P_k|), U(r) = r^2 log r^2, whose coefficients are a
    matrix, inverted here once, times theta. As f is linear in theta, gradients are finite everywhere.

    Args:
      grid: control points a side.
      extent: they and the output's pixels lie in [-extent, extent]; less than 1 shows only the middle of a picture.
      control_points: `theta[:, :, i, j]` moves the one at row i, column j, or (`columns`) at column i, row j.
      pixels: where the output's pixels lie: at the `centres` of the pixels of a picture, so that theta 0 changes
        nothing, or with the outermost on the `corners` of the extent.
    """

    def __init__(self, grid: int = 5, extent: float = 1.0, control_points: Literal['rows', 'columns'] = 'rows',
                 pixels: Literal['centres', 'corners'] = 'centres'):
        side = np.linspace(-extent, extent, grid)
        x, y = np.meshgrid(side, side, indexing='xy' if control_points == 'rows' else 'ij')
        self.P = np.stack([x.ravel(), y.ravel()], 1)  # [grid^2, 2]
        self.extent, self.pixels = extent, pixels
        r2 = np.sum((self.P[:, None] - self.P) ** 2, -1)
        plane = np.insert(self.P, 0, 1.0, axis=1)
        system = np.block([[r2 * np.log(r2 + (r2 == 0)), plane], [plane.T, np.zeros([3, 3])]])
        inverse = np.linalg.inv(system)[:, :len(self.P)]
        self._inverse = inverse  # [grid^2 + 3, grid^2]

    def grid(self, theta, height: int, width: int):
        """The positions a height x width picture is sampled at.

        Args:
          theta: [B, 2, grid, grid], what is added to x and to y of every control point.

        Returns:
          [B, height, width, 2].
        """
        x, y = tf.meshgrid(self._along(width), self._along(height))  # [H, W]
        P_x, P_y = self.P.T.astype(np.float32)
        r2 = tf.square(x[..., None] - P_x) + tf.square(y[..., None] - P_y)  # [H, W, grid^2]
        basis = tf.concat([tf.math.xlogy(r2, r2), tf.stack([tf.ones_like(x), x, y], -1)], -1)  # [H, W, grid^2 + 3]
        moved = tf.reshape(tf.cast(theta, tf.float32), [-1, 2, len(self.P)])
        # In float64, which is left alone where graphs are rewritten to bfloat16: eight bits are not enough for a place.
        coefficients = tf.einsum('kn,bcn->kbc', self._inverse, tf.cast(moved, tf.float64))
        beyond = tf.einsum('hwk,kbc->bhwc', tf.cast(basis, tf.float64), coefficients)
        return tf.stack([x, y], -1) + tf.cast(beyond, tf.float32)

    def _along(self, n: int) -> np.ndarray:
        outermost = self.extent * (1 - 1 / n if self.pixels == 'centres' else 1)
        return np.linspace(-outermost, outermost, n, dtype=np.float32)


def sample(picture, grid, border: bool = True):
    """Bilinear interpolation of a picture at positions; gradients flow to both.

    At 1024 x 768 x 3 it takes a CPU core 58 ms, `tfa.image.resampler` 26; with the gradient by the grid 95 and 82. But
    that operation XLA cannot compile (this one then takes 16 and 34 ms) and TensorFlow Serving does not know.

    Args:
      picture: [B, h, w, C], sides known and at least 2.
      grid: positions (x, y) [B, H, W, 2].
      border: positions outside take the nearest pixel of the border; else it is zero out there.

    Returns:
      [B, H, W, C].
    """
    frame = 0
    if not border:
        frame, picture = 1, tf.pad(picture, [[0, 0], [1, 1], [1, 1], [0, 0]])
    height, width, channels = picture.shape[1:]

    def pixel(position, n):
        """The pixel before a position, and how far beyond it that is, in pixels."""
        at = ((position + 1) * (n - 2 * frame) - 1) / 2 + frame
        at = tf.clip_by_value(at, 0.0, n - 1.0)
        before = tf.minimum(tf.floor(at), n - 2.0)
        return tf.cast(before, tf.int32), (at - before)[..., None]
    column, right = pixel(grid[..., 0], width)
    row, below = pixel(grid[..., 1], height)
    first = tf.range(tf.shape(picture)[0])[:, None, None] * (height * width) + row * width + column
    a, b, c, d = (tf.gather(tf.reshape(picture, [-1, channels]), first + step) for step in (0, 1, width, width + 1))
    top, bottom = a + (b - a) * right, c + (d - c) * right
    return top + (bottom - top) * below


def upsample(x):
    """[B, h, w, C] -> [B, 2 h, 2 w, C], every pixel four times.

    Keras's own layer has a gradient XLA cannot compile.
    """
    return tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)


def gaussian_blur(picture, size: int = 15, sigma: float = 3.0):
    """[B, H, W, C] -> the same, each channel blurred by a size x size Gaussian; it is zero outside.

    The kernel is a product, so one pass down and one across do: 36 ms of a CPU core for 13 channels of 1024 x 768,
    where the kernel as a whole takes 102.
    """
    weights = np.exp(-0.5 * ((np.arange(size) - (size - 1) / 2) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    down = np.tile(weights[:, None, None, None], [1, 1, picture.shape[-1], 1])
    for kernel in down, down.transpose(1, 0, 2, 3):
        picture = tf.nn.depthwise_conv2d(picture, kernel, [1, 1, 1, 1], 'SAME')
    return picture
