"""Decode images safely: detect the file type by its first bytes, check the declared size, then decode.

Reads JPEG and PNG, whatever their names say. A JPEG of one or three colours is kept unchanged; CMYK and PNG become RGB
JPEG of 8 bits without transparency. Everything else is refused with a reason.
"""
import struct
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data_prep.image import augmentation, resampling
from data_prep.image.augmentation import SMALL
from data_prep.image.resampling import SIDE

QUALITY = 95  # JPEG quality of images encoded here
MAX_PIXELS = 100_000_000  # default limit of decoded images
SCANS = 500  # most scans of a progressive JPEG; encoders write about ten, plus those of embedded previews
LONGEST_SIDE = 65_500  # longest side libjpeg can write
_PNG = b'\x89PNG\r\n\x1a\n'
_OTHERS = {b'GIF8': 'GIF', b'BM': 'BMP', b'II*\0': 'TIFF', b'MM\0*': 'TIFF', b'RIFF': 'WebP',
           b'\0\0\0\x0cjP': 'JPEG 2000', b'%PDF': 'PDF', b'\x1f\x8b': 'gzip', b'PK\x03\x04': 'zip'}


class Unreadable(Exception):
    """A file holds no usable image; the message is the reason in the dead letters."""


class Header(NamedTuple):
    """Header of a file; `keep` marks a JPEG that can be stored unchanged."""
    height: int
    width: int
    keep: bool


class Picture(NamedTuple):
    """An image as it is stored: RGB or grey JPEG.

    `square` is its middle, uint8 [256, 256, 3], if it was requested.
    """
    encoded: bytes
    height: int
    width: int
    square: np.ndarray | None


def header(data: bytes, max_pixels: int) -> Header:
    """Read a file's header without decoding pixels.

    Raises:
      Unreadable: it is neither JPEG nor PNG, or exceeds the limits of pixels or sides.
    """
    if data.startswith(b'\xff\xd8'):
        try:  # the decoder's own parser, so the size equals that of decoding
            height, width, colours = tf.io.extract_jpeg_shape(data).numpy().tolist()
        except tf.errors.InvalidArgumentError as error:
            raise Unreadable('damaged or truncated: its JPEG header cannot be read') from error
        if _scans(data) > SCANS:
            raise Unreadable(f'over {SCANS} scans, each of which would be decoded over the whole image')
        found = Header(height, width, colours in (1, 3))
    elif data.startswith(_PNG) and len(data) >= 24 and data[12:16] == b'IHDR':
        width, height = struct.unpack('>II', data[16:24])
        found = Header(height, width, False)
    else:
        raise Unreadable(_what(data))
    if max(found.height, found.width) > LONGEST_SIDE:
        raise Unreadable(f'{found.width:,} x {found.height:,} pixels: a side longer than JPEG\'s {LONGEST_SIDE:,}')
    if found.height * found.width > max_pixels:
        raise Unreadable(f'{found.width:,} x {found.height:,} pixels are more than data.max_pixels {max_pixels:,}')
    return found


def _scans(data: bytes) -> int:
    """Return an upper bound of a file's scans: how often the marker's two bytes occur anywhere."""
    codes = np.frombuffer(data, np.uint8)  # bytes.count is six times slower
    return np.count_nonzero((codes[:-1] == 0xff) & (codes[1:] == 0xda))


def _what(data: bytes) -> str:
    if not data:
        return 'empty, 0 bytes'
    if data[4:8] == b'ftyp':
        return 'HEIC, AVIF or a video; only JPEG and PNG are read'
    for start, name in _OTHERS.items():
        if data.startswith(start):
            return f'{name}; only JPEG and PNG are read'
    start = data[:16]
    begins = repr(start.decode()) if start.isascii() else f'0x{start.hex()}'
    return f'neither JPEG nor PNG: it begins with {begins}'


def load(data: bytes, head: Header, resize: int | None = None, square: bool = False) -> Picture:
    """Decode a file once, and encode it again only if necessary.

    Args:
      data: the file.
      head: its header.
      resize: an image whose shorter side is longer is reduced to that.
      square: whether the middle is needed, see `resampling.central_square`.

    Raises:
      Unreadable: it cannot be decoded.
    """
    try:
        pixels, keep = augmentation.decoded(data).numpy(), head.keep
        if resize and min(head.height, head.width) > resize:
            pixels, keep = resampling.levels(resampling.rescale(pixels, resize)), False
        encoded = data if keep else tf.io.encode_jpeg(pixels, quality=QUALITY).numpy()
    except (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError) as error:
        raise Unreadable('damaged or truncated: it cannot be decoded') from error
    height, width, _ = pixels.shape
    return Picture(encoded, height, width, _middle(pixels) if square else None)


def _middle(pixels: np.ndarray) -> np.ndarray:
    height, width, _ = pixels.shape
    if height == width <= SMALL:
        return pixels
    if min(height, width) != SIDE:
        return resampling.levels(resampling.central_square(pixels))
    top, left = (height - SIDE) // 2, (width - SIDE) // 2  # nothing is resampled, so the result is the same
    return pixels[top:top + SIDE, left:left + SIDE]
