"""Detect people in a photograph with BlazePose's detector (Bazarevsky et al. 2020), a single-shot face detector.

A detection has a box around the face and four points. The first point is the middle of the hips. The second lies on the
circle around the first that encloses the whole person; it is straight above the first if the person is upright.
Settings that the paper omits are those of MediaPipe's graphs. Coordinates on photographs are in pixels; pixel centres
are whole numbers.
"""
import math
from typing import NamedTuple

import cv2
import numpy as np
from scipy.special import expit

SIDE = 224  # height and width of the input, in pixels
MAPS = ((8, 2), (16, 2), (32, 6))  # stride in pixels and anchors per cell of each feature map
MIN_SCORE = 0.5
_MAX_OVERLAP = 0.3  # intersection over union above which two boxes are merged into one person
_REGION_SCALE = 1.25  # side of a region / diameter of the circle, as in the landmark network's training


class Region(NamedTuple):
    """Square in which landmarks are located: centre and side in pixels, clockwise rotation in radians."""
    x: float
    y: float
    side: float
    rotation: float


class Detection(NamedTuple):
    """One detected person.

    Attributes:
      score: confidence, 0 to 1.
      box: float [4], left, top, right and bottom of the face, in pixels.
      points: float [4, 2], in pixels; the first is the middle of the hips, the second is on the circle around the body.
    """
    score: float
    box: np.ndarray
    points: np.ndarray

    def region(self) -> Region:
        """Return the square around the whole body."""
        (x, y), (dx, dy) = self.points[0], self.points[1] - self.points[0]
        return Region(float(x), float(y), 2 * _REGION_SCALE * math.hypot(dx, dy), math.atan2(dx, -dy))


def anchors() -> np.ndarray:
    """Return the centres of the anchors as fractions of the input's side: float32 [2254, 2], x and y.

    Every anchor is as large as the input.
    """
    found = []
    for stride, count in MAPS:
        centres = (np.arange(SIDE // stride, dtype=np.float32) + 0.5) * stride / SIDE
        y, x = np.meshgrid(centres, centres, indexing='ij')
        found.append(np.repeat(np.stack([x, y], -1).reshape(-1, 2), count, 0))
    return np.concatenate(found)


def letterbox(pixels: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """Scale a photograph to the detector's input and pad it with black.

    Args:
      pixels: uint8 [h, w, 3].

    Returns:
      The input, float32 [224, 224, 3] from -1 to 1; the scale; and the widths of the left and upper border, [2].
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
    """Decode the detector's outputs into people, in descending order of score.

    Args:
      values: float [2254, 12], per anchor: centre and size of the box, then four points, in pixels from the anchor.
      logits: float [2254].
      scale, border: from `letterbox`.
    """
    scores = expit(logits)
    sure = scores >= MIN_SCORE
    origins = anchors()[sure] * SIDE - border
    centre, half = origins + values[sure, :2], values[sure, 2:4] / 2
    points = origins[:, np.newaxis] + values[sure, 4:].reshape(-1, 4, 2)
    return _merged(scores[sure], np.concatenate([centre - half, centre + half], 1) / scale - 0.5, points / scale - 0.5)


def _merged(scores: np.ndarray, boxes: np.ndarray, points: np.ndarray) -> list[Detection]:
    """Merge overlapping boxes into one detection per person, averaged with the scores as weights."""
    found, remaining = [], np.argsort(-scores, kind='stable')
    while len(remaining):
        same = _overlap(boxes[remaining[0]], boxes[remaining]) > _MAX_OVERLAP
        same[0] = True  # even if its box has no area
        group = remaining[same]
        found.append(Detection(float(scores[group[0]]), np.average(boxes[group], 0, scores[group]),
                               np.average(points[group], 0, scores[group])))
        remaining = remaining[~same]
    return found


def _overlap(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the intersection over union of one box [4] with boxes [n, 4]: float [n]."""
    common = np.prod(np.maximum(np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2]), 0), 1)
    union = np.prod(box[2:] - box[:2]) + np.prod(boxes[:, 2:] - boxes[:, :2], 1) - common
    return np.divide(common, union, out=np.zeros_like(common), where=union > 0)
