"""What all sides of a comparison start from, the same in every environment: NumPy alone makes it."""
import math
from collections.abc import Sequence

import numpy as np

RATE, MOMENTUM, DECAY = 1e-4, 0.9, 5e-4  # of descent; a rate at which losses of random networks stay bounded


def weights(shapes: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Kernels [..., in, out] of variance 2 / fan-in (He et al. 2015), biases of small numbers, in the order given."""
    draw = np.random.default_rng(0)
    return [draw.normal(0, 0.01 if len(shape) == 1 else math.sqrt(2 / math.prod(shape[:-1])), shape).astype(np.float32)
            for shape in shapes]


def pictures(number: int, side: int) -> np.ndarray:
    """float32 [number, side, side, 3], of mean 0."""
    return np.random.default_rng(1).normal(0, 1, (number, side, side, 3)).astype(np.float32)


def labels(number: int) -> np.ndarray:
    """int32 [number], classes of 1,000."""
    return np.random.default_rng(2).integers(0, 1000, number, np.int32)


def blocks(picture: np.ndarray, side: int) -> np.ndarray:
    """Mean colours of the squares of a picture [H, W, C]; what is left over at two edges is left out."""
    height, width = picture.shape[0] // side, picture.shape[1] // side
    squares = picture[:side * height, :side * width].reshape(height, side, width, side, -1)
    return squares.mean((1, 3), dtype=np.float32).ravel()


BASE = {'V': 37_000, 'd': 512, 'ff': 2048, 'h': 8, 'N': 6}  # the base model of Vaswani et al., Table 3
EOS, PAD, BOS = 2, 0, 1


def transformer(V: int, d: int, ff: int, h: int, N: int) -> dict[str, np.ndarray]:
    """Return weights by the names of `keras_models.transformer`.

    The end symbol's vector is zero, so that it is never among the best and all hypotheses grow to the same length.
    """
    draw = np.random.default_rng(0)

    def matrix(*shape: int, fan_in: int) -> np.ndarray:
        return draw.normal(0, fan_in ** -0.5, shape).astype(np.float32)
    found = {'embedding/embeddings': matrix(V, d, fan_in=d)}
    found['embedding/embeddings'][[PAD, EOS]] = 0
    for stack, attentions in (('encoder', ['self_attention']), ('decoder', ['self_attention', 'source_attention'])):
        for name in (f'{stack}/{n}' for n in range(N)):
            for kind in attentions:
                found |= {f'{name}/{kind}/W_{which}/kernel': matrix(d, h, d // h, fan_in=d) for which in 'QKV'}
                found[f'{name}/{kind}/W_O/kernel'] = matrix(h, d // h, d, fan_in=d)
            for which, (before, after) in ('W_1', (d, ff)), ('W_2', (ff, d)):
                found |= {f'{name}/ffn/{which}/kernel': matrix(before, after, fan_in=before),
                          f'{name}/ffn/{which}/bias': np.zeros(after, np.float32)}
            for part in [*attentions, 'ffn']:
                found |= {f'{name}/{part}/norm/gamma': np.ones(d, np.float32),
                          f'{name}/{part}/norm/beta': np.zeros(d, np.float32)}
    return found


def sinusoids(length: int, d: int) -> np.ndarray:
    """[length, d], Vaswani et al. 3.5: sines and cosines in turn."""
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(length, d).astype(np.float32)


def sentences(number: int, length: int, V: int, seed: int = 3) -> np.ndarray:
    """int32 [number, length], each ending in the end symbol."""
    ids = np.random.default_rng(seed).integers(3, V, [number, length], np.int32)
    ids[:, -1] = EOS
    return ids
