"""Checkpoints written by TensorFlow and forged ones, read without TensorFlow's own reader."""
import pathlib
import struct

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from keras_models import ModelError
from keras_models.weights import checkpoint_file
from keras_models.weights.checkpoint_file import Reader

VALUES = {'a': np.arange(6, dtype=np.float32).reshape(2, 3), 'b': np.array([1, -2], np.int64),
          'c': np.float64(0.5), 'd': np.zeros([0, 3], np.float32), 'e': np.array([True, False])}
FOOTER = 48


@pytest.fixture
def path(tmp_path) -> str:
    return tf.train.Checkpoint(**{name: tf.Variable(value) for name, value in VALUES.items()}).write(
        str(tmp_path / 'weights'))


def key(name: str) -> str:
    return f'{name}/.ATTRIBUTES/VARIABLE_VALUE'


def varint(number: int) -> bytes:
    found = b''
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def block(rows) -> bytes:
    """A LevelDB block of whole keys, its type 0, not compressed, and a checksum that is not read."""
    data = b''.join(varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in rows)
    return data + struct.pack('<II', 0, 1) + bytes(5)


def forge(path: str, change) -> str:
    """Writes the index again after `change` of its header and entries, key -> message; returns the path."""
    rows = {}
    data = pathlib.Path(f'{path}.index').read_bytes()
    for offset, size in checkpoint_file._blocks(data):
        rows |= dict(checkpoint_file._block(data, offset, size))
    header = tensor_bundle_pb2.BundleHeaderProto.FromString(rows.pop(b''))
    entry = tensor_bundle_pb2.BundleEntryProto
    entries = {key.decode(): entry.FromString(value) for key, value in rows.items()}
    change(header, entries)
    first = block([(b'', header.SerializeToString()),
                   *((key.encode(), entries[key].SerializeToString()) for key in sorted(entries))])
    handle = varint(0) + varint(len(first) - 5)
    second = block([(b'~', handle)])
    footer = varint(0) + varint(0) + varint(len(first)) + varint(len(second) - 5)
    pathlib.Path(f'{path}.index').write_bytes(
        first + second + footer.ljust(FOOTER - 8, b'\0') + checkpoint_file._MAGIC)
    return path


def test_every_tensor_is_as_tensorflow_reads_it(path):
    ours, theirs = Reader(path), tf.train.load_checkpoint(path)
    assert ours.get_variable_to_shape_map() == theirs.get_variable_to_shape_map()
    for name in theirs.get_variable_to_shape_map():
        assert ours.has_tensor(name)
        found, expected = ours.get_tensor(name), theirs.get_tensor(name)
        if isinstance(expected, bytes):
            assert found == expected
        else:
            np.testing.assert_array_equal(found, expected, strict=True)
    for name, value in VALUES.items():
        np.testing.assert_array_equal(ours.get_tensor(key(name)), value)


def test_an_index_written_again_reads_alike(path):
    """What `forge` writes is right but for the changes of a test."""
    expected = Reader(path).get_variable_to_shape_map()
    assert Reader(forge(path, lambda header, entries: None)).get_variable_to_shape_map() == expected
    np.testing.assert_array_equal(Reader(path).get_tensor(key('a')), VALUES['a'])


def changed(name: str, **fields):
    """Sets fields of a tensor's entry."""
    def change(_, entries):
        for field, value in fields.items():
            setattr(entries[key(name)], field, value)
    return change


def shape(name: str, *sides: int):
    def change(_, entries):
        entries[key(name)].shape.dim[0].size = sides[0]
        for dim, side in zip(entries[key(name)].shape.dim, sides):
            dim.size = side
    return change


def sliced(_, entries):
    entries[key('a')].slices.add()


@pytest.mark.parametrize('change', [
    pytest.param(changed('a', size=20), id='fewer bytes than its shape'),
    pytest.param(changed('a', size=1 << 40), id='more bytes than its shape'),
    pytest.param(shape('a', 1 << 31, 1 << 31), id='a shape of more elements than bytes'),
    pytest.param(shape('a', -2, -3), id='sides below zero'),
    pytest.param(changed('a', offset=-8), id='before the file'),
    pytest.param(changed('a', dtype=int(tf.variant.as_datatype_enum)), id='a type of no size'),
    pytest.param(sliced, id='in slices')])
