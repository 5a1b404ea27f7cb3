"""Recognise the layout of images in a folder or an archive: which folder holds the classes, and which are splits.

Where images lie in no class folders, a table beside them or above gives their classes (`labelled.py`).
"""
import functools
import os
import posixpath
import re
from typing import NamedTuple

from data_prep.core import archives
from data_prep.image import class_tables, listing, readers
from pipelines.starting.findings import SPLIT_NAMES, scratch

_SPLITS = {**SPLIT_NAMES, 'testing': 'test'}
_WORD = re.compile('[A-Z]?[a-z]+|[A-Z]+')
# Words in the names of folders that hold images of all classes.
_NO_CLASS = {'image', 'img', 'photo', 'picture', 'pic', 'jpg', 'jpeg', 'png', 'data', 'dataset', 'file', 'part',
             'batch', 'set', 'fold'}
_ASIDE = {'mask', 'annotation', 'label', 'segmentation', 'depth', 'trimap', 'edge', 'heatmap'}  # images beside images
_FEW = 10  # folders that are examined one by one; more are classes
_FEW_TABLES = 5  # in a folder; more are of an image each


class Inside(NamedTuple):
    """Names of the folders in a folder, tars among them, of the tables, and whether images lie beside them."""
    folders: list[str]
    tables: list[str]
    images: bool


def splits(paths: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return what each split is read from, and sentences on what is left out.

    One path stands for the folder in it, if that is the only one and holds folders itself. Folders of it that are
    called as splits are splits if they hold folders, of a class each; then others beside them are left out. Words that
    all names have do not count, as in `seg_train` and `seg_test`.

    Raises:
      UserError: an archive is missing or damaged.
    """
    lists: dict[str, list[str]] = {'train': paths, 'validation': [], 'test': []}
    if len(paths) > 1:
        return lists, []
    root = root_of(paths[0])
    names = inside(root).folders
    found = {split: [name for name in names if split_of(name) == split and is_split(name, names)
                     and inside(f'{root}/{name}').folders] for split in lists}
    if not found['train']:
        return lists | {'train': [root]}, []
    others = [name for name in names if not any(name in those for those in found.values())]
    return ({split: [root_of(f'{root}/{name}') for name in those] for split, those in found.items()},
            [f'Left out beside {found["train"][0]}, because they hold no class folders or are not a split: '
             f'{", ".join(others)}.'] if others else [])


def root_of(path: str) -> str:
    """Return the folder in a folder, as long as it is the only one with images and holds folders itself."""
    return _levels(path)[-1]


def tables(path: str) -> list[str]:
    """Return the tables in a folder, those down to the folder that holds the images' folders, and those in these."""
    levels = _levels(path)
    below = inside(levels[-1]).folders
    levels += [f'{levels[-1]}/{name}' for name in below] if len(below) <= _FEW else []
    return [f'{level}/{name}' for level in levels if len(found := inside(level).tables) <= _FEW_TABLES
            for name in found]


def with_pictures(path: str) -> list[str]:
    """Return the names of the folders in a folder that hold images, without masks and the like beside them.

    Of more than a few folders, all.
    """
    names = inside(path).folders
    if len(names) > _FEW:
        return names
    names = [name for name in names if _holds_pictures(f'{path}/{name}')]
    aside = [name for name in names if _ASIDE & set(map(_singular, words(name)))]
    others = [name for name in names if name not in aside]
    return others if any(split_of(name) or _is_general(name) for name in others) else names


def is_picture(path: str) -> bool:
    """Return whether a file is an image by its name, and not hidden."""
    return posixpath.splitext(path)[1].lower() in class_tables.PICTURES and not listing.is_hidden(path)


def may_be_classes(names: list[str]) -> bool:
    """Return whether two or more of these folders are called as classes may be, unlike `images_1` and `images_2`."""
    common = _common(names)
    many = 0
    for name in names:
        general = set(filter(_is_of_all_classes, words(name)))
        many += not general or bool(set(words(name)) - general - common)
    return many > 1


def split_of(name: str) -> str:
    """Return the split that a word of a folder's name means, or nothing."""
    return next((_SPLITS[word] for word in words(name) if word in _SPLITS), '')


def is_split(name: str, beside: list[str]) -> bool:
    """Return whether a folder's name means a split and, but for words all names have, nothing else: `train_images`."""
    rest = set(words(name)) - _common(beside)
    return any(word in _SPLITS for word in rest) and all(map(_is_of_all_classes, rest))


def words(name: str) -> list[str]:
    """Return the words of a name in lower case: of the folder `trainingSet_1`, `training` and `set`."""
    return [word.lower() for word in _WORD.findall(_plain(name))]


def _is_of_all_classes(word: str) -> bool:
    return word in _SPLITS or _singular(word) in _NO_CLASS


def _is_general(name: str) -> bool:
    return bool(words(name)) and all(_singular(word) in _NO_CLASS for word in words(name))


def _common(names: list[str]) -> set[str]:
    """Return the words that all of several names have, splits excepted."""
    return set.intersection(*map(set, map(words, names))) - _SPLITS.keys() if len(names) > 1 else set()


def _singular(word: str) -> str:
    return word.removesuffix('s')


def _levels(path: str) -> list[str]:
    levels = [path.rstrip('/') or path]
    while True:
        found = inside(levels[-1])
        names = found.folders
        if 1 < len(names) <= _FEW:  # such as images/ and annotations/
            names = with_pictures(levels[-1])
            names = names if all(map(_is_general, names)) else []
        if len(names) != 1 or found.images or not inside(f'{levels[-1]}/{names[0]}').folders:
            return levels
        levels.append(f'{levels[-1]}/{names[0]}')


@functools.cache
def _holds_pictures(path: str) -> bool:
    [source] = readers.sources('train', '', [path])
    return any(is_picture(found.name) for found in readers.walk(source, scratch()))


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
    kept = {name for name in below if not listing.is_hidden(name) and not (
        name.endswith('.tar') and _plain(name) in below)}
    seen = sorted(name for name in files if not name.startswith('.'))
    return Inside(sorted(kept), [name for name in seen if class_tables.is_table(name)],
                  any(map(is_picture, seen)))


@functools.lru_cache(maxsize=4)
def _names(archive: str) -> list[str]:
    """Return the names of an archive's files."""
    [source] = readers.sources('train', '', [archive])
    readers.look_for(source)
    return [found.name for found in readers.walk(source, scratch()) if not found.reason]
