"""Read tensors from a PyTorch file (.pth, .pt), without PyTorch and without executing its pickle.

`torch.save` writes a zip archive: each storage's bytes as a member, and a pickle that says which tensor lies where in
which storage. Before 1.6 it wrote consecutive pickles followed by the storages, the format of many published weights. A
pickle is a program that can call any function. The interpreter here knows only the instructions a state dict needs and
the few functions in `_CALLS`, which are its own; everything else is refused.
"""
import io
import pickletools  # noqa: TID251 (it disassembles a pickle and runs nothing)
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_models import ModelError

BFLOAT16 = 'torch BFloat16Storage'
# By their names in the pickle; module and attribute form one string, which is never looked up.
DTYPES = {'torch HalfStorage': 'f2', BFLOAT16: 'u2', 'torch FloatStorage': 'f4', 'torch DoubleStorage': 'f8',
          'torch CharStorage': 'i1', 'torch ShortStorage': 'i2', 'torch IntStorage': 'i4', 'torch LongStorage': 'i8',
          'torch ByteStorage': 'u1', 'torch BoolStorage': '?'}
BYTE_ORDERS = {b'little': '<', b'big': '>'}
LARGEST_PICKLE = 1 << 22  # bytes; a tensor takes about 150, and a hostile byte may use a hundred bytes of memory
LEGACY = b'\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.'  # the pickled magic number of files before 1.6
REMEDY = 'give the state dict of one network, torch.save(network.state_dict(), path)'


def read(path: str) -> dict[str, np.ndarray]:
    """Read a state dict.

    Returns:
      name -> values, in the machine's byte order and read-only; float32 for bfloat16. Tensors that share a storage in
      the file share memory.

    Raises:
      ModelError: the file cannot be read, is not such an archive, is damaged, or its pickle contains anything but
        named tensors. Nothing of it is executed in any case.
    """
    try:
        with tf.io.gfile.GFile(path, 'rb') as file:
            return _state_dict(file)
    except ModelError as error:
        raise ModelError(f'{path} {error}') from error
    except tf.errors.OpError as error:
        raise ModelError(f'{path} cannot be read: {error.message}') from error
    # TensorFlow's files raise TypeError for a negative offset, to which a damaged directory may point.
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, TypeError) as error:
        what = str(error).partition('\n')[0]
        raise ModelError(f'{path} is damaged or truncated ({what}); fetch it again') from error


def _state_dict(file) -> dict[str, np.ndarray]:
    start = file.read(len(LEGACY))
    if start == LEGACY:
        return _named(_understood(_legacy, file))
    if not start.startswith(b'PK'):
        raise ModelError('is not an archive in PyTorch\'s format; give a .pth file')
    with zipfile.ZipFile(file) as archive:
        root = _check(archive, file.size())
        program, order = archive.read(f'{root}/data.pkl'), b'little'  # almost all files without a mark
        if f'{root}/byteorder' in archive.namelist():
            order = archive.read(f'{root}/byteorder')
        if order not in BYTE_ORDERS:
            raise ModelError(f'has an unknown byte order, {order[:20]!r}')
        storages = _Storages(archive, root, BYTE_ORDERS[order])
        return _named(_understood(_interpret, program, storages))


def _understood(function, *arguments):
    """Call a function on pickles and report their errors as damage of the file."""
    try:
        return function(*arguments)
    except ModelError:
        raise
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise ModelError(f'is damaged: its pickle is invalid ({error}); fetch it again') from error


def _named(found) -> dict[str, np.ndarray]:
    if not isinstance(found, dict):
        raise ModelError(f'holds no tensors by name; {REMEDY}')
    other = [name for name, value in found.items() if not isinstance(value, np.ndarray) or not name.isprintable()]
    if other:
        raise ModelError(f'holds {other[0][:99]!r}, which is not a named tensor; {REMEDY}')
    return found


def _check(archive: zipfile.ZipFile, size: int) -> str:
    """Return the folder of all members, after checking that none unpacks to more than the archive's size."""
    members = archive.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
        raise ModelError('is a compressed or encrypted archive, which PyTorch does not write')
    if sum(max(member.file_size, member.compress_size) for member in members) > size:
        raise ModelError('is damaged: its members overlap or are larger than the file')
    roots = [name.removesuffix('/data.pkl') for name in archive.namelist() if name.endswith('/data.pkl')]
    if len(roots) != 1:
        raise ModelError('is an archive, but not of PyTorch: it has no data.pkl')
    if archive.getinfo(f'{roots[0]}/data.pkl').file_size > LARGEST_PICKLE:
        raise ModelError(f'has a pickle of over {LARGEST_PICKLE:,} bytes; {REMEDY}')
    return roots[0]


