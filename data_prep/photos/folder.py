"""Try-on folder made from photographs: VITON-HD's layout, a pairs file, and a JSON row per photograph."""
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
# Path of each file of a sample, by the keys of `pairs_files.FOLDERS`; {} is the photograph's stem.
PLACES = {'image': 'image/{}.jpg', 'cloth': 'cloth/{}.jpg', 'cloth_mask': 'cloth-mask/{}.png',
          'parse': 'image-parse/{}.png', 'keypoints': 'openpose-json/{}_keypoints.json'}
_NEEDED = {PERSON: {'image', 'parse', 'keypoints'}, GARMENT: {'cloth', 'cloth_mask'}}
_MAX_NAME_LENGTH = 100  # characters


class Photo(NamedTuple):
    """A photograph, and the file name of the image made from it."""
    kind: str
    name: str
    path: str

    @property
    def stem(self) -> str:
        return self.name.removesuffix('.jpg')


@dataclasses.dataclass
class Row:
    """The result for one photograph.

    Attributes:
      files: files made from it, as keys of `PLACES`.
      steps: title -> path of a small JPEG, relative to the folder.
      findings: problems found in it.
    """
    kind: str
    name: str
    path: str
    files: list[str]
    steps: dict[str, str]
    findings: list[Finding]

    @property
    def complete(self) -> bool:
        """Whether try-on can use it, however good the result."""
        return _NEEDED[self.kind] <= {*self.files} and not any(finding.step == 'sample' for finding in self.findings)

    @property
    def wrong(self) -> bool:
        return not self.complete or any(finding.wrong for finding in self.findings)


def photos(kind: str, paths: Iterable[str]) -> list[Photo]:
    """List the photographs in files and folders, sorted by name.

    Raises:
      UserError: a path does not exist, there are no photographs, or two would get the same name.
    """
    found: dict[str, Photo] = {}
    for given in paths:
        if not tf.io.gfile.exists(given):
            raise UserError(f'--{kind} {given}: not found. Give a photograph or a folder of them.')
        for path in files.walk_folder(given) if tf.io.gfile.isdir(given) else [given]:
            if os.path.basename(path).startswith('.'):
                continue
            photo = Photo(kind, image_name(path), path)
            if photo.name in found:
                raise UserError(f'{found[photo.name].path} and {path}: both would be named {photo.name}. Rename one.')
            found[photo.name] = photo
    if not found:
        raise UserError(f'--{kind} {", ".join(paths)}: no photographs found. Give a photograph or a folder of them.')
    return [photo for _, photo in sorted(found.items())]


def image_name(path: str) -> str:
    """Return the name of a photograph's image, without spaces, which separate the names in a pairs file."""
    stem = os.path.splitext(os.path.basename(path))[0]
    return re.sub(r'[^\w.-]+', '_', stem)[:_MAX_NAME_LENGTH] + '.jpg'


def pairs(path: str, given: list[Photo]) -> list[tuple[str, str]]:
    """Return pairs of names, person and garment: those listed in a file, or every combination if `path` is empty.

    Raises:
      UserError: the file does not exist, or names a photograph that is not in `given`.
    """
    names = {kind: [photo.name for photo in given if photo.kind == kind] for kind in KINDS}
    if not path:
        return list(itertools.product(names[PERSON], names[GARMENT]))
    if not tf.io.gfile.exists(path):
        raise UserError(f'--pairs {path}: not found. Give a text file with one `person garment` per line.')
    found = []
    for pair in pairs_files.pairs(path):
        if pair.reason:
            raise UserError(f'--pairs {path}, line {pair.line}: {pair.reason}. Write `person garment`.')
        for kind, name in zip(KINDS, pair[1:3]):
            if image_name(name) not in names[kind]:
                raise UserError(f'--pairs {path}, line {pair.line}: {name} is not among the photographs of '
                                f'--{kind}. Correct the line, or add the photograph.')
        found.append((image_name(pair.person), image_name(pair.garment)))
    return found


def covering_pairs(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return the fewest pairs that contain every complete photograph at least once."""
    people, garments = ([row.name for row in rows if row.kind == kind and row.complete] for kind in KINDS)
    if not people or not garments:
        return []
    longer = max(len(people), len(garments))
    return list(itertools.islice(zip(itertools.cycle(people), itertools.cycle(garments)), longer))


def refusal(folder: str, pair: tuple[str, str], max_pixels: int) -> tuple[str, str, Finding] | None:
    """Check a pair as `pipelines.prepare` does: kind and name of the refused photograph, with the reason, or None."""
    folders = {key: os.path.join(folder, os.path.dirname(place)) for key, place in PLACES.items()}
    try:
        sample_reader.sample(pairs_files.read(folders, *pair), person.PADDING, max_pixels)
    except pairs_files.Refused as refused:
        garments = [folders[key] for key in _NEEDED[GARMENT]]
        kind = GARMENT if os.path.dirname(refused.path) in garments else PERSON
        return kind, pair[kind == GARMENT], Finding(
            'sample', True, f'{os.path.basename(refused.path)} cannot be used for try-on: {refused}. Use another '
            'photograph.')
    return None


def write(folder: str, rows: list[Row], listed: list[tuple[str, str]]) -> None:
    """Write the listed pairs whose photographs are complete, then the rows: a folder with rows is finished."""
    complete = {(row.kind, row.name) for row in rows if row.complete}
    lines = [f'{one} {other}\n' for one, other in listed if {(PERSON, one), (GARMENT, other)} <= complete]
    records.write_atomically(os.path.join(folder, PAIRS), ''.join(lines).encode())
    order = sorted(rows, key=lambda row: (KINDS.index(row.kind), row.name))
    text = json.dumps([dataclasses.asdict(row) for row in order], ensure_ascii=False, indent=1)
    records.write_atomically(os.path.join(folder, ROWS), text.encode())


def read(folder: str) -> list[Row]:
    """Read the rows of a folder: people first, sorted by name."""
    rows = json.loads(files.read(os.path.join(folder, ROWS), 0, -1))
    return [Row(**{**row, 'findings': [Finding(*finding) for finding in row['findings']]}) for row in rows]
