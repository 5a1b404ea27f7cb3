"""PyTorch's files: genuine and forged."""
import os
import pathlib
import pickle
import shutil
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_models import ModelError
from keras_models.weights import torch_file
from support import torch_zip
from support.references import FILES, Reference, sha256

PICKLE = 'plain/data.pkl'
NET = ['0.weight', '0.bias', '1.weight', '1.bias', '1.running_mean', '1.running_var', '1.num_batches_tracked',
       '2.bias', '2.weight_orig', '2.weight_u', '2.weight_v']


@pytest.fixture(scope='module')
def reference():
    """What PyTorch has in the files of tests/references/torch_files."""
    return Reference('torch_files')


def saved(name: str) -> str:
    """A file that `torch.save` wrote."""
    return str(FILES / f'{name}.pth')


def compare(reference, name: str, found) -> None:
    """Compares a file's tensors with PyTorch's, and their order."""
    expected = reference.within(f'{name}/')
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert not found[key].flags.writeable
        np.testing.assert_array_equal(found[key], value, strict=True)


def rewritten(path, change, name=PICKLE, **options) -> str:
    """The archive with one member changed, its checksums right."""
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    members[name] = change(members.get(name))
    with zipfile.ZipFile(path, 'w', **options) as archive:
        for member, data in members.items():
            if data is not None:
                archive.writestr(member, data)
    return str(path)


@pytest.fixture
def file(tmp_path) -> str:
    return str(shutil.copy(saved('plain'), tmp_path / 'file.pth'))


def test_the_files_are_those_that_were_recorded(reference):
    assert {path.name: sha256(path) for path in FILES.iterdir()} == reference.files


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
def test_a_networks_state_dict(reference, protocol):
    found = torch_file.read(saved(f'net-protocol-{protocol}'))
    assert list(found) == NET and found['1.num_batches_tracked'].shape == ()
    compare(reference, f'net-protocol-{protocol}', found)


def test_parameters_are_tensors(reference):
    found = torch_file.read(saved('parameters'))
    assert found['0.weight'].shape == (4, 3, 3, 3)
    compare(reference, 'parameters', found)


@pytest.mark.parametrize('dtype', ['float16', 'bfloat16', 'float32', 'float64', 'int8', 'int16', 'int32', 'int64',
                                   'uint8', 'bool'])
def test_every_type(reference, dtype):
    found = torch_file.read(saved('types'))[dtype]
    assert found.dtype == ('float32' if dtype == 'bfloat16' else dtype)
    np.testing.assert_array_equal(found, reference.arrays[f'types/{dtype}'], strict=True)
    if 'float' in dtype:
        assert found[2] == -3.140625 and found[4] == np.inf and 0 <= found[5] < 1.2e-7
    else:
        assert list(found) == [0, 1, 100 if dtype != 'bool' else 1]


def test_views_and_what_shares_memory(reference):
    """Strides, offsets and one storage for all."""
    found = torch_file.read(saved('views'))
    compare(reference, 'views', found)
    assert np.shares_memory(found['whole'], found['every other'])
    assert found['channels last'].strides == (4 * 60, 4 * 5, 4 * 1, 4 * 20)


def test_the_files_our_tests_write_read_like_those_of_torch_save(reference, tmp_path):
    """tests/support/torch_zip.py, of whose files `pytest -m torch` shows that PyTorch reads them."""
    path = torch_zip.write(tmp_path / 'net.pth', torch_file.read(saved('net-protocol-2')))
    compare(reference, 'net-protocol-2', torch_file.read(path))


def test_big_endian(file):
    def swap(data):
        return np.frombuffer(data, '<f4').astype('>f4').tobytes()
    plain = torch_file.read(file)
    for member in ('plain/data/0', 'plain/data/1'):
        rewritten(file, swap, member)
    rewritten(file, lambda _: b'big', 'plain/byteorder')
    swapped = torch_file.read(file)
    for name, value in plain.items():
        np.testing.assert_array_equal(swapped[name], value, strict=True)
    with pytest.raises(ModelError, match="unknown byte order, b'middle'"):
        torch_file.read(rewritten(file, lambda _: b'middle', 'plain/byteorder'))


def test_without_a_mark_the_order_is_little(file):
    plain = torch_file.read(file)['a']
    unmarked = rewritten(file, lambda _: None, 'plain/byteorder')
    np.testing.assert_array_equal(torch_file.read(unmarked)['a'], plain)


