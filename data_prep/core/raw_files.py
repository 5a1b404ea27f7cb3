"""List the raw files of a data set, with size and SHA-256, beside the manifest.

The list answers, even years later, which data sets a file went into. A Beam job makes it, so that files are read where
they are. An element is a list of file names, and files are read in parts, so memory does not grow with the data.
"""
import gzip
import json
import os
from collections.abc import Iterable, Iterator

from data_prep.core import records, splits
from data_prep.core.files import is_folder, open_file, sha256, walk_folder

LIST = 'raw_files.jsonl.gz'
_FILES_PER_ELEMENT = 500  # files per element


def run(paths: Iterable[str], folder: str, argv: list[str]) -> dict:
    """Write the list of a data set.

    Args:
      paths: files, and folders, which stand for everything below them.
      folder: the data set. Files in it are listed by relative path.
      argv: Beam's own flags.

    Returns:
      `files` and `bytes`, the numbers of both, and `sha256` of the list.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        listed = (pipeline
                  | 'Listed' >> beam.Create(list(enumerate(_outermost(paths))))
                  | 'Look' >> beam.FlatMap(_names)
                  | 'Spread' >> beam.Reshuffle()
                  | 'Hash' >> beam.Map(_hashed, folder))
        (pipeline
         | 'Once' >> beam.Create([folder])
         | 'Write' >> beam.Map(_write, beam.pvalue.AsList(listed)))
    rows, size = 0, 0
    for row in read(folder):
        rows, size = rows + 1, size + row['bytes']
    return {'files': rows, 'bytes': size, 'sha256': sha256(os.path.join(folder, LIST))[0]}


def read(folder: str) -> Iterator[dict]:
    """Yield the rows of a data set's list: `file`, `bytes` and `sha256`."""
    with open_file(os.path.join(folder, LIST)) as file, gzip.open(file) as lines:
        yield from map(json.loads, lines)


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that lie below no other, without repetitions."""
    given = {path.rstrip('/') for path in paths}
    return sorted(path for path in given if given.isdisjoint(_above(path)))


def _above(path: str) -> Iterator[str]:
    while '/' in path:
        path = path.rpartition('/')[0]
        yield path


def _names(element: tuple[int, str]) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Yield ((number, part), names of files) for (number, path)."""
    number, path = element
    names = list(walk_folder(path)) if is_folder(path) else [path]
    for part in range(0, len(names), _FILES_PER_ELEMENT):
        yield (number, part), splits.pack(names[part:part + _FILES_PER_ELEMENT])


def _hashed(element: tuple[tuple[int, int], bytes], folder: str) -> tuple[tuple[int, int], bytes]:
    """Hash some files and return their part of the list, compressed."""
    place, names = element
    rows = []
    for path in splits.unpack(names):
        digest, size = sha256(path)
        rows.append({'file': path.removeprefix(f'{folder}/'), 'bytes': size, 'sha256': digest})
    return place, gzip.compress(''.join(json.dumps(row) + '\n' for row in rows).encode(), mtime=0)


def _write(folder: str, parts: list[tuple[tuple[int, int], bytes]]) -> None:
    """Concatenate the compressed parts, which gives a valid compressed file."""
    records.write_atomically(os.path.join(folder, LIST), b''.join(part for _, part in sorted(parts)))
