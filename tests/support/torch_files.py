"""Small files that `torch.save` writes: state dicts of every kind, and objects that are not state dicts."""
import collections
import os
import pathlib
import struct

import torch
from torch import nn

from support.recorder import Recorder
from support.references import FILES

TYPES = ('float16', 'bfloat16', 'float32', 'float64', 'int8', 'int16', 'int32', 'int64', 'uint8', 'bool')
FLOATS = [0, 1, -3.140625, 65280, float('inf'), 1e-7]


class Call:
    """Pickled, this is a call of any function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


CALLS = {'system': Call(os.system, 'touch executed'), 'eval': Call(eval, 'open("executed", "w")'),
         'getattr': Call(getattr, 'open("executed", "w")'), 'path': Call(pathlib.Path, 'executed'),
         'load': Call(torch.load, 'executed')}


def float32(*values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def network() -> nn.Module:
    linear = nn.utils.spectral_norm(nn.Linear(5, 6))
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), linear).float()


class Saver:
    """Saves files into a folder, and records what PyTorch has in them."""

    def __init__(self, recorder: Recorder):
        self._recorder, self._folder = recorder, recorder.folder / FILES.name
        self._folder.mkdir(exist_ok=True)

    def __call__(self, name: str, value, **options) -> None:
        torch.save(value, self._folder / f'{name}.pth', **options)

    def state(self, name: str, value: dict[str, torch.Tensor], **options) -> None:
        self(name, value, **options)
        self.expect(name, value)

    def expect(self, name: str, value: dict[str, torch.Tensor]) -> None:
        self._recorder.put_exactly({
            f'{name}/{key}': (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()
            for key, tensor in value.items()})

    def python_2(self) -> None:
        """Byte strings, a dictionary made of a list of pairs, tensors and parameters as before 0.4."""
        def text(value):
            return b'U' + bytes([len(value)]) + value
        tensor = (b'ctorch._utils\n_rebuild_tensor\n((' + text(b'storage') + b'ctorch\nFloatStorage\n'
                  + text(b'94') + text(b'cuda:0') + b'K\x04NtQK\x01K\x03\x85K\x01\x85tR')
        parameter = (b'ctorch.nn.parameter\nParameter\n' + tensor
                     + b'\x88\x86R\x88\x89ccollections\nOrderedDict\n)R\x87b')
        pairs = b'](](' + text(b'a.weight') + tensor + b'e](' + text(b'b.bias') + parameter + b'ee'
        state = b'\x80\x02ccollections\nOrderedDict\n' + pairs + b'\x85R.'
        machine = b'\x80\x02}' + text(b'little_endian') + b'\x88s.'
        magic = b'\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.'
        path = self._folder / 'python-2.pth'
        path.write_bytes(magic + b'\x80\x02M\xe9\x03.' + machine + state + b'\x80\x02]' + text(b'94') + b'a.'
                         + struct.pack('<q4f', 4, 9, 1, 2, 3))
        self.expect('python-2', torch.load(path, map_location='cpu'))


def record(recorder: Recorder) -> None:
    save, net = Saver(recorder), network()
    state = recorder.state('net', {key: list(value.shape) for key, value in net.state_dict().items()})
    net.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()})
    for protocol in (2, 3, 4, 5):
        save.state(f'net-protocol-{protocol}', net.state_dict(), pickle_protocol=protocol)
    save.state('parameters', dict(net.named_parameters()))
    save.state('plain', {'a': torch.arange(6, dtype=torch.float32).reshape(2, 3), 'b': float32(1, 1)})
    floats, whole = (torch.tensor(values, dtype=torch.float64) for values in (FLOATS, [0, 1, 100]))
    save.state('types', {name: (floats if 'float' in name else whole).to(getattr(torch, name))
                         for name in TYPES})
    x = torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5)
    save.state('views', {
        'whole': x, 'channels last': x.permute(0, 2, 3, 1), 'every other': x[1, ::2, 1:, ::3],
        'one': x[0, 0, 0, 3], 'none': x[:0], 'own': torch.empty(0, 3, dtype=torch.float32)})
    for name, call in CALLS.items():
        for protocol in (2, 4):
            save(f'call-{name}-protocol-{protocol}', {'a': float32(1), 'b': call}, pickle_protocol=protocol)
    refused = {'tensor': float32(1, 1), 'number': {'epoch': 3}, 'escape': {'red\x1b[31m': float32(1)},
               'nested': {'model': {'a': float32(1)}}, 'rate': {'rate': 0.1}, 'list': [float32(1)],
               'module': net, 'complex': {'x': torch.ones(2, dtype=torch.complex64)},
               'sparse': {'x': float32(1, 1).to_sparse()}, 'expanded': {'x': float32(1).expand(1000, 1000)}}
    for name, value in refused.items():
        save(f'refused-{name}', value)
    save('two', {'a': torch.zeros(100, dtype=torch.float32), 'b': torch.zeros(100, dtype=torch.float32)})
    old = {'_use_new_zipfile_serialization': False}
    y = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    save.state('old-net', collections.OrderedDict(
        net.state_dict(), x=y, turned=y.permute(2, 0, 1)[1:], int=torch.arange(3),
        parameter=nn.Parameter(float32(1, 1))), **old)
    save('old-call', {'a': float32(1), 'b': CALLS['system']}, **old)
    save('old-ones', {'a': torch.ones(77, dtype=torch.float32)}, **old)
    save.python_2()
    recorder.put_files((recorder.folder / FILES.name).iterdir())
