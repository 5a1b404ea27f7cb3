"""Fetched data fits the configurations: conversions, user-supplied files, and the table of data sets."""
import dataclasses
import fnmatch
import gzip
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

import numpy as np
import pytest
import sacrebleu.dataset
import tensorflow as tf
import tensorflow_datasets
import yaml
from PIL import Image

from data_prep import UserError
from data_prep.core import archives, files
from data_prep.image import listing, readers
from pipelines import fetch, import_weights
from pipelines.core import config, shipped
from pipelines.fetching import brought, catalogue, conversion
from support.bad_server import serve, whole

NAMES = 'airplane automobile bird cat deer dog frog horse ship truck'.split()
WNIDS = ('n01641577', 'n02106662', 'n99999999')


def tar_of(path, files):
    with tarfile.open(path, 'w:gz') as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def zip_of(path, files):
    with zipfile.ZipFile(path, 'w') as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


def pictures(path, scratch):
    """(class, bytes) of every image in an archive, as the data set's job finds them."""
    [source] = readers.sources('train', '', [str(path)])
    found = [item for item in listing.scan(source, str(scratch), {}) if isinstance(item, listing.Picture)]
    return [(item.label, files.read(*item.found[1:4])) for item in found]


def cifar(path, labels=(3, 9, 3, 0), extra=b'', names=NAMES):
    draws = np.random.default_rng(0).integers(0, 256, [6, len(labels), 3, 32, 32], np.uint8)
    batches = [*conversion._BATCHES['train'], *conversion._BATCHES['test']]
    files = {f'cifar-10-batches-bin/{name}': b''.join(bytes([label]) + image.tobytes() for label, image in
                                                      zip(labels, images)) + extra
             for name, images in zip(batches, draws)}
    tar_of(path, {'cifar-10-batches-bin/batches.meta.txt': '\n'.join([*names, '']).encode(), **files})
    return draws


def test_cifar_10_becomes_class_folders_with_every_pixel(tmp_path):
    labels = (3, 9, 3, 0)
    draws = cifar(tmp_path / 'cifar.tgz', labels)
    conversion.make(tmp_path, 'out.tar.gz', 'cifar.tgz', 'cifar10', split='train')
    (tmp_path / 'scratch').mkdir()
    found = pictures(tmp_path / 'out.tar.gz' / 'train', tmp_path / 'scratch')
    wanted = [(NAMES[label], image.transpose(1, 2, 0)) for images in draws[:5] for label, image in zip(labels, images)]
    assert [label for label, _ in found] == [label for label, _ in wanted]
    for (_, encoded), (_, pixels) in zip(found, wanted):
        np.testing.assert_array_equal(tf.io.decode_image(encoded), pixels)
    names = tarfile.open(tmp_path / 'out.tar.gz').getnames()
    assert names[:4] == ['train/cat/0000.png', 'train/truck/0000.png', 'train/cat/0001.png', 'train/airplane/0000.png']
    conversion.make(tmp_path, 'test.tar.gz', 'cifar.tgz', 'cifar10', split='test')
    assert len(tarfile.open(tmp_path / 'test.tar.gz').getnames()) == 4


def test_a_result_repeats_to_the_byte_and_is_not_made_twice(tmp_path):
    cifar(tmp_path / 'cifar.tgz')
    arguments = dict(folder=tmp_path, name='out.tar.gz', source='cifar.tgz', by='cifar10', split='test')
    assert conversion.make(**arguments) == 'made of cifar.tgz'
    first = (tmp_path / 'out.tar.gz').read_bytes()
    assert conversion.make(**arguments) == 'already made'
    (tmp_path / 'out.tar.gz').unlink()
    conversion.make(**arguments)
    assert (tmp_path / 'out.tar.gz').read_bytes() == first
    (tmp_path / 'out.tar.gz').write_bytes(b'mine')
    with pytest.raises(UserError, match='changed or not made by this command'):
        conversion.make(**arguments)
    assert (tmp_path / 'out.tar.gz').read_bytes() == b'mine'


