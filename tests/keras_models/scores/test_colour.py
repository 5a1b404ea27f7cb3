"""Colour differences: published values of sRGB's corners, and OpenCV's conversion."""
import cv2
import numpy as np
import pytest

from keras_models.scores import colour

# L*, a*, b* of sRGB under D65, rounded from the matrices of IEC 61966-2-1.
CORNERS = {(0, 0, 0): (0, 0, 0), (1, 1, 1): (100, 0, 0), (1, 0, 0): (53.23, 80.11, 67.22),
           (0, 1, 0): (87.73, -86.18, 83.18), (0, 0, 1): (32.30, 79.19, -107.86), (0.5, 0.5, 0.5): (53.39, 0, 0)}


def test_corners_of_srgb():
    found = colour.lab(np.array([*CORNERS], np.float32)).numpy()
    np.testing.assert_allclose(found, np.array([*CORNERS.values()]), atol=0.03)


def test_as_opencv_converts():
    levels = np.random.default_rng(0).uniform(0, 1, (64, 64, 3)).astype(np.float32) ** 2  # dark ones too
    np.testing.assert_allclose(colour.lab(levels), cv2.cvtColor(levels, cv2.COLOR_RGB2Lab), atol=0.6)


def test_a_distance_is_euclidean():
    black, grey = np.zeros([2, 2, 3]), np.full([2, 2, 3], 0.5)
    assert colour.distance(black, grey).numpy() == pytest.approx(np.full([2, 2], 53.39), abs=0.01)
    assert not colour.distance(grey, grey).numpy().any()
