"""Divide parallel text files into blocks: byte ranges that a worker can read without the text before them.

Used by Beam jobs; paths may be on any file system Beam opens.
"""
import contextlib
import csv
import io
import itertools
import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from data_prep import UserError
from data_prep.core import archives, cutters
from data_prep.core.files import NOT_THERE

PARTS = ('source', 'target', 'kind')
_TABLES = {'tsv': 'tsv', 'csv': 'csv', 'jsonl': 'jsonl', 'ndjson': 'jsonl', 'json': 'jsonl'}  # format by ending
_TWO_BY_TWO = ' List files two by two, source then target, or give a .tsv, .csv or .jsonl.'
_FIRST = 200  # records from which the names of JSON lines and a CSV file's delimiter are found
_DELIMITERS = ',;\t'
_NAME = re.compile(r'\{([^{}]*)\}')  # a column of a table, in a template of `columns`
_AS_THEY_COME: Mapping[str, str] = MappingProxyType({})


class Source(NamedTuple):
    """One pair of files, or one table."""
    split: str
    files: tuple[str, ...]
    format: str  # 'lines', 'tsv', 'csv' or 'jsonl'


class Block(NamedTuple):
    """`records` records from number `first` on, with the offset at which each file's bytes begin."""
    source: Source
    plain: tuple[str, ...]  # the seekable files, see `unpack`
    offsets: tuple[int, ...]
    first: int
    records: int
    names: tuple[str, ...] = ()  # names of a table's columns, if it has a header or is of JSON lines
    delimiter: str = ','  # of a CSV file


class Record(NamedTuple):
    """One record's columns as text, or the reason why it cannot be read.

    `line` counts from 1; in CSV and JSON lines it counts records, in SGML segments. `offset` is in the unpacked text.
    """
    file: str
    line: int
    offset: int
    columns: tuple[str, ...]
    reason: str | None = None


def table_format(path: str) -> str:
    """Return a table's format by the file's name, or nothing if it is not a table."""
    return _TABLES.get(path.lower().removesuffix('.gz').rsplit('.', 1)[-1], '')


def sources(split: str, folder: str, files: Sequence[str]) -> list[Source]:
    """Group a split's files into tables and pairs, without accessing them. A single one is a table of tabs.

    Raises:
      UserError: a source has no target, or an archive is named without a file inside it.
    """
    paths = [os.path.join(folder, file) if folder else file for file in files]
    for path in paths:
        real, member = archives.split(path)
        if archives.is_archive(real) and not member:
            raise UserError(f'data.{split}: {path} is an archive. Continue with the file inside it, such as '
                            f'{path}/train.en.')
    result, single = [], []
    for path in paths:
        if kind := table_format(path):
            result.append(Source(split, (path,), kind))
        else:
            single.append(path)
    if len(single) == 1:  # a table by another name, such as Tatoeba's deu.txt; `scan` refuses it if it has no tabs
        return [*result, Source(split, (single[0],), 'tsv')]
    if len(single) % 2:
        raise UserError(f'data.{split}: {single[-1]} has no partner.' + _TWO_BY_TWO)
    return result + [Source(split, pair, 'lines') for pair in zip(single[::2], single[1::2])]


def look_for(found: Iterable[Source]) -> None:
    """Raise `UserError` for the first file that is missing."""
    for source in found:
        for path in source.files:
            real, _ = archives.split(path)
            if not FileSystems.exists(real):
                raise UserError(f'data.{source.split}: there is no file {real}.' + NOT_THERE)


def open_plain(path: str) -> BinaryIO:
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def unpack(source: Source, folder: str) -> tuple[str, ...]:
    """Return the source's files in seekable form: uncompressed copies below `folder`, or the files themselves.

    An archive is read once, even if several of the source's files lie in it.

    Raises:
      UserError: a file or archive is truncated or not what its name says, or an archive lacks a member.
    """
    plain = list(source.files)
    wanted: dict[str, dict[str, str]] = {}  # real file -> path inside it -> target path of its text
    for i, path in enumerate(source.files):
        real, member = archives.split(path)
        if member or path.endswith('.gz') or archives.is_sgml(path):
            copies = wanted.setdefault(real, {})
            plain[i] = copies.setdefault(posixpath.normpath(member), os.path.join(folder, f'{i}.txt'))
    for real, copies in wanted.items():
        with open_plain(real) as stream:
            if archives.is_archive(real):
                for member, content in archives.members(stream, real, copies):
                    _copy(archives.plain(content, f'{real}/{member}'), copies[member])
            else:
                [target] = copies.values()
                _copy(archives.plain(stream, real), target)
    return tuple(plain)


