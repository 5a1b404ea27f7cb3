"""Check files the user provides, for data sets that need an account, an order or a browser."""
import csv
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.fetching import checksums


def check(folder: pathlib.Path, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return what is missing or wrong, one sentence each.

    Args:
      folder: folder of the files.
      rows: `brings` of a data set: a `file` with its `checksum`, number of `lines` or `columns`; or a `folder`,
        possibly under one of its `other_names`, with the `ending` of its files and their number of `trees`.
    """
    faults = list[str]()
    for row in rows:
        faults += _file(folder, **row) if 'file' in row else _folder(folder, **row)
    return faults


def _file(root: pathlib.Path, file: str, size: str = '', checksum: str = '', lines: int = 0,
          columns: Sequence[str] = ()) -> Iterator[str]:
    path = root / file
    if not path.is_file():
        yield f'{path} is missing'
    elif not path.stat().st_size:
        yield f'{path} is empty'
    elif checksum and not checksums.matches(path, checksum):
        yield f'{path} does not have the published checksum {checksum}'
    elif lines and (found := _count_lines(path)) != lines:
        yield f'{path} has {found:,} lines, but the published file {lines:,}'
    elif columns and (missing := [name for name in columns if name not in _header(path)]):
        yield f'{path} has no column {missing[0]}'


def _folder(root: pathlib.Path, folder: str, other_names: Sequence[str] = (), ending: str = '', trees: int = 0
            ) -> Iterator[str]:
    there = [root / name for name in (folder, *other_names) if (root / name).is_dir()]
    if not there:
        yield f'the folder {root / folder} is missing'
        return
    files = sorted(path for path in there[0].iterdir() if path.is_file() and path.name.endswith(ending))
    if not files:
        yield f'the folder {there[0]} has no {f"{ending} file" if ending else "files"}'
    elif trees and (found := sum(map(_count_trees, files))) != trees:
        yield f'the folder {there[0]} has {found:,} trees, but the published one {trees:,}'


def _count_lines(path: pathlib.Path) -> int:
    with path.open('rb') as file:
        return sum(bool(line.strip()) for line in file)


def _count_trees(path: pathlib.Path) -> int:
    """Count outermost brackets; the Penn Treebank writes brackets of the text as -LRB- and -RRB-."""
    depth = count = 0
    for byte in path.read_bytes():
        if byte == ord('('):
            count += depth == 0
            depth += 1
        elif byte == ord(')'):
            depth -= 1
    return count


def _header(path: pathlib.Path) -> list[str]:
    with path.open(encoding='utf-8-sig', errors='replace', newline='') as file:
        return next(csv.reader(file), [])