def test_an_entry_that_does_not_fit_itself(path, change):
    with pytest.raises(ModelError, match=f"weights.index is damaged.*its entry of '{key('a')}' is inconsistent"):
        Reader(forge(path, change))


def test_a_part_that_is_not_there(path):
    with pytest.raises(ModelError, match=rf"weights.index is damaged.*'{key('b')}' is in part 1 of 1"):
        Reader(forge(path, changed('b', shard_id=1)))


def test_an_unknown_type(path):
    with pytest.raises(ModelError, match='weights.index is damaged'):
        Reader(forge(path, changed('b', dtype=99)))


def refused(path: str, data: bytes, what: str) -> None:
    pathlib.Path(f'{path}.index').write_bytes(data)
    with pytest.raises(ModelError, match=rf'weights.index is damaged, or is not an index of a checkpoint \({what}'):
        Reader(path)


def test_an_index_without_its_end(path):
    data = pathlib.Path(f'{path}.index').read_bytes()
    for end in (0, 1, FOOTER, len(data) - 8, len(data) - 1):
        refused(path, data[:end], 'its end is missing')


def test_a_block_that_is_compressed_or_cut_short(path):
    data = pathlib.Path(f'{path}.index').read_bytes()
    [(offset, size)] = checkpoint_file._blocks(data)
    what, end = 'a block is truncated or compressed', offset + size
    refused(path, data[:end] + b'\1' + data[end + 1:], what)
    footer = varint(0) + varint(0) + varint(len(data)) + varint(9)
    refused(path, data[:-FOOTER] + footer.ljust(FOOTER - 8, b'\0') + data[-8:], what)


def test_a_block_whose_rows_go_beyond_its_end(path):
    """Its last number, of restarts, says where rows end."""
    data = pathlib.Path(f'{path}.index').read_bytes()
    [(offset, size)] = checkpoint_file._blocks(data)
    restarts = struct.unpack('<I', data[offset + size - 4:offset + size])[0]
    refused(path, data[:offset + size - 4] + struct.pack('<I', restarts + 1) + data[offset + size:],
            'a block has no end')


def test_a_number_that_does_not_end(path):
    data = pathlib.Path(f'{path}.index').read_bytes()
    refused(path, data[:-FOOTER] + b'\xff' * (FOOTER - 8) + data[-8:], 'a number of more than nine bytes')


def test_files_that_are_missing(path, tmp_path):
    with pytest.raises(ModelError, match='nowhere.index cannot be read'):
        Reader(str(tmp_path / 'nowhere'))
    reader = Reader(path)
    with pytest.raises(ModelError, match="weights.index has no 'other'"):
        reader.get_tensor('other')
    pathlib.Path(f'{path}.data-00000-of-00001').unlink()
    with pytest.raises(ModelError, match='weights.data-00000-of-00001 cannot be read'):
        reader.get_tensor(key('a'))


@pytest.mark.parametrize('name', [key('a'), '_CHECKPOINTABLE_OBJECT_GRAPH'])
def test_any_bit_of_a_tensors_bytes_counts(path, name):
    """A bit that is flipped in the middle, and a file that ends before the last byte."""
    entries = {}
    forge(path, lambda _, found: entries.update(found))
    file = pathlib.Path(f'{path}.data-00000-of-00001')
    data, entry = file.read_bytes(), entries[name]
    assert Reader(path).get_tensor(name) is not None
    middle = entry.offset + entry.size // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]
    for damaged in (flipped, data[:entry.offset + entry.size - 1]):
        file.write_bytes(damaged)
        what = f"the {entry.size:,} bytes of '{name}' at byte {entry.offset:,} differ from those that were written"
        with pytest.raises(ModelError, match=f'data-00000-of-00001 is damaged: {what}'):
            Reader(path).get_tensor(name)
