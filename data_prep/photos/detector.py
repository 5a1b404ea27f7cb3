"""Finds people in a photograph with BlazePose's detector (Bazarevsky et al. 2020), a single-shot detector of faces.

A detection has four points besides the face's box. The first two span the body: the middle of the hips, and a point on
the circle around it that holds the whole person, straight above it if the person is upright. Settings that the paper
leaves out are those of MediaPipe's graphs. Coordinates of photographs are pixels, with centres at whole numbers.
"""
import math
from typing import NamedTuple

import cv2
import numpy as np
from scipy.special import expit

SIDE = 224  # pixels of the square that the detector sees
MAPS = ((8, 2), (16, 2), (32, 6))  # a feature map's stride in pixels, and its anchors at each place
LEAST_SCORE = 0.5
_SAME = 0.3  # boxes that overlap by more are of one person
_MARGIN = 1.25  # of a region around the circle, as the landmark network was trained


class Region(NamedTuple):
    """A square to look for landmarks in: middle and side in pixels, and how far it is turned clockwise, in radians."""
    x: float
    y: float
    side: float
    turned: float


class Detection(NamedTuple):
    """A person.

    Attributes:
      score: 0 to 1.
      box: float [4], left, top, right and bottom of the face.
      points: float [4, 2]; the first is the middle of the hips, the second on the circle around the body.
    """
    score: float
    box: np.ndarray
    points: np.ndarray

    def region(self) -> Region:
        """The square around the whole body."""
        (x, y), (dx, dy) = self.points[0], self.points[1] - self.points[0]
        return Region(float(x), float(y), 2 * _MARGIN * math.hypot(dx, dy), math.atan2(dx, -dy))


def anchors() -> np.ndarray:
    """Middles of the anchors, x and y in parts of the square: float32 [2254, 2]. All are as large as the square."""
    found = []
    for stride, count in MAPS:
        middles = (np.arange(SIDE // stride, dtype=np.float32) + 0.5) * stride / SIDE
        y, x = np.meshgrid(middles, middles, indexing='ij')
        found.append(np.repeat(np.stack([x, y], -1).reshape(-1, 2), count, 0))
    return np.concatenate(found)


def letterbox(pixels: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """A photograph as the detector sees it.

    Args:
      pixels: uint8 [h, w, 3].

    Returns:
      The photograph in a black square, float32 [224, 224, 3] from -1 to 1; by what it was scaled; and its left
      and upper border, [2].
    """
    height, width = pixels.shape[:2]
    scale = SIDE / max(height, width)
    shown = max(1, round(width * scale)), max(1, round(height * scale))
    left, top = (SIDE - shown[0]) // 2, (SIDE - shown[1]) // 2
    square = np.full((SIDE, SIDE, 3), -1, np.float32)
    small = cv2.resize(pixels, shown, interpolation=cv2.INTER_AREA)
    square[top:top + shown[1], left:left + shown[0]] = small / 127.5 - 1
    return square, scale, np.array([left, top])


def decode(values: np.ndarray, logits: np.ndarray, scale: float, border: np.ndarray) -> list[Detection]:
    """The detector's outputs -> people, the most certain first.

    Args:
      values: float [2254, 12], for each anchor the box's middle and size and four points, in pixels from the anchor.
      logits: float [2254].
      scale, border: of `letterbox`.
    """
    scores = expit(logits)
    sure = scores >= LEAST_SCORE
    middles = anchors()[sure] * SIDE - border
    centre, half = middles + values[sure, :2], values[sure, 2:4] / 2
    points = middles[:, np.newaxis] + values[sure, 4:].reshape(-1, 4, 2)
    return _merged(scores[sure], np.concatenate([centre - half, centre + half], 1) / scale - 0.5, points / scale - 0.5)


def _merged(scores: np.ndarray, boxes: np.ndarray, points: np.ndarray) -> list[Detection]:
    """One detection for each person: of boxes that overlap, the average weighted by score."""
    found, left = [], np.argsort(-scores, kind='stable')
    while len(left):
        same = _overlap(boxes[left[0]], boxes[left]) > _SAME
        same[0] = True  # even if its box has no area
        of = left[same]
        found.append(Detection(float(scores[of[0]]), np.average(boxes[of], 0, scores[of]),
                               np.average(points[of], 0, scores[of])))
        left = left[~same]
    return found


def _overlap(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Intersection over union of a box [4] with boxes [n, 4]: float [n]."""
    common = np.prod(np.maximum(np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2]), 0), 1)
    union = np.prod(box[2:] - box[:2]) + np.prod(boxes[:, 2:] - boxes[:, :2], 1) - common
    return np.divide(common, union, out=np.zeros_like(common), where=union > 0)
