"""Encoded pictures: what a file is by its first bytes, how large it says it is, and only then its pixels.

JPEG and PNG are read, whatever their names say. A JPEG file of one or three colours is kept as it is; CMYK and PNG
become RGB JPEG, of 8 bits and without transparency. Everything else is refused with a reason.
"""
import struct
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data_prep.image import augmentation
from data_prep.image.augmentation import SIDE, SMALL

QUALITY = 95  # of what is encoded here
MAX_PIXELS = 100_000_000  # of what is decoded, if nothing else is said
SCANS = 500  # of a progressive JPEG; what writes them makes about ten, and previews are embedded
LONGEST_SIDE = 65_500  # that libjpeg can write
_PNG = b'\x89PNG\r\n\x1a\n'
_OTHERS = {b'GIF8': 'GIF', b'BM': 'BMP', b'II*\0': 'TIFF', b'MM\0*': 'TIFF', b'RIFF': 'WebP',
           b'\0\0\0\x0cjP': 'JPEG 2000', b'%PDF': 'PDF', b'\x1f\x8b': 'gzip', b'PK\x03\x04': 'zip'}


class Unreadable(Exception):
    """No picture can be had from a file; says why, for the dead letters."""


class Header(NamedTuple):
    """What a file says of itself; `keep` if it is JPEG that can stay as it is."""
    height: int
    width: int
    keep: bool


class Picture(NamedTuple):
    """A picture as it is stored: RGB or grey JPEG.

    `square` is its middle, uint8 [256, 256, 3], if that was wanted.
    """
    encoded: bytes
    height: int
    width: int
    square: np.ndarray | None


def header(data: bytes, max_pixels: int) -> Header:
    """Reads a file's header, and decodes nothing.

    Raises:
      Unreadable: it is neither JPEG nor PNG, or would have more pixels or a longer side than can be.
    """
    if data.startswith(b'\xff\xd8'):
        try:  # the decoder's own reading, which cannot come to another size than decoding does
            height, width, colours = tf.io.extract_jpeg_shape(data).numpy().tolist()
        except tf.errors.InvalidArgumentError as error:
            raise Unreadable('damaged or cut short: its JPEG header cannot be read') from error
        if _scans(data) > SCANS:
            raise Unreadable(f'over {SCANS} scans, of which each would be decoded over the whole picture')
        found = Header(height, width, colours in (1, 3))
    elif data.startswith(_PNG) and len(data) >= 24 and data[12:16] == b'IHDR':
        width, height = struct.unpack('>II', data[16:24])
        found = Header(height, width, False)
    else:
        raise Unreadable(_what(data))
    if max(found.height, found.width) > LONGEST_SIDE:
        raise Unreadable(f'{found.width:,} x {found.height:,} pixels: a side longer than {LONGEST_SIDE:,}, JPEG\'s')
    if found.height * found.width > max_pixels:
        raise Unreadable(f'{found.width:,} x {found.height:,} pixels are more than data.max_pixels {max_pixels:,}')
    return found


def _scans(data: bytes) -> int:
    """How often a scan can begin in a file: how often the marker's two bytes are in it, wherever."""
    codes = np.frombuffer(data, np.uint8)  # bytes.count takes six times as long
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
    """Decodes a file, once, and encodes it again only where that must be.

    Args:
      data: the file.
      head: its header.
      resize: a picture whose shorter side is longer is reduced to that.
      square: whether the middle is wanted, see `augmentation.central_square`.

    Raises:
      Unreadable
    """
    try:
        pixels = augmentation.decoded(data)
        if resize and min(head.height, head.width) > resize:
            pixels, encoded = (tensor.numpy() for tensor in _reduced(pixels, resize))
        else:
            pixels = pixels.numpy()
            encoded = data if head.keep else tf.io.encode_jpeg(pixels, quality=QUALITY).numpy()
    except (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError) as error:
        raise Unreadable('damaged or cut short: it cannot be decoded') from error
    height, width, _ = pixels.shape
    return Picture(encoded, height, width, _middle(pixels) if square else None)


def _levels(pixels: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.round(pixels), tf.uint8)


# Eagerly, starting their many small operations takes longer than these graphs.
@tf.function(input_signature=[tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([], tf.int32)], autograph=False)
def _reduced(pixels: tf.Tensor, side: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Pixels whose shorter side is `side`, and those encoded."""
    smaller = _levels(augmentation.rescale(pixels, side))
    return smaller, tf.io.encode_jpeg(smaller, quality=QUALITY)


@tf.function(input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)], autograph=False)
def _central_square(pixels: tf.Tensor) -> tf.Tensor:
    return _levels(augmentation.central_square(pixels))


def _middle(pixels: np.ndarray) -> np.ndarray:
    height, width, _ = pixels.shape
    if height == width <= SMALL:
        return pixels
    if min(height, width) != SIDE:
        return _central_square(pixels).numpy()
    top, left = (height - SIDE) // 2, (width - SIDE) // 2  # nothing is resampled then, so this is the same
    return pixels[top:top + SIDE, left:left + SIDE]
