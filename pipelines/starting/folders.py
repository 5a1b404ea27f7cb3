"""Recognise the layout of images in a folder or an archive: which folder holds the classes, and which are splits.

Where images lie in no class folders, a table beside them or above gives their classes (`labelled.py`).
"""
import functools
import os
import posixpath
import re
from typing import NamedTuple

from data_prep.core import archives
from data_prep.image import class_tables, readers
from pipelines.starting.findings import SPLIT_NAMES, scratch

_SPLITS = {**SPLIT_NAMES, 'testing': 'test'}
_WORD = re.compile('[A-Z]?[a-z]+|[A-Z]+')
_FEW = 10  # folders in which tables are looked for; more are classes


class Inside(NamedTuple):
    """Names of the folders in a folder, tars among them, of the tables, and whether images lie beside them."""
    folders: list[str]
    tables: list[str]
    images: bool


def splits(paths: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return what each split is read from, and sentences on what is left out.

    One path stands for the folder in it, if that is the only one and holds folders itself. Folders of it with a split's
    name in theirs, such as `seg_train`, are splits if they hold folders, of a class each; then others beside them are
    left out.

    Raises:
      UserError: an archive is missing or damaged.
    """
    lists: dict[str, list[str]] = {'train': paths, 'validation': [], 'test': []}
    if len(paths) > 1:
        return lists, []
    root = root_of(paths[0])
    names = inside(root).folders
    found = {split: [name for name in names if split_of(name) == split and inside(f'{root}/{name}').folders]
             for split in lists}
    if not found['train']:
        return lists | {'train': [root]}, []
    others = [name for name in names if not any(name in those for those in found.values())]
    return ({split: [root_of(f'{root}/{name}') for name in those] for split, those in found.items()},
            [f'Left out beside {found["train"][0]}, because they hold no class folders or are not a split: '
             f'{", ".join(others)}.'] if others else [])


def root_of(path: str) -> str:
    """Return the folder in a folder, as long as it is the only one and holds folders itself."""
    return _levels(path)[-1]


def tables(path: str) -> list[str]:
    """Return the tables in a folder, those down to the folder that holds the images' folders, and those in these."""
    levels = _levels(path)
    below = inside(levels[-1]).folders
    levels += [f'{levels[-1]}/{name}' for name in below] if len(below) <= _FEW else []
    return [f'{level}/{name}' for level in levels for name in inside(level).tables]


def split_of(name: str) -> str:
    """Return the split that a word of a folder's name means, or nothing."""
    return next((_SPLITS[word] for word in words(name) if word in _SPLITS), '')


def words(name: str) -> list[str]:
    """Return the words of a folder's name in lower case: of `trainingSet_1`, `training` and `set`."""
    return [word.lower() for word in _WORD.findall(_plain(name))]


def _levels(path: str) -> list[str]:
    levels = [path.rstrip('/') or path]
    while True:
        found = inside(levels[-1])
        if len(found.folders) != 1 or found.images or not inside(f'{levels[-1]}/{found.folders[0]}').folders:
            return levels
        levels.append(f'{levels[-1]}/{found.folders[0]}')


def _plain(name: str) -> str:
    return name.removesuffix('.tar')


def inside(path: str) -> Inside:
    """List a folder, or one in an archive; what does not exist is empty."""
    archive, member = archives.split(path)
    if archives.is_archive(archive) and not os.path.isdir(archive):
        within = f'{member}/' if member else ''
        below = [name.removeprefix(within) for name in _names(archive) if name.startswith(within)]
        return _inside_of([name.split('/')[0] for name in below if '/' in name],
                          [name for name in below if '/' not in name])
    if not os.path.isdir(path):
        return Inside([], [], False)
    below, files = list[str](), list[str]()
    for entry in os.scandir(path):
        (below if entry.is_dir() or entry.name.endswith('.tar') else files).append(entry.name)
    return _inside_of(below, files)


def _inside_of(below: list[str], files: list[str]) -> Inside:
    # A tar beside the folder unpacked from it is not read too.
    kept = {name for name in below if not name.startswith(('.', '__MACOSX')) and not (
        name.endswith('.tar') and _plain(name) in below)}
    seen = sorted(name for name in files if not name.startswith('.'))
    return Inside(sorted(kept), [name for name in seen if class_tables.is_table(name)],
                  any(posixpath.splitext(name)[1].lower() in class_tables.PICTURES for name in seen))


@functools.lru_cache(maxsize=4)
def _names(archive: str) -> list[str]:
    """Return the names of an archive's files."""
    [source] = readers.sources('train', '', [archive])
    readers.look_for(source)
    return [found.name for found in readers.walk(source, scratch()) if not found.reason]
