"""Recognise a table of classes: which column names the images, and which is the class."""
import itertools
import posixpath
from typing import NamedTuple

from data_prep import UserError
from data_prep.core import text_files
from data_prep.image import class_tables
from pipelines.starting import folders, tables

# Usual names of the column of classes, best first, since names of classes are better than their numbers; last words of
# such names; words of columns that are not, unless called so; and words of columns of images.
_CLASSES = ('label name', 'class name', 'label', 'class', 'category', 'target', 'species', 'breed', 'variety',
            'diagnosis', 'dx', 'tag', 'level', 'type')
_ENDS = ('label', 'class', 'category', 'specie', 'breed')
_NO_CLASSES = {'fold', 'split', 'subset', 'index', 'url', 'link', 'width', 'height', 'size', 'path'}
_IMAGES = {'file', 'filename', 'filepath', 'image', 'img', 'path', 'picture', 'photo'}
_BLOCK, _PART, _CELLS = 2_000, 200, 5_000_000  # of a table of more cells, 200 of every 2,000 rows are looked at
_MOST_COLUMNS = 100  # of a table that is not named; with more it is of pixels, or has a column per class
TWO_COLUMNS = 'a table of two columns, image and class, such as labels.csv'


class Table(NamedTuple):
    """A table, or JSON lines: its first row or names, the rows after it, and the split its name or folder means."""
    path: str
    first: tuple[str, ...]
    rows: list[tuple[str, ...]]
    split: str


class Match(NamedTuple):
    """A table, the numbers of its columns of images and of classes, and whether its first row is names."""
    table: Table
    image: int
    label: int
    has_names: bool


def read(path: str, root: str, is_named: bool) -> Table | None:
    """Read a table, or a part of a large one.

    Args:
      root: the folder that holds the folders of images; those below it may be called as splits.
      is_named: whether the user named the table. If not, None is returned for one that is not of classes.

    Raises:
      UserError: a table that is named is missing or damaged.
    """
    source, names, rows = _source(path), tuple[str, ...](), list[tuple[str, ...]]()
    try:
        text_files.look_for([source])
        for block in text_files.scan(source, tables.plain(source), _BLOCK, False):
            names = block.names
            is_large = bool(rows) and len(rows) * len(rows[0]) > _CELLS
            part = itertools.islice(text_files.cells(block), _PART if is_large else _BLOCK)
            rows += [record.columns for record in part if not record.reason]
            if rows and len(rows[0]) > _MOST_COLUMNS and not is_named:
                return None
    except UserError:
        if is_named:
            raise
        return None
    if not names and rows:
        names, *rows = rows
    below = path.removeprefix(f'{root}/') if path.startswith(f'{root}/') else posixpath.basename(path)
    return Table(path, names, rows, next(filter(None, map(folders.split_of, below.split('/'))), ''))


def _source(path: str) -> text_files.Source:
    return text_files.Source('train', (path,), text_files.table_format(path))


def best(given: list[Table], pictures: list[str]) -> Match:
    """Return the table of training images, and its columns, that tells most about these images.

    Args:
      given: the tables.
      pictures: paths of images, also of other splits.

    Raises:
      UserError: none names them, or it is not clear which column is the class.
    """
    whole = {form for path in pictures for form in class_tables.forms(path) if folders.is_picture(form)}
    known = {form for path in pictures for form in class_tables.forms(path)}
    found: tuple[tuple, Table, int, bool] | None = None
    for table in (each for each in given if each.split in ('', 'train')):
        are_lines = text_files.table_format(table.path) == 'jsonl'
        for column, head in enumerate(table.first):
            has_names = are_lines or not _is_known(_cell(table.first, column), known)
            cells = {_cell(row, column) for row in ([] if has_names else [table.first]) + table.rows}
            named = sum(_is_known(cell, known) for cell in cells)
            # Of columns that name as many, the one with endings, or called so: an index may also name all.
            score = (_called(table, column) is not None, named, len(cells & whole),
                     bool(_IMAGES & set(folders.words(head))))
            if (2 * named > min(len(cells), len(pictures)) and (head or not has_names)
                    and (found is None or score > found[0])):
                found = score, table, column, has_names
    if found is None:
        raise UserError(f'{", ".join(table.path for table in given) or "no table"}: no column names images such as '
                        f'{pictures[0]}. Give {TWO_COLUMNS}.')
    _, table, image, has_names = found
    return Match(table, image, _class_column(table, image, has_names), has_names)


def _cell(row: tuple[str, ...], column: int) -> str:
    return posixpath.normpath(row[column].strip()) if column < len(row) else ''


def _is_known(cell: str, known: set[str]) -> bool:
    return any(form in known for form in class_tables.forms(cell))


def _called(table: Table, image: int) -> int | None:
    """Return the column of classes by its name, if it is a usual one, or ends as a very usual one."""
    names = {column: ' '.join(folders.words(name)).removesuffix('s') for column, name in enumerate(table.first)
             if column != image}
    found = [column for word in _CLASSES for column, name in names.items() if name == word.removesuffix('s')]
    found += [column for word in _ENDS for column, name in names.items() if name.endswith(f' {word}')]
    return found[0] if found else None


def _class_column(table: Table, image: int, has_names: bool) -> int:
    """Return the column of classes: the only other one, the one called so, or the only one with few values.

    Raises:
      UserError: several may be.
    """
    path, names, rows, _ = table
    others = [column for column, name in enumerate(names) if column != image and (name.strip() or not has_names)]
    if not has_names and (image, others) != (0, [1]):
        raise UserError(f'{path}: its first row names no columns. Begin with such a row, as in image,label; or keep '
                        'two columns, image and class.')
    called = _called(table, image)
    if called is not None or (len(others) == 1 and not _NO_CLASSES & set(folders.words(names[others[0]]))):
        column = others[0] if called is None else called
        if sum(_cell(row, column).startswith(('[', '{')) for row in rows) > len(rows) / 2:
            raise UserError(f'{path}: {names[column]!r} holds lists, but an image has one class. Give {TWO_COLUMNS}.')
        return column
    values = {column: {_cell(row, column) for row in rows} for column in others}
    if all(each <= {'0', '1', '0.0', '1.0'} for each in values.values()):
        raise UserError(f'{path} has a column for each class. Give {TWO_COLUMNS}.')
    few = [column for column in others if 1 < len(values[column]) <= len(rows) / 8
           and not _NO_CLASSES & set(folders.words(names[column]))]
    if len(few) != 1:
        raise UserError(f'{path}: which of {", ".join(names[column] for column in others)} is the class? Call it '
                        'label.')
    return few[0]
