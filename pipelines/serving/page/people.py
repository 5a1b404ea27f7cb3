"""Try-on page: people and garments to choose from, the visitor's own files, and the generated images."""
import base64
import binascii
import functools
import glob
import os
import tempfile

import numpy as np
import tensorflow as tf

from data_prep import tryon
from data_prep.core import records
from data_prep.people import pairs_files, sample_people
from pipelines.core import metadata
from pipelines.serving import guard, saved_model
from pipelines.serving.failure import Failure, invalid
from pipelines.serving.models import Model, Version

FILES = ('image', 'parse', 'pose_json', 'pose_image', 'cloth', 'cloth_mask')
PERSON = ('image', 'parse', 'pose_json', 'pose_image')
MADE, TESTED = 8, 16  # generated people, and people of the test set, to choose from
MIN_HEIGHT = 128  # of images made from a photograph
NO_PARSER = 'This server was started without --parser, so it does not accept photographs.'
_NAMES = {'image': 'image', 'parse': 'parse', 'keypoints': 'pose_json', 'pose': 'pose_image', 'cloth': 'cloth',
          'cloth_mask': 'cloth_mask'}  # name in `tryon_files` -> the model's input


def examples(version: Version) -> list:
    return []  # the page requests people and garments itself


class Wardrobe:
    """People and garments by model; generated ones come first, so that no photograph is shown by default.

    Args:
      folder: a further folder in VITON-HD's layout, or ''.
    """

    def __init__(self, folder: str):
        self._folder = folder
        self._found: dict[tuple[str, int], list[dict]] = {}

    def samples(self, model: Model, version: Version) -> list[dict]:
        """Return all samples of a version: their origin, `from`, and the six files by name."""
        key = model.name, version.number
        if key not in self._found:
            self._found = {each: found for each, found in self._found.items() if each[0] != model.name}
            self._found[key] = [*_made(tuple(_size(version))), *_tested(model), *_own(self._folder)]
        return self._found[key]

    def picture(self, model: Model, version: Version, kind: str, number: int) -> bytes | None:
        """Return the image of a person or a garment."""
        samples = self.samples(model, version)
        if kind not in ('person', 'garment') or number >= len(samples):
            return None
        return samples[number]['image' if kind == 'person' else 'cloth']


def _size(version: Version) -> list[int]:
    return list(version.description['config']['input'].get('size') or [256, 192])


@functools.lru_cache(4)
def _made(size: tuple[int, int]) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        *_, pairs = sample_people.write_people(folder, 0, MADE, size, seed=7)
        return _of_pairs(pairs, 'made')


def _of_pairs(pairs: str, origin: str) -> list[dict]:
    folders = pairs_files.folders(pairs_files.root(pairs))
    found: list[dict] = []
    for pair in pairs_files.pairs(pairs):
        if not pair.reason and len(found) < TESTED:
            try:
                files = pairs_files.read(folders, pair.person, pair.garment)
            except pairs_files.Refused:
                continue
            found.append({'from': origin, **dict.fromkeys(FILES, b''),
                          **{_NAMES[key]: file.content for key, file in files.items()}})
    return found


def _tested(model: Model) -> list[dict]:
    """Return the first people of the pipeline's test set, if it still exists."""
    root = metadata.root_of(os.path.join(model.destination, '.'))
    folders = sorted(glob.glob(os.path.join(root, 'prepare', '*', 'examples')), key=os.path.getmtime) if root else []
    if not folders:
        return []
    try:
        split = records.open_split(folders[-1], 'test')
        inputs, _ = tryon.examples(split.read(range(min(TESTED, len(split)))))
    except (ValueError, OSError, tf.errors.OpError):
        return []
    return [{'from': 'test', **each} for each in inputs]


def _own(folder: str) -> list[dict]:
    files = sorted(glob.glob(os.path.join(folder, '*pairs.txt'))) if folder else []
    return [sample for file in files for sample in _of_pairs(file, 'own')]


async def choose(page, model: Model, version: Version, given: dict) -> dict:
    """List the people and garments to choose from."""
    samples = await page.call(page.people.samples, model, version)
    return {'samples': [{'number': n, 'from': sample['from']} for n, sample in enumerate(samples)]}


async def photograph(page, model: Model, version: Version, given: dict) -> dict:
    """Make the files of a person or a garment from a photograph, with the problems found."""
    if page.studio is None:
        raise invalid(NO_PARSER)
    kind, content = given['kind'], _decoded('photograph', given['photograph'])
    if kind not in ('person', 'garment'):
        raise invalid('kind is neither person nor garment.')
    height = max(MIN_HEIGHT, _size(version)[0] // 4 * 4)
    made = await page.call(page.studio.make, kind, content, (height, height * 3 // 4),
                           version.description['config']['data']['max_pixels'])
    return {'files': {_NAMES[key]: base64.b64encode(value).decode() for key, value in made.files.items()},
            'steps': {title: base64.b64encode(value).decode() for title, value in made.steps.items()},
            'findings': [finding.sentence for finding in made.findings]}


async def wear(page, model: Model, version: Version, given: dict) -> dict:
    """Dress a person in a garment; each is a sample's number or the visitor's own files."""
    samples = await page.call(page.people.samples, model, version)
    files = {}
    for what, names in (('person', PERSON), ('garment', ('cloth', 'cloth_mask'))):
        chosen = given[what]
        if isinstance(chosen, int) and 0 <= chosen < len(samples):
            files.update({name: samples[chosen][name] for name in names})
        elif isinstance(chosen, dict):
            files.update({name: _decoded(name, chosen.get(name, '')) for name in names})
        else:
            raise invalid(f'{what} is not one of the samples.')
    for name, title in (('image', 'image of the person'), ('parse', 'parse map (image-parse)'),
                        ('pose_json', 'OpenPose file (openpose-json)'), ('cloth', 'image of the garment'),
                        ('cloth_mask', 'garment mask (cloth-mask)')):
        if not files[name]:
            raise invalid(f'The {title} is missing.')
    await page.call(guard.check, {name: np.array([value], object) for name, value in files.items()},
                    version.description)
    found = await page.call(_worn, version, files)
    if found['error']:
        raise invalid(_in_words(found['error']))
    return {name: base64.b64encode(found[name]).decode() for name in ('image', 'parse', 'warped')}


def _worn(version: Version, files: dict) -> dict:
    [found] = saved_model.run(version.model, [files])
    return found


def _in_words(reason: str) -> str:
    """Say why a sample cannot be used; the model's reason names its files."""
    return f'This sample cannot be used: {reason[:1].lower()}{reason[1:]}'.rstrip('.') + '.'


def _decoded(name: str, value) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise Failure('INVALID_ARGUMENT', f'{name} is not base64.') from error


ACTIONS = {'people': choose, 'photograph': photograph, 'wear': wear}
