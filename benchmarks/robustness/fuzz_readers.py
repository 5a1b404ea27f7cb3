"""Readers that `fuzz.py` tests, each as a function of bytes, with small valid files to start from.

A reader gets one file's bytes, puts them where the project would find them and lets the project read all of it. What it
returns are the refusals or dead letters; the caller judges the exceptions that the project raises. A refusal must
contain the reader's `place`, the file's name.
"""
import dataclasses
import gzip
import hashlib
import json
import pathlib
import struct
import tarfile
from collections.abc import Callable

import h5py
import numpy as np
import yaml
from tensorflow import keras

from benchmarks.robustness import fuzz_images as images
from benchmarks.robustness import fuzz_seeds as valid
from benchmarks.robustness import fuzz_shapes as shapes
from data_prep import treebank, wmt
from data_prep.core import files, records, text_files
from data_prep.image import listing, readers
from data_prep.text import job as text_job
from data_prep.trees import job as tree_job
from data_prep.trees import tree_files
from keras_models.weights import checkpoint_file, h5_file, torch_file
from pipelines.core import config
from pipelines.serving import published, pusher
from pipelines.training import checkpoints

Read = Callable[[bytes], list[str]]


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader of files.

    Attributes:
      make: given an empty folder, the function of bytes, and the valid.
      place: what every refusal must hold.
      words: what mutations like to insert.
      shape: a strategy of bytes, made from the first seed, or nothing.
      repair: makes checksums right again.
      whole: whether the seeds are accepted, and hold nothing to refuse.
    """
    make: Callable[[pathlib.Path], tuple[Read, list[bytes]]]
    place: str
    words: tuple[bytes, ...] = ()
    shape: Callable | None = None
    repair: Callable[[bytes], bytes] = bytes
    whole: bool = True


def _text(name: str, *seeds: bytes):
    """Return a text with itself as its translation, or a table."""
    def make(folder):
        path = folder / name
        files = [name] if text_files.table_format(name) else [name, name]

        def read(data):
            path.write_bytes(data)
            [source] = text_files.sources('train', str(folder), files)
            blocks = text_files.scan(source, text_files.unpack(source, str(folder)), 3 if len(data) < 4096 else 2000,
                                     header=False)
            found = [(block, list(text_files.read(block))) for block in blocks]
            assert all(block.records == len(rows) for block, rows in found), 'a block of other records'
            return [f'{row.file}, line {row.line}, byte {row.offset}: {row.reason}'
                    for _, rows in found for row in rows if row.reason]
        return read, list(seeds)
    return make


def _treebank(name: str, *seeds: bytes):
    """Trees in a file, read in blocks of three."""
    def make(folder):
        path = folder / name
        settings = treebank.Config(train=[name], validation_fraction=.1, test_fraction=.1, trees_per_block=3)

        def read(data):
            path.write_bytes(data)
            blocks = tree_files.scan(tree_files.Source('train', str(path)), str(folder), settings)
            found = [(block, list(tree_job.read(block, settings))) for block in blocks]
            assert all(block.records == len(rows) for block, rows in found), 'a block of other records'
            return [f'{row.file}, line {row.line}, byte {row.offset}: {row.reason}'
                    for _, rows in found for row in rows if row.reason]
        return read, list(seeds)
    return make


def _archive(folder):
    path = folder / 'input.tgz'

    def read(data):
        path.write_bytes(data)
        [source] = text_files.sources('train', str(folder), ['input.tgz/a.en', 'input.tgz/a.de'])
        list(text_files.scan(source, text_files.unpack(source, str(folder)), 2000, header=False))
        return []
    return read, [gzip.compress(valid.tar(kind), mtime=0) for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)]


def _ranges(folder):
    """Pictures in a tar, of which every range that is found is read."""
    path = folder / 'input.tar'

    def read(data):
        path.write_bytes(data)
        [source] = readers.sources('train', str(folder), ['input.tar'])
        refused = []
        for found in listing.scan(source, str(folder), {}):
            if isinstance(found, readers.Found):
                refused.append(f'input.tar/{found.name}, byte {found.offset}: {found.reason}')
            elif isinstance(found, listing.Picture):
                files.read(*found.found[1:4])
        return [ascii(text)[1:-1] for text in refused]  # as JSON has it
    return read, [valid.tar(tarfile.GNU_FORMAT), valid.tar(tarfile.PAX_FORMAT)]


def _records(part: str):
    """Return a data set of two shards in which one file has the given content, with correct hashes in the manifest."""
    def make(folder):
        folder /= 'data'
        entries = []
        for number in range(2):
            writer = records.ShardWriter(str(folder / 'Split-train' / f'part-{number}.tfrecord'), ('inputs',))
            for text in (b'', b'one', b'two' * 20):
                writer.write(text, inputs=len(text))
            entries.append(writer.close())
        counts = {'train': {'read': 6, 'written': 6}}
        records.write_manifest(str(folder), entries, ('inputs',), counts, {'model': {}})
        good = (folder / 'manifest.json').read_bytes()
        first = folder / 'Split-train' / 'part-0.tfrecord'
        path = {'manifest': folder / 'manifest.json', 'index': first.with_suffix('.index.npy'), 'shard': first}[part]
        seed = path.read_bytes()

        def read(data):
            path.write_bytes(data)
            if part != 'manifest':
                manifest = json.loads(good)
                told = {'index': {'index_sha256': hashlib.sha256(data).hexdigest()}, 'shard': {'bytes': len(data)}}
                manifest['splits']['train'][0].update(told[part])
                (folder / 'manifest.json').write_text(json.dumps(manifest))
            for split in records.read_manifest(str(folder)).splits:
                found = records.open_split(str(folder), split)
                found.read(range(len(found)))
            return []
        return read, [seed]
    return make


def _config(folder):
    path, good = folder / 'input.yaml', {
        'seed': 3, 'data': {'module': 'data_prep.wmt', 'train': ['a.tsv'], 'validation': ['b.tsv'], 'test': ['c.tsv'],
                            'vocab_size': 90, 'max_dead_letters': 0.5},
        'input': {'buckets': [8, 16], 'tokens': 256},
        'model': {'module': 'keras_models.transformer', 'preset': 'paper', 'N': 1, 'd_model': 32, 'd_ff': 64, 'h': 2},
        'inference': {'beam_size': 4}, 'train': {'steps': 20, 'jit': 'auto'},
        'evaluate': {'slices': ['kind'], 'thresholds': {'bleu': {'min': 0, 'max_drop': 1e9}}}}

    def read(data):
        path.write_bytes(data)
        _use(config.load(str(path)))
        return []
    return read, [yaml.safe_dump(good).encode(), json.dumps(good).encode(), b'extends: wmt14_en_de_base\nseed: 1']


def _use(loaded) -> None:
    """Load a configuration as every stage does."""
    json.dumps(loaded.values).encode()
    loaded.data.files('train')


def _override(folder):
    path = folder / 'input.yaml'
    _, seeds = _config(folder)
    path.write_bytes(seeds[0])

    def read(data):
        _use(config.load(str(path), [data.decode('utf-8', 'surrogateescape')]))
        return []
    return read, [b'train.steps=100', b'evaluate.thresholds={bleu: {min: 0.5}}', b'input.buckets=[8, 16]', b'name=x']


def _torch(folder):
    path = folder / 'input.pth'
    legacy = (torch_file.LEGACY + b'\x80\x02M\xe9\x03.\x80\x02}X\x0d\x00\x00\x00little_endian\x88s.'
              + valid.STATE % b'N' + b'\x80\x02]X\x01\x00\x00\x000a.' + struct.pack('<q6f', 6, *range(6)))

    def read(data):
        path.write_bytes(data)
        torch_file.read(str(path))
        return []
    return read, [shapes.zipped(valid.STATE % b''), legacy]


def _h5(folder):
    path = folder / 'input.h5'
    for name, options in (('plain', {}), ('packed', {'compression': 'gzip', 'chunks': True})):
        with h5py.File(folder / name, 'w') as file:
            for layer in ('block1_conv1', 'fc1'):
                group = file.create_group(layer)
                group.attrs['weight_names'] = np.array([f'{layer}_W:0', f'{layer}_b:0'], 'S')
                group.create_dataset(f'{layer}_W:0', data=np.ones([3, 4], np.float32), **options)
                group.create_dataset(f'{layer}_b:0', data=np.ones(4, np.float32))

    def read(data):
        path.write_bytes(data)
        h5_file.read(str(path))
        return []
    return read, [(folder / name).read_bytes() for name in ('plain', 'packed')]


def _checkpoint(ending: str):
    def make(folder):
        net = keras.Sequential([keras.layers.Dense(3, name='fc1')])
        net.build([None, 4])
        checkpoints.save({'classifier': net}, str(folder / 'input'))
        path = folder / f'input.{ending}'
        seed = path.read_bytes()

        def read(data):
            path.write_bytes(data)
            reader = checkpoint_file.Reader(str(folder / 'input'))
            for key in reader.get_variable_to_shape_map():
                reader.get_tensor(key)
            return []
        return read, [seed]
    return make


def _version(folder):
    (folder / 'model').mkdir()
    (folder / 'model' / 'saved_model.pb').write_bytes(b'x')
    path = pathlib.Path(pusher.publish(str(folder / 'model'), str(folder / 'serving'), {'pipeline': 'x'}))

    def read(data):
        (path / published.RECORD).write_bytes(data)
        version = published.Version(str(path))
        assert isinstance(version.origin, int)
        published.verify(str(path))
        return []
    return read, [(path / published.RECORD).read_bytes()]


def _subwords(folder):
    path = folder / 'input.model'
    lines = [f'{a} {b} {a}{b}' for a in ('one', 'two', 'three', 'vier') for b in ('house', 'tree', 'bird')] * 4
    out = folder / 'made'
    seeds = []
    for kind, normal in (('bpe', 'nmt_nfkc'), ('wordpiece', 'nfkc')):
        settings = text_job.subwords.Config(vocab_size=60, subword_kind=kind, normalization=normal)
        seeds.append(text_job.subwords.learn(lines, settings))
    out.mkdir()
    settings = wmt.Config(train=['a', 'b'], validation=['a', 'b'], test=['a', 'b'], subword_model=str(path))

    def read(data):
        path.write_bytes(data)
        found = text_job._take(str(out), settings)
        return [found[1:].decode()] if found.startswith(b'!') else []
    return read, seeds


READERS = {
    'shard': Reader(_records('shard'), 'part-0.'),
    'index': Reader(_records('index'), 'part-0', (b'|O', b'<u8', b'(1,)', b'(9999999999999,)'), shapes.index),
    'manifest': Reader(_records('manifest'), '/data', shape=shapes.json_like),
    'config': Reader(_config, 'input.yaml', valid.YAML, shapes.config),
    'override': Reader(_override, '--set', valid.YAML, shapes.override),
    'lines': Reader(_text('input.txt', 'one\nzwei ö\n\nthree\r\n'.encode()), 'input.txt', valid.TABLE, shapes.table),
    'tsv': Reader(_text('input.tsv', 'one\teins\nzwei ö\tb\tkind\n'.encode()), 'input.tsv', valid.TABLE, shapes.table),
    'csv': Reader(_text('input.csv', 'one,eins\n"zwei ö\nx",b,c\n'.encode()), 'input.csv', valid.TABLE, shapes.table),
    'jsonl': Reader(_text('input.jsonl', '{"en": "one ö", "de": {"a": "eins"}}\n'.encode(),
                          b'{"en": 2, "x": [null]}\n{"x": 1}\n'), 'input.jsonl', valid.TABLE, shapes.json_like),
    'sgml': Reader(_text('input.sgm', valid.SGML), 'input.sgm', valid.SEG, shapes.sgml),
    'treebank': Reader(_treebank('input.mrg', valid.TREES), 'input.mrg', valid.BRACKETS, shapes.trees),
    'gzip': Reader(_text('input.gz', gzip.compress(b'one\ntwo\n' * 9, mtime=0)), 'input.gz', (b'\x1f\x8b\x08',)),
    'archive': Reader(_archive, 'input.tgz', (b'\x1f\x8b\x08',), shapes.packed_tar),
    'tar': Reader(_ranges, 'input.tar', (b'ustar', b'\x80' + bytes(10), b'\xff' * 12), shapes.tar, valid.tar_sums,
                  whole=False),
    'labels': Reader(images.labels('input.txt', b'n01440764\nn01443537 tench\n', b'1\n2\n',
                                   b'a.JPEG\tn01440764\t0\t32\t44\t62\n', b'n01440764 1 tench\n'),
                     'input.txt', valid.TABLE, shapes.table, whole=False),
    'class table': Reader(images.class_table, 'input.csv', valid.TABLE, shapes.table),
    'matlab': Reader(images.labels('input.mat', valid.matlab()), 'input.mat'),
    'xml': Reader(images.boxes('photo.xml', valid.XML), 'photo.xml', valid.XMLS, shapes.xml),
    'boxes': Reader(images.boxes('photo_boxes.txt', b'photo.jpg\t0\t1\t9\t8\nphoto.jpg 1 2 3 4\n'),
                    'photo_boxes.txt', valid.TABLE),
    'pairs': Reader(images.pairs, 'input_pairs.txt', (b'../', b'/', b'\0', b'x' * 300, b'\n'), shapes.pairs,
                    whole=False),
    'openpose': Reader(images.tryon('keypoints'), 'input', (b'1e39', b'NaN', b'"pose_keypoints"', b'[', b'-'),
                       shapes.json_like),
    'parse map': Reader(images.tryon('parse'), 'input', valid.PNG, shapes.png, valid.png_sums),
    'mask': Reader(images.tryon('cloth_mask'), 'input', valid.PNG, shapes.png, valid.png_sums),
    'picture': Reader(images.pictures, 'input.jpg', valid.PNG, shapes.png, valid.png_sums),
    'torch': Reader(_torch, 'input.pth', (b'R', b'Q', b'cos\nsystem\n', b'\x8a\x10' + b'\xff' * 16), shapes.pickle,
                    valid.zip_sums),
    'h5': Reader(_h5, 'input.h5'),
    'checkpoint index': Reader(_checkpoint('index'), 'input', shape=shapes.table_file),
    'checkpoint data': Reader(_checkpoint('data-00000-of-00001'), 'input'),
    'pushed version': Reader(_version, '/serving/', shape=shapes.json_like),
    'subwords': Reader(_subwords, 'input.model', shape=shapes.json_like),
}
