"""TFRecord shards, their index and the manifest."""
import dataclasses
import hashlib
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError
from data_prep.core import records

RECORDS = [b'', b'one', b'two' * 1000, bytes(range(256))]


@pytest.fixture
def data_set(tmp_path):
    shards = []
    for number in range(2):
        writer = records.ShardWriter(str(tmp_path / 'Split-train' / f'part-{number}.tfrecord'), ('inputs',))
        for i, record in enumerate(RECORDS):
            writer.write(record, inputs=10 * number + i)
        shards.append(writer.close())
    records.write_manifest(str(tmp_path), shards, ('inputs',), {'train': {'written': 8}}, {'made_by': 'test'})
    return tmp_path


def test_a_shard_is_a_plain_tfrecord_file(data_set):
    path = str(data_set / 'Split-train' / 'part-0.tfrecord')
    assert list(tf.data.TFRecordDataset(path).as_numpy_iterator()) == RECORDS
    again = str(data_set / 'again.tfrecord')
    with tf.io.TFRecordWriter(again) as writer:
        for record in RECORDS:
            writer.write(record)
    assert open(path, 'rb').read() == open(again, 'rb').read()


def test_a_long_shard_is_a_plain_tfrecord_file_too(tmp_path):
    """Longer than what is written in one call, of records that are shorter and longer than it."""
    long = [b'%d' % i * (i % 7 * 10_000) for i in range(30)] + [b'x' * (records._BYTES_PER_WRITE + 1), b'', b'last']
    path, again = str(tmp_path / 'Split-train' / 'part-0.tfrecord'), str(tmp_path / 'again.tfrecord')
    writer = records.ShardWriter(path)
    for record in long:
        writer.write(record)
    entry = writer.close()
    with tf.io.TFRecordWriter(again) as other:
        for record in long:
            other.write(record)
    body = open(again, 'rb').read()
    assert open(path, 'rb').read() == body and os.listdir(tmp_path / 'Split-train') == [
        'part-0.index.npy', 'part-0.tfrecord']
    index = open(records.index_path(path), 'rb').read()
    assert entry == {'file': 'Split-train/part-0.tfrecord', 'records': len(long), 'bytes': len(body),
                     'sha256': hashlib.sha256(body).hexdigest(),
                     'index_sha256': hashlib.sha256(index).hexdigest()}
    rows = np.load(records.index_path(path))
    assert rows.dtype.names == ('offset', 'length', 'crc')
    assert rows['length'].tolist() == [len(record) for record in long]


def test_a_shard_appears_under_its_name_only_when_it_is_closed(tmp_path):
    path = tmp_path / 'Split-train' / 'part-0.tfrecord'
    one, other = records.ShardWriter(str(path)), records.ShardWriter(str(path))  # a worker that is retried
    one.write(b'of the first')
    other.write(b'of the second')
    assert not path.exists() and not path.with_name('part-0.index.npy').exists()
    other.close()
    one.abandon()
    one.abandon()  # twice is once
    assert list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()) == [b'of the second']


def test_a_split_without_records_is_a_split(tmp_path):
    writer = records.ShardWriter(str(tmp_path / 'Split-test' / 'part-0.tfrecord'), ('inputs',))
    manifest = records.write_manifest(str(tmp_path), [writer.close()], ('inputs',), {}, {})
    assert os.path.getsize(tmp_path / 'Split-test' / 'part-0.tfrecord') == 0
    assert manifest.splits['test'][0]['records'] == 0
    split = records.open_split(str(tmp_path), 'test')
    assert len(split) == 0 and split.read([]) == [] and split.index['inputs'].shape == (0,)


@pytest.mark.parametrize('folder', ['disk', 'ram://data-set'], ids=['on disk', 'in an object store'])
def test_a_data_set_of_several_splits_and_features(tmp_path, folder):
    folder, rows = folder if '://' in folder else str(tmp_path / folder), {}
    shards = []
    for split, number in (('validation', 0), ('train', 1), ('train', 0)):
        writer = records.ShardWriter(f'{folder}/Split-{split}/part-{number}.tfrecord', ('inputs', 'targets'))
        for i in range(3):
            record = f'{split} {number} {i}'.encode()
            writer.write(record, targets=5 + i, inputs=i, more=9)
            rows.setdefault(split, []).append((number, i, record))
        shards.append(writer.close())
    records.write_manifest(folder, shards, ('inputs', 'targets'), {'train': {'written': 6}},
                           {'made_by': 'test'})
    manifest = records.read_manifest(folder)
    assert (manifest.properties['made_by'], manifest.counts) == ('test', {'train': {'written': 6}})
    assert {split: [entry['file'] for entry in entries] for split, entries in manifest.splits.items()} == {
        'train': ['Split-train/part-0.tfrecord', 'Split-train/part-1.tfrecord'],
        'validation': ['Split-validation/part-0.tfrecord']}
    for name, expected in rows.items():
        split, expected = records.open_split(folder, name), sorted(expected)
        assert split.read(reversed(range(len(split)))) == [record for *_, record in expected[::-1]]
        assert [tuple(row) for row in split.index[['shard', 'inputs', 'targets']].tolist()] == [
            (number, i, 5 + i) for number, i, _ in expected]
    with pytest.raises(UserError, match=r"has no split 'test'; it has \['train', 'validation'\]"):
        records.open_split(folder, 'test')
    with tf.io.gfile.GFile(f'{folder}/Split-train/part-1.tfrecord', 'rb') as file:
        body = bytearray(file.read())
    body[-5] ^= 1
    # memory's files are not cut when they are opened
    tf.io.gfile.remove(f'{folder}/Split-train/part-1.tfrecord')
    with tf.io.gfile.GFile(f'{folder}/Split-train/part-1.tfrecord', 'wb') as file:
        file.write(bytes(body))
    split = records.open_split(folder, 'train')
    assert len(split.read(range(5))) == 5
    with pytest.raises(UserError, match=r'part-1\.tfrecord, record 5 at byte '):
        split.read([5])


