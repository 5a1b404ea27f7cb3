"""Find the tables that give the classes of images, and their columns, where no class folders do."""
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

# Usual names of the column of classes, best first; names of classes are better than their numbers.
_CLASSES = ('label name', 'class name', 'label', 'class', 'category', 'target', 'species', 'breed', 'variety',
            'diagnosis', 'dx', 'tag', 'level', 'type')
_WORD = re.compile('[A-Z]?[a-z]+|[A-Z]+')
_PREVIEW = 2_000  # rows from which columns are recognised
_MOST_COLUMNS = 100  # of a table that is not named; with more it is of pixels, or has a column per class
_SUBMISSION = 'submission'  # in the name of Kaggle's example of answers, which are no classes
_TWO_COLUMNS = 'a table of two columns, image and class, such as labels.csv'


class _NotNamedError(UserError):
    """Raised when no table names the images."""


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
    """The beginning of a table, or of JSON lines: its first row or names, and rows after it."""
    path: str
    first: tuple[str, ...]
    rows: list[tuple[str, ...]]
    split: str  # that its name or folder means, or nothing


class _Match(NamedTuple):
    """A table, the numbers of its columns of images and of classes, and whether its first row is names."""
    table: _Table
    image: int
    label: int
    has_names: bool


def layout(paths: list[str]) -> Layout:
    """Return the layout of images in folders and archives, among which may be the tables of their classes.

    Class folders are used where there are any, unless a table is named.

    Raises:
      UserError: an archive or table is missing or damaged, or it is not clear what gives the classes.
    """
    named = [path for path in paths if class_tables.is_table(path)]
    places = [path for path in paths if path not in named]
    if not places:
        raise UserError(f'{named[0]} is a table. Name the folder of its images, too, as in: init images photos/ '
                        f'{named[0]}')
    if named:
        return _by_tables(places, named, True)
    lists, said = folders.splits(places)
    if len(places) > 1:
        return Layout(lists, {}, {}, said)
    below = folders.with_pictures(lists['train'][0])
    near = [path for path in folders.tables(places[0]) if _SUBMISSION not in posixpath.basename(path).lower()]
    if folders.may_be_classes(below):
        if near:
            say(f'{", ".join(near[:3])}{", …" * (len(near) > 3)}: not used, since folders give the classes. To use a '
                'table, name it after the folder.')
    elif near:
        try:
            return _by_tables(places, near, False)
        except _NotNamedError:  # the table is of something else
            if len(below) < 2 or all(map(folders.split_of, below)):
                raise
    elif below and all(map(folders.split_of, below)):
        raise UserError(f'{lists["train"][0]}: {" and ".join(below)} hold no class folders, and no table gives the '
                        f'classes. Put the images of each class into a folder of its own, or add {_TWO_COLUMNS}.')
    return Layout(lists, {}, {}, said)


def _by_tables(places: list[str], paths: list[str], are_named: bool) -> Layout:
    """Return the layout of images whose classes tables give.

    Args:
      places: folders and archives, one of which may hold folders called as splits.
      paths: the tables.
      are_named: whether the user named them; otherwise, files that are no such tables are passed over.

    Raises:
      UserError: none names the training images, or it is not clear which column is the class.
    """
    own = _split_places(places)
    read = [table for path in paths if (table := _preview(path, own, are_named))]
    match = _best(read, own)
    train, first = match.table.path, match.table.first
    columns = dict(zip(class_tables.PARTS, (f'{{{first[n]}}}' for n in (match.image, match.label))))
    if not match.has_names or first == class_tables.ILSVRC:
        columns = {}
    named = _named(train, columns, own['train'])
    count, total = sum(map(len, named.values())), len(_pictures(tuple(own['train'])))
    found = Layout(
        {'train': [place for place in own['train'] if _names_any(train, columns, place)], 'validation': [], 'test': []},
        {'train': train}, columns, [f'{train} gives the classes{f", in {first[match.label]!r}" if columns else ""}, of '
                                    f'{count:,} of {total:,} images{"; the others are not used" * (count < total)}.'])
    for split in ('validation', 'test'):
        where = own[split] or own['train']
        for table in read:
            # Of a split without a folder, only a table of its own tells the images.
            if table.split == split or (own[split] and not table.split):
                with contextlib.suppress(UserError):  # it lacks the columns, or names no image
                    held = _named(table.path, columns, where)
                    # A table that names 1.jpg means the training's, not the test's of the same name.
                    if table.path != train or 2 * len(named.keys() & held.keys()) < len(held):
                        found.lists[split], found.labels[split] = where, table.path
        if own[split] and not found.lists[split]:
            found.said.append(f'{", ".join(own[split])}: not used, since no such table gives the classes of its '
                              f'images. A part of the training images is the {split} instead.')
    return found


def _split_places(places: list[str]) -> dict[str, list[str]]:
    """Return the folders of each split; all are for training where no folder is called so."""
    own = dict[str, list[str]](train=[], validation=[], test=[])
    if len(places) == 1:
        root = folders.root_of(places[0])
        for name in folders.with_pictures(root):
            if split := folders.split_of(name):
                own[split].append(f'{root}/{name}')
        places = [root]
    if not own['train']:
        return {'train': places, 'validation': [], 'test': []}
    exact = [path for path in own['train'] if folders.is_split(posixpath.basename(path))]  # not train_masks
    return own | {'train': exact or own['train']}