class Call:
    """Pickled, this is a call of any function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize('name, function', [
    ('system', 'posix.system'), ('eval', '(builtins|__builtin__).eval'),
    ('getattr', '(builtins|__builtin__).getattr'), ('path', 'pathlib.Path'),
    ('load', 'torch.serialization.load')])
@pytest.mark.parametrize('protocol', [2, 4])
def test_nothing_is_executed(tmp_path, monkeypatch, name, function, protocol):
    monkeypatch.chdir(tmp_path)
    path = saved(f'call-{name}-protocol-{protocol}')
    with pytest.raises(ModelError, match=rf"pth asks for '{function}', .* nothing of it was executed"):
        torch_file.read(path)
    assert not list(tmp_path.iterdir())


def test_a_pickle_that_is_executed_would_have_left_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(saved('call-system-protocol-2')) as archive:
        [name] = [name for name in archive.namelist() if name.endswith('data.pkl')]
        assert b'posix\nsystem' in archive.read(name) and b'touch executed' in archive.read(name)
    pickle.loads(pickle.dumps(Call(os.system, 'touch executed')))  # noqa: S301  to show it
    assert (tmp_path / 'executed').exists()


@pytest.mark.parametrize('name, what', [
    ('tensor', 'holds no tensors by name'), ('number', "holds 'epoch', which is not a named tensor"),
    ('escape', r"holds 'red.x1b.31m', which is not a named tensor"),
    ('nested', "holds 'model', which is not a named tensor"),
    ('rate', "holds more than named tensors .the pickle's BINFLOAT"), ('list', 'holds no tensors by name'),
    ('module', "asks for 'torch.nn.modules.container.Sequential'"),
    ('complex', "asks for 'torch.ComplexFloatStorage'"),
    ('sparse', "asks for 'torch._utils._rebuild_sparse_tensor'")])
def test_what_is_no_state_dict_is_refused_with_the_remedy(name, what):
    remedy = r'give the state dict of one network, torch.save\(network.state_dict\(\), path\)'
    with pytest.raises(ModelError, match=f'refused-{name}.pth {what}.*{remedy}'):
        torch_file.read(saved(f'refused-{name}'))


def test_files_of_other_kinds(tmp_path, file):
    other = tmp_path / 'other.zip'
    with zipfile.ZipFile(other, 'w') as archive:
        archive.writestr('page.html', '<html>')
    with pytest.raises(ModelError, match='not of PyTorch: it has no data.pkl'):
        torch_file.read(str(other))
    (tmp_path / 'page').write_text('<html>Sign in to download</html>')
    for name, what in (
            ('page', 'is not an archive'), ('absent', 'cannot be read: .*No such file'), ('', 'cannot be read')):
        with pytest.raises(ModelError, match=what):
            torch_file.read(str(tmp_path / name))


def test_a_file_cut_off_anywhere_is_refused(file):
    with open(file, 'rb') as stream:
        data = stream.read()
    for length in [*range(0, len(data), 97), len(data) - 1]:
        with open(file, 'wb') as stream:
            stream.write(data[:length])
        with pytest.raises(ModelError, match='is damaged or truncated|is not an archive'):
            torch_file.read(file)


def test_a_damaged_storage_is_refused(file):
    with open(file, 'rb') as stream:
        data = stream.read()
    values = np.arange(6, dtype='f4').tobytes()
    assert data.count(values) == 1
    with open(file, 'wb') as stream:
        stream.write(data.replace(values, values[::-1]))
    with pytest.raises(ModelError, match="damaged or truncated .Bad CRC-32 for file 'plain/data/0'"):
        torch_file.read(file)


def test_sizes_that_are_not_so(file):
    with pytest.raises(ModelError, match="lacks its member 'plain/data/1'"):
        torch_file.read(rewritten(file, lambda _: None, 'plain/data/1'))
    with pytest.raises(ModelError, match=r"'plain/data/0' has 20 bytes instead of 6 elements of 4"):
        torch_file.read(rewritten(file, lambda data: data[4:], 'plain/data/0'))
    with pytest.raises(ModelError, match='1,000,000 elements from 1; save a clone'):
        torch_file.read(saved('refused-expanded'))


def test_no_archive_grows(tmp_path, file):
    """Neither compressed members nor members that lie in the same bytes."""
    with pytest.raises(ModelError, match='is a compressed'):
        torch_file.read(rewritten(file, lambda _: bytes(1 << 24), compression=zipfile.ZIP_DEFLATED))
    data = bytearray(pathlib.Path(saved('two')).read_bytes())
    nearly = len(data) - 200
    entry = data.index(b'PK\x01\x02')
    while data[entry:entry + 4] == b'PK\x01\x02':  # every entry of the directory claims nearly the whole file
        data[entry + 20:entry + 28] = struct.pack('<II', nearly, nearly)
        entry += 46 + sum(struct.unpack('<HHH', data[entry + 28:entry + 34]))
    path = tmp_path / 'two.pth'
    path.write_bytes(data)
    with pytest.raises(ModelError, match='overlap or are larger than the file'):
        torch_file.read(str(path))
    with pytest.raises(ModelError, match='a pickle of over 4,194,304 bytes'):
        torch_file.read(rewritten(file, lambda data: data + bytes(1 << 22)))


def program(*parts: bytes) -> bytes:
    return b'\x80\x02' + b''.join(parts) + b'.'


TENSOR = b'ctorch._utils\n_rebuild_tensor_v2\n'
STORAGE = b'(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06tQ'


def number(value: int) -> bytes:
    data = value.to_bytes(16, 'little', signed=True)
    return b'\x8a' + bytes([len(data)]) + data


@pytest.mark.parametrize('offset, size, stride', [
    (0, (7,), (1,)), (1, (6,), (1,)), (-1, (2,), (1,)), (0, (2,), (-1,)), (6, (1,), (1,)), (0, (-2,), (1,)),
    (0, (2,), ()), (0, (2, 3), (4, 1)), (2 ** 62, (1,), (1,)), (0, (2,), (2 ** 62,)), (2 ** 70, (1,), (1,)),
    (0, (2 ** 70, 0), (1, 1)), (0, (2 ** 32, 2 ** 32), (0, 0)), (0, (1,) * 33, (1,) * 33)])
def test_no_tensor_reaches_outside_its_storage(file, offset, size, stride):
    def tuple_(values):
        return b'(' + b''.join(map(number, values)) + b't'
    rewritten(file, lambda _: program(b'}X\x01\x00\x00\x00a', TENSOR, b'(', STORAGE, number(offset), tuple_(size),
                                      tuple_(stride), b'\x89tRs'))
    with pytest.raises(ModelError, match='is invalid|elements from'):
        torch_file.read(file)


def test_programs_that_never_end_elsewhere(file):
    """Tuples of the tuple before, twice, forty times: cheap to hold, and 2^40 steps to hash, compare or print."""
    deep = b')' + b''.join(b'q%c(h%ch%ct' % (n, n, n) for n in range(40))
    for use in (b'}' + deep + b'K\x01s', deep + b'Q', deep + b')R', b'}X\x01\x00\x00\x00a' + deep + b's',
                TENSOR + b'(' + STORAGE + b'K\x00' + deep + b')\x89tR', b'(' + deep + deep + b'))K\x01tQ', deep):
        with pytest.raises(ModelError):
            torch_file.read(rewritten(file, lambda _, use=use: program(use)))


def answer_is_a_sentence(path) -> bool:
    """Whether a file is refused."""
    try:
        found = torch_file.read(str(path))
    except ModelError as error:
        assert str(error).startswith(str(path)) and len(str(error).splitlines()) == 1
        return True
    assert all(isinstance(values, np.ndarray) for values in found.values())
    return False


def damage(good: bytes, write, start: int = 0) -> None:
    """Replaces one to three bytes after `start`, 500 times: arrays or a ModelError, and nothing else.

    write: makes a file of the damaged bytes; returns its path.
    """
    refused = []
    change = st.tuples(st.integers(start, len(good) - 1), st.integers(0, 255))

    @settings(max_examples=500, deadline=None, derandomize=True, database=None)
    @given(st.lists(change, min_size=1, max_size=3))
    def read(changes):
        bad = bytearray(good)
        for place, byte in changes:
            bad[place] = byte
        refused.append(answer_is_a_sentence(write(bytes(bad))))
    read()
    assert any(refused)


def writer(path):
    def write(data: bytes):
        pathlib.Path(path).write_bytes(data)
        return path
    return write


def test_whatever_the_pickle_says_the_answer_is_a_sentence(file):
    with zipfile.ZipFile(file) as archive:
        good = archive.read(PICKLE)
    damage(good, lambda bad: rewritten(file, lambda _: bad))


def test_whatever_the_archive_says_the_answer_is_a_sentence(file):
    good = pathlib.Path(file).read_bytes()
    damage(good, writer(file), start=good.index(b'PK\x01\x02'))


def test_whatever_an_old_file_says_the_answer_is_a_sentence(tmp_path):
    damage(pathlib.Path(saved('old-net')).read_bytes(), writer(tmp_path / 'file.pth'))


def test_files_of_before_1_6(reference, tmp_path):
    found = torch_file.read(saved('old-net'))
    assert list(found) == [*NET, 'x', 'turned', 'int', 'parameter']
    assert np.shares_memory(found['x'], found['turned'])
    compare(reference, 'old-net', found)
    data, path = pathlib.Path(saved('old-net')).read_bytes(), tmp_path / 'cut.pth'
    for cut in (len(data) - 1, len(data) - 100, 300, 60):
        path.write_bytes(data[:cut])
        with pytest.raises(ModelError, match='is damaged|truncated'):
            torch_file.read(str(path))


def test_files_pickled_by_python_2(reference):
    """Byte strings, a dictionary made of a list of pairs, tensors and parameters as they were before 0.4."""
    found = torch_file.read(saved('python-2'))
    np.testing.assert_array_equal(found['a.weight'], [1, 2, 3])
    compare(reference, 'python-2', found)


def test_old_files_execute_nothing_and_take_no_more_memory_than_they_have(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="old-call.pth asks for 'posix.system', .*nothing .* was executed"):
        torch_file.read(saved('old-call'))
    assert not list(tmp_path.iterdir())
    data, path = pathlib.Path(saved('old-ones')).read_bytes(), tmp_path / 'file.pth'
    assert data.count(b'KMN') == 1  # 77 elements
    path.write_bytes(data.replace(b'KMN', b'J\xff\xff\xff\x7fN', 1))
    with pytest.raises(ModelError, match='larger storages than the file'):
        torch_file.read(str(path))
