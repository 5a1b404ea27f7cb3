"""VITON-HD, high-resolution virtual try-on (Choi, Park, Lee, Choo 2021).

Of a person and a garment the picture of the person wearing it, by three networks one after another (`chain.py`).
"""
from tensorflow import keras

from keras_models.viton.chain import (  # noqa: F401 (as a model module has them)
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
SERVING, SCORER = 'keras_models.viton.serving', 'keras_models.viton.judge'
FIGURES = {'segmentation': 10, 'geometric_matching': 11, 'alias': 12}


def built(config: Config) -> list[str]:
    """The networks a run holds: all if the last of them learns or none does, else those that learn."""
    return [name for name in PARTS if name in config.trainable_networks or 'alias' in config.trainable_networks or not config.trainable_networks]


def build(config: Config) -> dict[str, keras.Model]:
    """Those of `built`, each as its own module builds it."""
    return {name: net for name in built(config) for net in PARTS[name].build(part(config, name)).values()}


def _sum(config: Config, what: str) -> int:
    return sum(getattr(PARTS[name], what)(part(config, name)) for name in built(config))


def parameters(config: Config) -> int:
    """Number of the networks' parameters, in closed form."""
    return _sum(config, 'parameters')


def macs(config: Config) -> int:
    """Multiply-adds of one picture."""
    return _sum(config, 'macs')


def flops_per_unit(config: Config) -> int:
    """Operations a picture, but for those of discriminators: a multiply-add is two, and the backward pass of what
    learns costs two forward ones."""
    return 2 * macs(config) + 4 * sum(PARTS[name].macs(part(config, name)) for name in config.trainable_networks)


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The networks: where the paper has them, their size, parameters and cost."""
    rows: list[tuple[str, ...]] = []
    for name in built(config):
        module, own = PARTS[name], part(config, name)
        rows.append((name, str(FIGURES[name]), ' x '.join(map(str, own.size)), f'{module.parameters(own):,}',
                     f'{module.macs(own) / 1e9:.2f}'))
    return ('network', 'figure', 'size', 'parameters', 'GMACs'), rows
