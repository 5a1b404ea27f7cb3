"""Splines, sampling and resizing against scipy, numpy, tensorflow-addons and recorded PyTorch results."""
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_addons as tfa
from scipy import interpolate, ndimage

from keras_models.core import resizing
from keras_models.viton import geometry
from keras_models.viton.geometry import Spline
from support.references import Reference

OFFICIAL = {'extent': 0.9, 'control_points': 'columns', 'pixels': 'corners'}


def pictures(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).uniform(-1, 1, shape), tf.float32)


def thetas(n=2, reach=0.5, seed=1):
    return pictures(n, 2, 5, 5, seed=seed) * reach


def bent(height, width, reach=0.3):
    """Positions of two warps, some of them outside."""
    grid = Spline().grid(thetas(reach=reach), height, width)
    assert tf.reduce_max(tf.abs(grid)) > 1
    return grid


def centres(n):
    return (2 * np.arange(n) + 1) / n - 1


@pytest.mark.parametrize('options, along', [
    ({}, centres), ({'control_points': 'columns'}, centres), (OFFICIAL, lambda n: np.linspace(-0.9, 0.9, n)),
    ({'pixels': 'corners'}, lambda n: np.linspace(-1, 1, n))])
def test_a_spline_is_what_an_independent_solver_finds(options, along):
    theta, (height, width) = thetas(reach=1.0), (32, 24)
    found = Spline(**options).grid(theta, height, width)
    side = np.linspace(-1, 1, 5) * options.get('extent', 1)
    rows, columns = (a.ravel() for a in np.meshgrid(side, side, indexing='ij'))
    if options.get('control_points') == 'columns':
        rows, columns = columns, rows
    points = np.stack([columns, rows], -1)  # x, y
    pixels = np.stack(np.meshgrid(along(width), along(height)), -1)
    for one, moved in zip(found, theta.numpy().reshape(2, 2, 25)):
        solved = interpolate.RBFInterpolator(points, points + moved.T, kernel='thin_plate_spline', degree=1)
        np.testing.assert_allclose(one, solved(pixels.reshape(-1, 2)).reshape(height, width, 2), atol=1e-4)


def test_a_spline_is_that_of_tensorflow_addons():
    spline, theta = Spline(), thetas()
    points = tf.constant(spline.P[None].repeat(2, 0), tf.float64)
    values = points + tf.transpose(tf.reshape(tf.cast(theta, tf.float64), [2, 2, 25]), [0, 2, 1])
    pixels = np.stack(np.meshgrid(centres(24), centres(32)), -1).reshape(1, -1, 2).repeat(2, 0)
    expected = tfa.image.interpolate_spline(points, values, tf.constant(pixels), 2)
    np.testing.assert_allclose(tf.reshape(spline.grid(theta, 32, 24), [2, -1, 2]), expected, atol=1e-4)


def test_control_points_move_by_theta():
    """With corners, the pixels of a 5 x 5 picture are the control points."""
    side, theta = np.linspace(-0.9, 0.9, 5), thetas(1)
    for order, axes in ('rows', [1, 2, 0]), ('columns', [2, 1, 0]):
        found = Spline(5, 0.9, order, 'corners').grid(theta, 5, 5)[0]
        moved = np.transpose(theta[0], axes)  # [row, column, x and y]
        np.testing.assert_allclose(found, np.stack(np.meshgrid(side, side), -1) + moved, atol=1e-5)


@pytest.mark.parametrize('height, width', [(256, 192), (7, 5)])
def test_theta_zero_is_the_identity(height, width):
    picture, zero = pictures(1, height, width, 3), tf.zeros([1, 2, 5, 5])
    grid = Spline().grid(zero, height, width)
    np.testing.assert_allclose(geometry.sample(picture, grid), picture, atol=1e-4)
    # The authors' zooms by 0.9: the outermost pixels see what lies at 0.9.
    ramp = tf.broadcast_to(centres(width).astype(np.float32)[:, None], [1, height, width, 1])
    zoomed = geometry.sample(ramp, Spline(**OFFICIAL).grid(zero, height, width))
    expected = np.clip(np.linspace(-0.9, 0.9, width), *centres(width)[[0, -1]])
    np.testing.assert_allclose(zoomed[0, 0, :, 0], expected, atol=1e-5)


def test_a_warp_is_the_same_at_every_size():
    spline, theta = Spline(), thetas()
    np.testing.assert_allclose(spline.grid(theta, 96, 72)[:, 1::3, 1::3], spline.grid(theta, 32, 24), atol=1e-5)


def test_gradients_are_finite_at_theta_zero_and_follow_the_picture():
    """Shift all control points along x by d: every level of a ramp along x changes by d."""
    theta = tf.zeros([1, 2, 5, 5])
    ramp = tf.broadcast_to(centres(24).astype(np.float32)[:, None], [1, 32, 24, 1])
    with tf.GradientTape() as tape:
        tape.watch(theta)
        warped = geometry.sample(ramp, Spline().grid(theta, 32, 24))
        mean = tf.reduce_mean(warped[:, 2:-2, 2:-2])
    x, y = tape.gradient(mean, theta)[0]
    assert np.all(np.isfinite(x)) and np.max(np.abs(y)) < 1e-5
    assert np.sum(x) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize('border, mode', [(True, 'nearest'), (False, 'grid-constant')])
