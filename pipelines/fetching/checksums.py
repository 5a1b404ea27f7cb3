"""Checksums of files, and the record of what was fetched into a folder."""
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from data_prep import UserError

RECORD = 'fetched.json'
_CHUNK = 1 << 20


def digest(path: pathlib.Path, algorithm: str = 'sha256') -> str:
    """Return a file's digest in hexadecimal."""
    total = hashlib.new(algorithm, usedforsecurity=False)
    with path.open('rb') as file:
        while chunk := file.read(_CHUNK):
            total.update(chunk)
    return total.hexdigest()


def digest_of_lines(lines: Iterable[str]) -> str:
    """Return the SHA-256 of lines of text."""
    return hashlib.sha256(''.join(f'{line}\n' for line in lines).encode()).hexdigest()


def matches(path: pathlib.Path, checksum: str) -> bool:
    """Return whether a file has a checksum, written `sha256:…`, `md5:…` or `sha256-begins:…`."""
    kind, _, expected = checksum.partition(':')
    if kind == 'sha256-begins':
        return digest(path).startswith(expected)
    return digest(path, kind) == expected


def read(folder: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Return the record of a folder: file name -> address, size, SHA-256 and how it was checked.

    Raises:
      UserError: the record is damaged.
    """
    path = folder / RECORD
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f'{path}: not JSON ({error}). Remove it; files with a published checksum are kept.') from error
    if not isinstance(record, dict) or not all(isinstance(row, dict) and isinstance(row.get('sha256'), str)
                                               for row in record.values()):
        raise UserError(f'{path}: not a record of fetched files. Remove it; files with a published checksum are kept.')
    return record


def write(folder: pathlib.Path, name: str, **row: Any) -> None:
    """Record one file, replacing the record as a whole."""
    record = read(folder) | {name: row}
    part = folder / f'{RECORD}.part'
    part.write_text(json.dumps(record, indent=1) + '\n')
    os.replace(part, folder / RECORD)