class _Storages:
    """The archive's raw numbers, each member read once."""

    def __init__(self, archive: zipfile.ZipFile, root: str, order: str):
        self._archive, self._root, self._order = archive, root, order
        self._read: dict[tuple[str, str, int], np.ndarray] = {}

    def __call__(self, identity) -> np.ndarray:
        """Return the elements of a persistent identity, ('storage', type, member, device, elements)."""
        what, kind, key, _, count = identity
        if what != 'storage' or not isinstance(kind, str) or not isinstance(key, str) or not isinstance(count, int):
            raise ValueError('a storage without type, name and length')
        if (kind, key, count) not in self._read:
            self._read[kind, key, count] = self._values(kind, key, count)
        return self._read[kind, key, count]

    def _values(self, kind: str, key: str, count: int) -> np.ndarray:
        dtype, name = np.dtype(self._order + DTYPES[kind]), f'{self._root}/data/{key}'
        try:
            size = self._archive.getinfo(name).file_size
        except KeyError as error:
            raise ModelError(f'lacks its member {name[:99]!r}; fetch it again') from error
        if size != count * dtype.itemsize:
            raise ModelError(f'is damaged: {name[:99]!r} has {size:,} bytes instead of {count:,} elements of '
                             f'{dtype.itemsize}; fetch it again')
        values = np.ndarray((count,), dtype, self._archive.read(name)).astype(dtype.newbyteorder('='), copy=False)
        if kind == BFLOAT16:  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        values.flags.writeable = False
        return values


def _legacy(file) -> Any:
    """Read the pickles after the magic number (version, machine, state dict, storages' names), then the storages."""
    start, pickles, storages = file.tell(), io.BytesIO(file.read(LARGEST_PICKLE)), _LaterStorages(file.size())
    found = [_interpret(pickles, storages) for _ in range(4)]
    file.seek(start + pickles.tell())
    storages.fill(file, found[3])
    return found[2]


class _LaterStorages:
    """Storages whose numbers follow the pickles; little-endian, like the machines that wrote them.

    Args:
      room: most bytes of all of them, from the file's size.
    """

    def __init__(self, room: int):
        self._room, self._made = room, dict[str, np.ndarray]()

    def __call__(self, identity) -> np.ndarray:
        """Return zeros for now, as `_Storages`; a further part of the identity names a nested storage."""
        what, kind, key, _, count, within = identity
        if what != 'storage' or not isinstance(kind, str) or not isinstance(key, str) or not isinstance(count, int):
            raise ValueError('a storage without type, name and length')
        if within is not None or kind == BFLOAT16:
            raise ModelError('has storages of a kind removed in PyTorch 1.6; load it with a current torch and save '
                             'it again')
        dtype = np.dtype(f'<{DTYPES[kind]}')
        if key not in self._made:
            self._room -= count * dtype.itemsize
            if self._room < 0:
                raise ValueError('larger storages than the file')
            self._made[key] = np.zeros(count, dtype)
        if self._made[key].dtype != dtype or len(self._made[key]) != count:
            raise ValueError('one storage of two types or lengths')
        shown = self._made[key].view()
        shown.flags.writeable = False
        return shown

    def fill(self, file, names) -> None:
        """Read each storage, eight bytes of length and its elements, in the order of names."""
        if not isinstance(names, list) or {*map(_string, names)} != {*self._made} or len(names) != len(self._made):
            raise ValueError('other storages than its tensors use')
        for name in names:
            storage, count = self._made[name], int.from_bytes(file.read(8), 'little')
            if count != len(storage):
                raise ValueError(f'a storage of {count:,} elements instead of {len(storage):,}')
            storage[:] = np.frombuffer(file.read(storage.nbytes), storage.dtype, count)


def _tensor(arguments) -> np.ndarray:
    """Replace torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, …)."""
    storage, offset, size, stride = arguments[:4]
    if not (isinstance(storage, np.ndarray) and isinstance(size, tuple) and isinstance(stride, tuple)
            and all(isinstance(number, int) for number in (offset, *size, *stride))):
        raise ValueError('a tensor without storage, size and strides')
    each = storage.itemsize
    tensor: np.ndarray = np.ndarray(size, storage.dtype, storage, offset * each, [step * each for step in stride])
    if tensor.size > storage.size:  # an expanded tensor, which as an array could have any size
        raise ModelError(f'has a tensor of {tensor.size:,} elements from {storage.size:,}; save a clone() of it')
    return tensor