@pytest.mark.parametrize('fields, words', [
    (dict(labels=(3, 10)), 'label 10 of record 1'), (dict(extra=b'x'), 'not whole records'),
    (dict(names=NAMES[:9]), 'does not name ten classes'), (dict(names=[*NAMES[:9], '../up']), 'ten classes')])
def test_a_wrong_cifar_archive_is_named(tmp_path, fields, words):
    cifar(tmp_path / 'cifar.tgz', **fields)
    with pytest.raises(UserError, match=words):
        conversion.make(tmp_path, 'out.tar.gz', 'cifar.tgz', 'cifar10', split='train')
    assert not (tmp_path / 'out.tar.gz').exists()


def tiny_imagenet(path):
    files = {f'tiny-imagenet-200/train/{wnid}/images/{wnid}_{i}.JPEG': f'{wnid} {i}'.encode()
             for wnid in WNIDS for i in range(2)}
    files |= {f'tiny-imagenet-200/train/{wnid}/{wnid}_boxes.txt': b'boxes' for wnid in WNIDS}
    files |= {'tiny-imagenet-200/words.txt': b'words', 'tiny-imagenet-200/wnids.txt': b'all',
              'tiny-imagenet-200/val/images/val_0.JPEG': b'val',
              f'tiny-imagenet-200/train/{WNIDS[0]}/../../../../outside.JPEG': b'hostile', '/etc/absolute': b'hostile'}
    zip_of(path, files)


def test_classes_of_tiny_imagenet_keep_their_bytes(tmp_path):
    tiny_imagenet(tmp_path / 'tiny.zip')
    conversion.make(tmp_path, 'some.tar.gz', 'tiny.zip', 'class_folders', classes={WNIDS[1]: 'b', WNIDS[0]: 'a'})
    (tmp_path / 'scratch').mkdir()
    found = pictures(tmp_path / 'some.tar.gz' / 'tiny-imagenet-200' / 'train', tmp_path / 'scratch')
    assert found == [(wnid, f'{wnid} {i}'.encode()) for wnid in WNIDS[:2] for i in range(2)]
    with tarfile.open(tmp_path / 'some.tar.gz') as tar:
        assert tar.extractfile('tiny-imagenet-200/wnids.txt').read().split() == [b'n01641577', b'n02106662']
        assert not [name for name in tar.getnames() if '..' in name or name.startswith('/') or 'val' in name]
        assert 'tiny-imagenet-200/train/n01641577/n01641577_boxes.txt' in tar.getnames()
    conversion.make(tmp_path, 'all.tar.gz', 'tiny.zip', 'class_folders')
    assert len([name for name in tarfile.open(tmp_path / 'all.tar.gz').getnames() if name.endswith('.JPEG')]) == 7
    with pytest.raises(UserError, match='no folder n00000000'):
        conversion.make(tmp_path, 'none.tar.gz', 'tiny.zip', 'class_folders', classes={'n00000000': 'nothing'})


def test_trees_are_taken_from_their_folder_alone(tmp_path):
    zip_of(tmp_path / 'treebank.zip', {'treebank/combined/wsj_0002.mrg': '(S b)',
                                       'treebank/combined/wsj_0001.mrg': '(S a)',
                                       'treebank/raw/wsj_0001': 'a', 'treebank/combined/../up.mrg': 'hostile',
                                       'treebank/combined/README': 'no'})
    arguments = dict(folder=tmp_path, name='combined', source='treebank.zip', by='trees', within='treebank/combined')
    conversion.make(**arguments)
    assert {path.name: path.read_text() for path in (tmp_path / 'combined').iterdir()} == {
        'wsj_0001.mrg': '(S a)', 'wsj_0002.mrg': '(S b)'}
    assert conversion.make(**arguments) == 'already made'
    (tmp_path / 'combined' / 'mine.mrg').write_text('(S c)')
    with pytest.raises(UserError, match='changed or not made'):
        conversion.make(**arguments)


