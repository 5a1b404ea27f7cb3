"""Find the trees in folders, archives and plain files.

A tree is one or several lines whose brackets balance. A bracket at the beginning of a line that is indented no more
than the tree's first line starts another tree, so a missing bracket affects only its own. Used by a Beam job, but
without Beam, because every stage needs the list of files. Paths may be on any file system TensorFlow opens.
"""
import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple, cast

import tensorflow as tf

from data_prep import UserError
from data_prep.core import archives, files, splits
from data_prep.image import readers
from data_prep.trees import trees

ENDINGS = ('.mrg', '.parse', '.prd', '.psd', '.ptb', '.tree', '.trees')  # and the same with .gz
EXTRA = 'extra'
_LONGEST = 1 << 20  # most bytes of a tree
# Lines between trees: empty ones, comments (Tiger, Negra), headers (Brown) and mark-up (the Chinese Treebank).
_REMARK = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:$|%%|#|;|\*x\*|<[^()<>]*>\s*$|<DOCID>)')
_KINDS = ((10, 'up to 10 words'), (20, '11 to 20 words'), (40, '21 to 40 words'))


class Source(NamedTuple):
    """A path listed for a split (or as `extra`): a file, folder, glob or archive, or a path inside one."""
    split: str
    path: str


class Block(NamedTuple):
    """The trees of one split among `length` bytes of a plain file.

    Attributes:
      split: the block stands for the `records` trees assigned to this split.
      file: its name for the user.
      path, offset, length: location of its bytes.
      line: number of its first line, counted from 1; `start`: offset of the bytes in the file itself.
      first: number of the source's trees before it.
    """
    split: str
    listed: str
    file: str
    path: str
    offset: int
    length: int
    line: int
    start: int
    first: int
    records: int


class _File(NamedTuple):
    name: str
    path: str
    offset: int
    length: int


def is_glob(path: str) -> bool:
    return any(character in path for character in '*?[')


def is_treebank(name: str) -> bool:
    return name.removesuffix('.gz').lower().endswith(ENDINGS)


def real(path: str) -> list[str]:
    """Return the files and folders on disk for a listed path; empty if there are none."""
    path, _ = archives.split(path)
    if is_glob(path) and not tf.io.gfile.exists(path):
        return sorted(tf.io.gfile.glob(path))
    return [path] if tf.io.gfile.exists(path) else []


def outermost(path: str) -> list[str]:
    """Return the tree files and archives for a listed path; the path itself if there are none."""
    found = list[str]()
    for outer in real(path):
        is_folder = os.path.isdir(outer)
        found += [name for name in files.walk_folder(outer) if is_treebank(name)] if is_folder else [outer]
    return found or [archives.split(path)[0]]


def above(path: str) -> str:
    """Return the archive, or the folder a pattern begins in, that holds a listed path, without accessing it."""
    parts = archives.split(path)[0].split('/')
    fixed = next((n for n, part in enumerate(parts) if is_glob(part)), len(parts))
    return '/'.join(parts[:fixed])


def look_for(sources: Iterable[Source]) -> None:
    """Raise `UserError` for the first missing source."""
    for source in sources:
        if not real(source.path):
            missing = archives.split(source.path)[0]
            raise UserError(f'data.{source.split}: there is no file or folder {missing}.' + files.NOT_THERE)


def scan(source: Source, scratch: str, config) -> Iterator[Block]:
    """Cut a source into blocks, reading it once.

    Args:
      scratch: an empty folder for unpacked files.
      config: `treebank.Config`.

    Raises:
      UserError: it holds no treebank, or an archive or .gz is damaged.
    """
    first, found = 0, False
    for file in _files(source, scratch):
        found = True
        with files.open_file(file.path) as stream:
            runs = list[tuple[int, int, int]]()  # line, offset, bytes
            counts: dict[str, int] = {}
            for line, offset, _, size in _runs(stream, file.offset, file.length):
                split = _split(source, config, file.name, line)
                counts[split] = counts.get(split, 0) + 1
                runs.append((line, offset, size))
                if len(runs) == config.trees_per_block:
                    yield from _blocks(source, file, runs, counts, first)
                    first, runs, counts = first + len(runs), [], {}
            yield from _blocks(source, file, runs, counts, first)
            first += len(runs)
    if not found:
        raise UserError(f'data.{source.split}: {source.path} holds no file of trees. Name one, or files that end in '
                        f'{", ".join(ENDINGS)}.')


def _blocks(source: Source, file: _File, runs: list[tuple[int, int, int]], counts: dict[str, int], first: int
            ) -> Iterator[Block]:
    for split, records in sorted(counts.items()):
        (line, begin, _), (_, last, size) = runs[0], runs[-1]
        yield Block(split, source.split, file.name, file.path, file.offset + begin, last + size - begin, line, begin,
                    first, records)


def read(block: Block, config) -> Iterator[tuple[str, int, int, tuple[str, ...], str | None]]:
    """Yield the records of a block as in `text_files.Record`: words, linear tree and kind, or the reason of failure."""
    source = Source(block.listed, '')
    with files.open_file(block.path) as stream:
        for line, offset, text, size in _runs(stream, block.offset, block.length):
            line, offset = block.line + line - 1, block.start + offset
            if _split(source, config, block.file, line) == block.split and not splits.is_left_out(
                    config, block.split, f'{_name(block.file)}:{line}'):
                yield block.file, line, offset, *_understood(text, size, config)