def test_sampling_is_scipys(border, mode):
    picture, grid = pictures(2, 9, 6, 3), bent(12, 10, reach=1.0)
    found = geometry.sample(picture, grid, border)
    row, column = (((np.asarray(grid[..., axis], np.float64) + 1) * n - 1) / 2 for axis, n in ((1, 9), (0, 6)))
    for n, channel in np.ndindex(2, 3):
        expected = ndimage.map_coordinates(picture[n, ..., channel].numpy().astype(np.float64), [row[n], column[n]],
                                           order=1, mode=mode)
        np.testing.assert_allclose(found[n, ..., channel], expected, atol=1e-5)


def resampled(picture, grid):
    """By tensorflow-addons, whose positions are in pixels."""
    size = np.float32(picture.shape[2:0:-1])
    return tfa.image.resampler(picture, tf.clip_by_value(((grid + 1) * size - 1) / 2, 0.0, size - 1))


def gradients(sample, picture, grid):
    with tf.GradientTape() as tape:
        tape.watch([picture, grid])
        warped = sample(picture, grid)
        loss = tf.reduce_sum(warped * pictures(*warped.shape, seed=5))
    return warped, *tape.gradient(loss, [picture, grid])


def test_sampling_and_its_gradients_are_those_of_tensorflow_addons():
    picture, grid = pictures(2, 16, 12, 3), bent(24, 20)
    ours, theirs = gradients(geometry.sample, picture, grid), gradients(resampled, picture, grid)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(tf.convert_to_tensor(one), other, atol=1e-4)


def test_xla_samples_alike():
    picture, theta = pictures(2, 16, 12, 3), thetas(reach=0.3)

    def run(theta):
        return gradients(lambda picture, theta: geometry.sample(picture, Spline().grid(theta, 24, 20)), picture, theta)
    for one, other in zip(*(tf.function(run, autograph=False, jit_compile=jit)(theta) for jit in (None, True))):
        np.testing.assert_allclose(tf.convert_to_tensor(one), tf.convert_to_tensor(other), atol=1e-3)


def test_xla_resizes_and_blurs_alike():
    picture = pictures(1, 16, 12, 3)
    def enlarged(x):
        """The gradient, too, of what a network does."""
        return tf.gradients(tf.square(geometry.upsample(x)), x)[0]
    for function in (enlarged, lambda x: resizing.bilinear(x, 48, 36), lambda x: resizing.bilinear(x, 10, 20),
                     lambda x: resizing.nearest(x, 8, 24), lambda x: geometry.gaussian_blur(x, 3.0)):
        plain, compiled = (tf.function(function, autograph=False, jit_compile=jit)(picture) for jit in (None, True))
        np.testing.assert_allclose(plain, compiled, atol=1e-6)


@pytest.mark.parametrize('size', [(3, 5), (24, 20), (31, 7), (12, 10)])
def test_bilinear_is_linear_interpolation_between_centres(size):
    picture = pictures(2, 12, 10, 3)
    expected = picture.numpy()
    for axis, n in enumerate(size, 1):
        at, known = centres(n), centres(expected.shape[axis])
        expected = np.apply_along_axis(lambda line, at=at, known=known: np.interp(at, known, line), axis, expected)
    np.testing.assert_allclose(resizing.bilinear(picture, *size), expected, atol=1e-5)


def test_nearest_rounds_down():
    picture = tf.reshape(tf.range(12.0), [1, 3, 4, 1])
    found = resizing.nearest(picture, 7, 2)[0, ..., 0]
    np.testing.assert_array_equal(found, np.float32([0, 0, 0, 4, 4, 8, 8])[:, None] + [0, 2])
    large = pictures(1, 64, 48, 2)
    np.testing.assert_array_equal(resizing.nearest(large, 16, 12), large[:, ::4, ::4])
    np.testing.assert_array_equal(resizing.nearest(picture, 6, 8), geometry.upsample(picture))
    np.testing.assert_array_equal(geometry.upsample(picture)[0, ..., 0],
                                  np.kron(picture[0, ..., 0], np.ones([2, 2])))


def test_resizing_and_sampling_are_pytorchs():
    reference = Reference('resizing')
    for n, m in ((295, 250), (250, 295), (1024, 256), (192, 768), (31, 123)):  # the first two hang on float32's digits
        line = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(resizing.nearest(line[None, :, None, None], m, 1)[0, :, 0, 0],
                                      reference.arrays[f'nearest {n} to {m}'])
    image = reference.uniform('image', [2, 9, 6, 3])
    grid = reference.uniform('grid', [2, 12, 10, 2], -1.3, 1.3)
    reference.compare('bilinear', resizing.bilinear(image, 5, 23), atol=1e-5)
    for border, mode in (True, 'border'), (False, 'zeros'):
        reference.compare(mode, geometry.sample(image, grid, border), atol=1e-5)


@pytest.mark.parametrize('sigma, radius', [(3.0, 7), (1.5, 3)])
def test_the_blur_is_a_convolution_with_a_gaussian(sigma, radius):
    """Have the authors' 15 x 15 at sigma 3, and half of it at half of that."""
    picture = pictures(2, 20, 17, 3)
    line = np.exp(-(np.arange(-radius, radius + 1) / sigma) ** 2 / 2)
    kernel = np.outer(line, line) / np.sum(line) ** 2
    expected = ndimage.convolve(picture.numpy().astype(np.float64), kernel[None, ..., None], mode='constant')
    np.testing.assert_allclose(geometry.gaussian_blur(picture, sigma), expected, atol=1e-6)
    np.testing.assert_allclose(geometry.gaussian_blur(tf.ones([1, 20, 17, 1]), sigma)[0, 7:13, 7:10], 1, atol=1e-6)
