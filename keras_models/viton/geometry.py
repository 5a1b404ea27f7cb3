"""Thin-plate splines, sampling and blurring of images between VITON-HD's networks.

A position is (x, y), with -1 and 1 at the outer edges of an image, so pixel i of n has its centre at (2 i + 1) / n - 1,
and positions do not depend on the image's size.
"""
from typing import Literal

import numpy as np
import tensorflow as tf


class Spline:
    """The thin-plate spline of the geometric matching module (section 3.3).

    theta moves every control point, and the plane in between is bent as little as possible. It interpolates f(p) = a +
    b x + c y + sum over k of w_k U(|p - P_k|), U(r) = r^2 log r^2; the coefficients are a matrix, inverted here once,
    times theta. f is linear in theta, so gradients are finite everywhere.

    Args:
      grid: control points per side.
      extent: control points and output pixels lie in [-extent, extent]; below 1, only the middle of an image is shown.
      control_points: `theta[:, :, i, j]` moves the point at row i, column j, or (`columns`) at column i, row j.
      pixels: positions of the output's pixels: at the `centres` of an image's pixels, so that theta 0 changes nothing,
        or with the outermost on the `corners` of the extent.
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

    def grid(self, theta, height: int, width: int, precision: tf.DType = tf.float64):
        """Return the positions at which a height x width image is sampled.

        Args:
          theta: [B, 2, grid, grid], offsets of x and y of every control point.
          precision: of the sums. The bfloat16 graph rewriter skips float64; eight bits are too few for a position.

        Returns:
          [B, height, width, 2].
        """
        x, y = tf.meshgrid(self._along(width), self._along(height))  # [H, W]
        P_x, P_y = self.P.T.astype(np.float32)
        r2 = tf.square(x[..., None] - P_x) + tf.square(y[..., None] - P_y)  # [H, W, grid^2]
        # Not tf.math.xlogy, which TensorFlow Lite lacks.
        U = r2 * tf.math.log(tf.maximum(r2, 1e-30))
        basis = tf.concat([U, tf.stack([tf.ones_like(x), x, y], -1)], -1)  # [H, W, grid^2 + 3]
        moved = tf.reshape(tf.cast(theta, tf.float32), [-1, 2, len(self.P)])
        coefficients = tf.einsum('kn,bcn->kbc', tf.constant(self._inverse, precision), tf.cast(moved, precision))
        # Not einsum, of which a file of ONNX keeps the basis twice, 88 MB each at 1024 x 768.
        beyond = tf.transpose(tf.tensordot(tf.cast(basis, precision), coefficients, 1), [2, 0, 1, 3])
        return tf.stack([x, y], -1) + tf.cast(beyond, tf.float32)

    def _along(self, n: int) -> np.ndarray:
        outermost = self.extent * (1 - 1 / n if self.pixels == 'centres' else 1)
        return np.linspace(-outermost, outermost, n, dtype=np.float32)


def sample(picture, grid, border: bool = True):
    """Interpolate an image bilinearly at positions; gradients flow to both.

    At 1024 x 768 x 3 it takes a CPU core 58 ms, `tfa.image.resampler` 26; with the gradient for the grid 95 and 82. But
    XLA cannot compile that operation (this one then takes 16 and 34 ms), and TensorFlow Serving does not have it.

    Args:
      picture: [B, h, w, C], sides known and at least 2.
      grid: positions (x, y) [B, H, W, 2].
      border: positions outside use the nearest border pixel; otherwise they are zero.

    Returns:
      [B, H, W, C].
    """
    frame = 0
    if not border:
        frame, picture = 1, tf.pad(picture, [[0, 0], [1, 1], [1, 1], [0, 0]])
    height, width, channels = picture.shape[1:]

    def pixel(position, n):
        """Return the pixel before a position, and the distance from it in pixels."""
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
    """Double [B, h, w, C] to [B, 2 h, 2 w, C], repeating every pixel four times.

    The gradient of Keras's own layer cannot be compiled by XLA.
    """
    return tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)


def gaussian_blur(picture, sigma: float):
    """Blur each channel of [B, H, W, C] with a Gaussian, cut off beyond 2.5 sigma; outside, the image is zero.

    The kernel is separable, so one vertical and one horizontal pass suffice: 36 ms of a CPU core for 13 channels of
    1024 x 768, instead of 102 with the full kernel.
    """
    radius = int(2.5 * sigma)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    down = np.tile(weights[:, None, None, None], [1, 1, picture.shape[-1], 1])
    for kernel in down, down.transpose(1, 0, 2, 3):
        picture = tf.nn.depthwise_conv2d(picture, kernel, [1, 1, 1, 1], 'SAME')
    return picture