@pytest.mark.parametrize('content', [b'', b'PK\x03\x04 and no more', b'<html>'], ids=['empty', 'cut', 'html'])
def test_a_damaged_zip_is_named(tmp_path, content):
    (tmp_path / 'a.zip').write_bytes(content)
    with pytest.raises(UserError, match='a.zip: it is damaged'):
        conversion.make(tmp_path, 'out', 'a.zip', 'class_folders')
    zip_of(tmp_path / 'a.zip', {'tiny-imagenet-200/train/n0/images/a.JPEG': b'abcdefgh' * 50})
    data = bytearray((tmp_path / 'a.zip').read_bytes())
    data[data.index(b'abcdefgh')] ^= 1
    (tmp_path / 'a.zip').write_bytes(data)
    with pytest.raises(UserError, match='damaged'):
        conversion.make(tmp_path, 'out', 'a.zip', 'class_folders')


def test_what_a_person_brings_is_checked(tmp_path):
    (tmp_path / 'a').write_bytes(b'content')
    (tmp_path / 'pairs').write_text('a b\nc d\n\n')
    (tmp_path / 'table.csv').write_text('\ufeffInstruction,"Input"\n1,2\n')
    (tmp_path / '23').mkdir()
    (tmp_path / '23' / 'wsj.mrg').write_text('( (S (NP a)\n (VP b)) )\n\n( (S (-LRB- -LRB-)) )')
    (tmp_path / 'empty').mkdir()
    md5 = f'md5:{hashlib.md5(b"content", usedforsecurity=False).hexdigest()}'
    good = [{'file': 'a', 'checksum': md5}, {'file': 'pairs', 'lines': 2},
            {'folder': '23', 'ending': '.mrg', 'trees': 2},
            {'file': 'table.csv', 'columns': ['Instruction', 'Input']}, {'folder': 'no', 'other_names': ['23']}]
    assert brought.check(tmp_path, good) == []
    bad = {'b is missing': {'file': 'b'}, 'not have the published checksum': {'file': 'pairs', 'checksum': md5},
           'has 2 lines, but the published file 3': {'file': 'pairs', 'lines': 3},
           'has 2 trees, but the published one 9': {'folder': '23', 'trees': 9},
           'has no column Response': {'file': 'table.csv', 'columns': ['Input', 'Response']},
           'no is missing': {'folder': 'no'}, 'has no .mrg file': {'folder': 'empty', 'ending': '.mrg'}}
    for words, row in bad.items():
        [fault] = brought.check(tmp_path, [row])
        assert words in fault


@pytest.mark.parametrize('name', ['ilsvrc', 'ilsvrc_boxes', 'wsj', 'viton_hd', 'viton_hd_weights', 'instructions'])
def test_what_asks_for_an_account_says_where_and_what_is_missing(tmp_path, name, capsys):
    with pytest.raises(SystemExit) as left:
        fetch.main([name, '--out', str(tmp_path)])
    out, error = capsys.readouterr()
    data_set = catalogue.get(name)
    assert left.value.code == 2 and data_set.page in out and data_set.licence in out
    assert data_set.get in error and str(tmp_path) in error


def test_checksums_and_sizes_are_those_of_the_published_lists():
    """The libraries that publish them are installed, so the table is compared with them."""
    listed = {}
    for path in (pathlib.Path(tensorflow_datasets.__file__).parent / 'url_checksums').glob('*.txt'):
        rows = [line.split('\t') for line in path.read_text().splitlines() if line.count('\t') == 3]
        listed |= {(path.name, name): (int(size), f'sha256:{digest}') for _, size, digest, name in rows}
    files = {file.name: file for data_set in catalogue.load().values() for file in data_set.files}
    compared = 0
    for file in files.values():
        assert file.checksum and file.published
        if found := re.fullmatch(r'tensorflow-datasets, url_checksums/(\S+)', file.published):
            assert (file.bytes, file.checksum) == listed[found[1], file.name]
            compared += 1
        elif found := re.fullmatch(r'sacrebleu, data set (\S+)', file.published):
            assert file.checksum == f'md5:{sacrebleu.dataset.DATASETS[found[1]].md5[0]}'
            compared += 1
        elif file.checksum.startswith('sha256-begins:'):
            assert file.checksum.removeprefix('sha256-begins:') in file.name
            compared += 1
    assert compared == 9


