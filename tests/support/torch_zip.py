"""Write tensors as `torch.save` writes a state dict, without PyTorch.

`pytest -m torch` loads such a file with PyTorch; test_torch_file.py compares it with `torch.save`'s.
"""
import pathlib
import struct
import zipfile

import numpy as np

STORAGES = {'float16': 'Half', 'float32': 'Float', 'float64': 'Double', 'int8': 'Char', 'int16': 'Short',
            'int32': 'Int', 'int64': 'Long', 'uint8': 'Byte', 'bool': 'Bool'}
ORDERED_DICT = b'ccollections\nOrderedDict\n)R'


def write(path, tensors: dict[str, np.ndarray]) -> str:
    """Writes a zip archive: a pickle, protocol 2, and one for each tensor's elements; returns its path."""
    path = pathlib.Path(path)
    with zipfile.ZipFile(path, 'w') as archive:
        def add(name, content):
            archive.writestr(zipfile.ZipInfo(f'{path.stem}/{name}'), content)
        add('data.pkl', program(tensors))
        add('byteorder', b'little')
        for number, values in enumerate(tensors.values()):
            add(f'data/{number}', values.astype(values.dtype.newbyteorder('<'), copy=False).tobytes())
        add('version', b'3\n')
    return str(path)


def program(tensors: dict[str, np.ndarray]) -> bytes:
    """The pickle: an OrderedDict of tensors, each in a storage of its own."""
    items = b''.join(text(name) + _tensor(values, str(number))
                     for number, (name, values) in enumerate(tensors.items()))
    return b'\x80\x02' + ORDERED_DICT + b'(' + items + b'u.'


def _tensor(values: np.ndarray, key: str) -> bytes:
    strides = [stride // values.itemsize for stride in np.empty(values.shape, values.dtype).strides]
    storage = f'ctorch\n{STORAGES[values.dtype.name]}Storage\n'.encode()
    identity = tuple_(text('storage'), storage, text(key), text('cpu'), integer(values.size))
    return b'ctorch._utils\n_rebuild_tensor_v2\n' + tuple_(
        identity + b'Q', integer(0), tuple_(*map(integer, values.shape)), tuple_(*map(integer, strides)),
        b'\x89', ORDERED_DICT) + b'R'


def tuple_(*parts: bytes) -> bytes:
    return b'(' + b''.join(parts) + b't'


def text(value: str) -> bytes:
    data = value.encode()
    return b'X' + struct.pack('<I', len(data)) + data


def integer(value: int) -> bytes:
    """Of any size."""
    data = value.to_bytes(16, 'little', signed=True)
    return b'\x8a' + bytes([len(data)]) + data
