"""Inputs [B, H, W, C] by which VITON-HD's networks are compared with PyTorch's, drawn by name."""
import zlib

import numpy as np

from support.references import Draws

# Name of the reference -> its network, `width` and `size`. The published width, and one that takes a second.
CASES = {'segmentation': ('segmentation', 1 / 8, [64, 64]),
         'segmentation_full': ('segmentation', 1, [256, 192]),
         'geometric_matching': ('geometric_matching', 1 / 8, [256, 192]),
         'geometric_matching_full': ('geometric_matching', 1, [256, 192]),
         'alias': ('alias', 1 / 8, [256, 128]), 'alias_full': ('alias', 1, [256, 128])}
PERSON = {'parse_cloth': 1, 'pose': 3, 'agnostic': 3}
SEGMENTATION = {'cloth_mask': 1, 'cloth': 3, 'agnostic_parse': 13, 'pose': 3, 'noise': 1}


def segmentation(draws: Draws, size) -> dict[str, np.ndarray]:
    return {name: draws.uniform(name, [1, *size, channels]) for name, channels in SEGMENTATION.items()}


def matching(draws: Draws, size) -> dict[str, np.ndarray]:
    channels = {**PERSON, 'cloth': 3}
    return {name: draws.uniform(name, [2, *size, n]) for name, n in channels.items()}


def alias(draws: Draws, size) -> dict[str, np.ndarray]:
    """A parse of blocks, of which a part of the upper clothing is misaligned."""
    height, width = size
    parse = draws.uniform('parse', [1, height // 8, width // 8], 0, 7).astype(int).repeat(8, 1).repeat(8, 2)
    S = np.eye(7, dtype=np.float32)[parse]
    M_misalign = S[..., 2:3] * (draws.uniform('misaligned', [1, height, width, 1]) < 0)
    M_misalign[:, :128, :128] = 0
    M_misalign[:, 0, 0] = 1  # which is one of the two places the first block sees
    S_div = np.concatenate([S[..., :2], S[..., 2:3] - M_misalign, S[..., 3:], M_misalign], -1)
    inputs = draws.uniform('inputs', [1, height, width, 9])
    return {'inputs': inputs, 'S': S, 'S_div': S_div, 'M_misalign': M_misalign}


def site_of(block: int, norm: str) -> int:
    """The number by which a normalisation of ALIAS tells its noise from that of the others."""
    return zlib.crc32(f'block_{block}/{norm}'.encode()) & 0x7FFFFFFF


def noise(draws: Draws, site: int, height: int, width: int) -> np.ndarray:
    """[1, height, width, 1], with the variance of normal noise."""
    return draws.uniform(f'noise {site}', [1, height, width, 1], -3 ** 0.5, 3 ** 0.5)
