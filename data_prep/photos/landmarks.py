"""Landmarks of one person by BlazePose's second network (Bazarevsky et al. 2020), in a region the detector found."""
from typing import NamedTuple

import cv2
import numpy as np
from scipy.special import expit

from data_prep.photos.detector import Region

SIDE = 256  # pixels of the square that the network sees
COUNT = 39  # 33 of a body, and six helpers
CELLS = 64  # of a heatmap's side
_REACH = 4  # cells to each side of a landmark that are read of its heatmap
_LEAST_HEAT = 0.5  # below which a heatmap says nothing


class Landmarks(NamedTuple):
    """What the network says of one person.

    Attributes:
      places: float [39, 2], x and y in pixels of the photograph.
      confidence: float [39], whether a landmark is in the region and not hidden.
      presence: whether there is a person at all.
    """
    places: np.ndarray
    confidence: np.ndarray
    presence: float


def crop(pixels: np.ndarray, region: Region) -> np.ndarray:
    """uint8 [h, w, 3] -> what the network sees of a region: float32 [256, 256, 3], 0 to 1."""
    height, width = pixels.shape[:2]
    if region.side > SIDE:  # or pixels would be left out, and patterns alias
        scale = SIDE / region.side
        size = max(1, round(width * scale)), max(1, round(height * scale))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    shrink = np.array([width, height]) / pixels.shape[1::-1]
    turn, offset = _into(region)
    # Pixel centres are at halves here, and at whole numbers for OpenCV.
    matrix = np.column_stack([turn * shrink, turn @ (shrink / 2) + offset - 0.5])
    seen = cv2.warpAffine(pixels, matrix, (SIDE, SIDE), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return seen.astype(np.float32) / 255


def decode(values: np.ndarray, presence: float, heat: np.ndarray, region: Region) -> Landmarks:
    """The network's outputs -> landmarks on the photograph.

    Args:
      values: float [195], x, y, z, visibility and presence of each landmark, the last two as logits.
      presence: of a person.
      heat: float [64, 64, 39], logits.
    """
    rows = values.reshape(COUNT, 5).astype(np.float64)
    visible, there = expit(rows[:, 3:].T)
    turn, offset = _into(region)
    places = (refined(rows[:, :2] / SIDE, heat) * SIDE - offset) @ np.linalg.inv(turn).T - 0.5
    return Landmarks(places, visible * there, presence)


def refined(places: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Moves landmarks to the weighted middle of what their heatmaps say around them.

    Without it, two of 42 joints that OpenPose is sure of lie 0.15 shoulder widths off or more, and with it none.

    Args:
      places: float [39, 2], in parts of the square.
      heat: float [64, 64, 39], logits.

    Returns:
      float [39, 2]; a landmark stays where its heatmap is nowhere sure.
    """
    result = places.copy()
    for number, (x, y) in enumerate(np.floor(places * CELLS).astype(int)):
        if not (0 <= x < CELLS and 0 <= y < CELLS):
            continue
        left, top = max(0, x - _REACH), max(0, y - _REACH)
        sure = expit(heat[top:y + _REACH + 1, left:x + _REACH + 1, number].astype(np.float64))
        if sure.max() >= _LEAST_HEAT:
            rows, columns = sure.sum(1), sure.sum(0)
            result[number] = (np.average(left + np.arange(len(columns)), weights=columns) / CELLS,
                              np.average(top + np.arange(len(rows)), weights=rows) / CELLS)
    return result


def _into(region: Region) -> tuple[np.ndarray, np.ndarray]:
    """[2, 2] and [2]: what turns and moves places of a photograph, pixel centres at halves, into the square's."""
    scale = SIDE / region.side
    cos, sin = scale * np.cos(region.turned), scale * np.sin(region.turned)
    turn = np.array([[cos, sin], [-sin, cos]])
    return turn, SIDE / 2 - turn @ np.array([region.x + 0.5, region.y + 0.5])
