"""Classes of images that a table gives: a CSV or TSV file, or JSON lines, with a column of files and one of classes.

Such are the metadata.csv and metadata.jsonl of Hugging Face's image folders, and Kaggle's train.csv.
"""
import posixpath
from collections.abc import Iterable, Mapping

from data_prep import UserError
from data_prep.core import text_files

PICTURES = ('.jpeg', '.jpg', '.jpe', '.jfif', '.png', '.gif', '.bmp', '.tif', '.tiff', '.webp', '.heic', '.avif')
PARTS = ('image', 'class')
ILSVRC = ('ImageId', 'PredictionString')  # header of Kaggle's LOC_val_solution.csv: a class, then boxes
_MOST_DAMAGED = 0.01
_DEEPEST = 4  # folders, and the name, that a row may have in common with an image


def is_table(path: str) -> bool:
    """Return whether a file is a table by its name."""
    return bool(text_files.table_format(path))


def read(path: str, columns: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Return image names -> classes, as `find` takes them.

    Args:
      path: may be gzipped or in an archive.
      columns: templates of `PARTS`, such as '{id}.png'; if empty, those are the first two columns.
      scratch: an existing folder for an unpacked copy.

    Raises:
      UserError: the table is missing or damaged, or lacks a column.
    """
    return by_name(rows(path, columns, scratch))


def rows(path: str, columns: Mapping[str, str], scratch: str) -> list[tuple[str, str]]:
    """Return the images' names and their classes of the rows that have both; see `read` for arguments and errors."""
    source = text_files.Source('train', (path,), text_files.table_format(path))
    text_files.look_for([source])
    templates = dict(zip(text_files.PARTS, (columns[part] for part in PARTS))) if columns else {}
    blocks = text_files.scan(source, text_files.unpack(source, scratch), 1 << 16, bool(columns), templates)
    records = [record for block in blocks for record in text_files.read(block, templates)]
    # Two quotes that stand alone swallow the rows between them.
    joined = [record for record in records if '\n' in ''.join(record.columns[:2]).strip()
              or (record.reason and 'quote' in record.reason)]
    if joined:
        raise UserError(f'{path}, record {joined[0].line:,} goes on over several lines. Remove or double the quote in '
                        'it.')
    bad = [record for record in records if record.reason]
    if len(bad) > _MOST_DAMAGED * len(records):
        raise UserError(f'{path}: {len(bad):,} of {len(records):,} rows cannot be read, the first in line '
                        f'{bad[0].line:,}: {bad[0].reason}. Every row needs an image and its class.')
    cells = [record.columns for record in records if not record.reason]
    is_ilsvrc = bool(cells) and cells[0][:2] == ILSVRC
    pairs = ((posixpath.normpath(cell[0].strip()), cell[1].strip()) for cell in cells)
    return [(name, label.split(' ')[0] if is_ilsvrc else label) for name, label in pairs if label]


def by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the names of images -> their classes, from pairs of both; of a name with two classes, an empty text.

    Names are as they stand and, where that is not another row's, their other `forms`.
    """
    found: dict[str, str] = {}
    for name, label in pairs:
        found[name] = label if found.get(name, label) == label else ''
    shorter: dict[str, str] = {}
    for name, label in found.items():
        for other in set(forms(name)) - {name}:
            shorter[other] = label if shorter.get(other, label) == label else ''
    return shorter | found


def find(classes: Mapping[str, str], path: str) -> str | None:
    """Return the class of an image by its path, or None if it is not named."""
    return next((classes[form] for form in forms(path) if form in classes), None)


def forms(name: str) -> list[str]:
    """Return a path and its ends, longest first, and these without an image's ending: of a/1.png also 1.png, a/1 and 1.

    A row names an image if they have one in common, the longest that rows have.
    """
    parts = name.split('/')
    ends = ['/'.join(parts[start:]) for start in range(len(parts)) if not 0 < start < len(parts) - _DEEPEST]
    ending = posixpath.splitext(name)[1]
    return ends + [end[:-len(ending)] for end in ends] if ending.lower() in PICTURES else ends
