"""The folder that photographs become: VITON-HD's layout, a list of pairs, and a row for each photograph."""
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf

from data_prep import UserError
from data_prep.core import files, records
from data_prep.people import pairs_files, person, sample_reader
from data_prep.photos.grading import Finding

KINDS = PERSON, GARMENT = 'person', 'garment'
PAIRS, ROWS, STEPS = 'test_pairs.txt', 'photos.json', 'steps'
# Where each of a sample's files is; `pairs_files.FOLDERS` has the keys.
PLACES = {'image': 'image/{}.jpg', 'cloth': 'cloth/{}.jpg', 'cloth_mask': 'cloth-mask/{}.png',
          'parse': 'image-parse/{}.png', 'keypoints': 'openpose-json/{}_keypoints.json'}
_NEEDED = {PERSON: {'image', 'parse', 'keypoints'}, GARMENT: {'cloth', 'cloth_mask'}}
_LONGEST = 100  # characters of a name


class Photo(NamedTuple):
    """A photograph, and the name of the picture that is made of it."""
    kind: str
    name: str
    path: str

    @property
    def stem(self) -> str:
        return self.name.removesuffix('.jpg')


@dataclasses.dataclass
class Row:
    """What was made of a photograph.

    Attributes:
      files: keys of `PLACES`.
      steps: title -> a small picture below the folder.
      findings: what looks wrong.
    """
    kind: str
    name: str
    path: str
    files: list[str]
    steps: dict[str, str]
    findings: list[Finding]

    @property
    def complete(self) -> bool:
        """Whether a try-on can be made of it, however it looks."""
        return _NEEDED[self.kind] <= {*self.files} and not any(finding.step == 'sample' for finding in self.findings)

    @property
    def wrong(self) -> bool:
        return not self.complete or any(finding.wrong for finding in self.findings)


def photos(kind: str, paths: Iterable[str]) -> list[Photo]:
    """Every photograph that paths name, files or folders, by name.

    Raises:
      UserError: a path does not exist, there is none, or two would have one name.
    """
    found: dict[str, Photo] = {}
    for given in paths:
        if not tf.io.gfile.exists(given):
            raise UserError(f'--{kind} {given}: not found. Give a photograph, or a folder of them.')
        for path in files.walk_folder(given) if tf.io.gfile.isdir(given) else [given]:
            if os.path.basename(path).startswith('.'):
                continue
            photo = Photo(kind, named(path), path)
            if photo.name in found:
                raise UserError(f'{found[photo.name].path} and {path}: both would be called {photo.name}. Rename one.')
            found[photo.name] = photo
    if not found:
        raise UserError(f'--{kind} {", ".join(paths)}: no photographs are there. Give a folder that has some.')
    return [photo for _, photo in sorted(found.items())]


def named(path: str) -> str:
    """What a photograph's picture is called: without blanks, which part the names in a pairs file."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return re.sub(r'[^\w.-]+', '_', stem)[:_LONGEST] + '.jpg'


def pairs(path: str, given: list[Photo]) -> list[tuple[str, str]]:
    """Names of person and garment: those that a file lists, or without one each person with each garment.

    Raises:
      UserError: the file does not exist, or names a photograph that is not given.
    """
    names = {kind: [photo.name for photo in given if photo.kind == kind] for kind in KINDS}
    if not path:
        return list(itertools.product(names[PERSON], names[GARMENT]))
    if not tf.io.gfile.exists(path):
        raise UserError(f'--pairs {path}: not found. Give a text of `person garment` a line.')
    found = []
    for pair in pairs_files.pairs(path):
        if pair.reason:
            raise UserError(f'--pairs {path}, line {pair.line}: {pair.reason}. Write `person garment`.')
        for kind, name in zip(KINDS, pair[1:3]):
            if named(name) not in names[kind]:
                raise UserError(f'--pairs {path}, line {pair.line}: {name} is none of the photographs that --{kind} '
                                'names. Correct the line, or add the photograph.')
        found.append((named(pair.person), named(pair.garment)))
    return found


def enough(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Pairs of complete photographs in which each is at least once, as few as that takes."""
    people, garments = ([row.name for row in rows if row.kind == kind and row.complete] for kind in KINDS)
    if not people or not garments:
        return []
    longer = max(len(people), len(garments))
    return list(itertools.islice(zip(itertools.cycle(people), itertools.cycle(garments)), longer))


def refusal(folder: str, pair: tuple[str, str], max_pixels: int) -> tuple[str, str, Finding] | None:
    """The photograph for which `pipelines.prepare` would refuse a pair, by kind and name, and why; None for none."""
    folders = {key: os.path.join(folder, os.path.dirname(place)) for key, place in PLACES.items()}
    try:
        sample_reader.sample(pairs_files.read(folders, *pair), person.PADDING, max_pixels)
    except pairs_files.Refused as refused:
        kind = GARMENT if os.path.basename(os.path.dirname(refused.path)).startswith('cloth') else PERSON
        return kind, pair[kind == GARMENT], Finding(
            'sample', True, f'{os.path.basename(refused.path)} is refused as try-on data: {refused}. Use another '
            'photograph.')
    return None


def write(folder: str, rows: list[Row], listed: list[tuple[str, str]]) -> None:
    """Writes the pairs of complete photographs, and the rows last of all."""
    complete = {(row.kind, row.name) for row in rows if row.complete}
    lines = [f'{one} {other}\n' for one, other in listed if {(PERSON, one), (GARMENT, other)} <= complete]
    records.write_atomically(os.path.join(folder, PAIRS), ''.join(lines).encode())
    order = sorted(rows, key=lambda row: (KINDS.index(row.kind), row.name))
    text = json.dumps([dataclasses.asdict(row) for row in order], ensure_ascii=False, indent=1)
    records.write_atomically(os.path.join(folder, ROWS), text.encode())


def read(folder: str) -> list[Row]:
    """The rows of a folder, people first, by name."""
    rows = json.loads(files.read(os.path.join(folder, ROWS), 0, -1))
    return [Row(**{**row, 'findings': [Finding(*finding) for finding in row['findings']]}) for row in rows]
