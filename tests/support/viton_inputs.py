"""Inputs [B, H, W, C] for comparing VITON-HD's networks with PyTorch's, random or from a generated person.

Numbers drawn place by place hide what photographs and parse maps bring out: where neighbours are alike, sums over all
places lose digits.
"""
import zlib

import numpy as np

from support.references import Draws

# Name of the reference -> its network, `width` and `size`. The published width, and one that takes a second.
CASES = {'segmentation': ('segmentation', 1 / 8, [64, 64]),
         'segmentation_full': ('segmentation', 1, [256, 192]),
         'geometric_matching': ('geometric_matching', 1 / 8, [256, 192]),
         'geometric_matching_full': ('geometric_matching', 1, [256, 192]),
         'alias': ('alias', 1 / 8, [256, 128]), 'alias_full': ('alias', 1, [256, 128]),
         'segmentation_person': ('segmentation', 1 / 8, [256, 192]), 'alias_person': ('alias', 1 / 8, [512, 384])}
PERSON = {'parse_cloth': 1, 'pose': 3, 'agnostic': 3}
SEGMENTATION = {'cloth_mask': 1, 'cloth': 3, 'agnostic_parse': 13, 'pose': 3, 'noise': 1}


GROUP = np.array([0, 3, 1, 2, 1, 4, 5, 1, 1, 1, 1, 1, 6])  # of each class of S, that of the ALIAS generator
MADE = 256, 192


def made_person(draws: Draws) -> dict[str, np.ndarray]:
    """A made person, uint8 [256, 192, ...]: `image`, `pose`, `cloth`, `cloth_mask` of 0 and 1, `parse` and
    `agnostic_parse`, classes of S. They are stored with the reference: drawing may differ from machine to machine."""
    if not hasattr(draws, 'put_exactly'):
        return draws.within('person/')
    from data_prep.people import person, person_drawn, sample_people
    made = sample_people.make_person(1, 0, MADE)
    points = made.points[[*range(8), *range(9, 19)]].astype(np.float32)
    _, agnostic_parse = person_drawn.agnostic(made.parse, points[:, :2].astype(float))
    group = np.array(person.GROUP, np.uint8)
    found = {'image': made.image, 'pose': person.pose_map(points, MADE).numpy(), 'cloth': made.cloth,
             'cloth_mask': made.cloth_mask // 255, 'parse': group[made.parse], 'agnostic_parse': group[agnostic_parse]}
    draws.put_exactly({f'person/{name}': value for name, value in found.items()})
    return found


def _unit(pixels: np.ndarray) -> np.ndarray:
    return pixels.astype(np.float32) / np.float32(127.5) - 1


def segmentation_of_a_person(draws: Draws, size) -> dict[str, np.ndarray]:
    made = made_person(draws)
    mask = made['cloth_mask'][..., np.newaxis].astype(np.float32)
    noise = (draws.uniform('noise', [*size, 1]) > 0.68).astype(np.float32)
    found = {'cloth_mask': mask, 'cloth': _unit(made['cloth']) * mask,
             'agnostic_parse': np.eye(13, dtype=np.float32)[made['agnostic_parse']], 'pose': _unit(made['pose']),
             'noise': noise}
    return {name: value[np.newaxis] for name, value in found.items()}


def alias_of_a_person(draws: Draws, size) -> dict[str, np.ndarray]:
    """Enlarged; the garment lies where it was photographed, so that a part of the upper clothing is misaligned."""
    times = size[0] // MADE[0]
    made = {name: value.repeat(times, 0).repeat(times, 1) for name, value in made_person(draws).items()}
    S = np.eye(7, dtype=np.float32)[GROUP[made['parse']]]
    M_misalign = S[..., 2:3] * (1 - made['cloth_mask'][..., np.newaxis].astype(np.float32))
    S_div = np.concatenate([S[..., :2], S[..., 2:3] - M_misalign, S[..., 3:], M_misalign], -1)
    agnostic = np.where(S[..., 2:3] > 0, np.float32(0), _unit(made['image']))
    inputs = np.concatenate([agnostic, _unit(made['pose']), _unit(made['cloth'])], -1)
    found = {'inputs': inputs, 'S': S, 'S_div': S_div, 'M_misalign': M_misalign}
    return {name: value[np.newaxis] for name, value in found.items()}


def segmentation(draws: Draws, size) -> dict[str, np.ndarray]:
    if draws.reference == 'segmentation_person':
        return segmentation_of_a_person(draws, size)
    return {name: draws.uniform(name, [1, *size, channels]) for name, channels in SEGMENTATION.items()}


def matching(draws: Draws, size) -> dict[str, np.ndarray]:
    channels = {**PERSON, 'cloth': 3}
    return {name: draws.uniform(name, [2, *size, n]) for name, n in channels.items()}


def alias(draws: Draws, size) -> dict[str, np.ndarray]:
    """A parse of blocks, of which a part of the upper clothing is misaligned."""
    if draws.reference == 'alias_person':
        return alias_of_a_person(draws, size)
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
