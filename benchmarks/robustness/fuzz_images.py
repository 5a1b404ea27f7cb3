"""Readers of images, their annotations, and the files of try-on, for `fuzz_readers.py`."""
import io

import numpy as np
import tensorflow as tf
from PIL import Image

from benchmarks.robustness import fuzz_seeds as valid
from data_prep import imagenet
from data_prep.core import records
from data_prep.image import annotations, augmentation, class_tables, readers, resampling, shards
from data_prep.people import pairs_files, sample_people, sample_reader

MAX_PIXELS = 1 << 18


def pictures(folder):
    """Return a training picture, stored and shown as a crop."""
    path = folder / 'input.jpg'
    settings = imagenet.Config(folder=str(folder), train=['x'], validation_fraction=.1, test_fraction=.1,
                               max_pixels=MAX_PIXELS)
    side = resampling.SIDE
    known = augmentation.Pixels(np.zeros([side, side, 3], np.float32), np.zeros(3), np.eye(3))
    view = augmentation.View(known, 16, (16, 24), False, True, 0.1, 'pixel')
    shown = tf.function(view.training, input_signature=[
        tf.TensorSpec([], tf.string), tf.TensorSpec([2], tf.int32), tf.TensorSpec([2], tf.int32)])

    def read(data):
        path.write_bytes(data)
        shard = shards.Shard(settings, 'train', {'a': 0}, annotations.merge([]), {}, {})
        item = shards.Item(str(path), 0, -1, path.name, 'a')
        for record in shard.records([item]):
            found = tf.train.Example.FromString(record).features.feature
            size = [found[name].int64_list.value[0] for name in ('height', 'width')]
            shown(found['image'].bytes_list.value[0], size, [1, 2])
        return [f'{letter["file"]}, byte {letter["offset"]}: {letter["reason"]}' for letter in shard.letters]
    kinds = [('JPEG', 'RGB'), ('JPEG', 'CMYK'), *(('PNG', mode) for mode in ('RGB', 'P', 'RGBA', 'I;16', '1'))]
    return read, [valid.picture('JPEG', 'L', progressive=True), *(valid.picture(*kind) for kind in kinds)]


def class_table(folder):
    """Return a table of images and classes, in which each of its images is looked for."""
    path = folder / 'input.csv'

    def read(data):
        path.write_bytes(data)
        for columns in {}, {'image': '{id}.png', 'class': '{breed}'}:
            for name, label in class_tables.read(str(path), columns, str(folder)).items():
                assert class_tables.find({name: label}, name) == label
        return []
    return read, [b'id,breed\n1,cat\n"a/2",dog\n', b'x;id;breed\n1;2.jpg;"dog"\n']


def boxes(name: str, *seeds: bytes):
    """Return the bounding-box annotation of a good image."""
    def make(folder):
        photo, path = folder / 'photo.jpg', folder / name
        photo.write_bytes(valid.picture('JPEG'))
        settings = imagenet.Config(folder=str(folder), train=['x'], validation_fraction=.1, test_fraction=.1)

        def read(data):
            path.write_bytes(data)
            text = None if name.endswith('.xml') else data
            ranges = list(annotations.box_ranges(f'a/{name}', str(path), 0, -1, text))
            shard = shards.Shard(settings, 'train', {'a': 0}, annotations.merge([annotations.pack(ranges)]), {}, {})
            assert len(list(shard.records([shards.Item(str(photo), 0, -1, photo.name, 'a')]))) == 1
            return [f'{letter["file"]}, byte {letter["offset"]}: {letter["reason"]}' for letter in shard.letters]
        return read, list(seeds)
    return make


def _classes(text: bytes, path: str):
    return annotations.labels(text, path, {'1': 'n01440764'})


def labels(name: str, *seeds: bytes):
    """Return a text about classes, read as each of the kinds there are."""
    def make(folder):
        path = folder / name

        def read(data):
            path.write_bytes(data)
            text, refused = readers.read_small(str(path)), []
            for how in (annotations.synsets,) if name.endswith('.mat') else (
                    annotations.synsets, annotations.words, annotations.annotations, _classes):
                try:
                    how(text, str(path))
                except records.UserError as error:
                    refused.append(str(error))
            return refused
        return read, list(seeds)
    return make


def pairs(folder):
    """Return a pairs file, and the files it names, of which one person's are there."""
    sample_people.write_people(str(folder), 1, 0, (128, 96))
    path, folders = folder / 'input_pairs.txt', pairs_files.folders(str(folder / 'train'))

    def read(data):
        path.write_bytes(data)
        refused = []
        for pair in pairs_files.pairs(str(path)):
            if pair.reason:
                refused.append(f'{path}, line {pair.line}: {pair.reason}')
                continue
            try:
                pairs_files.read(folders, pair.person, pairs_files.garment_of(folders, pair.person))
            except pairs_files.Refused as error:
                refused.append(f'{path}, {error.path}: {error.reason}')
        return refused
    return read, [(folder / 'train_pairs.txt').read_bytes() * 2, 'a/ö.jpg b.png\r\n'.encode()]


def tryon(key: str):
    """Return a sample that is valid except for one of its files."""
    def make(folder):
        sample_people.write_people(str(folder), 1, 0, (128, 96))
        good = pairs_files.read(pairs_files.folders(str(folder / 'train')), '00000_00.jpg', '00000_00.jpg')
        seeds = [good[key].content]
        if key == 'parse':
            labels = Image.open(io.BytesIO(seeds[0]))
            for form in (Image.fromarray(np.asarray(labels)), labels.convert('RGB'), labels.convert('RGBA')):
                out = io.BytesIO()
                form.save(out, 'PNG')
                seeds.append(out.getvalue())

        def read(data):
            try:
                sample_reader.sample({**good, key: pairs_files.File('input', data)}, 40, MAX_PIXELS)
            except pairs_files.Refused as error:
                return [f'{error.path}: {error.reason}']
            return []
        return read, seeds
    return make
