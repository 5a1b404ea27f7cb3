"""Locate a try-on sample's files: pairs files, and the folders of people and garments.

Nothing here needs Beam; paths are anything TensorFlow opens.
"""
import os
import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

import tensorflow as tf

from data_prep import UserError
from data_prep.core import files

# Accepted names of each folder; the first that exists is read.
FOLDERS = {'image': ('image',), 'cloth': ('cloth',), 'cloth_mask': ('cloth-mask', 'cloth_mask'),
           'parse': ('image-parse-v3', 'image-parse-new', 'image-parse'),
           'keypoints': ('openpose-json', 'openpose_json', 'pose'), 'pose': ('openpose-img', 'openpose_img')}
_OPTIONAL = ('pose',)
_PICTURES = ('.jpg', '.png', '.jpeg')
_LONGEST_NAME = 200  # characters; file systems end at 255 bytes, and endings are to be added


class Refused(Exception):
    """Raised when a file makes a sample unusable; its message is the reason in the dead letters."""

    def __init__(self, path: str, reason: str):
        super().__init__(reason)
        self.path, self.reason = path, reason


class File(NamedTuple):
    """A file's path and content."""
    path: str
    content: bytes


class Pair(NamedTuple):
    """A line of a pairs file: a person, a garment and an optional group, or why it cannot be used."""
    line: int
    person: str
    garment: str
    reason: str = ''
    group: str = ''


def root(pairs: str) -> str:
    """Return the folder that holds the folders of a pairs file.

    For `train_pairs.txt` it is `train` beside it, if there is such a folder, otherwise the file's own.
    """
    own, name = os.path.split(pairs)
    beside = os.path.join(own, re.split(r'[_.]', name)[0])
    return beside if tf.io.gfile.isdir(beside) else own


def folders(root: str) -> dict[str, str]:
    """Find the folders: key of `FOLDERS` -> folder; pose images may be missing.

    Raises:
      UserError: another folder is missing.
    """
    found = {}
    for key, names in FOLDERS.items():
        there = [path for path in (os.path.join(root, name) for name in names) if tf.io.gfile.isdir(path)]
        if there:
            found[key] = there[0]
        elif key not in _OPTIONAL:
            raise UserError(f'{root or "."} has no folder {" or ".join(names)}; put the pairs file beside its folders, '
                            'or NAME_pairs.txt beside the folder NAME that holds them.')
    return found


def pairs(path: str) -> Iterator[Pair]:
    """Yield the lines of a pairs file, `person.jpg garment.jpg [group]`, except empty ones.

    Raises:
      UserError: it is not text.
    """
    with files.open_file(path) as file:
        for number, line in enumerate(file, 1):
            try:
                names = line.decode('utf-8-sig').split()
            except UnicodeDecodeError as error:
                raise UserError(f'{path}, line {number}, is not UTF-8 text; save the file as UTF-8.') from error
            if len(names) in (2, 3):
                person, garment, group = (*names, '')[:3]
                yield Pair(number, person, garment, next(filter(None, map(_refusal, names)), ''), group)
            elif names:
                yield Pair(number, '', '', f'{len(names)} names, and not two, a person\'s and a garment\'s, with or '
                                           'without a group\'s')


def _refusal(name: str) -> str:
    path = posixpath.normpath(name)
    if not name.isprintable() or len(name) > _LONGEST_NAME:
        return 'no file has such a name'
    return f'{name} leads out of its folder' if path.startswith(('/', '..')) or '://' in name else ''


def worn(person: str) -> list[str]:
    """Return the stems of the worn garment: the person's own (VITON-HD), or `<name>_1` of `<name>_0` (VITON)."""
    stem = posixpath.splitext(person)[0]
    return [stem, f'{stem[:-2]}_1'] if stem.endswith('_0') else [stem]


def is_worn(person: str, garment: str) -> bool:
    """Return whether a person wears this garment; so does who is listed without one."""
    return not garment or posixpath.splitext(garment)[0] in worn(person)


def garment_of(folders: dict[str, str], person: str) -> str:
    """Return the name of the garment a person wears, with its file's suffix if there is one."""
    ending = posixpath.splitext(person)[1]
    names = [f'{stem}{end}' for stem in reversed(worn(person)) for end in dict.fromkeys([ending, *_PICTURES])]
    there = (name for name in names if tf.io.gfile.exists(os.path.join(folders['cloth'], name)))
    return next(there, names[0])


def read(folders: dict[str, str], person: str, garment: str) -> dict[str, File]:
    """Read a sample's files, by the keys of `FOLDERS`; the pose map is optional.

    Raises:
      Refused: another file is missing, or one cannot be read.
    """
    person_stem, garment_stem = (posixpath.splitext(name)[0] for name in (person, garment))
    names = {'image': [person], 'cloth': [garment],
             'cloth_mask': [garment, *(f'{garment_stem}{ending}' for ending in _PICTURES)],
             'parse': [f'{person_stem}.png'], 'keypoints': [f'{person_stem}_keypoints.json'],
             'pose': [f'{person_stem}{ending}' for ending in ('_rendered.png', '_rendered.jpg', '.png', '.jpg')]}
    found = {}
    for key, folder in folders.items():
        paths = [os.path.join(folder, name) for name in names[key]]
        file = next(filter(None, map(_content, paths)), None)
        if file:
            found[key] = file
        elif key not in _OPTIONAL:
            raise Refused(paths[0], 'there is no such file')
    return found


def _content(path: str) -> File | None:
    try:
        return File(path, files.read(path, 0, -1))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, tf.errors.NotFoundError):
        return None
    except OSError as error:
        raise Refused(path, f'it cannot be read ({error.strerror})') from error
