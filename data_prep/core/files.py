"""Opening and hashing files, wherever they lie."""
import hashlib
from typing import IO

import tensorflow as tf

_CHUNK = 1 << 22  # bytes


def open_file(path: str) -> IO[bytes]:
    """Opens a file for reading here and there: on this machine nothing is read ahead."""
    return tf.io.gfile.GFile(path, 'rb') if '://' in path else open(path, 'rb')


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
