"""Find, open and hash files on any file system.

Python itself looks at local files. Only for other file systems, and to write, is TensorFlow imported, which takes three
seconds: commands that just look at finished work start in a fraction of one.
"""
import glob
import hashlib
import os
from collections.abc import Iterator
from typing import IO, Any

_CHUNK = 1 << 22  # bytes
# Remedy for a missing raw file.
NOT_THERE = ' Set data.folder to the folder that holds it.'


def gfile() -> Any:
    """Return `tf.io.gfile`, which accesses all file systems."""
    import tensorflow as tf
    return tf.io.gfile


def _is_local(path: str) -> bool:
    return '://' not in os.fspath(path)


def exists(path: str) -> bool:
    return os.path.exists(path) if _is_local(path) else gfile().exists(path)


def is_folder(path: str) -> bool:
    return os.path.isdir(path) if _is_local(path) else gfile().isdir(path)


def size(path: str) -> int:
    """Return a file's size in bytes."""
    return os.path.getsize(path) if _is_local(path) else gfile().stat(path).length


def names(folder: str) -> list[str]:
    """Return the names of the files and folders in a folder."""
    return os.listdir(folder) if _is_local(folder) else [name.rstrip('/') for name in gfile().listdir(folder)]


def matching(pattern: str) -> list[str]:
    """Return the paths that match a pattern, sorted."""
    return sorted(glob.glob(pattern) if _is_local(pattern) else gfile().glob(pattern))


def content(path: str) -> bytes:
    """Return all bytes of a file.

    Raises:
      OSError: it cannot be read, on any file system.
    """
    if _is_local(path):
        with open(path, 'rb') as file:
            return file.read()
    import tensorflow as tf
    try:
        return read(path, 0, -1)
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


def open_file(path: str) -> IO[bytes]:
    """Open a file for random reads; local files are not read ahead."""
    return open(path, 'rb') if _is_local(path) else gfile().GFile(path, 'rb')


def walk(root: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder at and below `root`, with the names of its folders and of its files; follow links."""
    yield from os.walk(root, followlinks=True) if _is_local(root) else gfile().walk(root)


def walk_folder(root: str) -> Iterator[str]:
    """Yield the paths of all files below a folder, sorted; follow links, except to a folder that contains them."""
    for here, folders, files in walk(root):
        above = os.path.realpath(here) + os.sep
        folders[:] = sorted(name for name in folders if not above.startswith(
            os.path.realpath(os.path.join(here, name)) + os.sep))
        yield from (os.path.join(here, name) for name in sorted(files))


def copy(source: str, target: str) -> None:
    """Copy all files below a folder into another, which may hold others."""
    for path in walk_folder(source):
        there = os.path.join(target, os.path.relpath(path, source))
        gfile().makedirs(os.path.dirname(there))
        gfile().copy(path, there)


def read(file: str, offset: int, length: int) -> bytes:
    """Return `length` bytes of a file from `offset` on; all of them if `length` is -1."""
    with open_file(file) as stream:
        stream.seek(offset)
        return stream.read(length)


def sha256(path: str) -> tuple[str, int]:
    """Return a file's SHA-256 and its size in bytes."""
    digest, length = hashlib.sha256(), 0
    with open_file(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            length += len(chunk)
    return digest.hexdigest(), length
