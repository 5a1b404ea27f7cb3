"""Classes of images that a table gives: a CSV or TSV file, or JSON lines, with a column of files and one of classes.

Such are the metadata.csv and metadata.jsonl of Hugging Face's image folders, and Kaggle's train.csv.
"""
import posixpath
from collections.abc import Iterable, Mapping

PICTURES = ('.jpeg', '.jpg', '.jpe', '.jfif', '.png', '.gif', '.bmp', '.tif', '.tiff', '.webp', '.heic', '.avif')
PARTS = ('image', 'class')
_ILSVRC = ('ImageId', 'PredictionString')  # header of Kaggle's LOC_val_solution.csv: a class, then boxes


def is_table(path: str) -> bool:
    """Return whether a file is a table by its name."""
    from data_prep.core import text_files  # imports Beam, 2 seconds
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
    from data_prep.core import text_files
    source = text_files.Source('train', (path,), text_files.table_format(path))
    text_files.look_for([source])
    templates = dict(zip(text_files.PARTS, (columns[part] for part in PARTS))) if columns else {}
    blocks = text_files.scan(source, text_files.unpack(source, scratch), 1 << 16, bool(columns), templates)
    rows = [record.columns for block in blocks for record in text_files.read(block, templates) if not record.reason]
    if rows and rows[0] == _ILSVRC:
        return by_name((name, said.split(' ')[0]) for name, said in rows)
    return by_name((name, label) for name, label, *_ in rows)


def by_name(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the names of images -> their classes, from pairs of both; of a name with two classes, an empty text.

    Names are as they stand and, where that is not another row's, without folders, without ending, and without both.
    """
    found: dict[str, str] = {}
    for name, label in rows:
        name, label = posixpath.normpath(name.strip()), label.strip()
        found[name] = label if found.get(name, label) == label else ''
    shorter: dict[str, str] = {}
    for name, label in found.items():
        for other in set(forms(name)) - {name}:
            shorter[other] = label if shorter.get(other, label) == label else ''
    return shorter | found


def find(classes: Mapping[str, str], name: str) -> str | None:
    """Return the class of an image by its path, or None if it is not named."""
    return next((classes[form] for form in forms(name) if form in classes), None)


def forms(name: str) -> list[str]:
    """Return a name as it is, without folders, without an image's ending, and without both."""
    stem, ending = posixpath.splitext(name)
    short = stem if ending.lower() in PICTURES else name
    return [name, posixpath.basename(name), short, posixpath.basename(short)]
