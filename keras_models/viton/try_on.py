"""VITON-HD, high-resolution virtual try-on (Choi, Park, Lee, Choo 2021).

The image of a person wearing a garment is made by three networks in sequence (`chain.py`).
"""
from tensorflow import keras

from keras_models.viton.chain import (  # noqa: F401 (parts of a model module)
    PARTS,
    PRESETS,
    Config,
    part,
    preset_values,
)
from keras_models.viton.training import (  # noqa: F401
    discriminators,
    files,
    frozen,
    loss_fn,
    notes,
    optimizers,
    pictures,
)

THROUGHPUT_UNIT = 'images'
TASKS = ('try_on',)
ANY_SIZE = True
SERVING, SCORER = 'keras_models.viton.serving', 'keras_models.viton.judge'
FIGURES = {'segmentation': 10, 'geometric_matching': 11, 'alias': 12}


def built(config: Config) -> list[str]:
    """Return the networks a run holds: all if the last or none is trained, otherwise the trained ones."""
    trained = config.trainable_networks
    return [name for name in PARTS if name in trained or 'alias' in trained or not trained]


def build(config: Config) -> dict[str, keras.Model]:
    """Build the networks of `built`, each by its own module."""
    return {name: net for name in built(config) for net in PARTS[name].build(part(config, name)).values()}


def _sum(config: Config, what: str) -> int:
    return sum(getattr(PARTS[name], what)(part(config, name)) for name in built(config))


def parameters(config: Config) -> int:
    """Return the number of the networks' parameters, in closed form."""
    return _sum(config, 'parameters')


def macs(config: Config) -> int:
    """Return the multiply-adds of one image."""
    return _sum(config, 'macs')


def flops_per_unit(config: Config) -> int:
    """Return the training operations per image, without discriminators.

    A multiply-add is two operations, and a backward pass through a trained network costs two forward ones.
    """
    return 2 * macs(config) + 4 * sum(PARTS[name].macs(part(config, name)) for name in config.trainable_networks)


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the networks: their figures in the paper, size, parameters and cost."""
    rows: list[tuple[str, ...]] = []
    for name in built(config):
        module, own = PARTS[name], part(config, name)
        rows.append((name, str(FIGURES[name]), ' x '.join(map(str, own.size)), f'{module.parameters(own):,}',
                     f'{module.macs(own) / 1e9:.2f}'))
    return ('network', 'figure', 'size', 'parameters', 'GMACs'), rows