def _copy(parts: Iterable[bytes], path: str) -> None:
    with FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        for part in parts:
            file.write(part)


def named(template: str) -> list[str]:
    """Return a template's columns: for '{Instruction} {Input}', Instruction and Input."""
    return _NAME.findall(template)


def scan(source: Source, plain: tuple[str, ...], records_per_block: int, header: bool,
         columns: Mapping[str, str] = _AS_THEY_COME) -> Iterator[Block]:
    """Cut a source into blocks, reading it once, and its first records before.

    Args:
      header: whether a table's first row names its columns; JSON lines have the names of their first records.
      columns: templates whose columns a table must have; see `read`.

    Raises:
      UserError: the two files have different numbers of lines; a table lacks a column of `columns`; no record of JSON
        lines can be read; or a single file is no table.
    """
    streams = [open_plain(path) for path in plain]
    cutter = cutters.CUTTERS[source.format]
    offsets, counts = [0] * len(plain), [0] * len(plain)
    starts, first = (0,) * len(plain), 0
    whole = Block(source, plain, starts, 0, 0, _keys(source, plain, columns), _delimiter(source, plain))
    for rows in itertools.zip_longest(*(cutter(stream) for stream in streams)):
        for i, row in enumerate(rows):
            if row is not None:
                offsets[i] += row[1]
                counts[i] += 1
        if counts[0] == 1:
            _check_tabs(source, rows)
        if header and source.format in ('tsv', 'csv') and counts[0] == 1:
            starts, first, whole = tuple(offsets), 1, whole._replace(names=_header(whole, rows, columns))
        elif counts[0] - first == records_per_block:
            yield whole._replace(offsets=starts, first=first, records=records_per_block)
            starts, first = tuple(offsets), counts[0]
    if len(set(counts)) > 1:
        source_has, target_has = (f'{path} has {count:,} {"segments" if archives.is_sgml(path) else "lines"}'
                                  for path, count in zip(source.files, counts))
        raise UserError(f'{source_has}, but {target_has}. '
                        'Line n of one must be the translation of line n of the other.')
    if counts[0] > first:
        yield whole._replace(offsets=starts, first=first, records=counts[0] - first)


def _check_tabs(source: Source, cut: Sequence[tuple[bytes, int]]) -> None:
    if source.format == 'tsv' and not table_format(source.files[0]) and b'\t' not in cut[0][0]:
        raise UserError(f'data.{source.split}: {source.files[0]} has no partner, and no tab in its first line.' +
                        _TWO_BY_TWO)


