"""Parallel text files as blocks: byte ranges that a worker can read without what lies before them.

Used by Beam jobs; paths are anything Beam's filesystems open.
"""
import csv
import gzip
import io
import itertools
import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from data_prep import UserError

_MAX_CSV_RECORD = 1 << 20  # a quote that is never closed must not swallow the rest of the file


class Source(NamedTuple):
    """One pair of files, or one table."""
    split: str
    files: tuple[str, ...]
    format: str  # 'lines', 'tsv' or 'csv'


class Block(NamedTuple):
    """`records` records from `first` on: where each file's bytes begin."""
    source: Source
    plain: tuple[str, ...]  # the files as they can be seeked: themselves, or unpacked
    offsets: tuple[int, ...]
    first: int
    records: int


class Record(NamedTuple):
    """One record's columns as text, or why it is none. `line` counts from 1; in a CSV file it counts records."""
    file: str
    line: int
    offset: int
    columns: tuple[str, ...]
    reason: str | None = None


def sources(split: str, folder: str, files: Sequence[str]) -> list[Source]:
    """Groups a split's files into tables and pairs.

    Raises:
      UserError: a file is missing or a source has no target.
    """
    paths = [os.path.join(folder, file) if folder else file for file in files]
    for path in paths:
        if not FileSystems.exists(path):
            raise UserError(f'data.{split}: there is no file {path}.')
    result, single = [], []
    for path in paths:
        ending = path.removesuffix('.gz').rsplit('.', 1)[-1]
        if ending in ('tsv', 'csv'):
            result.append(Source(split, (path,), ending))
        else:
            single.append(path)
    if len(single) % 2:
        raise UserError(f'data.{split}: {single[-1]} has no partner; list files two by two, source then target, '
                        'or give a .tsv or .csv.')
    return result + [Source(split, pair, 'lines') for pair in zip(single[::2], single[1::2])]


def open_plain(path: str) -> BinaryIO:
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def unpack(path: str, folder: str) -> str:
    """The path of an uncompressed copy of a .gz file below `folder`; any other file is its own.

    Raises:
      UserError: the file ends early or is not gzip.
    """
    if not path.endswith('.gz'):
        return path
    plain = os.path.join(folder, path.replace('://', '/').strip('/').replace('/', '_').removesuffix('.gz'))
    try:
        # gzip rather than Beam's own decompression, which takes a file cut short for a whole one.
        with open_plain(path) as packed, gzip.open(packed) as text, FileSystems.create(
                plain, compression_type=CompressionTypes.UNCOMPRESSED) as copy:
            shutil.copyfileobj(text, copy, 1 << 20)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f'{path} is not a whole gzip file ({error}); fetch it again.') from error
    return plain


def scan(source: Source, plain: tuple[str, ...], records_per_block: int, header: bool) -> Iterator[Block]:
    """Cuts a source into blocks, reading it once.

    Raises:
      UserError: the two files have different numbers of lines.
    """
    streams = [open_plain(path) for path in plain]
    cutter = _csv_records if source.format == 'csv' else iter
    offsets, counts = [0] * len(plain), [0] * len(plain)
    starts, first = (0,) * len(plain), 0
    for rows in itertools.zip_longest(*(cutter(stream) for stream in streams)):
        for i, row in enumerate(rows):
            if row is not None:
                offsets[i] += len(row)
                counts[i] += 1
        if header and source.format != 'lines' and counts[0] == 1:
            starts, first = tuple(offsets), 1
        elif counts[0] - first == records_per_block:
            yield Block(source, plain, starts, first, records_per_block)
            starts, first = tuple(offsets), counts[0]
    if len(set(counts)) > 1:
        raise UserError(f'{source.files[0]} has {counts[0]:,} lines and {source.files[1]} has {counts[1]:,}; '
                        'line n of one must be the translation of line n of the other.')
    if counts[0] > first:
        yield Block(source, plain, starts, first, counts[0] - first)


def read(block: Block) -> Iterator[Record]:
    """The records of a block; what cannot be read as text comes with its reason."""
    streams = [open_plain(path) for path in block.plain]
    for stream, offset in zip(streams, block.offsets):
        stream.seek(offset)
    cutter = _csv_records if block.source.format == 'csv' else iter
    offset = block.offsets[0]
    for number, rows in enumerate(itertools.islice(zip(*(cutter(stream) for stream in streams)), block.records)):
        line = block.first + number + 1
        try:
            text = [row.decode('utf-8').removesuffix('\n').removesuffix('\r') for row in rows]
            if line == 1:
                text = [part.removeprefix('\ufeff') for part in text]
            columns, reason = _columns(block.source.format, text)
            file = block.source.files[0]
        except UnicodeDecodeError as error:
            bad = next(i for i, row in enumerate(rows) if error.object == row)
            file = block.source.files[bad]
            columns, reason = (), f'not UTF-8: byte 0x{error.object[error.start]:02x} at position {error.start}'
        yield Record(file, line, offset, columns, reason)
        offset += len(rows[0])


def _columns(format: str, text: list[str]) -> tuple[tuple[str, ...], str | None]:
    if format == 'lines':
        return tuple(text), None
    try:
        rows = [text[0].split('\t')] if format == 'tsv' else list(csv.reader(io.StringIO(text[0], newline='')))
    except csv.Error as error:
        return (), f'not CSV: {error}'
    if len(rows) > 1:
        return (), f'not CSV: a quote out of place made one record of {len(rows)} lines'
    [row] = rows or [[]]
    if len(row) < 2:
        return (), f'{len(row)} column where source and target are needed'
    return tuple(row[:3]), None


def _csv_records(stream: BinaryIO) -> Iterator[bytes]:
    """Raw bytes of each CSV record: lines are joined while a quoted field is open, up to a size no record has."""
    pending, size, quotes = [], 0, 0
    for line in stream:
        pending.append(line)
        size += len(line)
        quotes += line.count(b'"')
        if quotes % 2 == 0 or size > _MAX_CSV_RECORD:
            yield b''.join(pending)
            pending, size, quotes = [], 0, 0
    if pending:
        yield b''.join(pending)
