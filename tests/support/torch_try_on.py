"""Compare the authors' whole try-on in PyTorch with the project's on the same people.

    PYTHONPATH=.:tests python -m support.torch_try_on FOLDER/test_pairs.txt --size 1024 768

compares on people of one's own, in VITON-HD's layout. Weights are those of the references of the published width.
"""
import argparse
import dataclasses
import json
import tempfile

import numpy as np
import tensorflow as tf
import torch
from torch.nn import functional as F

from data_prep import tryon
from data_prep.core import records
from data_prep.people import pairs_files
from keras_models.viton import alias, chain, official_weights, segmentation, try_on
from support import torch_viton, viton_inputs
from support.recorder import numpy_maps
from support.references import Reference

SEED = [1, 0]
LOW = (256, 192)
UPPER = 3
GROUPS = ((0,), (2, 4, 7, 8, 9, 10, 11), (3,), (1,), (5,), (6,), (12,))
ASKED = {'image': 'image', 'parse': 'parse', 'pose_json': 'keypoints', 'cloth': 'cloth', 'cloth_mask': 'cloth_mask'}


@dataclasses.dataclass
class Apart:
    """How far ours are from PyTorch's: largest differences of the networks' outputs, each given the same inputs, and of
    the whole chain how many pixels of a pair's parse differ, at most, and the share of levels within 1."""
    segmentation: float
    theta: float
    alias: float
    flips: int
    within_1: float


def people(pairs: str, size: list[int]) -> list[dict[str, np.ndarray]]:
    """The samples of a pairs file as a served model prepares them."""
    folders = pairs_files.folders(pairs_files.root(pairs))
    with tempfile.TemporaryDirectory() as folder:
        records.write_manifest(folder, [], (), {}, {'padding': 40, 'agnostic': 'official'})
        assets = tryon.assets(folder, tryon.Input(size=size))
    found = []
    for pair in pairs_files.pairs(pairs):
        files = pairs_files.read(folders, pair.person, pair.garment)
        given = {name: tf.constant(files[key].content) for name, key in ASKED.items()}
        sample = assets.sample(pose_image=tf.constant(b''), **given)
        found.append({name: value.numpy() for name, value in sample.items()})
    return found


def weights(net: str) -> dict[str, np.ndarray]:
    return Reference(f'{net}_full').weights()


def ours(size: list[int]):
    """Networks of preset `official`, and their configuration."""
    config = try_on.Config(preset='official', size=size, **try_on.PRESETS['official'])
    nets = try_on.build(config)
    for name, net in nets.items():
        official_weights.assign(name, net, weights(name))
    return nets, config


def theirs(dtype: torch.dtype = torch.float32) -> dict[str, torch.nn.Module]:
    makers = {'segmentation': torch_viton.Segmentation, 'geometric_matching': torch_viton.GeometricMatching,
              'alias': torch_viton.Alias}
    nets = {}
    for name, make in makers.items():
        net = make()
        net.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in weights(name).items()})
        nets[name] = net.to(dtype).eval().requires_grad_(False)
    return nets


def one_hot(classes: torch.Tensor) -> torch.Tensor:
    """[B, H, W] -> [B, 13, H, W]."""
    return F.one_hot(classes.long(), 13).permute(0, 3, 1, 2).float()


def maps(values) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).permute(0, 3, 1, 2)


def alias_noise(batch: int):
    """What ours adds to a normalisation's activations, for PyTorch."""
    def noise(block, norm, height, width):
        seed = tf.constant([SEED[0] + viton_inputs.site_of(block, norm), SEED[1]])
        return torch.from_numpy(alias.noise_map(seed, batch, height, width).numpy())[..., 0]
    return noise


def segment_inputs(given: dict[str, np.ndarray]) -> torch.Tensor:
    mask = maps(given['cloth_mask'])
    full = [mask, maps(given['cloth']) * mask, one_hot(torch.from_numpy(given['agnostic_parse'])), maps(given['pose'])]
    low = [F.interpolate(each, LOW, mode='bilinear') for each in full]
    noise = chain.noise(tf.constant(SEED), [len(mask), *LOW, 1]).numpy()
    return torch.cat([*low, maps(noise)], 1)


