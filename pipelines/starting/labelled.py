"""Find the table that gives the classes of images, and its columns, where no class folders do."""
import contextlib
import functools
import posixpath
import re
from typing import NamedTuple

from data_prep import UserError
from data_prep.core import text_files
from data_prep.image import class_tables, readers
from pipelines.starting import folders, tables
from pipelines.starting.findings import say, scratch

# Words in the names of folders that are no classes.
_NO_CLASS = {'image', 'img', 'photo', 'picture', 'pic', 'jpg', 'jpeg', 'png', 'data', 'dataset', 'file', 'part',
             'batch', 'set', 'fold'}
# Usual names of the column of classes, best first; names of classes are better than their numbers.
_CLASSES = ('label name', 'class name', 'label', 'class', 'category', 'target', 'y', 'species', 'breed', 'variety',
            'type', 'diagnosis', 'dx', 'tag', 'level')
_SUBMISSION = 'submission'  # in the name of Kaggle's example of answers, which are no classes
_MOST_COLUMNS = 100  # of a table that is not named; with more it is of pixels, or has a column per class
_TWO_COLUMNS = 'a table of two columns, image and class, such as labels.csv'


class _NotNamedError(UserError):
    """Raised when tables do not name the images."""


class Layout(NamedTuple):
    """Where images and their classes are.

    Attributes:
      lists: folders and archives of each split.
      labels: split -> the table of its classes, if a table gives them.
      columns: templates of its columns; empty for the first two.
      said: sentences on what was found, and on what is left out.
    """
    lists: dict[str, list[str]]
    labels: dict[str, str]
    columns: dict[str, str]
    said: list[str]


class _Table(NamedTuple):
    """A table, or JSON lines: its first row or names, and the rows after it."""
    path: str
    first: tuple[str, ...]
    rows: list[tuple[str, ...]]


class _Match(NamedTuple):
    """A table, the number of its column that names images, how many rows do, and whether the first row is names."""
    table: _Table
    column: int
    rows: int
    has_names: bool


def layout(paths: list[str]) -> Layout:
    """Return the layout of images in folders and archives, among which may be the tables of their classes.

    Class folders are used where there are any, unless a table is named.

    Raises:
      UserError: an archive or table is missing or damaged, or it is not clear which columns are meant.
    """
    named = [path for path in paths if class_tables.is_table(path)]
    places = [path for path in paths if path not in named]
    if not places:
        raise UserError(f'{named[0]} is a table. Name the folder of its images, too, as in: init images photos/ '
                        f'{named[0]}')
    if named:
        return _by_tables(places, [_read(path) for path in named])
    lists, said = folders.splits(places)
    below = [name for path in lists['train'] for name in folders.inside(path).folders]
    near = _readable(folders.tables(places[0])) if len(places) == 1 else []
    splits_only = all(map(folders.split_of, below))
    if near and sum(map(_may_be_a_class, below)) < 2:
        try:
            return _by_tables(places, near)
        except _NotNamedError:  # parts that are good or bad may be classes, and the table one of something else
            if splits_only or len(below) < 2:
                raise
    if near:
        say(f'{", ".join(table.path for table in near)}: not used, since folders give the classes. To use it, name it '
            'after the folder.')
    elif splits_only and len(set(map(folders.split_of, below))) > 1:
        raise UserError(f'{lists["train"][0]}: the folders {" and ".join(below)} hold no class folders, and no table '
                        'gives the classes. Put the images of each class into a folder of its own, or add '
                        f'{_TWO_COLUMNS}.')
    return Layout(lists, {}, {}, said)


def _may_be_a_class(folder: str) -> bool:
    return not folders.split_of(folder) and not _NO_CLASS & {word.removesuffix('s') for word in folders.words(folder)}


def _readable(paths: list[str]) -> list[_Table]:
    """Return the tables among files that may be others, such as a mapping in JSON, or Kaggle's example of answers."""
    found = []
    for path in paths:
        with contextlib.suppress(UserError):
            table = _read(path)
            if len(table.first) <= _MOST_COLUMNS and _SUBMISSION not in posixpath.basename(path).lower():
                found.append(table)
    return found


