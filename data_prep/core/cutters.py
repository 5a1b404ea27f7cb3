"""Cut a stream of bytes into records: lines, and those of CSV and JSON lines.

Records come with the bytes they take in the stream, which are more than their own for an overlong one. Where a record
begins, cutting needs nothing that was before.
"""
import collections
import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

Records = Iterator[tuple[bytes, int]]
LONGEST = 1 << 20  # bytes of a record
_MOST_LINES = 500  # of a cell; were every row of a file to open one, looking so far ahead takes 0.1 ms a row
_WHOLE_CELL = re.compile(rb'(^|[,;\t])"(?:[^"]|"")*"(?=[,;\t\r\n]|$)')
_OPENED = re.compile(rb'(?:^|[,;\t])"')  # a quote at the beginning of a cell


def lines(stream: BinaryIO) -> Records:
    """Yield lines; of an overlong line, only the beginning."""
    while line := stream.readline(LONGEST):
        size = rest = len(line)
        while rest == LONGEST and not line.endswith(b'\n'):
            rest = len(stream.readline(LONGEST))
            size += rest
        yield line, size


def json_lines(stream: BinaryIO) -> Records:
    return _with_text(lines(stream))


def csv_records(stream: BinaryIO) -> Records:
    return _with_text(_quoted(lines(stream)))


def _with_text(records: Iterable[tuple[bytes, int]]) -> Records:
    """Join empty lines to the record after them, and drop the last ones."""
    empty, length = b'', 0
    for record, size in records:
        if record.strip(b'\r\n') or length > LONGEST:
            yield empty + record, length + size
            empty, length = b'', 0
        else:
            empty, length = empty + record, length + size


def _quoted(found: Records) -> Records:
    """Join lines while a quoted cell is open.

    As `csv` has it, a quote within a cell that did not begin with one is a letter like others. Where a cell is closed
    by no quote in `_MOST_LINES`, or by one that belongs to another cell, its first line is a record of its own: a stray
    quote costs no other row.
    """
    waiting: collections.deque[tuple[bytes, int]] = collections.deque()
    pending: list[tuple[bytes, int]] = []
    size = quotes = 0
    while (line := waiting.popleft() if waiting else next(found, None)) or pending:
        if line:
            quotes += line[0].count(b'"') if pending else _opened(line[0])
            pending.append(line)
            size += line[1]
            if quotes % 2 and size <= LONGEST and len(pending) <= _MOST_LINES:
                continue
        record = b''.join(part for part, _ in pending)
        if len(pending) > 1 and (quotes % 2 or _opened(record)):
            waiting.extendleft(reversed(pending[1:]))
            record, size = pending[0]
        yield record, size
        pending, size, quotes = [], 0, 0


def _opened(text: bytes) -> int:
    """Return the number of quotes from the one on that opens a cell and is not closed; 0 if there is none."""
    if b'"' not in text:
        return 0
    rest = _WHOLE_CELL.sub(rb'\1', text)
    found = _OPENED.search(rest)
    return rest.count(b'"', found.start()) if found else 0


CUTTERS: dict[str, Callable[[BinaryIO], Records]] = {
    'lines': lines, 'tsv': lines, 'csv': csv_records, 'jsonl': json_lines}
