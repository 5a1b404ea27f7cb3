"""Segment a garment on a plain background: colour difference first, then GrabCut along the outline.

GrabCut is OpenCV's (Rother, Kolmogorov, Blake 2004). A white garment differs from a white background as little as JPEG
artifacts around the outline of a dark garment do. The artifacts are narrow, so only narrow differences are dropped.
"""
from typing import NamedTuple

import cv2
import numpy as np

# Distances in CIELAB, where 2.3 is just noticeable. Above WEAK a pixel is garment unless the region is narrower than
# JPEG's artifacts; above STRONG it is always garment. Both are at least _NOISE times the background's own noise.
WEAK, STRONG, _NOISE = 1.5, 6.0, 3.0
_ARTIFACT_RADIUS = 2  # pixels
_GRABCUT_ITERATIONS = 5
_OUTLINE = 3 / 256  # band on each side of the outline in which GrabCut decides, as a fraction of the height
_PLANE_FITS = 3  # fits of the background plane, each without the outliers of the previous one


class Mask(NamedTuple):
    """Mask of a garment, with measures of how reliable it is.

    Attributes:
      garment: bool [h, w].
      noise: median distance of the photograph's border from the background plane, in CIELAB.
      contrast: median distance of the garment from the background plane, in CIELAB.
      rest: area of everything else that differs from the background, as a fraction of the garment's area.
    """
    garment: np.ndarray
    noise: float
    contrast: float
    rest: float


def mask(pixels: np.ndarray) -> Mask:
    """Segment the largest object, uint8 [h, w, 3]; its holes are filled. The mask is empty if there is no object."""
    difference, noise = _difference(pixels)
    found = _regions(difference, noise, max(1, round(len(pixels) / 256)))
    count, parts, statistics, _ = cv2.connectedComponentsWithStats(found)
    if count < 2:
        return Mask(found > 0, noise, 0, 0)
    areas = statistics[1:, cv2.CC_STAT_AREA]
    largest = _filled(parts == 1 + np.argmax(areas))
    garment = _cut_out(pixels, largest, max(1, round(_OUTLINE * len(pixels))))
    contrast = float(np.median(difference[garment])) if garment.any() else 0
    return Mask(garment, noise, contrast, float((areas.sum() - areas.max()) / areas.max()))


def _difference(pixels: np.ndarray) -> tuple[np.ndarray, float]:
    """Return each pixel's distance from the background, float32 [h, w], and the border's median distance.

    The background is a plane of colour fitted to the border, since light falls off from one side to the other.
    """
    colours = cv2.cvtColor(pixels.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    height, width = pixels.shape[:2]
    y, x = np.mgrid[-0.5:0.5:height * 1j, -0.5:0.5:width * 1j].astype(np.float32)
    places = np.stack([np.ones_like(x), x, y], -1)
    border = np.ones((height, width), bool)
    border[1:-1, 1:-1] = False
    at, seen = places[border], colours[border]
    noise, kept = 0.0, np.ones(len(at), bool)
    for _ in range(_PLANE_FITS):
        plane = np.linalg.lstsq(at[kept], seen[kept], rcond=None)[0]
        away = np.linalg.norm(seen - at @ plane, axis=1)
        noise = float(np.median(away))
        kept = away <= max(WEAK, _NOISE * noise)
    return np.linalg.norm(colours - places @ plane, axis=-1), noise


def _regions(difference: np.ndarray, noise: float, gap: int) -> np.ndarray:
    """Return regions that differ from the background, uint8 [h, w]; gaps of up to `gap` pixels are closed."""
    weak, strong = (np.uint8(difference > max(level, _NOISE * noise)) for level in (WEAK, STRONG))
    wide = cv2.morphologyEx(weak & ~strong & 1, cv2.MORPH_OPEN, _disc(_ARTIFACT_RADIUS))
    return cv2.morphologyEx(strong | wide, cv2.MORPH_CLOSE, _disc(gap))


def _cut_out(pixels: np.ndarray, region: np.ndarray, reach: int) -> np.ndarray:
    """Refine the outline of a region, uint8 [h, w], by GrabCut: bool [h, w]."""
    around, inside = cv2.dilate(region, _disc(reach)), cv2.erode(region, _disc(reach))
    guess = np.where(around, np.where(region, cv2.GC_PR_FGD, cv2.GC_PR_BGD), cv2.GC_BGD).astype(np.uint8)
    guess[inside > 0] = cv2.GC_FGD
    if not (guess != cv2.GC_BGD).all() and inside.any():  # otherwise one side has no colours to fit
        cv2.setRNGSeed(0)  # GrabCut initialises its colour clusters at random
        cv2.grabCut(np.ascontiguousarray(pixels), guess, None, np.zeros((1, 65)), np.zeros((1, 65)),
                    _GRABCUT_ITERATIONS, cv2.GC_INIT_WITH_MASK)
    return (guess == cv2.GC_FGD) | (guess == cv2.GC_PR_FGD)


def _filled(region: np.ndarray) -> np.ndarray:
    outlines, _ = cv2.findContours(region.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(np.zeros(region.shape, np.uint8), outlines, -1, 1, cv2.FILLED)


def _disc(radius: int) -> np.ndarray:
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
