"""Make the files of contests to which none are given: images and pairs of lines, from a seed.

Rates on them are not those on photographs or news, so a table says where they were used.
"""
import gzip
import io
import pathlib

import numpy as np
from PIL import Image

from benchmarks.speed import prepare_scale
from data_prep.people import sample_people

COUNT, CLASSES = 160, 8
SIZE = (500, 375)  # pixels of the most common photograph of ILSVRC
GRAIN = 12  # levels, standard deviation: then a file has about the 110 kB of a photograph there
PAIRS = 10_000


def images(folder: pathlib.Path) -> None:
    """Write JPEGs of drawn people with a camera's grain to `train/<class>/`, as ILSVRC's are laid out."""
    grain = np.random.default_rng(0)
    for number in range(COUNT):
        drawn = sample_people.make_person(1, number, (512, 384)).image[:SIZE[0], :SIZE[1]]
        noisy = np.clip(drawn + grain.normal(0, GRAIN, drawn.shape), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, 'JPEG', quality=94)
        path = folder / 'train' / f'class_{number % CLASSES}' / f'{number}.JPEG'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.getvalue())


def text(folder: pathlib.Path) -> None:
    """Write pairs of made words to `train.en.gz` and `train.de.gz`."""
    folder.mkdir(parents=True)
    prepare_scale.make_pairs(folder, 'train', PAIRS, seed=1)
    for language in ('en', 'de'):
        plain = folder / f'train.{language}'
        plain.with_name(f'{plain.name}.gz').write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
        plain.unlink()


FILES = {'imagenet': images, 'text': text}  # by the name in braces of contests.yaml
