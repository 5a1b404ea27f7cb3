"""The tensors in a file of PyTorch (.pth, .pt), without PyTorch and without executing its pickle.

`torch.save` writes a zip archive: each storage's bytes as a member, and a pickle that says which tensor lies where in
which storage. Before 1.6 it wrote pickles one after another and the storages behind them, as many published weights
still are. A pickle is a program that can call any function there is. Here a machine reads it that knows only the
instructions a state dict needs and the few functions in `_CALLS`, which are its own; everything else is refused.
"""
import io
import pickletools  # noqa: TID251 (it takes a pickle apart and runs nothing)
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_models import ModelError

BFLOAT16 = 'torch BFloat16Storage'
# By the names the pickle has for them; a module and what is in it are one string here, which nobody looks up.
DTYPES = {'torch HalfStorage': 'f2', BFLOAT16: 'u2', 'torch FloatStorage': 'f4', 'torch DoubleStorage': 'f8',
          'torch CharStorage': 'i1', 'torch ShortStorage': 'i2', 'torch IntStorage': 'i4', 'torch LongStorage': 'i8',
          'torch ByteStorage': 'u1', 'torch BoolStorage': '?'}
BYTE_ORDERS = {b'little': '<', b'big': '>'}
LARGEST_PICKLE = 1 << 22  # bytes; a tensor takes about 150, and a hostile byte up to a hundred of memory
LEGACY = b'\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.'  # the magic number, pickled: a file of before 1.6
REMEDY = 'give the state dict of one network, torch.save(network.state_dict(), path)'


def read(path: str) -> dict[str, np.ndarray]:
    """Reads a state dict.

    Returns:
      name -> values, in the machine's byte order and read-only; float32 for bfloat16. Tensors that share a storage in
      the file share memory.

    Raises:
      ModelError: the file cannot be read, is no such archive, is damaged, or its pickle asks for anything but tensors
        by name. In no case was anything of it executed.
    """
    try:
        with tf.io.gfile.GFile(path, 'rb') as file:
            return _state_dict(file)
    except ModelError as error:
        raise ModelError(f'{path} {error}') from error
    except tf.errors.OpError as error:
        raise ModelError(f'{path} cannot be read: {error.message}') from error
    # TypeError is what TensorFlow's files say of a place below zero, where a damaged directory may point.
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, TypeError) as error:
        what = str(error).partition('\n')[0]
        raise ModelError(f'{path} is damaged or cut off ({what}); fetch it again') from error


def _state_dict(file) -> dict[str, np.ndarray]:
    start = file.read(len(LEGACY))
    if start == LEGACY:
        return _named(_understood(_legacy, file))
    if not start.startswith(b'PK'):
        raise ModelError('is no archive as PyTorch writes them; give a .pth file')
    with zipfile.ZipFile(file) as archive:
        root = _check(archive, file.size())
        program, order = archive.read(f'{root}/data.pkl'), b'little'  # what wrote no mark was as good as always that
        if f'{root}/byteorder' in archive.namelist():
            order = archive.read(f'{root}/byteorder')
        if order not in BYTE_ORDERS:
            raise ModelError(f'has an unknown byte order, {order[:20]!r}')
        storages = _Storages(archive, root, BYTE_ORDERS[order])
        return _named(_understood(_interpret, program, storages))


def _understood(function, *arguments):
    """What a function makes of pickles, whose nonsense is not its fault."""
    try:
        return function(*arguments)
    except ModelError:
        raise
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise ModelError(f'is damaged: its pickle makes no sense ({error}); fetch it again') from error


def _named(found) -> dict[str, np.ndarray]:
    if not isinstance(found, dict):
        raise ModelError(f'holds no tensors by name; {REMEDY}')
    other = [name for name, value in found.items() if not isinstance(value, np.ndarray) or not name.isprintable()]
    if other:
        raise ModelError(f'holds {other[0][:99]!r}, which is no named tensor; {REMEDY}')
    return found


def _check(archive: zipfile.ZipFile, size: int) -> str:
    """The folder all members lie in. Nothing in the archive may become larger than the archive."""
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
        """A persistent identity, ('storage', type, member, device, elements) -> its elements."""
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
            raise ModelError(f'is damaged: {name[:99]!r} has {size:,} bytes, which should be {count:,} elements of '
                             f'{dtype.itemsize}; fetch it again')
        values = np.ndarray((count,), dtype, self._archive.read(name)).astype(dtype.newbyteorder('='), copy=False)
        if kind == BFLOAT16:  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        values.flags.writeable = False
        return values


