"""PyTorch's files, as PyTorch writes them and as one might forge them."""
import os
import pathlib
import pickle
import struct
import zipfile

import numpy as np
import pytest

from keras_models import ModelError, torch_file

torch = pytest.importorskip('torch')


def saved(path, value, **kwargs) -> str:
    torch.save(value, path, **kwargs)
    return str(path)


def rewritten(path, change, name='file/data.pkl', **options) -> str:
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
    return saved(tmp_path / 'file.pth', {'a': torch.arange(6.0).reshape(2, 3), 'b': torch.ones(2)})


def network():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4),
                               torch.nn.utils.spectral_norm(torch.nn.Linear(5, 6)))


@pytest.mark.parametrize('protocol', [2, 3, 4, 5])
def test_a_networks_state_dict(tmp_path, protocol):
    state = network().state_dict()
    found = torch_file.read(saved(tmp_path / 'net.pth', state, pickle_protocol=protocol))
    assert list(found) == list(state) and '2.weight_orig' in found
    for name, value in state.items():
        assert found[name].dtype == value.numpy().dtype and not found[name].flags.writeable
        np.testing.assert_array_equal(found[name], value.numpy())
    assert found['1.num_batches_tracked'].shape == ()


def test_parameters_are_tensors(tmp_path):
    found = torch_file.read(saved(tmp_path / 'net.pth', dict(network().named_parameters())))
    assert found['0.weight'].shape == (4, 3, 3, 3)


@pytest.mark.parametrize('dtype', ['float16', 'bfloat16', 'float32', 'float64', 'int8', 'int16', 'int32', 'int64',
                                   'uint8', 'bool'])
def test_every_type(tmp_path, dtype):
    values = torch.tensor([0, 1, -3.140625, 65280, float('inf'), 1e-7] if 'float' in dtype else [0, 1, 100]).to(
        getattr(torch, dtype))
    found = torch_file.read(saved(tmp_path / 'file.pth', {'x': values}))['x']
    assert found.dtype == ('float32' if dtype == 'bfloat16' else dtype)
    np.testing.assert_array_equal(found, (values.float() if dtype == 'bfloat16' else values).numpy())


def test_views_and_what_shares_memory(tmp_path):
    """Strides, offsets and one storage for all."""
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    views = {'whole': x, 'channels last': x.permute(0, 2, 3, 1), 'every other': x[1, ::2, 1:, ::3],
             'one': x[0, 0, 0, 3], 'none': x[:0], 'own': torch.empty(0, 3)}
    path = saved(tmp_path / 'file.pth', views)
    found = torch_file.read(path)
    for name, value in views.items():
        np.testing.assert_array_equal(found[name], value.numpy(), strict=True)
    assert np.shares_memory(found['whole'], found['every other'])
    assert os.path.getsize(path) < 5 * x.nbytes + 2000
    assert found['channels last'].strides == tuple(4 * step for step in views['channels last'].stride())


def test_big_endian(file):
    def swap(data):
        return np.frombuffer(data, '<f4').astype('>f4').tobytes()
    plain = torch_file.read(file)
    for member in ('file/data/0', 'file/data/1'):
        rewritten(file, swap, member)
    rewritten(file, lambda _: b'big', 'file/byteorder')
    swapped = torch_file.read(file)
    for name, value in plain.items():
        np.testing.assert_array_equal(swapped[name], value, strict=True)
    with pytest.raises(ModelError, match="unknown byte order, b'middle'"):
        torch_file.read(rewritten(file, lambda _: b'middle', 'file/byteorder'))


def test_without_a_mark_the_order_is_little(file):
    plain = torch_file.read(file)['a']
    np.testing.assert_array_equal(torch_file.read(rewritten(file, lambda _: None, 'file/byteorder'))['a'], plain)


