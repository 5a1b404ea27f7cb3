"""What all sides of VITON-HD's comparisons start from, the same in every environment: NumPy alone makes it."""
import math
import zlib
from collections.abc import Mapping, Sequence

import inputs
import numpy as np

LOW = (256, 192)  # where the parse is predicted and the warp found
CLASSES = 13
WATCHED = {  # an early and a late kernel of each generator, whose gradients are compared
    'geometric_matching': ('extractionA.model.0.weight', 'regression.linear.weight'),
    'segmentation': ('conv1.0.weight', 'conv9.6.weight')}
WAVES, TURNS = 6, 4  # of a smooth picture
BLOCK = 32  # pixels a side, of which means are compared
POWER_STEPS = 5


def _draw(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def _tensor(name: str, shape: Sequence[int]) -> np.ndarray:
    numbers = _draw(name).standard_normal(shape, np.float32)
    if name.endswith('linear.weight'):
        return 0.1 / math.sqrt(shape[1]) * numbers  # control points move a little, lest the garment be folded
    if len(shape) > 1:
        numbers -= numbers.mean(axis=tuple(range(1, len(shape))), keepdims=True)  # lest one class win everywhere
        return math.sqrt(2 / math.prod(shape[1:])) * numbers
    if name.endswith('noise_scale'):
        return 0 * numbers  # what is drawn is not the same on all sides
    return 0.1 * numbers + name.endswith(('weight', 'running_var'))


def _of_power(name: str, kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors u and v of spectral normalisation."""
    matrix = kernel.reshape(len(kernel), -1)
    u = _draw(name).standard_normal(len(kernel), np.float32)
    for _ in range(POWER_STEPS):
        v = matrix.T @ u
        v /= np.linalg.norm(v)
        u = matrix @ v
        u /= np.linalg.norm(u)
    return u, v


def weights(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Return a state dict in torch's layout: kernels [kernels, maps, height, width] of variance 2 / fan-in.

    That is He et al. 2015; the last layer of the spline has smaller ones. Biases and means are small, scales and
    variances near 1.
    """
    found = {name: _tensor(name, shape) for name, shape in shapes.items()}
    for name in [name for name in shapes if name.endswith('weight_orig')]:
        layer = name.removesuffix('orig')
        found[f'{layer}u'], found[f'{layer}v'] = _of_power(name, found[name])
    return found


def _smooth(name: str, batch: int, size: Sequence[int], channels: int) -> np.ndarray:
    """float32 [batch, *size, channels] in [-1, 1]: sums of waves down times waves across."""
    draw = _draw(name)

    def along(side):
        turns, phase = draw.uniform(0, TURNS, [2, batch, 1, channels, WAVES])
        return np.sin(2 * np.pi * (turns * np.linspace(0, 1, side)[:, None, None] + phase))
    return (np.einsum('bhck,bwck->bhwc', *map(along, size)) / WAVES).astype(np.float32)


def pairs(batch: int, size: Sequence[int]) -> dict[str, np.ndarray]:
    """Persons and garments: pictures [batch, *size, 3] in [-1, 1], masks [batch, *size, 1], classes [batch, *size]."""
    found = {name: _smooth(name, batch, size, 3) for name in ('agnostic', 'pose', 'cloth', 'image')}
    found['cloth_mask'] = (_smooth('cloth_mask', batch, size, 1) > -0.1).astype(np.float32)
    for name in ('agnostic_parse', 'parse'):
        found[name] = _smooth(name, batch, size, CLASSES).argmax(-1).astype(np.int32)
    return found


def noise(batch: int) -> np.ndarray:
    """Return the segmentation generator's noise: 1 where a normal draw exceeds 1, else 0."""
    return (_draw('noise').standard_normal([batch, *LOW, 1]) > 1).astype(np.float32)


def answer(found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what is compared of a forward pass: every class's share of the parse, and images by blocks.

    Single pixels are too few, because in a dozen of them two classes are equally probable.
    """
    return {'parse': found['parse'].mean((0, 1, 2))} | {
        name: inputs.blocks(found[name][0], BLOCK) for name in ('warped', 'image')}