def _parameter(arguments) -> np.ndarray:
    """Replace torch._utils._rebuild_parameter(tensor, requires_grad, hooks), and the class itself, pickled earlier."""
    return arguments[0]


def _dictionary(arguments) -> dict:
    """Make an empty dictionary, or one of a list of pairs, as Python 2 does; the list is consumed, against reuse."""
    made: dict[str, Any] = {}
    for pairs in arguments:
        if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
            raise ValueError('a dictionary made of arguments')
        _set(made, [part for pair in pairs for part in pair])
        pairs.clear()
    return made


_CALLS: dict[str, Callable[[Any], Any]] = {
    'torch._utils _rebuild_tensor_v2': _tensor, 'torch._utils _rebuild_tensor': _tensor,
    'torch._utils _rebuild_parameter': _parameter, 'torch.nn.parameter Parameter': _parameter,
    'collections OrderedDict': _dictionary}


def _interpret(program, storages: Callable[[Any], np.ndarray]) -> Any:
    """Interpret a pickle as far as a state dict needs.

    The stack holds None, booleans, numbers, strings, tuples, lists, dictionaries with string keys, arrays, and the
    names of globals as strings. Keys and names are hashed only if they are strings, because hashing nested tuples can
    take for ever.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}

    def above(start: int) -> list:
        items = stack[start:]
        del stack[start:]
        return items
    opcode: Any
    argument: Any
    for opcode, argument, _ in pickletools.genops(program):
        match opcode.name:
            case 'PROTO' | 'FRAME':
                pass
            case 'MARK':
                marks.append(len(stack))
            case ('BININT' | 'BININT1' | 'BININT2' | 'LONG1' | 'BINUNICODE' | 'SHORT_BINUNICODE'
                  | 'SHORT_BINSTRING'):  # the last is Python 2's
                stack.append(argument)
            case 'EMPTY_LIST':
                stack.append([])
            case 'APPEND':
                _list(stack[-2]).append(stack.pop())
            case 'APPENDS':
                items = above(marks.pop())
                _list(stack[-1]).extend(items)
            case 'NONE' | 'NEWTRUE' | 'NEWFALSE' | 'EMPTY_TUPLE' | 'EMPTY_DICT' as name:
                stack.append({'NONE': None, 'NEWTRUE': True, 'NEWFALSE': False, 'EMPTY_TUPLE': ()}.get(name, {}))
            case 'TUPLE':
                stack.append(tuple(above(marks.pop())))
            case 'TUPLE1' | 'TUPLE2' | 'TUPLE3' as name:
                stack.append(tuple(above(-int(name[-1]))))
            case 'BINPUT' | 'LONG_BINPUT':
                memo[argument] = stack[-1]
            case 'MEMOIZE':
                memo[len(memo)] = stack[-1]
            case 'BINGET' | 'LONG_BINGET':
                stack.append(memo[argument])
            case 'GLOBAL':
                stack.append(_known(*argument.split(' ')))
            case 'STACK_GLOBAL':
                stack.append(_known(*above(-2)))
            case 'BINPERSID':
                stack.append(storages(stack.pop()))
            case 'REDUCE':
                function, arguments = above(-2)
                stack.append(_CALLS[_string(function)](arguments))
            case 'SETITEM':
                _set(stack[-3], above(-2))
            case 'SETITEMS':
                items = above(marks.pop())
                _set(stack[-1], items)
            case 'BUILD':  # a state dict's attribute `_metadata`, not needed
                stack.pop()
            case 'STOP':
                return stack.pop()
            case name:
                raise ModelError(f'holds more than named tensors (the pickle\'s {name}); {REMEDY}')


def _known(module, name) -> str:
    """Return a global's name if it is a known one."""
    known = f'{_string(module)} {_string(name)}'
    if known not in _CALLS and known not in DTYPES:
        raise ModelError(f'asks for {f"{module}.{name}"[:99]!r}, which named tensors do not need; nothing of '
                         f'it was executed; {REMEDY}')
    return known


def _string(value) -> str:
    if not isinstance(value, str):
        raise ValueError('something else in place of a name')
    return value


def _list(value) -> list:
    if not isinstance(value, list):
        raise ValueError('items without a list')
    return value


def _set(target, items: list) -> None:
    if not isinstance(target, dict) or len(items) % 2:
        raise ValueError('items without a dictionary')
    target.update(zip(map(_string, items[::2]), items[1::2]))
