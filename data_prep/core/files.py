"""Listing, opening and hashing files, wherever they lie."""
import hashlib
import os
from collections.abc import Iterator
from typing import IO

import tensorflow as tf

_CHUNK = 1 << 22  # bytes
# What to do about a raw file that is missing.
NOT_THERE = ' Set data.folder to the folder that holds it.'


def open_file(path: str) -> IO[bytes]:
    """Opens a file for reading here and there: on this machine nothing is read ahead."""
    return tf.io.gfile.GFile(path, 'rb') if '://' in path else open(path, 'rb')


def walk_folder(root: str) -> Iterator[str]:
    """Yields the paths of all files below a folder, sorted. Links are followed, but not to a folder that holds them."""
    for here, folders, names in tf.io.gfile.walk(root) if '://' in root else os.walk(root, followlinks=True):
        above = os.path.realpath(here) + os.sep
        folders[:] = sorted(name for name in folders if not above.startswith(
            os.path.realpath(os.path.join(here, name)) + os.sep))
        yield from (os.path.join(here, name) for name in sorted(names))


def read(file: str, offset: int, length: int) -> bytes:
    """Returns `length` bytes of a file from `offset` on; all of them if `length` is -1."""
    with open_file(file) as stream:
        stream.seek(offset)
        return stream.read(length)


def sha256(path: str) -> tuple[str, int]:
    """Returns the SHA-256 of a file, and its size in bytes."""
    digest, size = hashlib.sha256(), 0
    with open_file(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size
