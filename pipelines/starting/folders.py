"""Recognise the layout of images in a folder or an archive: which folder holds the classes, and which are splits."""
import functools
import os
import posixpath
from typing import NamedTuple

from data_prep.core import archives
from data_prep.image import readers
from pipelines.starting.findings import SPLIT_NAMES, scratch

_SPLITS = {**SPLIT_NAMES, 'testing': 'test'}


class _Inside(NamedTuple):
    """Names of the folders in a folder, tars among them, and whether images lie beside them."""
    folders: list[str]
    images: bool


def splits(paths: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return what each split is read from, and sentences on what is left out.

    One path stands for the folder in it, if that is the only one and holds folders itself. Folders of it that are
    called as splits are splits if they hold folders, of a class each; then others beside them are left out.

    Raises:
      UserError: an archive is missing or damaged.
    """
    lists: dict[str, list[str]] = {'train': paths, 'validation': [], 'test': []}
    if len(paths) > 1:
        return lists, []
    root = _root(paths[0])
    names = _inside(root).folders
    found = {split: [name for name in names if _SPLITS.get(_plain(name).lower()) == split
                     and _inside(f'{root}/{name}').folders] for split in lists}
    if not found['train']:
        return lists | {'train': [root]}, []
    others = [name for name in names if not any(name in those for those in found.values())]
    return ({split: [f'{root}/{name}' for name in those] for split, those in found.items()},
            [f'Left out beside {found["train"][0]}, because they hold no class folders or are not a split: '
             f'{", ".join(others)}.'] if others else [])


def _root(path: str) -> str:
    """Return the folder in a folder, as long as it is the only one and holds folders itself."""
    path = path.rstrip('/') or path
    while True:
        folders, images = _inside(path)
        if len(folders) != 1 or images or not _inside(f'{path}/{folders[0]}').folders:
            return path
        path = f'{path}/{folders[0]}'


def _plain(name: str) -> str:
    return name.removesuffix('.tar')


def _inside(path: str) -> _Inside:
    archive, member = archives.split(path)
    if archives.is_archive(archive) and not os.path.isdir(archive):
        within = f'{member}/' if member else ''
        below = [name.removeprefix(within) for name in _names(archive) if name.startswith(within)]
        return _inside_of([name.split('/')[0] for name in below if '/' in name],
                          [name for name in below if '/' not in name])
    if not os.path.isdir(path):
        return _Inside([], False)
    folders, files = list[str](), list[str]()
    for entry in os.scandir(path):
        (folders if entry.is_dir() or entry.name.endswith('.tar') else files).append(entry.name)
    return _inside_of(folders, files)


def _inside_of(folders: list[str], files: list[str]) -> _Inside:
    # A tar beside the folder unpacked from it is not read too.
    kept = {name for name in folders if not name.startswith(('.', '__MACOSX')) and not (
        name.endswith('.tar') and _plain(name) in folders)}
    return _Inside(sorted(kept),
                   any(posixpath.splitext(name)[1].lower() in readers.PICTURES and not name.startswith('.')
                       for name in files))


@functools.lru_cache(maxsize=4)
def _names(archive: str) -> list[str]:
    """Return the names of an archive's files."""
    [source] = readers.sources('train', '', [archive])
    readers.look_for(source)
    return [found.name for found in readers.walk(source, scratch()) if not found.reason]