def parse_of(probabilities: torch.Tensor, size) -> torch.Tensor:
    """[B, 13, h, w] -> classes [B, H, W]: enlarged, blurred by a Gaussian, the largest."""
    at = np.arange(15) - 7
    line = np.exp(-0.5 * (at / 3) ** 2)
    kernel = torch.tensor(np.outer(line, line) / line.sum() ** 2, dtype=torch.float32).expand(13, 1, 15, 15)
    large = F.interpolate(probabilities, tuple(size), mode='bilinear')
    return F.conv2d(large, kernel.contiguous(), padding=7, groups=13).argmax(1)


def warped(theta: torch.Tensor, given: dict[str, np.ndarray], size) -> tuple[torch.Tensor, torch.Tensor]:
    grid = torch_viton.warp(theta, *size).float()
    cloth, mask = (F.grid_sample(maps(given[name]), grid, padding_mode='border', align_corners=False)
                   for name in ('cloth', 'cloth_mask'))
    return cloth, mask


def alias_inputs(parse: torch.Tensor, given, cloth: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    classes = one_hot(parse)
    S = torch.stack([classes[:, list(group)].sum(1) for group in GROUPS], 1)
    bare = (S[:, 2:3] - mask).clamp(min=0)
    S_div = torch.cat([S[:, :2], S[:, 2:3] - bare, S[:, 3:], bare], 1)
    return [torch.cat([maps(given['agnostic']), maps(given['pose']), cloth], 1), S, S_div, bare]


def levels(picture: np.ndarray) -> np.ndarray:
    """[-1, 1] -> uint8, cut off as the authors save pictures."""
    return np.clip((picture + 1) * np.float32(0.5) * 255, 0, 255).astype(np.uint8)


@torch.inference_mode()
def compare(nets, config: try_on.Config, peers, samples: list[dict[str, np.ndarray]]) -> Apart:
    """One batch through both."""
    given = {name: np.stack([sample[name] for sample in samples]) for name in samples[0]}
    size, batch, seed = config.size, len(samples), tf.constant(SEED)
    constants = {name: tf.constant(value) for name, value in given.items()}

    own = chain.part(config, 'segmentation')
    inputs = chain.segmentation_inputs(own, constants, seed)
    scores = segmentation.probabilities(nets['segmentation']({**inputs, 'seed': seed}, training=False), own)
    expected_scores = peers['segmentation'](segment_inputs(given))
    parse = parse_of(expected_scores, size)

    worn = (parse == UPPER)[:, None].float()
    low = [F.interpolate(each, LOW, mode='nearest') for each in (worn, maps(given['pose']), maps(given['agnostic']))]
    expected_theta = peers['geometric_matching'](
        torch.cat(low, 1), F.interpolate(maps(given['cloth']), LOW, mode='nearest'))
    matching = chain.matching_inputs(chain.part(config, 'geometric_matching'), constants, numpy_maps(worn))
    theta = tf.reshape(nets['geometric_matching'](matching, training=False), [batch, 50])

    arguments = alias_inputs(parse, given, *warped(expected_theta, given, size))
    expected = numpy_maps(peers['alias'](*arguments, alias_noise(batch)))
    names = ('inputs', 'S', 'S_div', 'M_misalign')
    paint = tf.function(lambda given: nets['alias'](given, training=False))
    painted = paint({**{name: tf.constant(numpy_maps(each)) for name, each in zip(names, arguments)}, 'seed': seed})

    made = tf.function(lambda given: chain.try_on(nets, config, given, seed), autograph=False)(constants)
    flips = (np.argmax(made['parse'], -1) != parse.numpy()).sum((1, 2))
    steps = np.abs(chain.pixels(made['image'], config.levels).numpy().astype(int) - levels(expected))
    return Apart(*(float(np.abs(a - b).max()) for a, b in ((scores, numpy_maps(expected_scores)),
                                                           (theta, expected_theta.numpy()), (painted, expected))),
                 int(flips.max()), float((steps <= 1).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('pairs', help='a pairs file in VITON-HD\'s layout')
    parser.add_argument('--size', type=int, nargs=2, default=[1024, 768])
    parser.add_argument('--batch', type=int, default=1)
    flags = parser.parse_args()
    (nets, config), peers, samples = ours(flags.size), theirs(), people(flags.pairs, flags.size)
    for first in range(0, len(samples) - flags.batch + 1, flags.batch):
        found = compare(nets, config, peers, samples[first:first + flags.batch])
        print(json.dumps({'pairs': [first, first + flags.batch], **dataclasses.asdict(found)}), flush=True)


if __name__ == '__main__':
    main()
