"""A photograph as one sees it: upright by its EXIF orientation, and the 3:4 part of it that a try-on shows."""
import io
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
import tensorflow as tf
from PIL import Image

from data_prep.image import augmentation, codec

_ORIENTATION = 0x0112  # EXIF's tag
# What each value asks for, which says where the first row and the first column are.
_UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: np.fliplr, 3: lambda pixels: np.rot90(pixels, 2), 4: np.flipud, 5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1), 7: lambda pixels: np.rot90(pixels, 2).swapaxes(0, 1), 8: np.rot90}


class Window(NamedTuple):
    """A part of a photograph in pixels, which may reach beyond it. Height and width are 4 to 3."""
    left: int
    top: int
    height: int
    width: int


def read(content: bytes, max_pixels: int = codec.MAX_PIXELS) -> np.ndarray:
    """A JPEG or PNG file -> uint8 [h, w, 3], upright.

    Raises:
      codec.Unreadable: it is neither, damaged, or larger than `max_pixels`.
    """
    codec.header(content, max_pixels)
    try:
        pixels = augmentation.decoded(content).numpy()
    except (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError) as error:
        raise codec.Unreadable('damaged or cut short: it cannot be decoded') from error
    return np.ascontiguousarray(_UPRIGHT.get(orientation(content), np.asarray)(pixels))


def orientation(content: bytes) -> int:
    """EXIF's orientation, 1 to 8; 1 if a file has none or one that cannot be read."""
    try:
        with Image.open(io.BytesIO(content), formats=('JPEG', 'PNG')) as image:
            found = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # whatever Pillow makes of damaged EXIF: the pixels were decoded without it
        return 1
    return found if found in _UPRIGHT else 1


def around(middle: float, top: float, tall: float, height: int, width: int) -> Window:
    """The 3:4 window of a height, or the largest that fits, that begins at `top` and has `middle` in its middle.

    It is moved to lie within the photograph.
    """
    units = max(1, int(min(tall, height, width * 4 / 3)) // 4)  # of four rows and three columns
    rows, columns = 4 * units, 3 * units
    left = int(np.clip(round(middle - columns / 2), 0, max(0, width - columns)))
    return Window(left, int(np.clip(round(top), 0, max(0, height - rows))), rows, columns)


def cut(pixels: np.ndarray, window: Window, size: tuple[int, int], beyond: int = cv2.BORDER_REPLICATE) -> np.ndarray:
    """A window of a photograph or mask, resized to height and width; `beyond` is OpenCV's border where neither is."""
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
    """uint8 [h, w, 3] -> JPEG."""
    return tf.io.encode_jpeg(pixels, quality=codec.QUALITY).numpy()