def _preview(path: str, own: dict[str, list[str]], is_named: bool) -> _Table | None:
    """Read the beginning of a table; None if it was found and is none of classes."""
    try:
        names, rows = tables.first_rows(_source(path), _PREVIEW)
    except UserError:
        if is_named:
            raise
        return None
    if len(names) > _MOST_COLUMNS and not is_named:
        return None
    inside = next((split for split, places in own.items() for place in places
                   if path.startswith(f'{place}/') and folders.split_of(posixpath.basename(place)) == split), '')
    return _Table(path, names, rows, inside or folders.split_of(posixpath.basename(path)))


def _source(path: str) -> text_files.Source:
    return text_files.Source('train', (path,), text_files.table_format(path))


def _best(read: list[_Table], own: dict[str, list[str]]) -> _Match:
    """Return the table, and its columns, that tells most about the training images.

    Raises:
      _NotNamedError: none names them.
      UserError: it is not clear which column is the class.
    """
    pictures = [name for places in own.values() for name in _pictures(tuple(places))]
    if not pictures:
        raise UserError(f'{", ".join(own["train"])}: no image was found. Give the folder of the images.')
    whole = {form for name in pictures for form in (name, posixpath.basename(name))}
    known = {form for name in pictures for form in class_tables.forms(name)}
    best: tuple[tuple, _Table, int, bool] | None = None
    for table in read:
        are_lines = text_files.table_format(table.path) == 'jsonl'
        for column, head in enumerate(table.first):
            has_names = are_lines or not _is_known(_cell(table.first, column), known)
            cells = {_cell(row, column) for row in ([] if has_names else [table.first]) + table.rows}
            named = sum(_is_known(cell, known) for cell in cells)
            # Of columns that name as many, the one with endings: an index may also name all.
            score = _called(table, column) is not None, named, len(cells & whole)
            if (table.split in ('', 'train') and 2 * named > min(len(cells), len(pictures)) and (head or not has_names)
                    and (best is None or score > best[0])):
                best = score, table, column, has_names
    if best is None:
        raise _NotNamedError(f'{", ".join(table.path for table in read) or "no table"}: no column names the images of '
                             f'{", ".join(own["train"])}, such as {pictures[0]}. Give {_TWO_COLUMNS}.')
    _, table, image, has_names = best
    return _Match(table, image, _class_column(table, image, has_names), has_names)


def _cell(row: tuple[str, ...], column: int) -> str:
    return posixpath.normpath(row[column].strip()) if column < len(row) else ''


def _is_known(cell: str, known: set[str]) -> bool:
    return any(form in known for form in class_tables.forms(cell))


@functools.cache
def _pictures(places: tuple[str, ...]) -> list[str]:
    """Return the names of the images in folders and archives."""
    return [found.name for source in readers.sources('train', '', places) for found in readers.walk(source, scratch())
            if folders.is_picture(found.name)]


def _named(path: str, columns: dict[str, str], places: list[str]) -> dict[str, list[str]]:
    """Return the names in a table's rows -> the images in these places that they name.

    Raises:
      UserError: the table lacks the columns, there are none, or many name two images.
    """
    rows = {form: name for name, _ in class_tables.rows(path, columns, scratch()) for form in class_tables.forms(name)}
    named: dict[str, list[str]] = {}
    for picture in _pictures(tuple(places)):
        row = next((rows[form] for form in class_tables.forms(picture) if form in rows), None)
        if row is not None:
            named.setdefault(row, []).append(picture)
    if twice := [pictures for pictures in named.values() if len(pictures) > 1]:
        if len(twice) > len(named) / 2:
            raise UserError(f'{path}: the same row names {twice[0][0]} and {twice[0][1]} of {", ".join(places)}. Give '
                            'the folder of one of them, and the table after it.')
    if not named:
        raise _NotNamedError(f'{path} names no image of {", ".join(places)}. Give {_TWO_COLUMNS}.')
    return named


def _names_any(path: str, columns: dict[str, str], place: str) -> bool:
    with contextlib.suppress(UserError):
        return bool(_named(path, columns, [place]))
    return False


def _called(table: _Table, image: int) -> int | None:
    """Return the column of classes by its name, if it is a usual one."""
    names = {column: ' '.join(_WORD.findall(name)).lower() for column, name in enumerate(table.first)
             if column != image}
    for ends in (lambda name, word: name == word, lambda name, word: name.endswith(f' {word}')):
        for word in _CLASSES:
            for column, name in names.items():
                if ends(name.removesuffix('s'), word.removesuffix('s')):
                    return column
    return None


def _class_column(table: _Table, image: int, has_names: bool) -> int:
    """Return the column of classes: the only other one, the one called so, or the only one with few values.

    Raises:
      UserError: several may be.
    """
    path, names, rows, _ = table
    others = [column for column, name in enumerate(names) if column != image and (name.strip() or not has_names)]
    if not has_names and (image, others) != (0, [1]):
        raise UserError(f'{path}: its first row names no columns. Begin with such a row, as in image,label; or keep '
                        'two columns, image and class.')
    if len(others) == 1:
        return others[0]
    if (called := _called(table, image)) is not None:
        return called
    values = {column: {_cell(row, column) for row in rows} for column in others}
    if all(each <= {'0', '1', '0.0', '1.0'} for each in values.values()):
        raise UserError(f'{path} has a column for each class. Give {_TWO_COLUMNS}.')
    few = [column for column in others if 1 < len(values[column]) <= len(rows) / 8]
    if len(few) != 1:
        raise UserError(f'{path}: which of {", ".join(names[column] for column in others)} is the class? Call it '
                        'label.')
    return few[0]
