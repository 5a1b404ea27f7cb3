"""Find files in folders, tar archives and tars of tars.

Nothing is extracted: an image is a byte range of a file. Only a compressed tar is unpacked, to a plain one. Used by
Beam jobs; paths may be on any file system TensorFlow opens.
"""
import hashlib
import itertools
import os
import posixpath
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import tensorflow as tf

from data_prep import UserError
from data_prep.core import archives
from data_prep.core.files import NOT_THERE, open_file, walk_folder

BOXES = 'boxes'
_SMALL = 1 << 26  # bytes


class Source(NamedTuple):
    """A folder or an archive.

    Attributes:
      split: the split of its images; `BOXES` if it only holds bounding boxes of others.
      number: its number among that split's sources.
      listed: the path as the user wrote it.
      path: the folder or archive.
      inside: a folder in the archive, or nothing.
      labels: a table with the images' classes, or a list of the classes of those outside class folders, or nothing.
    """
    split: str
    number: int
    listed: str
    path: str
    inside: str
    labels: str


class Found(NamedTuple):
    """A file below a source: `length` bytes of `file` from `offset` on, or all of it if `length` is -1.

    `name` is its path below the source; it has a `reason` if it cannot be used.
    """
    name: str
    file: str
    offset: int
    length: int
    reason: str = ''


def sources(split: str, folder: str, listed: Iterable[str], labels: str = '') -> list[Source]:
    """Return a split's sources without accessing them."""
    return [Source(split, number, path, *archives.split(os.path.join(folder, path)), labels)
            for number, path in enumerate(listed)]


def look_for(source: Source) -> None:
    """Raise `UserError` if a source is missing or of an unsupported kind."""
    if not tf.io.gfile.exists(source.path):
        raise UserError(f'data.{source.split}: there is no file or folder {source.path}.' + NOT_THERE)
    if not archives.is_archive(source.path) and not tf.io.gfile.isdir(source.path):
        raise UserError(f'data.{source.split}: {source.path} is neither a folder nor a .tar, .tar.gz or .tgz. '
                        'Unpack it and name the folder.')


def read_small(path: str) -> bytes:
    """Return the content of a file that may be gzipped or in an archive.

    Raises:
      UserError: it does not exist or is too large.
    """
    real, member = archives.split(path)
    if not tf.io.gfile.exists(real):
        raise UserError(f'{real}: there is no such file. Check the path.')
    with open_file(real) as stream:
        if member:
            wanted = [posixpath.normpath(member)]
            [content] = [part.read(_SMALL + 1) for _, part in archives.members(stream, real, wanted)]
        else:
            parts = archives.plain(stream, path)
            content = b''.join(itertools.islice(parts, _SMALL // archives.CHUNK + 1))
    if len(content) > _SMALL:
        raise UserError(f'{path} has over {_SMALL:,} bytes, too many for a list of classes. Name another file.')
    return content


def walk(source: Source, scratch: str) -> Iterator[Found]:
    """Yield every file below a source. A tar counts as a folder of its name.

    Args:
      scratch: a folder for unpacked archives, each of which is unpacked into it once.

    Raises:
      UserError: an archive is truncated or damaged, or lacks the named folder.
    """
    if not archives.is_archive(source.path) or tf.io.gfile.isdir(source.path):
        for path in walk_folder(source.path):
            below = path[len(source.path):].lstrip('/')
            if path.endswith('.tar'):
                yield from _in_tar(path, path, below.removesuffix('.tar') + '/')
            else:
                yield _named(Found(below, path, 0, -1))
        return
    plain = source.path if source.path.endswith('.tar') else _unpacked(source.path, scratch)
    within = f'{posixpath.normpath(source.inside)}/' if source.inside else ''
    others: set[str] = set()
    empty = True
    for found in _in_tar(plain, source.path, ''):
        if found.name.startswith(within):
            yield found._replace(name=found.name.removeprefix(within))
            empty = False
        elif len(others) < 3:
            others.add(found.name.split('/')[0])
    if empty and others:
        raise UserError(f'{source.path} has no folder {source.inside}; it has {", ".join(sorted(others))} …')


def _unpacked(archive: str, scratch: str) -> str:
    """Return the plain tar of a compressed one; what was unpacked into this folder before is used again."""
    plain = os.path.join(scratch, f'{hashlib.blake2b(archive.encode(), digest_size=8).hexdigest()}.tar')
    if not tf.io.gfile.exists(plain):
        with open_file(archive) as stream, tf.io.gfile.GFile(f'{plain}.part', 'wb') as target:
            for part in archives.unpacked(stream, archive):
                target.write(part)
        tf.io.gfile.rename(f'{plain}.part', plain, overwrite=True)
    return plain


def _in_tar(path: str, archive: str, prefix: str) -> Iterator[Found]:
    with open_file(path) as stream:
        try:
            for name, offset, length, reason in archives.ranges(stream, archive):
                yield _named(Found(prefix + name, path, offset, length, reason))
        except tf.errors.OutOfRangeError as error:  # raised past the end of remote files
            raise UserError(f'{archive} is not a whole archive (it ends too early). Fetch it again.') from error


def _named(found: Found) -> Found:
    """Return the file, or a copy with a reason if its name is not valid text."""
    name = found.name.encode(errors='replace').decode()
    return found if name == found.name else found._replace(name=name, reason='its name is not UTF-8')