def _by_tables(places: list[str], read: list[_Table]) -> Layout:
    """Return the layout of images whose classes a table gives.

    Raises:
      UserError: none names the training images, or it is not clear which column is the class.
    """
    lists: dict[str, list[str]] = {'train': places, 'validation': [], 'test': []}
    if len(places) == 1:
        root = folders.root_of(places[0])
        found = dict[str, list[str]](train=[], validation=[], test=[])
        for name in folders.inside(root).folders:
            if (split := folders.split_of(name)) and _pictures((f'{root}/{name}',)):
                found[split].append(f'{root}/{name}')
        lists = found if found['train'] else lists | {'train': [root]}
    match = _best(lists['train'], read)
    path, names = match.table.path, match.table.first
    label = _class_column(match)
    columns = {part: f'{{{names[column]}}}' for part, column in zip(class_tables.PARTS, (match.column, label))
               if match.has_names}
    called = f', in {names[label]!r}' if columns else ''
    labels, said = {'train': path}, [f'{path} gives the classes{called}: {match.rows:,} of its '
                                     f'{len(match.table.rows):,} rows name one of the '
                                     f'{len(_pictures(tuple(lists["train"]))):,} images.']
    same = [table for table in read if not columns or {names[match.column], names[label]} <= set(table.first)]
    for split in ('validation', 'test'):
        if lists[split]:
            try:
                labels[split] = _best(lists[split], same).table.path
            except UserError:
                said.append(f'{", ".join(lists[split])}: not used, since no such table gives the classes of its '
                            f'images. A part of the training images is the {split} instead.')
                lists[split] = []
    return Layout(lists, labels, columns, said)


@functools.cache
def _read(path: str) -> _Table:
    source = text_files.Source('train', (path,), text_files.table_format(path))
    text_files.look_for([source])
    names, rows = tuple[str, ...](), list[tuple[str, ...]]()
    for block in text_files.scan(source, tables.plain(source), 1 << 16, False):
        names = block.names
        rows += [record.columns for record in text_files.cells(block) if not record.reason]
    return _Table(path, names, rows) if names or not rows else _Table(path, rows[0], rows[1:])


def _best(places: list[str], read: list[_Table]) -> _Match:
    """Return the table with most rows that name images of these places.

    Raises:
      _NotNamedError: neither half of its rows do, nor enough for half of the images.
    """
    names = _pictures(tuple(places))
    if not names:
        raise UserError(f'{", ".join(places)}: no image was found. Give the folder of the images.')
    known = {form for name in names for form in class_tables.forms(name)}
    matches = [_Match(table, column, sum(_names_image(row, column, known) for row in table.rows),
                      text_files.table_format(table.path) == 'jsonl' or not _names_image(table.first, column, known))
               for table in read for column in range(len(table.first))]
    best = max(matches, key=lambda match: match.rows, default=None)
    if best is None or 2 * best.rows < min(len(names), len(best.table.rows)) or not best.rows:
        raise _NotNamedError(f'{", ".join(table.path for table in read)}: no column names the images of '
                             f'{", ".join(places)}, such as {names[0]}. Give {_TWO_COLUMNS}.')
    return best


@functools.cache
def _pictures(places: tuple[str, ...]) -> list[str]:
    """Return the names of the images in folders and archives."""
    return [found.name for source in readers.sources('train', '', places) for found in readers.walk(source, scratch())
            if posixpath.splitext(found.name)[1].lower() in class_tables.PICTURES
            and not any(part.startswith(('.', '__MACOSX')) for part in found.name.split('/'))]


def _names_image(row: tuple[str, ...], column: int, known: set[str]) -> bool:
    return column < len(row) and any(form in known for form in class_tables.forms(posixpath.normpath(
        row[column].strip())))


def _class_column(match: _Match) -> int:
    """Return the column of classes: the only other one, the one called so, or the only one with few values.

    Raises:
      UserError: several may be.
    """
    path, names, rows = match.table
    others = [column for column in range(len(names)) if column != match.column]
    if not match.has_names and (match.column, others) != (0, [1]):
        raise UserError(f'{path}: its first row names no columns. Begin with such a row, as in image,label; or keep '
                        'two columns, image and class.')
    if len(others) == 1:
        return others[0]
    words = {_singular(re.sub(r'[ _-]+', ' ', names[column])): column for column in reversed(others)}
    words |= {word.split(' ')[-1]: column for word, column in words.items() if word.split(' ')[-1] not in words}
    if found := [words[_singular(word)] for word in _CLASSES if _singular(word) in words]:
        return found[0]
    values = {column: {row[column].strip() for row in rows if column < len(row)} for column in others}
    if all(each <= {'0', '1', '0.0', '1.0'} for each in values.values()):
        raise UserError(f'{path} has a column for each class. Give {_TWO_COLUMNS}.')
    few = [column for column in others if 1 < len(values[column]) <= len(rows) / 8]
    if len(few) != 1:
        raise UserError(f'{path}: which of {", ".join(names[column] for column in others)} is the class? Call it '
                        'label.')
    return few[0]


def _singular(word: str) -> str:
    return word.strip().lower().removesuffix('s')
