"""List, open and hash files on any file system."""
import hashlib
import os
from collections.abc import Iterator
from typing import IO

import tensorflow as tf

_CHUNK = 1 << 22  # bytes
# Remedy for a missing raw file.
NOT_THERE = ' Set data.folder to the folder that holds it.'


def open_file(path: str) -> IO[bytes]:
    """Open a file for random reads; local files are not read ahead."""
    return tf.io.gfile.GFile(path, 'rb') if '://' in path else open(path, 'rb')


def walk_folder(root: str) -> Iterator[str]:
    """Yield the paths of all files below a folder, sorted; follow links, except to a folder that contains them."""
    for here, folders, names in tf.io.gfile.walk(root) if '://' in root else os.walk(root, followlinks=True):
        above = os.path.realpath(here) + os.sep
        folders[:] = sorted(name for name in folders if not above.startswith(
            os.path.realpath(os.path.join(here, name)) + os.sep))
        yield from (os.path.join(here, name) for name in sorted(names))


def read(file: str, offset: int, length: int) -> bytes:
    """Return `length` bytes of a file from `offset` on; all of them if `length` is -1."""
    with open_file(file) as stream:
        stream.seek(offset)
        return stream.read(length)


def sha256(path: str) -> tuple[str, int]:
    """Return a file's SHA-256 and its size in bytes."""
    digest, size = hashlib.sha256(), 0
    with open_file(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size
