"""Record a reference with PyTorch.

PyTorch computes in float64 and float32 is stored, so that what is recorded hardly depends on the machine.
"""
import json
import pathlib
import re
from collections.abc import Callable, Iterable

import numpy as np
import torch

from support.references import Draws, sha256, thinned


class Recorder(Draws):
    """Draws inputs and weights of a reference and collects what PyTorch computes from them."""

    def __init__(self, reference: str, folder: pathlib.Path):
        super().__init__(reference)
        self.folder = folder
        self._arrays: dict[str, np.ndarray] = {}
        self._record: dict[str, dict] = {'steps': {}, 'gains': {}, 'layouts': {}, 'files': {}}

    def network(self, make: Callable[[], torch.nn.Module], name: str = 'net', gain: float = 1.0):
        """A network in float64 with drawn weights, in the mode that predicts."""
        with torch.device('meta'):  # shapes alone
            net = make()
        state = self.weights({key: list(value.shape) for key, value in net.state_dict().items()}, name, gain)
        net.load_state_dict(state, assign=True)
        return net.eval().requires_grad_(False)

    def weights(self, layout: dict[str, list[int]], name: str = 'net', gain: float = 1.0):
        """A drawn state dict of that layout: name -> tensor, float64."""
        self._record['layouts'][name], self._record['gains'][name] = layout, gain
        return {key: double(value) for key, value in self.state(name, layout, gain).items()}

    def put(self, name: str, values, step: int = 1) -> None:
        """Stores an answer, or of maps [B, H, W, C] every step-th row and column."""
        self._record['steps'][name] = step
        values = np.asarray(values.detach() if isinstance(values, torch.Tensor) else values)
        for part, each in thinned(values, step).items():
            self._arrays[f'{name}{part}'] = each.astype(np.float32) if each.dtype == np.float64 else each

    def put_measured(self, statistics: dict[str, torch.Tensor], name: str = 'net') -> None:
        """Stores statistics of batch normalisation, which replace drawn ones in the state dict `name`."""
        for key, value in statistics.items():
            self._arrays[f'{name}.measured/{key}'] = value.numpy().astype(np.float32)
        rest = {key: shape for key, shape in self._record['layouts'][name].items() if key not in statistics}
        self.state(name, rest, self._record['gains'][name])  # what is drawn now, for its digest

    def put_exactly(self, arrays: dict[str, np.ndarray]) -> None:
        """Stores arrays as they are."""
        self._arrays |= arrays

    def put_files(self, paths: Iterable[pathlib.Path]) -> None:
        self._record['files'] = {path.name: sha256(path) for path in sorted(paths)}

    def save(self) -> None:
        path = self.folder / f'{self.reference}.npz'
        np.savez_compressed(path, **self._arrays)
        record = {'versions': {'torch': torch.__version__, 'numpy': np.__version__}, 'sha256': sha256(path),
                  'drawn': self.digests, **self._record}
        text = json.dumps(record, indent=1)
        text = re.sub(r'\[([\d,\s]+)\]', lambda shape: f'[{" ".join(shape[1].split())}]', text)  # on one line
        (self.folder / f'{self.reference}.json').write_text(text + '\n')


def double(values: np.ndarray) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(values))
    return tensor.double() if tensor.is_floating_point() else tensor


def torch_maps(maps: np.ndarray) -> torch.Tensor:
    """[B, H, W, C] -> [B, C, H, W], float64."""
    return double(maps).permute(0, 3, 1, 2).contiguous()


def numpy_maps(maps: torch.Tensor) -> np.ndarray:
    """[B, C, H, W] -> [B, H, W, C]."""
    return maps.detach().permute(0, 2, 3, 1).numpy()
