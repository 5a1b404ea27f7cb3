"""Read photographs upright, by their EXIF orientation, and cut 3:4 windows out of them."""
import io
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
import tensorflow as tf
from PIL import Image

from data_prep.image import augmentation, codec

_ORIENTATION = 0x0112  # EXIF's tag
# How to turn pixels upright, by EXIF's orientation, which says where the first row and the first column are.
_UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: np.fliplr, 3: lambda pixels: np.rot90(pixels, 2), 4: np.flipud, 5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1), 7: lambda pixels: np.rot90(pixels, 2).swapaxes(0, 1), 8: np.rot90}


class Window(NamedTuple):
    """Part of a photograph, in pixels; height and width are 4 to 3. It may extend beyond the photograph."""
    left: int
    top: int
    height: int
    width: int


def read(content: bytes, max_pixels: int = codec.MAX_PIXELS) -> np.ndarray:
    """Decode a JPEG or PNG file upright: uint8 [h, w, 3].

    Raises:
      codec.Unreadable: the file has another format, is damaged, or has more than `max_pixels` pixels.
    """
    codec.header(content, max_pixels)
    try:
        pixels = augmentation.decoded(content).numpy()
    except (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError) as error:
        raise codec.Unreadable('damaged or cut short: it cannot be decoded') from error
    return np.ascontiguousarray(_UPRIGHT.get(orientation(content), np.asarray)(pixels))


def orientation(content: bytes) -> int:
    """Return EXIF's orientation, 1 to 8; 1 if the file has none or its EXIF is damaged."""
    try:
        with Image.open(io.BytesIO(content), formats=('JPEG', 'PNG')) as image:
            found = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # Pillow raises many types for damaged EXIF; pixels are decoded without it
        return 1
    return found if found in _UPRIGHT else 1


def fit_window(centre: float, top: float, tall: float, height: int, width: int) -> Window:
    """Return a 3:4 window inside a photograph of `height` x `width`, moved and shrunk to fit.

    Args:
      centre: x of its centre.
      top: y of its upper edge.
      tall: its height.
      height, width: of the photograph.
    """
    units = max(1, int(min(tall, height, width * 4 / 3)) // 4)  # one unit is four rows and three columns
    rows, columns = 4 * units, 3 * units
    left = int(np.clip(round(centre - columns / 2), 0, max(0, width - columns)))
    return Window(left, int(np.clip(round(top), 0, max(0, height - rows))), rows, columns)


def cut(pixels: np.ndarray, window: Window, size: tuple[int, int], beyond: int = cv2.BORDER_REPLICATE) -> np.ndarray:
    """Cut a window out of a photograph or mask and resize it; `beyond` is OpenCV's border mode outside of it."""
    height, width = pixels.shape[:2]
    above, left = max(0, -window.top), max(0, -window.left)
    below, right = max(0, window.top + window.height - height), max(0, window.left + window.width - width)
    if above or below or left or right:
        pixels = cv2.copyMakeBorder(pixels, above, below, left, right, beyond)
    part = pixels[window.top + above:, window.left + left:][:window.height, :window.width]
    if part.shape[:2] == tuple(size):
        return part
    return cv2.resize(part, size[::-1], interpolation=cv2.INTER_AREA if size[0] < window.height else cv2.INTER_CUBIC)


def jpeg(pixels: np.ndarray) -> bytes:
    """Encode uint8 [h, w, 3] as JPEG."""
    return tf.io.encode_jpeg(pixels, quality=codec.QUALITY).numpy()