def _keys(source: Source, plain: tuple[str, ...], columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that the first records of JSON lines have, in order, after checking those of `columns`."""
    if source.format != 'jsonl':
        return ()
    names, reason = dict[str, None](), ''
    for row, _ in itertools.islice(cutters.json_lines(open_plain(plain[0])), _FIRST):
        try:
            names |= dict.fromkeys(_object(row.decode('utf-8-sig')))
        except ValueError as error:
            reason = reason or str(error)
            if row.lstrip().startswith(b'[') and not names:
                raise UserError(f'{source.files[0]} is one JSON array. Write an object per line, as by '
                                f"`jq -c '.[]' {source.files[0]} > lines.jsonl`.") from error
    if reason and not names:
        raise UserError(f'{source.files[0]}: its first line is not an object of JSON: {reason}. Write one object per '
                        'line, in UTF-8.')
    if names:
        _check_names(source, tuple(names), columns)
    return tuple(names)


def _delimiter(source: Source, plain: tuple[str, ...]) -> str:
    """Return the delimiter of a CSV file: the one that cuts its first records into equally many cells, else a comma."""
    if source.format == 'csv':
        rows = [row.decode('utf-8', 'replace').strip('\r\n')
                for row, size in itertools.islice(cutters.csv_records(open_plain(plain[0])), _FIRST) if size < 1 << 16]
        for delimiter in _DELIMITERS:
            with contextlib.suppress(csv.Error):
                counts = {len(cells) for row in rows for cells in csv.reader([row], delimiter=delimiter)}
                if len(counts) == 1 and counts.pop() > 1:
                    return delimiter
    return ','


def _header(block: Block, cut: Sequence[tuple[bytes, int]], columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in a table's first row after checking that all columns of `columns` exist."""
    _, names, reason = _understood(block, cut, True)
    if reason and columns:
        raise UserError(f'{block.source.files[0]} has no readable header: {reason}.')
    _check_names(block.source, names, columns)
    return names


def _check_names(source: Source, names: tuple[str, ...], columns: Mapping[str, str]) -> None:
    for name in (name for template in columns.values() for name in named(template)):
        if names.count(name) != 1:
            raise UserError(f'data.columns: {source.files[0]} has {names.count(name) or "no"} '
                            f'column{"s" * (name in names)} {name!r}; it has {", ".join(names)}.')


def read(block: Block, columns: Mapping[str, str] = _AS_THEY_COME) -> Iterator[Record]:
    """Yield the records of a block; records that cannot be read as text come with a reason.

    Args:
      columns: for tables, templates of the fields `PARTS`, such as '{Instruction} {Input}'; if empty, the first columns
        are used.
    """
    if block.source.format == 'lines':
        columns = _AS_THEY_COME
    for record in cells(block):
        parts, reason = ((), record.reason) if record.reason else _parts(record.columns, block.names, columns)
        yield record._replace(columns=parts, reason=reason)


def cells(block: Block) -> Iterator[Record]:
    """Yield the records of a block with all their columns; records that cannot be read as text come with a reason."""
    streams = [open_plain(path) for path in block.plain]
    for stream, offset in zip(streams, block.offsets):
        stream.seek(offset)
    cutter = cutters.CUTTERS[block.source.format]
    offset = block.offsets[0]
    for number, cut in enumerate(itertools.islice(zip(*(cutter(stream) for stream in streams)), block.records)):
        line = block.first + number + 1
        file, row, reason = _understood(block, cut, line == 1)
        yield Record(file, line, offset, row, reason)
        offset += cut[0][1]


def _understood(block: Block, cut: Sequence[tuple[bytes, int]], first: bool
                ) -> tuple[str, tuple[str, ...], str | None]:
    """Return the file at fault, the cells, and the error of a record cut from every file; the first may have a BOM."""
    text = []
    for file, (row, size) in zip(block.source.files, cut):
        if size > len(row):
            return file, (), f'{size:,} bytes in one record, but at most {cutters.LONGEST:,} are allowed'
        try:
            text.append(row.decode('utf-8').removesuffix('\n').removesuffix('\r'))
        except UnicodeDecodeError as error:
            return file, (), f'not UTF-8: byte 0x{row[error.start]:02x} at position {error.start}'
    if first:
        text = [part.removeprefix('\ufeff') for part in text]
    return block.source.files[0], *_cells(block, text)


def _cells(block: Block, text: list[str]) -> tuple[tuple[str, ...], str | None]:
    match block.source.format:
        case 'lines':
            return tuple(text), None
        case 'tsv':
            return tuple(text[0].split('\t')), None
        case 'jsonl':
            try:
                values = _object(text[0])
            except ValueError as error:
                return (), f'not an object of JSON: {error}'
            return tuple(values.get(name, '') for name in block.names), None
    try:
        rows = list(csv.reader(io.StringIO(text[0].lstrip('\r\n'), newline=''), delimiter=block.delimiter))
    except csv.Error as error:
        return (), f'not CSV: {error}'
    if len(rows) > 1:
        return (), f'not CSV: a misplaced quote made one record of {len(rows)} lines'
    [row] = rows or [[]]
    return tuple(row), None


def _object(text: str) -> dict[str, str]:
    """Return the values of a JSON object as text, by name.

    Raises:
      ValueError: it is none, is empty or too deep, or has half of a letter.
    """
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or not found:
            raise ValueError('names with values are expected, such as {"source": "a dog", "target": "ein Hund"}')
        values = _values(found)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    ''.join(itertools.chain(*values.items())).encode()  # an escape may be half of a letter
    return values


def _values(found: dict[str, Any], within: str = '') -> dict[str, str]:
    """Return an object's values as text, by name; those of an object inside it are named `outer.inner`."""
    row: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            row |= _values(value, f'{within}{name}.')
        else:
            row[within + name] = (value if isinstance(value, str) else '' if value is None else
                                  json.dumps(value, ensure_ascii=False))
    return row


def _parts(cells: tuple[str, ...], names: tuple[str, ...], columns: Mapping[str, str]
           ) -> tuple[tuple[str, ...], str | None]:
    """Return source, target and possibly kind of a row, or the reason why it has none.

    The target is the text of its columns, unchanged. The source is stripped, because empty columns leave spaces.
    """
    if not columns:
        return (cells[:3], None) if len(cells) > 1 else (
            (), f'{len(cells)} column, but source and target are needed')
    if any(cells[len(names):]) or len(cells) < len(names):  # empty ones at the end are delimiters of a spreadsheet
        return (), f'{len(cells)} columns, but the header names {len(names)}'
    row = dict(zip(names, cells))
    source, *rest = (_NAME.sub(lambda found: row[found[1]], columns[part]) for part in PARTS if part in columns)
    return (source.strip(), *rest), None