def test_twenty_classes_are_fetched_by_name():
    [row] = catalogue.get('tiny_imagenet_20').makes
    assert len(row['classes']) == 20 and row['classes']['n07873807'] == 'pizza'


def named_data(resolved):
    """Files and folders below data.folder that a configuration names; of what lies in an archive, the archive."""
    values = resolved.values['data']
    found = []
    for key in ('train', 'validation', 'test', 'boxes', 'words', 'synsets', 'labels', 'validation_labels',
                'test_labels'):
        value = values.get(key) or []
        found += [archives.split(path)[0] for path in ([value] if isinstance(value, str) else value)]
    return found


def makes(data_set, names):
    provided = {*data_set.provides(), *([data_set.root and '.'] if data_set.root else [])}
    return all(fnmatch.filter(provided, name) for name in names)


CONFIGS = sorted(shipped.paths())


def test_no_configuration_needs_a_file_nobody_can_make():
    data_sets = catalogue.load()
    for name in CONFIGS:
        resolved = config.load(name)
        names = named_data(resolved)
        makers = [data_set.name for data_set in data_sets.values() if makes(data_set, names)]
        assert resolved.makes_its_data or makers, f'{name} names {names}, which nothing makes'
        text = shipped.paths()[name].read_text()
        own = yaml.safe_load(text).get('data') or {}
        if names and {'train', 'test'} & set(own):
            assert [maker for maker in makers if f'pipelines.fetch {maker}`' in text], \
                f'the head of {name} names none of {makers}'
        for path in re.findall(r'weights/\S+', str(resolved.values).replace("'", ' ')):
            folder, below = path.split('/', 1)
            fetched = {name for data_set in data_sets.values() if data_set.folder == folder
                       for name in data_set.provides()}
            assert below in fetched or below in import_weights.SYSTEMS, f'{name} needs {path}'
    assert {data_set.example for data_set in data_sets.values() if data_set.example} <= set(CONFIGS)
    for system in import_weights.SYSTEMS:
        assert data_sets[f'{system}_weights'].brings


def test_every_example_reads_what_is_fetched():
    for data_set in catalogue.load().values():
        if data_set.example:
            assert makes(data_set, named_data(config.load(data_set.example))), data_set.name


def test_a_fetched_data_set_is_read_by_its_configuration(tmp_path, monkeypatch, capsys):
    """From the address to the paths that a configuration names, by the command itself."""
    cifar(tmp_path / 'served.tgz')
    content = (tmp_path / 'served.tgz').read_bytes()
    real = catalogue.get('cifar10')
    with serve(whole(content)) as server:
        file = catalogue.File('cifar-10-binary.tar.gz', f'{server.url}/cifar', len(content),
                              f'sha256:{hashlib.sha256(content).hexdigest()}', 'this test')
        monkeypatch.setattr(catalogue, 'get', lambda name: dataclasses.replace(real, files=(file,)))
        fetch.main(['cifar10', '--out', str(tmp_path / 'data')])
    assert f'--set data.folder={tmp_path}/data' in capsys.readouterr().out
    resolved = config.load('alexnet_cifar10', [f'data.folder={tmp_path}/data'])
    for split in ('train', 'validation', 'test'):
        for path in resolved.data.files(split):
            assert pathlib.Path(path).exists()
    with gzip.open(tmp_path / 'data' / 'cifar10_train.tar.gz') as packed, tarfile.open(fileobj=packed) as tar:
        first = tar.extractfile(tar.next()).read()
        assert Image.open(io.BytesIO(first)).size == (32, 32)