def _legacy(file) -> Any:
    """After the magic number the pickles of version, machine, state dict and storages' names; then the storages."""
    start, pickles, storages = file.tell(), io.BytesIO(file.read(LARGEST_PICKLE)), _LaterStorages(file.size())
    found = [_interpret(pickles, storages) for _ in range(4)]
    file.seek(start + pickles.tell())
    storages.fill(file, found[3])
    return found[2]


class _LaterStorages:
    """Storages whose numbers come after the pickles: little-endian, as the machines were that wrote them.

    Args:
      room: bytes that all of them may have, as the file has no more.
    """

    def __init__(self, room: int):
        self._room, self._made = room, dict[str, np.ndarray]()

    def __call__(self, identity) -> np.ndarray:
        """As `_Storages`, zeros so far; one more part tells of a storage within another."""
        what, kind, key, _, count, within = identity
        if what != 'storage' or not isinstance(kind, str) or not isinstance(key, str) or not isinstance(count, int):
            raise ValueError('a storage without type, name and length')
        if within is not None or kind == BFLOAT16:
            raise ModelError('has storages that only PyTorch before 1.6 knew; load it with a current torch and save '
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
        """Each storage is its length, eight bytes, and its elements, in the order of names."""
        if not isinstance(names, list) or {*map(_string, names)} != {*self._made} or len(names) != len(self._made):
            raise ValueError('other storages than its tensors are of')
        for name in names:
            storage, count = self._made[name], int.from_bytes(file.read(8), 'little')
            if count != len(storage):
                raise ValueError(f'a storage of {count:,} elements which should be {len(storage):,}')
            storage[:] = np.frombuffer(file.read(storage.nbytes), storage.dtype, count)


def _tensor(arguments) -> np.ndarray:
    """torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, …)."""
    storage, offset, size, stride = arguments[:4]
    if not (isinstance(storage, np.ndarray) and isinstance(size, tuple) and isinstance(stride, tuple)
            and all(isinstance(number, int) for number in (offset, *size, *stride))):
        raise ValueError('a tensor without storage, size and strides')
    each = storage.itemsize
    tensor: np.ndarray = np.ndarray(size, storage.dtype, storage, offset * each, [step * each for step in stride])
    if tensor.size > storage.size:  # an expanded one, which as an array of its own could be of any size
        raise ModelError(f'has a tensor of {tensor.size:,} elements made of {storage.size:,}; save a clone() of it')
    return tensor


def _parameter(arguments) -> np.ndarray:
    """torch._utils._rebuild_parameter(tensor, requires_grad, hooks), and the class itself, as it was pickled before."""
    return arguments[0]


def _dictionary(arguments) -> dict:
    """Empty; or of a list of pairs, as Python 2 has it. The list is used up: nobody makes dictionaries of one twice."""
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
    """Follows a pickle as far as a state dict goes: on the stack are None, booleans, numbers, strings, tuples, lists,
    dictionaries with strings for keys, arrays, and the names of globals as strings.

    Keys and names are looked at only where they are strings: the hash of tuples within tuples can take for ever.
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
            case 'BUILD':  # a state dict's attribute `_metadata`, of no use here
                stack.pop()
            case 'STOP':
                return stack.pop()
            case name:
                raise ModelError(f'holds more than tensors by name (the pickle\'s {name}); {REMEDY}')


def _known(module, name) -> str:
    """A global's name, if it is one of ours."""
    known = f'{_string(module)} {_string(name)}'
    if known not in _CALLS and known not in DTYPES:
        raise ModelError(f'asks for {f"{module}.{name}"[:99]!r}, which plain tensors by name do not need; nothing of '
                         f'it was executed; {REMEDY}')
    return known


def _string(value) -> str:
    if not isinstance(value, str):
        raise ValueError('something else where a name should be')
    return value


def _list(value) -> list:
    if not isinstance(value, list):
        raise ValueError('items without a list')
    return value


def _set(target, items: list) -> None:
    if not isinstance(target, dict) or len(items) % 2:
        raise ValueError('items without a dictionary')
    target.update(zip(map(_string, items[::2]), items[1::2]))
