"""Read tar archives, gzip and NIST's SGML as streams.

A file inside an archive is named by a path that continues inside it: `dev.tgz/dev/newstest2013.en`.
"""
import contextlib
import difflib
import gzip
import html
import os
import posixpath
import re
import tarfile
import zlib
from collections.abc import Collection, Iterator
from typing import IO, NamedTuple

from data_prep import UserError

_ARCHIVE = re.compile(r'\.(?:tgz|tar\.gz|tar)(?=/|$)')
_TAG = re.compile(rb'<(/?)seg\b[^<>]*>', re.IGNORECASE)
_OPENING = re.compile(rb'<seg\b', re.IGNORECASE)
_ENTITY = re.compile(rb'&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-f]{1,6});', re.IGNORECASE)
CHUNK = 1 << 20
_LONGEST_SEGMENT = 1 << 24  # bytes; a file that is not SGML is not read beyond this
_LONGEST_NAME = 1 << 14  # bytes of a tar member's name and extended header
_LARGEST_MEMBER = 1 << 40
_NAMES = 1000  # member names collected to suggest one for a missing member
_RATIO, _ANYHOW = 200, 1 << 28  # gzip may unpack to this many times its size, or this many bytes


def split(path: str) -> tuple[str, str]:
    """Split `dev.tgz/dev/a.en` into (`dev.tgz`, `dev/a.en`); any other path has no member: (path, '')."""
    for match in _ARCHIVE.finditer(path):
        archive, member = path[:match.end()], path[match.end() + 1:]
        if member and not os.path.isdir(archive):  # a folder may have any name
            return archive, member
    return path, ''


def is_archive(path: str) -> bool:
    return path.endswith(('.tgz', '.tar.gz', '.tar'))


def is_sgml(path: str) -> bool:
    return path.removesuffix('.gz').lower().endswith(('.sgm', '.sgml'))


