"""A garment's mask from a photograph on a plain ground: what differs from the ground, and GrabCut along its outline.

Rother, Kolmogorov, Blake 2004, GrabCut, as OpenCV has it. A white garment on a white ground differs from it by little,
and what JPEG writes around the outline of a dark one by as much: the latter is narrow, and only that is left out.
"""
from typing import NamedTuple

import cv2
import numpy as np

# Differences in CIELAB, where 2.3 is what one just sees. What differs by the first is garment unless it is as narrow as
# JPEG's blocks are blurred, by the second anyhow; both are widened to what the ground differs from a plane itself.
WEAK, STRONG, _NOISE = 1.5, 6.0, 3.0
_BLUR = 2  # pixels
_ROUNDS = 5  # of GrabCut
_OUTLINE = 3 / 256  # of the height to each side, in which GrabCut decides
_FITS = 3  # of the ground, each without what differed from the one before


class Mask(NamedTuple):
    """Where a garment is, and how sure that is.

    Attributes:
      garment: bool [h, w].
      ground: by how much the border of the photograph differs from a plane of colour, in CIELAB.
      contrast: the garment's median difference from the ground, in CIELAB.
      rest: how much else differs from the ground, as a part of the garment's area.
    """
    garment: np.ndarray
    ground: float
    contrast: float
    rest: float


def mask(pixels: np.ndarray) -> Mask:
    """uint8 [h, w, 3] -> the largest thing that is not ground, without its holes; nothing if there is only ground."""
    difference, ground = _difference(pixels)
    found = _grown(difference, ground, max(1, round(len(pixels) / 256)))
    count, parts, statistics, _ = cv2.connectedComponentsWithStats(found)
    if count < 2:
        return Mask(found > 0, ground, 0, 0)
    areas = statistics[1:, cv2.CC_STAT_AREA]
    largest = _filled(parts == 1 + np.argmax(areas))
    garment = _cut_out(pixels, largest, max(1, round(_OUTLINE * len(pixels))))
    contrast = float(np.median(difference[garment])) if garment.any() else 0
    return Mask(garment, ground, contrast, float((areas.sum() - areas.max()) / areas.max()))


def _difference(pixels: np.ndarray) -> tuple[np.ndarray, float]:
    """How far each pixel is from the ground's colour, float32 [h, w], and the border's median distance.

    The ground is a plane fitted to the border, as light falls off from one side to the other.
    """
    colours = cv2.cvtColor(pixels.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    height, width = pixels.shape[:2]
    y, x = np.mgrid[-0.5:0.5:height * 1j, -0.5:0.5:width * 1j].astype(np.float32)
    places = np.stack([np.ones_like(x), x, y], -1)
    border = np.ones((height, width), bool)
    border[1:-1, 1:-1] = False
    at, seen = places[border], colours[border]
    ground, kept = 0.0, np.ones(len(at), bool)
    for _ in range(_FITS):
        plane = np.linalg.lstsq(at[kept], seen[kept], rcond=None)[0]
        away = np.linalg.norm(seen - at @ plane, axis=1)
        ground = float(np.median(away))
        kept = away <= max(WEAK, _NOISE * ground)
    return np.linalg.norm(colours - places @ plane, axis=-1), ground


def _grown(difference: np.ndarray, ground: float, gap: int) -> np.ndarray:
    """What is certainly garment by its colour, uint8 [h, w], with gaps of so many pixels closed."""
    weak, strong = (np.uint8(difference > max(level, _NOISE * ground)) for level in (WEAK, STRONG))
    wide = cv2.morphologyEx(weak & ~strong & 1, cv2.MORPH_OPEN, _disc(_BLUR))
    return cv2.morphologyEx(strong | wide, cv2.MORPH_CLOSE, _disc(gap))


def _cut_out(pixels: np.ndarray, region: np.ndarray, reach: int) -> np.ndarray:
    """A region, uint8 [h, w], with its outline moved by GrabCut: bool [h, w]."""
    around, inside = cv2.dilate(region, _disc(reach)), cv2.erode(region, _disc(reach))
    guess = np.where(around, np.where(region, cv2.GC_PR_FGD, cv2.GC_PR_BGD), cv2.GC_BGD).astype(np.uint8)
    guess[inside > 0] = cv2.GC_FGD
    if not (guess != cv2.GC_BGD).all() and inside.any():  # else one side has no colours to learn from
        cv2.setRNGSeed(0)  # its colour clusters begin at random places
        cv2.grabCut(np.ascontiguousarray(pixels), guess, None, np.zeros((1, 65)), np.zeros((1, 65)), _ROUNDS,
                    cv2.GC_INIT_WITH_MASK)
    return (guess == cv2.GC_FGD) | (guess == cv2.GC_PR_FGD)


def _filled(region: np.ndarray) -> np.ndarray:
    outlines, _ = cv2.findContours(region.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.zeros(region.shape, np.uint8), outlines, -1, 1, cv2.FILLED)


def _disc(radius: int) -> np.ndarray:
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
