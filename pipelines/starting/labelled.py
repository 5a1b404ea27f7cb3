"""Find where images and their classes are: in class folders, or in folders that a table beside them tells of."""
import contextlib
import functools
import posixpath
from typing import NamedTuple

from data_prep import UserError
from data_prep.image import class_tables, readers
from pipelines.starting import class_columns, folders
from pipelines.starting.findings import say, scratch

_MOST_OF_TWO_CLASSES, _MOST_NAMED_TWICE = 0.1, 0.02  # shares of a table's images
_SUBMISSION = 'submission'  # in the name of Kaggle's example of answers, which are no classes


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
    [root, *_] = lists['train']
    below = folders.with_pictures(root)
    near = [path for path in folders.tables(places[0]) if _SUBMISSION not in posixpath.basename(path).lower()]
    if folders.may_be_classes(below):
        if near:
            say(f'{", ".join(near[:3])}{", …" * (len(near) > 3)}: not used, since folders give the classes. To use a '
                'table, name it after the folder.')
    elif near:
        return _by_tables(places, near, False)
    elif below and (len(below) == 1 < len(folders.inside(root).folders) or all(map(folders.split_of, below))):
        raise UserError(f'{root}: {" and ".join(below)} hold{"s" * (len(below) == 1)} no class folders, and no table '
                        'gives the classes. Put the images of each class into a folder of its own, or add '
                        f'{class_columns.TWO_COLUMNS}.')
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
    root = folders.root_of(places[0]) if len(places) == 1 else ''
    read = [table for path in paths if (table := class_columns.read(path, root, are_named))]
    if are_named and len(paths) == 1:
        read = [read[0]._replace(split='')]
    pictures = [path for where in own.values() for path in _pictures(tuple(where))]
    if not pictures:
        raise UserError(f'{", ".join(places)}: no image was found. Give the folder of the images.')
    match = class_columns.best(read, pictures)
    train, first = match.table.path, match.table.first
    columns = dict(zip(class_tables.PARTS, (f'{{{first[n]}}}' for n in (match.image, match.label))))
    if not match.has_names or first == class_tables.ILSVRC:
        columns = {}
    named = _named(train, columns, own['train'])
    _refuse_rows_of_objects(train, columns)
    count, total = sum(map(len, named.values())), len(_pictures(tuple(own['train'])))
    labels = {'train': train}
    said = [f'{train} gives the classes{f", in {first[match.label]!r}" if columns else ""}, of {count:,} of {total:,} '
            f'images{"; the others are not used" * (count < total)}.']
    for split in ('validation', 'test'):
        if path := _table_of(split, own, read, columns, named):
            labels[split] = path
        elif own[split]:
            said.append(f'{", ".join(own[split])}: not used, since no such table gives the classes of its images. A '
                        f'part of the training images is the {split} instead.')
    lists = {split: [place for place in own[split] or own['train'] if split in labels
                     and _named_or_none(labels[split], columns, [place])] for split in own}
    return Layout(lists, labels, columns, said)


def _table_of(split: str, own: dict[str, list[str]], read: list[class_columns.Table], columns: dict[str, str],
              trained: dict[str, list[str]]) -> str:
    """Return the table that names most images of a split, one called as it first, or nothing.

    Args:
      split: validation or test.
      own: folders of each split; without one, only a table called as it tells the split's images from the others.
      read: all tables.
      columns: those a table must have.
      trained: names of rows that mean training images.
    """
    found = dict[str, tuple[bool, int]]()
    for table in read:
        if table.split == split or (own[split] and not table.split):
            rows = _named_or_none(table.path, columns, own[split] or own['train']) or {}
            # If a table of no split names 1.jpg, it means the training's.
            if rows and (table.split or 2 * len(trained.keys() & rows.keys()) < len(rows)):
                found[table.path] = bool(table.split), len(rows)
    return max(found, key=lambda path: found[path], default='')


def _split_places(places: list[str]) -> dict[str, list[str]]:
    """Return the folders of each split; all are for training where no folder is called so."""
    own = dict[str, list[str]](train=[], validation=[], test=[])
    if len(places) == 1:
        root = folders.root_of(places[0])
        names = folders.with_pictures(root)
        for name in names:
            if split := folders.split_of(name):
                own[split].append(f'{root}/{name}')
        aside = len(names) < len(folders.inside(root).folders) and not folders.inside(root).images
        places = [f'{root}/{name}' for name in names] if aside and names else [root]
    return own if own['train'] else {'train': places, 'validation': [], 'test': []}


@functools.cache
def _pictures(places: tuple[str, ...]) -> list[str]:
    """Return the paths of the images in folders and archives."""
    return [f'{place}/{found.name}' for place in places for source in readers.sources('train', '', [place])
            for found in readers.walk(source, scratch()) if folders.is_picture(found.name)]


@functools.cache
def _by_form(path: str, *columns: tuple[str, str]) -> dict[str, str]:
    """Return the forms of the names in a table's rows -> the names."""
    return {form: name for name, _ in _rows(path, *columns) for form in class_tables.forms(name)}


@functools.cache
def _rows(path: str, *columns: tuple[str, str]) -> list[tuple[str, str]]:
    return class_tables.rows(path, dict(columns), scratch())


def _named(path: str, columns: dict[str, str], places: list[str]) -> dict[str, list[str]]:
    """Return the names in a table's rows -> the images in these places that they name.

    Raises:
      UserError: the table lacks the columns, there are none, or many name two images.
    """
    rows = _by_form(path, *columns.items())
    named: dict[str, list[str]] = {}
    for picture in _pictures(tuple(places)):
        row = next((rows[form] for form in class_tables.forms(picture) if form in rows), None)
        if row is not None:
            named.setdefault(row, []).append(picture)
    twice = [pictures for pictures in named.values() if len(set(map(posixpath.dirname, pictures))) > 1]
    if len(twice) > _MOST_NAMED_TWICE * len(named):
        raise UserError(f'{path}: the same row names {twice[0][0]} and {twice[0][1]}. Give the folder of one of them, '
                        'and the table after it.')
    if not named:
        raise UserError(f'{path} names no image of {", ".join(places)}. Give {class_columns.TWO_COLUMNS}.')
    return named


def _named_or_none(path: str, columns: dict[str, str], places: list[str]) -> dict[str, list[str]] | None:
    """Return the same, or None if the table lacks the columns or names no image."""
    with contextlib.suppress(UserError):
        return _named(path, columns, places)
    return None


def _refuse_rows_of_objects(path: str, columns: dict[str, str]) -> None:
    """Refuse a table in which many images have several classes, a row for each of their boxes."""
    classes = dict[str, set[str]]()
    for name, label in _rows(path, *columns.items()):
        classes.setdefault(name, set()).add(label)
    several = [name for name, labels in classes.items() if len(labels) > 1]
    if len(several) > _MOST_OF_TWO_CLASSES * len(classes):
        raise UserError(f'{path}: {len(several):,} of {len(classes):,} images, such as {several[0]}, have rows of '
                        'different classes. Keep one row for each image.')