def members(stream: IO[bytes], archive: str, wanted: Collection[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the wanted members of a tar archive, in its order; read each before requesting the next.

    The archive is read once to its end, so that its checksum covers the members.

    Args:
      stream: the archive's bytes; only seeked forward.
      archive: its name; all but `.tar` are gzipped.
      wanted: paths inside it.

    Raises:
      UserError: the archive is truncated or damaged, or lacks a member.
    """
    with _whole(archive):
        tar_stream = stream if archive.endswith('.tar') else _Unpacked(stream)
        missing, names = set(wanted), list[str]()
        # Not mode r|, which reads past the end for as long as a header claims that a member continues.
        with tarfile.open(fileobj=tar_stream, mode='r:', tarinfo=_Entry) as tar:
            for entry in _entries(tar):
                content = tar.extractfile(entry) if entry.isfile() and not entry.issparse() else None
                if content:
                    name = posixpath.normpath(entry.name)
                    if name in missing:
                        missing.remove(name)
                        yield name, content
                    elif len(names) < _NAMES:
                        names.append(name)
        while tar_stream.read(CHUNK):  # the rest after the last member, and gzip's checksum
            pass
    if missing:
        name = min(missing)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or names[:3]
        others = f'; it has {", ".join(close)}{" …" if len(names) > len(close) else ""}' if names else ''
        raise UserError(f'{archive} has no file {name}{others}.')


class Range(NamedTuple):
    """Location of a file in a tar archive, from its headers; `reason` says why it must not be read."""
    name: str
    offset: int
    length: int
    reason: str = ''


def ranges(stream: IO[bytes], archive: str) -> Iterator[Range]:
    """Yield every file of a plain tar archive, in its order. A tar inside it counts as a folder of its name.

    Only headers are read, and no path of this machine is derived from a member's name: absolute names, names that lead
    out of the archive, links, devices and sparse files come with a reason.

    Args:
      stream: the archive, seekable.
      archive: its name.

    Raises:
      UserError: the archive is truncated or damaged.
    """
    with _whole(archive), tarfile.open(fileobj=stream, mode='r:', tarinfo=_Entry) as tar:
        for entry in _entries(tar):
            reason = _refusal(entry)
            if reason:
                yield Range(entry.name, entry.offset, 0, reason)
            elif entry.isfile() and entry.name.endswith('.tar'):
                content = tar.extractfile(entry)
                assert content is not None
                for inner in ranges(content, f'{archive}/{entry.name}'):
                    yield inner._replace(name=f'{posixpath.normpath(entry.name)[:-4]}/{inner.name}',
                                         offset=entry.offset_data + inner.offset)
            elif entry.isfile():
                yield Range(posixpath.normpath(entry.name), entry.offset_data, entry.size)
        stream.seek(tar.offset)
        if stream.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise tarfile.ReadError('its end is missing')


class _Entry(tarfile.TarInfo):
    """A member whose headers stay within bounds.

    A negative size would lead back to the same header for ever, and extended headers are read into memory whole.
    """

    def _proc_member(self, tar):
        if self.type in (*tarfile.GNU_TYPES, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE):
            if self.type != tarfile.GNUTYPE_SPARSE and not 0 <= self.size <= _LONGEST_NAME:
                raise tarfile.ReadError(f'a name or header of {self.size:,} bytes')
        entry = super()._proc_member(tar)
        if not 0 <= entry.size <= _LARGEST_MEMBER:
            raise tarfile.ReadError(f'a member of {entry.size:,} bytes')
        return entry


def _entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (entry := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined] # tarfile would keep all of them
        yield entry


def _refusal(entry: tarfile.TarInfo) -> str:
    if entry.name.startswith('/'):
        return 'an absolute name in an archive'
    if '..' in entry.name.split('/'):
        return 'a name that leads out of its archive'
    if entry.issym() or entry.islnk():
        return f'a link, to {entry.linkname}'
    if entry.issparse() or not (entry.isfile() or entry.isdir()):
        return 'no plain file'
    return ''


def unpacked(stream: IO[bytes], archive: str) -> Iterator[bytes]:
    """Yield the plain tar in a compressed one, in parts.

    Raises:
      UserError: it is truncated or damaged.
    """
    with _whole(archive):
        text = _Unpacked(stream)
        yield from iter(lambda: text.read(CHUNK), b'')


def plain(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the text of a file in parts: unpacked if `name` ends in .gz; for SGML, one segment per line.

    Raises:
      UserError: the file, or its archive, is truncated or not of the kind its name says.
    """
    with _whole(name):
        text = _Unpacked(stream) if name.endswith('.gz') else stream
        yield from segments(text, name) if is_sgml(name) else iter(lambda: text.read(CHUNK), b'')


def segments(stream: IO[bytes] | gzip.GzipFile, name: str) -> Iterator[bytes]:
    """Yield every `<seg>` of a NIST SGML file as a line, with entities resolved and white space collapsed.

    Raises:
      UserError: there is none, or one is not closed.
    """
    number, rest = 0, b''
    while len(rest) < _LONGEST_SEGMENT and (chunk := stream.read(CHUNK)):
        rest, begun, done = rest + chunk, -1, 0
        for tag in _TAG.finditer(rest):
            if begun >= 0 and not tag[1]:
                break  # nothing else can match from here on
            if begun >= 0:
                number, done = number + 1, tag.end()
                text = _ENTITY.sub(lambda entity: html.unescape(entity[0].decode()).encode(), rest[begun:tag.start()])
                yield b' '.join(text.split()) + b'\n'
            begun = -1 if tag[1] else tag.end()
        rest = rest[done:]
    if _OPENING.search(rest):
        raise UserError(f'{name}: segment {number + 1} is not closed, so the file is truncated or damaged. '
                        'Fetch it again.')
    if not number:
        raise UserError(f'{name} has no <seg>, so it is not SGML. '
                        'Give plain text another ending, such as .txt.')


class _Unpacked(gzip.GzipFile):
    """A gzip file being unpacked, with a limit on its size."""

    def __init__(self, packed: IO[bytes]):
        super().__init__(fileobj=packed)
        self._packed = packed

    def read(self, size=-1):
        data = super().read(size)
        if (made := self.tell()) > _ANYHOW and made > _RATIO * self._packed.tell():
            raise gzip.BadGzipFile(f'unpacked it is more than {_RATIO} times as large')
        return data


@contextlib.contextmanager
def _whole(name: str) -> Iterator[None]:
    try:
        yield
    # tarfile raises the last four too, for odd headers or headers of headers.
    except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError, ValueError, LookupError, ArithmeticError,
            RecursionError) as error:
        what = f'{name} is not a whole gzip file'
        if is_archive(name) or not name.endswith('.gz'):
            what = f'{name if is_archive(name) else split(name)[0]} is not a whole archive'
        raise UserError(f'{what} ({error}). Fetch it again.') from error
