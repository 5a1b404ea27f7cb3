"""Read tensors from a TensorFlow checkpoint without TensorFlow's own reader, which aborts the process on a false index.

`<path>.index` is a LevelDB table: blocks of keys and values, followed by a block of their locations and a footer. A
value gives a tensor's type and shape, and the location of its bytes in `<path>.data-00000-of-00001`.
"""
import math
import struct

import google_crc32c
import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.protobuf import tensor_bundle_pb2

from keras_models import ModelError

_FOOTER = 48  # bytes
_MAGIC = struct.pack('<Q', 0xDB4775248B80FB57)
_LARGEST = 1 << 28  # most bytes of an index; a tensor takes about a hundred


class Reader:
    """Read tensors by key, as `tf.train.load_checkpoint` does.

    Args:
      path: the prefix, without `.index`.

    Raises:
      ModelError: the index is missing, damaged or inconsistent.
    """

    def __init__(self, path: str):
        self._path = path
        try:
            with tf.io.gfile.GFile(f'{path}.index', 'rb') as file:
                data = file.read(min(file.size(), _LARGEST))
            values = {key: value for offset, size in _blocks(data) for key, value in _block(data, offset, size)}
            self._shards = tensor_bundle_pb2.BundleHeaderProto.FromString(values.pop(b'')).num_shards
            self._entries = {key.decode(): tensor_bundle_pb2.BundleEntryProto.FromString(value)
                             for key, value in values.items()}
            self._types = {key: self._type(key) for key in self._entries}
        except tf.errors.OpError as error:
            raise ModelError(f'{path}.index cannot be read: {error.message}') from error
        except (LookupError, ValueError, TypeError, struct.error, message.DecodeError) as error:
            raise ModelError(f'{path}.index is damaged, or is not an index of a checkpoint ({error})') from error

    def _type(self, key: str) -> tf.DType:
        """Return a tensor's type after checking its entry against itself and the data file."""
        entry = self._entries[key]
        kind, shape = tf.as_dtype(entry.dtype), self._shape(key)
        least = math.prod(shape) * (1 if kind == tf.string else kind.size)
        if min(shape, default=0) < 0 or entry.slices or entry.size < least or entry.offset < 0 or not (
                kind == tf.string or kind.is_numpy_compatible and kind.size and entry.size == least):
            raise ValueError(f'its entry of {key!r} is inconsistent')
        if not 0 <= entry.shard_id < self._shards:
            raise ValueError(f'{key!r} is in part {entry.shard_id} of {self._shards}')
        return kind

    def _shape(self, key: str) -> list[int]:
        return [dim.size for dim in self._entries[key].shape.dim]

    def has_tensor(self, key: str) -> bool:
        return key in self._entries

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {key: self._shape(key) for key in self._entries}

    def get_tensor(self, key: str):
        """Return a tensor's values, or the bytes of a scalar string.

        Raises:
          ModelError: they are missing or damaged.
        """
        if key not in self._entries:
            raise ModelError(f'{self._path}.index has no {key!r}')
        entry, kind = self._entries[key], self._types[key]
        path = f'{self._path}.data-{entry.shard_id:05d}-of-{self._shards:05d}'
        try:
            with tf.io.gfile.GFile(path, 'rb') as file:
                whole = entry.offset + entry.size <= file.size()
                file.seek(min(entry.offset, file.size()))
                data = file.read(entry.size) if whole else b''
        except tf.errors.OpError as error:
            raise ModelError(f'{path} cannot be read: {error.message}') from error
        if kind == tf.string:
            start = next((place for place, byte in enumerate(data[:9], 1) if byte < 128), 0)
            size = _number(data, 0)[0] if start else 0
            lengths = struct.pack('<I' if size < 1 << 32 else '<Q', size)
            crc = google_crc32c.extend(google_crc32c.value(lengths), data[start:])
            good, data = not self._shape(key) and start + 4 + size == len(data), data[start + 4:]
        else:
            crc, good = google_crc32c.value(data), len(data) == entry.size
        if not good or ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != entry.crc32c:
            raise ModelError(f'{path} is damaged: the {entry.size:,} bytes of {key!r} at byte {entry.offset:,} differ '
                             'from those that were written (CRC-32C differs)')
        if kind == tf.string:
            return data
        return np.frombuffer(data, kind.as_numpy_dtype).reshape(self._shape(key))


def _blocks(data: bytes) -> list[tuple[int, int]]:
    """Return the locations of a table's blocks of values: (offset, size)."""
    footer = data[-_FOOTER:]
    if not footer.endswith(_MAGIC):
        raise ValueError('its end is missing')
    at = 0
    for _ in range(2):  # of the meta index, which is empty
        _, at = _number(footer, at)
    offset, at = _number(footer, at)
    return [_handle(value) for _, value in _block(data, offset, _number(footer, at)[0])]


def _handle(value: bytes) -> tuple[int, int]:
    offset, at = _number(value, 0)
    return offset, _number(value, at)[0]


def _block(data: bytes, offset: int, size: int) -> list[tuple[bytes, bytes]]:
    """Return a block's keys and values; keys are stored without the prefix shared with the previous key."""
    block, rows, at, key = data[offset:offset + size], [], 0, b''
    if len(block) != size or data[offset + size] != 0:
        raise ValueError('a block is truncated or compressed')
    end = size - 4 - 4 * struct.unpack('<I', block[-4:])[0]
    while at < end:
        shared, at = _number(block, at)
        own, at = _number(block, at)
        length, at = _number(block, at)
        key = key[:shared] + block[at:at + own]
        at += own + length
        rows.append((key, block[at - length:at]))
    if at != end:
        raise ValueError('a block has no end')
    return rows


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Read a number, seven bits per byte; return it and the offset behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        number, at, shift = number | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise ValueError('a number of more than nine bytes')
