"""Locate one person's landmarks in a detected region by BlazePose's second network (Bazarevsky et al. 2020)."""
from typing import NamedTuple

import cv2
import numpy as np
from scipy.special import expit

from data_prep.photos.detector import Region

SIDE = 256  # height and width of the input, in pixels
COUNT = 39  # 33 landmarks of the body and six auxiliary ones
CELLS = 64  # height and width of a heatmap
_REACH = 4  # cells read on each side of a landmark in its heatmap
_MIN_HEAT = 0.5  # a heatmap that stays below this is ignored


class Landmarks(NamedTuple):
    """Landmarks of one person.

    Attributes:
      positions: float [39, 2], x and y in pixels of the photograph.
      confidence: float [39], probability that a landmark is in the region and not hidden.
      presence: probability that the region contains a person.
    """
    positions: np.ndarray
    confidence: np.ndarray
    presence: float


def crop(pixels: np.ndarray, region: Region) -> np.ndarray:
    """Crop a region of a photograph, uint8 [h, w, 3], as the network's input: float32 [256, 256, 3], 0 to 1."""
    height, width = pixels.shape[:2]
    if region.side > SIDE:  # warpAffine samples four pixels, so a large region would alias
        scale = SIDE / region.side
        size = max(1, round(width * scale)), max(1, round(height * scale))
        pixels = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    shrink = np.array([width, height]) / pixels.shape[1::-1]
    matrix, offset = _to_input(region)
    # Pixel centres are at halves here, and at whole numbers in OpenCV.
    affine = np.column_stack([matrix * shrink, matrix @ (shrink / 2) + offset - 0.5])
    cropped = cv2.warpAffine(pixels, affine, (SIDE, SIDE), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return cropped.astype(np.float32) / 255


def decode(values: np.ndarray, presence: float, heat: np.ndarray, region: Region) -> Landmarks:
    """Decode the network's outputs into landmarks on the photograph.

    Args:
      values: float [195], x, y, z, visibility and presence of each landmark, the last two as logits.
      presence: probability that there is a person.
      heat: float [64, 64, 39], logits.
      region: the region that was cropped.
    """
    rows = values.reshape(COUNT, 5).astype(np.float64)
    visibility, in_region = expit(rows[:, 3:].T)
    matrix, offset = _to_input(region)
    positions = (refine(rows[:, :2] / SIDE, heat) * SIDE - offset) @ np.linalg.inv(matrix).T - 0.5
    return Landmarks(positions, visibility * in_region, presence)


def refine(positions: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Move each landmark to the weighted mean of its heatmap around it.

    Without it, two of the 42 joints that OpenPose is confident of are off by 0.15 shoulder widths or more; with it, no
    joint is.

    Args:
      positions: float [39, 2], as fractions of the input's side.
      heat: float [64, 64, 39], logits.

    Returns:
      float [39, 2]; a landmark whose heatmap stays below 0.5 around it is not moved.
    """
    result = positions.copy()
    for number, (x, y) in enumerate(np.floor(positions * CELLS).astype(int)):
        if not (0 <= x < CELLS and 0 <= y < CELLS):
            continue
        left, top = max(0, x - _REACH), max(0, y - _REACH)
        weights = expit(heat[top:y + _REACH + 1, left:x + _REACH + 1, number].astype(np.float64))
        if weights.max() >= _MIN_HEAT:
            rows, columns = weights.sum(1), weights.sum(0)
            result[number] = (np.average(left + np.arange(len(columns)), weights=columns) / CELLS,
                              np.average(top + np.arange(len(rows)), weights=rows) / CELLS)
    return result


def _to_input(region: Region) -> tuple[np.ndarray, np.ndarray]:
    """Return matrix [2, 2] and offset [2] from the photograph to the input; pixel centres are at halves in both."""
    scale = SIDE / region.side
    cos, sin = scale * np.cos(region.rotation), scale * np.sin(region.rotation)
    matrix = np.array([[cos, sin], [-sin, cos]])
    return matrix, SIDE / 2 - matrix @ np.array([region.x + 0.5, region.y + 0.5])