class Call:
    """Pickled, this is a call of any function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize('function, name', [(os.system, 'posix.system'), (eval, '(builtins|__builtin__).eval'),
                                            (getattr, '(builtins|__builtin__).getattr'), (pathlib.Path, 'pathlib.Path'),
                                            (torch.load, 'torch.serialization.load')])
@pytest.mark.parametrize('protocol', [2, 4])
def test_nothing_is_executed(tmp_path, function, name, protocol):
    mark = tmp_path / 'executed'
    argument = f'touch {mark}' if function is os.system else f'open({str(mark)!r}, "w")'
    path = saved(tmp_path / 'file.pth', {'a': torch.ones(1), 'b': Call(function, argument)}, pickle_protocol=protocol)
    with pytest.raises(ModelError, match=rf"file.pth asks for '{name}', .* nothing of it was executed"):
        torch_file.read(path)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Call(os.system, f'touch {mark}')))  # noqa: S301  it would have been
    assert mark.exists()


def test_what_is_no_state_dict_is_refused_with_the_remedy(tmp_path):
    remedy = r'give the state dict of one network, torch.save\(network.state_dict\(\), path\)'
    for value, what in ((torch.ones(2), 'holds no tensors by name'),
                        ({'epoch': 3}, "holds 'epoch', which is no named tensor"),
                        ({'red\x1b[31m': torch.ones(1)}, r"holds 'red.x1b.31m', which is no named tensor"),
                        ({'model': {'a': torch.ones(1)}}, "holds 'model', which is no named tensor"),
                        ({'rate': 0.1}, "holds more than tensors by name .the pickle's BINFLOAT"),
                        ([torch.ones(1)], 'holds no tensors by name'),
                        (network(), "asks for 'torch.nn.modules.container.Sequential'"),
                        ({'x': torch.ones(2, dtype=torch.complex64)}, "asks for 'torch.ComplexFloatStorage'"),
                        ({'x': torch.ones(2).to_sparse()}, "asks for 'torch._utils._rebuild_sparse_tensor'")):
        with pytest.raises(ModelError, match=f'file.pth {what}.*{remedy}'):
            torch_file.read(saved(tmp_path / 'file.pth', value))


def test_files_of_other_kinds(tmp_path, file):
    other = tmp_path / 'other.zip'
    with zipfile.ZipFile(other, 'w') as archive:
        archive.writestr('page.html', '<html>')
    with pytest.raises(ModelError, match='not of PyTorch: it has no data.pkl'):
        torch_file.read(str(other))
    (tmp_path / 'page').write_text('<html>Sign in to download</html>')
    for name, what in (('page', 'is no archive'), ('absent', 'cannot be read: .*No such file'), ('', 'cannot be read')):
        with pytest.raises(ModelError, match=what):
            torch_file.read(str(tmp_path / name))


def test_a_file_cut_off_anywhere_is_refused(file):
    with open(file, 'rb') as stream:
        data = stream.read()
    for length in [*range(0, len(data), 97), len(data) - 1]:
        with open(file, 'wb') as stream:
            stream.write(data[:length])
        with pytest.raises(ModelError, match='is damaged or cut off|is no archive'):
            torch_file.read(file)


def test_a_damaged_storage_is_refused(file):
    with open(file, 'rb') as stream:
        data = stream.read()
    values = np.arange(6, dtype='f4').tobytes()
    assert data.count(values) == 1
    with open(file, 'wb') as stream:
        stream.write(data.replace(values, values[::-1]))
    with pytest.raises(ModelError, match="damaged or cut off .Bad CRC-32 for file 'file/data/0'"):
        torch_file.read(file)


def test_sizes_that_are_not_so(tmp_path, file):
    with pytest.raises(ModelError, match="lacks its member 'file/data/1'"):
        torch_file.read(rewritten(file, lambda _: None, 'file/data/1'))
    with pytest.raises(ModelError, match=r"'file/data/0' has 20 bytes, which should be 6 elements of 4"):
        torch_file.read(rewritten(file, lambda data: data[4:], 'file/data/0'))
    with pytest.raises(ModelError, match='1,000,000 elements made of 1; save a clone'):
        torch_file.read(saved(tmp_path / 'file.pth', {'x': torch.ones(1).expand(1000, 1000)}))


def test_no_archive_grows(tmp_path, file):
    """Neither compressed members nor members that lie in the same bytes."""
    with pytest.raises(ModelError, match='is a compressed'):
        torch_file.read(rewritten(file, lambda _: bytes(1 << 24), compression=zipfile.ZIP_DEFLATED))
    path = saved(tmp_path / 'two.pth', {'a': torch.zeros(1000), 'b': torch.zeros(1000)})
    with open(path, 'rb') as stream:
        data = bytearray(stream.read())
    entry = data.index(b'PK\x01\x02')
    while data[entry:entry + 4] == b'PK\x01\x02':  # every entry of the directory claims nearly the whole file
        data[entry + 20:entry + 28] = struct.pack('<II', 9000, 9000)
        entry += 46 + sum(struct.unpack('<HHH', data[entry + 28:entry + 34]))
    with open(path, 'wb') as stream:
        stream.write(data)
    with pytest.raises(ModelError, match='overlap or are larger than the file'):
        torch_file.read(path)
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
    with pytest.raises(ModelError, match='makes no sense|elements made of'):
        torch_file.read(file)


def test_programs_that_never_end_elsewhere(file):
    """Tuples of the tuple before, twice, forty times: cheap to hold, and 2^40 steps to hash, compare or print."""
    deep = b')' + b''.join(b'q%c(h%ch%ct' % (n, n, n) for n in range(40))
    for use in (b'}' + deep + b'K\x01s', deep + b'Q', deep + b')R', b'}X\x01\x00\x00\x00a' + deep + b's',
                TENSOR + b'(' + STORAGE + b'K\x00' + deep + b')\x89tR', b'(' + deep + deep + b'))K\x01tQ', deep):
        with pytest.raises(ModelError):
            torch_file.read(rewritten(file, lambda _, use=use: program(use)))


def test_whatever_the_pickle_says_the_answer_is_a_sentence(file):
    """Two thousand damaged pickles: arrays or a ModelError, and nothing else."""
    with zipfile.ZipFile(file) as archive:
        good = archive.read('file/data.pkl')
        draw = np.random.default_rng(0)
        refused = 0
        for _ in range(2000):
            bad = bytearray(good)
            for place in draw.integers(len(bad), size=draw.integers(1, 4)):
                bad[place] = draw.integers(256)
            try:
                torch_file._interpret(bytes(bad), torch_file._Storages(archive, 'file', '<'))
            except (ModelError, ValueError, TypeError, LookupError, OverflowError):
                refused += 1
    assert 500 < refused < 2000


def test_whatever_the_archive_says_the_answer_is_a_sentence(file):
    with open(file, 'rb') as stream:
        good = stream.read()
    draw = np.random.default_rng(0)
    for _ in range(100):
        bad = bytearray(good)
        start = good.index(b'PK\x01\x02')
        for place in draw.integers(start, len(bad), size=3):
            bad[place] = draw.integers(256)
        with open(file, 'wb') as stream:
            stream.write(bad)
        try:
            torch_file.read(file)
        except ModelError as error:
            assert '\n' not in str(error)


def legacy(path, value, **kwargs) -> str:
    return saved(path, value, _use_new_zipfile_serialization=False, **kwargs)


def test_files_of_before_1_6(tmp_path):
    x = torch.arange(24.0).reshape(2, 3, 4)
    state = {**network().state_dict(), 'x': x, 'turned': x.permute(2, 0, 1)[1:], 'int': torch.arange(3),
             'parameter': torch.nn.Parameter(torch.ones(2))}
    path = legacy(tmp_path / 'net.pth', state)
    found = torch_file.read(path)
    assert list(found) == list(state) and np.shares_memory(found['x'], found['turned'])
    for name, value in state.items():
        assert not found[name].flags.writeable
        np.testing.assert_array_equal(found[name], value.detach().numpy(), strict=True)
    data = pathlib.Path(path).read_bytes()
    for cut in (len(data) - 1, len(data) - 100, 300, 60):
        pathlib.Path(path).write_bytes(data[:cut])
        with pytest.raises(ModelError, match='is damaged|cut off'):
            torch_file.read(path)


def test_files_pickled_by_python_2(tmp_path):
    """Byte strings, a dictionary made of a list of pairs, tensors and parameters as they were before 0.4."""
    def text(value):
        return b'U' + bytes([len(value)]) + value
    tensor = (b'ctorch._utils\n_rebuild_tensor\n((' + text(b'storage') + b'ctorch\nFloatStorage\n' + text(b'94')
              + text(b'cuda:0') + b'K\x04NtQK\x01K\x03\x85K\x01\x85tR')
    parameter = b'ctorch.nn.parameter\nParameter\n' + tensor + b'\x88\x86R\x88\x89ccollections\nOrderedDict\n)R\x87b'
    pairs = b'](](' + text(b'a.weight') + tensor + b'e](' + text(b'b.bias') + parameter + b'ee'
    state = b'\x80\x02ccollections\nOrderedDict\n' + pairs + b'\x85R.'
    names = b'\x80\x02]' + text(b'94') + b'a.'
    path = tmp_path / 'old.pth'
    machine = b'\x80\x02}' + text(b'little_endian') + b'\x88s.'
    storage = struct.pack('<q4f', 4, 9, 1, 2, 3)
    path.write_bytes(torch_file.LEGACY + b'\x80\x02M\xe9\x03.' + machine + state + names + storage)
    found = torch_file.read(str(path))
    assert list(found) == ['a.weight', 'b.bias']
    np.testing.assert_array_equal(found['a.weight'], [1, 2, 3])
    np.testing.assert_array_equal(torch.load(path, map_location='cpu')['b.bias'].detach(), found['b.bias'])


def test_old_files_execute_nothing_and_take_no_more_memory_than_they_have(tmp_path):
    mark = tmp_path / 'executed'
    path = legacy(tmp_path / 'file.pth', {'a': torch.ones(1), 'b': Call(os.system, f'touch {mark}')})
    with pytest.raises(ModelError, match=r"file.pth asks for 'posix.system', .* nothing of it was executed"):
        torch_file.read(path)
    assert not mark.exists()
    path = legacy(tmp_path / 'file.pth', {'a': torch.ones(77)})
    data = pathlib.Path(path).read_bytes()
    pathlib.Path(path).write_bytes(data.replace(b'KMN', b'J\xff\xff\xff\x7fN', 1))
    with pytest.raises(ModelError, match='larger storages than the file'):
        torch_file.read(path)


def test_whatever_an_old_file_says_the_answer_is_a_sentence(tmp_path):
    path = pathlib.Path(legacy(tmp_path / 'file.pth', network().state_dict()))
    data, draw = path.read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(data)
        for place in draw.integers(0, len(data), 3):
            damaged[place] = draw.integers(256)
        path.write_bytes(damaged)
        try:
            torch_file.read(str(path))
        except ModelError:
            pass