@pytest.mark.parametrize('failing', ['write', 'rename'])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch, failing):
    path = tmp_path / 'file'
    records.write_atomically(str(path), b'before')

    def full(*args, **kwargs):
        raise OSError(28, 'No space left on device')
    with monkeypatch.context() as patch, pytest.raises(OSError, match='No space left'):
        patch.setattr(tf.io.gfile, 'rename', full) if failing == 'rename' else patch.setattr(
            tf.io.gfile.GFile, 'write', full)
        records.write_atomically(str(path), b'after')
    assert path.read_bytes() == b'before' and os.listdir(tmp_path) == ['file']
    records.write_atomically(str(path), b'after')
    assert path.read_bytes() == b'after' and os.listdir(tmp_path) == ['file']


def test_any_record_is_read_without_the_others(data_set):
    split = records.open_split(str(data_set), 'train')
    assert len(split) == 8
    assert split.read([6, 1, 7]) == [RECORDS[2], RECORDS[1], RECORDS[3]]
    assert split.index['inputs'].tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


def test_every_byte_of_a_record_is_watched(data_set):
    path = data_set / 'Split-train' / 'part-1.tfrecord'
    good = path.read_bytes()
    index = np.load(records.index_path(str(path)))
    for i, row in enumerate(index):
        start, length = int(row['offset']) + 12, int(row['length'])
        for place in {start, start + length - 1} if length else ():
            bad = bytearray(good)
            bad[place] ^= 1
            path.write_bytes(bytes(bad))
            with pytest.raises(UserError, match=rf'part-1\.tfrecord, record {4 + i} at byte'):
                records.open_split(str(data_set), 'train').read([4 + i])
    path.write_bytes(good)


def test_what_is_missing_or_altered_is_named(data_set):
    shard, index = (data_set / 'Split-train' / f'part-0{ending}' for ending in ('.tfrecord', '.index.npy'))
    body = shard.read_bytes()
    shard.write_bytes(body[:-1])
    message = rf'part-0\.tfrecord has {len(body) - 1:,} bytes, but its manifest says {len(body):,}'
    with pytest.raises(UserError, match=message):
        records.open_split(str(data_set), 'train')
    shard.unlink()
    with pytest.raises(UserError, match=r'part-0\.tfrecord is missing'):
        records.open_split(str(data_set), 'train')
    shard.write_bytes(body)
    index.write_bytes(index.read_bytes()[:-1] + b'!')
    with pytest.raises(UserError, match=r'part-0\.index\.npy was changed'):
        records.open_split(str(data_set), 'train')


def test_a_folder_without_its_manifest_is_no_data_set(data_set):
    os.remove(data_set / records.MANIFEST)
    with pytest.raises(UserError, match='has no manifest.json'):
        records.open_split(str(data_set), 'train')
    for text in ('{', '[]', json.dumps({'format': 99})):
        (data_set / records.MANIFEST).write_text(text)
        with pytest.raises(UserError, match=records.MANIFEST):
            records.open_split(str(data_set), 'train')


def test_an_index_that_lies_is_refused_though_its_hash_is_right(data_set):
    """Where a record is follows from the lengths before it, and the file's head from the manifest."""
    path = data_set / 'Split-train' / 'part-0.index.npy'
    manifest, good = json.loads((data_set / 'manifest.json').read_text()), path.read_bytes()
    rows = np.load(path)
    moved, longer = rows.copy(), rows.copy()
    moved['offset'][1], longer['length'][2] = 2 ** 63, 2 ** 32 - 1
    head = good[:-rows.nbytes]
    for bad in (head + moved.tobytes(), head + longer.tobytes(), good[:-1], good.replace(b'(4,)', b'(9,)'),
                good.replace(b"'<u8'", b"'|O8'"), b''):
        path.write_bytes(bad)
        manifest['splits']['train'][0]['index_sha256'] = hashlib.sha256(bad).hexdigest()
        (data_set / 'manifest.json').write_text(json.dumps(manifest))
        with pytest.raises(UserError, match=r'part-0\.index\.npy (has other columns|does not match)'):
            records.open_split(str(data_set), 'train')


