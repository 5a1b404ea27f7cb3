"""Recorded references: PyTorch's results, so that tests can compare with PyTorch without installing it.

A reference is two files in tests/references. `<name>.npz` holds what PyTorch computed. `<name>.json` holds
the versions that computed it, the SHA-256 of the .npz, the shapes of the networks' state dicts, and the
SHA-256 of all inputs and weights. Those are not stored: both sides draw them by name from NumPy's generator.
`make references` writes the files; `pytest -m torch` makes them again and compares.
"""
import hashlib
import json
import math
import pathlib
import zlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent.parent / 'references'
FILES = FOLDER / 'torch_files'  # small files that torch.save wrote
SIGMA = 1.5  # the spectral norm of a drawn kernel, about


class Draws:
    """Inputs and weights of one reference, each drawn by its own name.

    They are uniform numbers, added and multiplied in float32. That is exact on every machine; `log` and
    `exp`, and so normal numbers, are not.

    Attributes:
      digests: name -> SHA-256 of what was drawn.
    """

    def __init__(self, reference: str):
        self.reference, self.digests = reference, dict[str, str]()

    def uniform(self, name: str, shape, low: float = -1.0, high: float = 1.0) -> np.ndarray:
        """Numbers in [low, high), float32."""
        values = self._uniform(name, shape, low, high)
        self._digest(name, [values])
        return values

    def state(self, name: str, layout: dict[str, list[int]], gain: float = 1.0, measured=()):
        """A state dict: PyTorch's name -> values.

        Args:
          layout: PyTorch's name -> shape.
          gain: variance of a kernel's elements, times its number of inputs.
          measured: name -> values that are not drawn: statistics of batch normalisation.
        """
        measured = dict(measured)
        found = {key: measured[key] if key in measured else self._weight(key, shape, gain)
                 for key, shape in layout.items()}
        self._digest(name, [value for key, value in found.items() if key not in measured])
        return found

    def _uniform(self, name: str, shape, low: float, high: float) -> np.ndarray:
        draw = np.random.default_rng(zlib.crc32(f'{self.reference}/{name}'.encode()))
        return draw.random(shape, np.float32) * np.float32(high - low) + np.float32(low)

    def _weight(self, name: str, shape, gain: float) -> np.ndarray:
        if name.endswith('num_batches_tracked'):
            return np.array(1)
        if name.endswith(('.weight_u', '.weight_v')):  # of length 1
            signs = np.where(self._uniform(name, shape, -1, 1) < 0, np.float32(-1), np.float32(1))
            return signs / np.float32(math.sqrt(shape[0]))
        if name.endswith('running_var'):
            return self._uniform(name, shape, 0.5, 2)
        if len(shape) < 2:
            return self._uniform(name, shape, -0.5, 0.5) + np.float32(name.endswith('.weight'))
        inputs = math.prod(shape[1:])
        kernel = self._uniform(name, shape, -1, 1) * np.float32(math.sqrt(3 * gain / inputs))
        if name.endswith('.weight_orig'):  # u and v are close to its first singular vectors
            u, v = (self._weight(f'{name.removesuffix("orig")}{vector}', [n], gain)
                    for vector, n in (('u', shape[0]), ('v', inputs)))
            kernel += np.float32(SIGMA) * np.multiply.outer(u, v).reshape(shape)
        return kernel

    def _digest(self, name: str, arrays) -> None:
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array))
        self.digests[name] = digest.hexdigest()


class Reference(Draws):
    """A recorded reference. What it draws is what PyTorch was given, or an AssertionError.

    Attributes:
      arrays: what PyTorch computed, by name; `layouts`: name -> PyTorch's name -> shape;
      `files`: name -> SHA-256 of what `torch.save` wrote; `versions` that computed it.
    """

    def __init__(self, name: str, folder: pathlib.Path = FOLDER):
        super().__init__(name)
        record = json.loads((folder / f'{name}.json').read_text())
        self.versions, self.layouts, self._steps = record['versions'], record['layouts'], record['steps']
        self.drawn, self._gains, self.files = record['drawn'], record['gains'], record['files']
        path = folder / f'{name}.npz'
        assert sha256(path) == record['sha256'], f'{path} is not what was recorded'
        with np.load(path, allow_pickle=False) as file:
            self.arrays = {key: file[key] for key in file.files}

    def weights(self, name: str = 'net') -> dict[str, np.ndarray]:
        """The state dict of a network."""
        return self.state(name, self.layouts[name], self._gains[name], self.within(f'{name}.measured/'))

    def within(self, start: str) -> dict[str, np.ndarray]:
        """The arrays whose names begin so, by the rest of their names."""
        return {key.removeprefix(start): value for key, value in self.arrays.items() if key.startswith(start)}

    def compare(self, name: str, found, **tolerance) -> None:
        """Compares with PyTorch's answer, as `numpy.testing.assert_allclose` does."""
        for part, values in thinned(np.asarray(found), self._steps[name]).items():
            np.testing.assert_allclose(values, self.arrays[f'{name}{part}'], **tolerance,
                                       err_msg=f'{self.reference}: {name}{part}')

    def deviation(self, name: str) -> float:
        """Standard deviation of PyTorch's answer, or of the part that is stored."""
        return float(self.arrays[name].std())

    def _digest(self, name: str, arrays) -> None:
        super()._digest(name, arrays)
        assert self.digests[name] == self.drawn[name], (
            f'{self.reference}: NumPy {np.__version__} draws other numbers for {name} than NumPy '
            f'{self.versions["numpy"]} did when the reference was made; make it again (make references)')


def thinned(maps: np.ndarray, step: int) -> dict[str, np.ndarray]:
    """What is stored of an answer.

    All of it; or of maps [B, H, W, C] every step-th row and column, and over all places the mean of each
    channel and of its squares.
    """
    if step == 1:
        return {'': maps}
    maps, places = maps.astype(np.float64), (0, 1, 2)
    return {'': maps[:, ::step, ::step], ' mean': maps.mean(places), ' square': (maps ** 2).mean(places)}


def sha256(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob('*.json'))


def kernel(weight: np.ndarray) -> np.ndarray:
    """PyTorch's [kernels, maps, height, width] -> TensorFlow's [height, width, maps, kernels]."""
    return weight.transpose(2, 3, 1, 0)


def right_vector(v: np.ndarray, weight_shape) -> np.ndarray:
    """PyTorch's weight_v, which counts maps, height, width -> ours, which counts height, width, maps."""
    return v.reshape(weight_shape[1:]).transpose(1, 2, 0).ravel()
