"""Small raw files of every kind of data with a few of all possible faults, for tests that hold for any data."""
import gzip
import io
import pathlib
import tarfile

import numpy as np
from PIL import Image

from data_prep.people import sample_people

TEXT = """\
name: text
data:
  module: data_prep.wmt
  folder: {folder}
  train: [train.en, train.de, more.tsv]
  validation: [held.tsv.gz]
  test: [test.csv]
  vocab_size: 60
  max_length: 40
  remove_duplicates: true
  max_dead_letters: {limit}
  pairs_per_block: 7
  pairs_per_shard: 14
input: {{buckets: [16, 48], tokens: 768}}
model: {{module: keras_models.transformer, N: 1, d_model: 16, d_ff: 16, h: 2}}
"""
IMAGES = """\
name: images
data:
  module: data_prep.imagenet
  folder: {folder}
  train: [some.tgz, photos]
  validation: [held]
  test_fraction: 0.2
  boxes: [boxes.tgz]
  remove_duplicates: true
  max_dead_letters: {limit}
  images_per_block: 3
  images_per_shard: 15
input: {{rows: 8, crop: 24, scales: [24, 30]}}
model: {{module: keras_models.prelu_net, layers: ['3x3, 4', 'spp, {{2, 1}}', 'fc, 8']}}
"""
TRY_ON = """\
name: people
data:
  module: data_prep.tryon
  folder: {folder}
  train: [one/train_pairs.txt, two/train_pairs.txt]
  validation_fraction: 0.3
  test: [one/test_pairs.txt]
  max_dead_letters: {limit}
  pairs_per_block: 2
  pairs_per_shard: 2
input: {{rows: 8, size: [64, 64]}}
model:
  module: keras_models.viton.try_on
  low: [32, 32]
  segmentation: {{width: 0.0625}}
  geometric_matching: {{width: 0.0625}}
  alias: {{width: 0.0625, lambda_percept: 0}}
"""
KINDS = {'text': TEXT, 'images': IMAGES, 'try-on': TRY_ON}
# What there is of each kind and what of it is not written, over all splits; and the largest part of one that is dead.
READ = {'text': 47, 'images': 34, 'try-on': 13}
LEFT_OUT = {'text': {'dead_letters': 2, 'filtered_empty': 1, 'filtered_duplicate': 2, 'filtered_long': 1},
            'images': {'dead_letters': 5, 'filtered_duplicate': 1},
            'try-on': {'dead_letters': 2, 'filtered_not_worn': 1, 'filtered_repeated': 1}}
DEAD = {'text': 2 / 43, 'images': 5 / 25, 'try-on': 2 / 5}
# Where, at which line or at which bytes, and why: of every dead letter.
LETTERS = {'text': [('more.tsv', 1, b'here\n', '1 column, but source and target are needed'),
                    ('train.en', 4, b'caf\xe9\n', 'not UTF-8: byte 0xe9 at position 3')],
           'images': [('boxes.tgz', None, b'<annotation>', 'no boxes for some.tgz/a/2.jpg: not XML'),
                      ('photos/b/89.jpg', None, b'\xff\xd8\xff', 'in two classes, b and c as photos/c/89.jpg'),
                      ('photos/b/no.jpg', None, b'', 'empty, 0 bytes'),
                      ('photos/c/89.jpg', None, b'\xff\xd8\xff', 'in two classes, c and b as photos/b/89.jpg'),
                      ('some.tgz/b/cut.jpg', None, b'\xff\xd8\xff', 'damaged or truncated'),
                      ('some.tgz/c/to', None, b'c/to\0', 'a link, to /etc/passwd')],
           'try-on': [('one/train/cloth/00001_00.jpg', None, None, 'there is no such file'),
                      ('one/train_pairs.txt', 7, b'only_one.jpg\n', '1 names, and not two')]}


def write(kind: str, folder: pathlib.Path) -> str:
    """Writes raw files of a kind and its configuration, which allows as many dead letters as there are; says where."""
    folder.mkdir(parents=True)
    {'text': _text, 'images': _images, 'try-on': _people}[kind](folder)
    file = folder / f'{kind}.yaml'
    file.write_text(KINDS[kind].format(folder=folder, limit=DEAD[kind]))
    return str(file)


def _text(folder: pathlib.Path) -> None:
    source = [f'the number {i} is here'.encode() for i in range(40)]
    target = [f'die Zahl {i} ist hier'.encode() for i in range(40)]
    held = b'the number 7 is here\tdie Zahl 7 ist hier\nit is here\tes ist hier\n'
    source[3], source[10], source[11] = b'caf\xe9', b'', b'number ' * 60
    (folder / 'train.en').write_bytes(b'\n'.join([*source, b'']))
    (folder / 'train.de').write_bytes(b'\n'.join([*target, b'']))
    (folder / 'more.tsv').write_bytes(b'here\n' + held.splitlines()[1] + b'\nis it\tist es\n')
    (folder / 'held.tsv.gz').write_bytes(gzip.compress(held))
    (folder / 'test.csv').write_text('"where, is it","wo, ist es"\nhere,hier\n')


def _picture(number: int) -> bytes:
    colours = np.random.default_rng(number).integers(0, 256, (4, 5, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(colours).resize((40, 32), Image.Resampling.BICUBIC).save(file, 'JPEG')
    return file.getvalue()


def _tar(files: list[tuple[str, bytes]], link: str = '') -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode='w') as writer:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            writer.addfile(entry, io.BytesIO(content))
        if link:
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, '/etc/passwd'
            writer.addfile(entry)
    return gzip.compress(archive.getvalue(), mtime=0)


def _images(folder: pathlib.Path) -> None:
    """The archive has a link in it, and a name twice, as one has to which another version of a file was added."""
    files = [(f'{name}/{number}.jpg', _picture(number)) for first, name in enumerate('abc')
             for number in range(10 * first, 10 * first + 8)]
    files += [('a/1.jpg', _picture(50)), ('b/cut.jpg', _picture(51)[:99])]
    (folder / 'some.tgz').write_bytes(_tar(files, link='c/to'))
    for name, content in {'photos/a/90.jpg': _picture(90), 'photos/b/no.jpg': b'', 'photos/c/again.jpg': _picture(60),
                          'photos/b/89.jpg': _picture(89), 'photos/c/89.jpg': _picture(89),
                          'held/a/0.jpg': _picture(60), 'held/b/1.jpg': _picture(61)}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / 'boxes.tgz').write_bytes(_tar([('a/2.xml', b'<annotation>')]))


def _people(folder: pathlib.Path) -> None:
    """Two folders in which people of the same names wear other things."""
    for seed, name in enumerate(('one', 'two')):
        sample_people.write_people(str(folder / name), 4, 2, (96, 72), seed)
    (folder / 'one/train/cloth/00001_00.jpg').unlink()
    with open(folder / 'one/train_pairs.txt', 'a') as file:
        file.write('00002_00.jpg 00002_00.jpg\n00002_00.jpg 00003_00.jpg\nonly_one.jpg\n')