@pytest.mark.parametrize('place, value', [
    (('splits',), None), (('splits', 'train'), {}), (('splits', 'train', 0, 'file'), '../../etc/passwd'),
    (('splits', 'train', 0, 'file'), '/etc/passwd'), (('splits', 'train', 0, 'records'), 2 ** 70),
    (('splits', 'train', 0, 'bytes'), -1), (('splits', 'train', 0, 'index_sha256'), 3), (('lengths',), ['crc']),
    (('lengths',), ['a', 'a']), (('counts', 'train'), {'written': '8'}), (('model',), {'classes': [1]}),
    (('splits', 'train', 0, 'file'), 'Split-train/.hidden.tfrecord'), (('lengths',), 'inputs'),
    (('lengths',), None),
    (('splits', 'train', 0, 'file'), 'Split-train/part-0.tfrecord.gz'), (('splits', '1st'), []),
    (('counts',), []),
    (('splits', 'train', 0, 'records'), True), (('splits', 'train', 0, 'bytes'), 1 << 63),
    (('splits', 'train'), [{}]),
    (('splits', 'train', 0, 'sha256'), 'F' * 64), (('counts', 'train'), {'not written': 8}),
    (('lengths',), ['1st']),
    (('vocabulary',), {'size': 8}), (('vocabulary',), [8]), (('padding',), '0.5'), (('padding',), False),
    (('sha256',), {'../subwords.model': '0' * 64}), (('sha256',), {'subwords.model': '0' * 65}),
    (('categories',), ['kind', 7]), (('categories',), 'kind'), (('binary',), ['no name'])])
def test_a_manifest_of_another_shape_is_refused_by_its_key(data_set, place, value):
    path = data_set / records.MANIFEST
    manifest = inner = json.loads(path.read_text())
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=rf'manifest\.json is damaged: its {place[0]!r} was changed'):
        records.read_manifest(str(data_set))


@pytest.mark.parametrize('more', [
    {'model': {'classes': 3}, 'vocabulary': {'size': 8, 'sha256': '0' * 64, 'kind': 'words'},
     'padding': 0.25},
    {'sha256': {'subwords.model': 'a' * 64}, 'categories': ['kind'], 'binary': ['image', 'mask'],
     'padding': 1},
    {'anything': [None]}, {'model': {'largest': (1 << 63) - 1, 'none': 0}}, {'categories': [], 'model': {}}])
def test_what_a_data_set_says_of_itself_is_read_again(data_set, more):
    path = data_set / records.MANIFEST
    manifest = {**json.loads(path.read_text()), **more}
    path.write_text(json.dumps(manifest))
    found = records.read_manifest(str(data_set))
    fields = {key: value for key, value in dataclasses.asdict(found).items() if key in manifest}
    assert {'format': records.FORMAT, **fields, **found.properties} == manifest


@pytest.mark.parametrize('key', ['lengths', 'splits', 'counts'])
def test_a_manifest_says_all_that_is_needed(data_set, key):
    path = data_set / records.MANIFEST
    manifest = json.loads(path.read_text())
    del manifest[key]
    path.write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=f'damaged: its {key!r} was changed'):
        records.read_manifest(str(data_set))


def test_brackets_within_brackets_are_no_manifest(data_set):
    (data_set / records.MANIFEST).write_text('[' * 100_000)
    with pytest.raises(UserError, match='manifest.json is damaged'):
        records.read_manifest(str(data_set))


def test_a_file_that_is_being_written_is_known_by_its_name():
    name = records.temporary_name('folder/part-0.tfrecord')
    assert name.startswith('folder/part-0.tfrecord') and records.TEMPORARY.search(name)
    for other in ('part-0.tfrecord', f'{name}.txt', name[:-1]):
        assert not records.TEMPORARY.search(other)


def test_an_abandoned_shard_leaves_nothing(tmp_path):
    writer = records.ShardWriter(str(tmp_path / 'Split-train' / 'part-0.tfrecord'))
    writer.write(b'half')
    writer.abandon()
    assert list((tmp_path / 'Split-train').iterdir()) == []


def test_a_data_set_of_many_shards_keeps_few_open(tmp_path, monkeypatch):
    shards = []
    for n in range(records._OPEN + 30):
        writer = records.ShardWriter(str(tmp_path / 'Split-train' / f'part-{n:05d}.tfrecord'))
        writer.write(b'%d' % n)
        shards.append(writer.close())
    records.write_manifest(str(tmp_path), shards, (), {}, {})
    split, before = records.open_split(str(tmp_path), 'train'), len(os.listdir('/proc/self/fd'))
    opened, open_one = [], records._open
    monkeypatch.setattr(records, '_open', lambda path: opened.append(path) or open_one(path))
    split.read([0, 1, 0, 1])
    assert len(opened) == 2  # and none of them again
    for _ in range(2):
        assert split.read(range(len(split))) == [b'%d' % n for n in range(len(split))]
    assert len(os.listdir('/proc/self/fd')) - before <= records._OPEN
