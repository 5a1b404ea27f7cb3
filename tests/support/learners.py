"""Every paper's network at small size, with its trainer and a training batch."""
import contextlib
from collections.abc import Iterator
from unittest import mock

import numpy as np
import tensorflow as tf

from data_prep.core import records
from keras_models.viton import perceptual
from pipelines.core import config
from pipelines.training import devices, trainer

SEED = np.array([1, 2], np.int32)


def images(side: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {'image': draw.normal(0, 60, [4, side, side, 3]).astype(np.float32), 'label': np.arange(4, dtype=np.int32)}


def pairs() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {name: draw.integers(4, 40, [4, 8], np.int32) for name in ('inputs', 'targets')}


def people() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    maps = {name: draw.uniform(-1, 1, [2, 64, 64, channels]) for name, channels in {
        'image': 3, 'agnostic': 3, 'pose': 3, 'cloth': 3}.items()}
    maps['cloth_mask'] = draw.integers(0, 2, [2, 64, 64, 1])
    parses = {name: draw.integers(0, 13, [2, 64, 64]) for name in ('parse', 'agnostic_parse')}
    return {name: each.astype(np.float32) for name, each in maps.items()} | {
        name: each.astype(np.int32) for name, each in parses.items()} | {'real': np.ones(2, np.float32)}


SMALL_PEOPLE = ['input.size=[64, 64]', 'model.size=[64, 64]', 'model.low=[32, 32]', 'model.features=narrow',
                *(f'model.{part}.width=0.0625' for part in ('segmentation', 'geometric_matching', 'alias'))]
LAYERS_OF_A_PRELU_NET = '["3x3, 8", "2x2 maxpool, /2", "2x2, 8", "2x2 maxpool, /2", "spp, {3, 2, 1}", "fc, 16"]'
# Configuration, what makes it small, and a batch. No dropout: what XLA drops is not what the graph drops.
LEARNERS = {
    'Transformer': ('wmt14_en_de_base', ['data.vocab_size=40', 'model.vocab_size=40', 'model.N=1', 'model.d_model=16',
                                         'model.d_ff=32', 'model.h=2', 'model.P_drop=0'], pairs()),
    'AlexNet': ('alexnet_imagenet', ['model.classes=5', 'input.crop=64', 'model.width=0.0625', 'model.dropout=0'],
                images(64)),
    'VGG': ('vgg_d_imagenet', ['model.classes=5', 'input.crop=32', 'model.width=0.03125', 'model.dropout=0'],
            images(32)),
    'PReLU net': ('prelu_a_imagenet', ['model.classes=5', 'input.crop=28', f'model.layers={LAYERS_OF_A_PRELU_NET}',
                                       'model.dropout=0'], images(28)),
    'segmentation': ('viton_hd_segmentation', SMALL_PEOPLE, people()),
    'geometric matching': ('viton_hd_geometric_matching',  # XLA has no normalisation over several replicas
                           [*SMALL_PEOPLE, 'model.geometric_matching.synchronized=false'], people()),
    'ALIAS': ('viton_hd_alias', SMALL_PEOPLE, people()),
}


def batch(name: str) -> dict[str, tf.Tensor]:
    """What the learner of that name trains on. Arrays become tensors only here: importing starts no TensorFlow."""
    return {key: tf.constant(value) for key, value in LEARNERS[name][-1].items()}


class Undriven(trainer.Trainer):
    """A trainer without data."""

    def _dataset(self, split):
        return None


@contextlib.contextmanager
def making(folder: str) -> Iterator:
    """Within, `make(name, compiled)` makes the trainer of one of LEARNERS.

    Args:
      folder: takes the manifest of a data set of nothing.
    """
    records.write_manifest(folder, [], (), {}, {'padding': 40})

    def make(name: str, compiled: bool) -> Undriven:
        file, overrides, _ = LEARNERS[name]
        resolved = config.load(file, [*overrides, 'train.strategy=one_device'])
        return Undriven(resolved, devices.choose(resolved, compiled), folder)
    # The features of the perceptual loss have two maps each.
    narrow = mock.patch.object(perceptual, 'load', lambda path: perceptual.build(dict.fromkeys(perceptual.CHANNELS, 2)))
    with narrow:
        yield make