def _understood(text: bytes, size: int, config) -> tuple[tuple[str, ...], str | None]:
    if size > _LONGEST:
        return (), f'{size:,} bytes in one tree, but at most {_LONGEST:,} are allowed'
    try:
        found = trees.parse(text.decode('utf-8').removeprefix('\ufeff'))
        if len(found) != 1:
            raise trees.Malformed(f'{len(found)} trees on one line, but only one is allowed')
        words, linear = trees.linear(trees.clean(found[0], config.tags, config.function_tags))
    except UnicodeDecodeError as error:
        return (), f'not UTF-8: byte 0x{text[error.start]:02x} at position {error.start}'
    except trees.Malformed as error:
        return (), f'not a tree: {error}'
    return (words, linear, kind(words.count(' ') + 1)), None


def kind(words: int) -> str:
    """Return the slice of a sentence with this many words."""
    return next((name for most, name in _KINDS if words <= most), 'over 40 words')


def _split(source: Source, config, file: str, line: int) -> str:
    """Return a tree's split: its source's, or one split off from training."""
    if source.split == EXTRA:
        return 'train'
    name = _name(file)
    what = name if config.split_by == 'file' else f'{name}:{line}'
    return splits.split_of(config, source.split, splits.order(what)[0])


def _name(file: str) -> str:
    """Return a file's name, independent of the treebank's location and compression."""
    return file.rsplit('/', 1)[-1].removesuffix('.gz')


def _runs(stream: IO[bytes], offset: int, length: int) -> Iterator[tuple[int, int, bytes, int]]:
    """Yield (line, offset from the beginning, text, bytes) of every run of lines whose brackets balance."""
    stream.seek(offset)
    number = place = depth = size = 0
    begun, held, ended = (0, 0), list[bytes](), True
    while length < 0 or place < length:
        line = stream.readline(_LONGEST if length < 0 else min(_LONGEST, length - place))
        if not line:
            break
        starts, ended = ended, line.endswith(b'\n')  # an overlong line is read in parts
        if held and starts and line.lstrip(b' \t').startswith(b'(') and _indent(line) <= _indent(held[0]):
            yield *begun, b''.join(held), size
            depth, size, held = 0, 0, []
        number += starts
        if held or not _REMARK.match(line):
            begun = begun if held else (number, place)
            size += len(line)
            depth += line.count(b'(') - line.count(b')')
            if size <= 2 * _LONGEST:
                held.append(line)
        place += len(line)
        if held and depth <= 0 and ended:
            yield *begun, b''.join(held), size
            depth, size, held = 0, 0, []
    if held:
        yield *begun, b''.join(held), size


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip(b' \t'))


def _files(source: Source, scratch: str) -> Iterator[_File]:
    """Yield every tree file of a source, seekable."""
    for number, (name, found) in enumerate(_listed(source, scratch)):
        if found.reason:
            raise UserError(f'data.{source.split}: {name} cannot be read: it is {found.reason}.')
        if not name.endswith('.gz'):
            yield _File(name, found.file, found.offset, found.length)
            continue
        plain = os.path.join(scratch, f'{number}.txt')
        with files.open_file(found.file) as packed, tf.io.gfile.GFile(plain, 'wb') as target:
            packed.seek(found.offset)
            for part in archives.plain(cast(IO[bytes], _Range(packed, found.length)), name):
                target.write(part)
        yield _File(name, plain, 0, -1)


class _Range:
    """The next `length` bytes of a stream (-1: all of them) as a file that is read once."""

    def __init__(self, stream: IO[bytes], length: int):
        self._stream, self._left = stream, length

    def read(self, size: int = -1) -> bytes:
        if self._left >= 0:
            size = self._left if size < 0 else min(size, self._left)
        data = self._stream.read(size)
        self._left -= len(data) if self._left >= 0 else 0
        return data

    def tell(self) -> int:
        return self._stream.tell()


def _listed(source: Source, scratch: str) -> Iterator[tuple[str, readers.Found]]:
    """Yield (name, location) of every tree file."""
    _, inside = archives.split(source.path)
    for number, outer in enumerate(real(source.path)):
        if archives.is_archive(outer) and not tf.io.gfile.isdir(outer):
            own = os.path.join(scratch, f'archive-{number}')  # folder of each unpacked archive
            tf.io.gfile.makedirs(own)
            for found in readers.walk(readers.Source(source.split, 0, outer, outer, '', ''), own):
                if _wanted(found.name, inside):
                    yield f'{outer}/{found.name}', found
        elif tf.io.gfile.isdir(outer):
            for name in files.walk_folder(outer):
                if is_treebank(name):
                    yield name, readers.Found(name, name, 0, -1)
        else:
            yield outer, readers.Found(outer, outer, 0, -1)


def _wanted(name: str, inside: str) -> bool:
    """Return whether an archive's file was requested: by its name, by a pattern of names, or by a folder."""
    within = inside.strip('/')
    if name == within or (is_glob(within) and fnmatch.fnmatch(name, within)):
        return True
    return is_treebank(name) and (not within or name.startswith(f'{within}/')
                                  or (is_glob(within) and fnmatch.fnmatch(name, f'{within}/*')))
