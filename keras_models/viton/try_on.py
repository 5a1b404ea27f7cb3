"""VITON-HD, high-resolution virtual try-on (Choi, Park, Lee, Choo 2021).

Of a person and a garment the picture of the person wearing it, by three networks one after another (`chain.py`).
"""
from tensorflow import keras

from keras_models import ModelError
from keras_models.viton.chain import PARTS, PRESETS, Config, part, preset_values  # noqa: F401 (as a model module has them)
from keras_models.viton.judge import Judge  # noqa: F401
from keras_models.viton.serving import Inference, predict, serving  # noqa: F401
from keras_models.viton.training import (  # noqa: F401
    discriminators,
    files,
    frozen,
    loss_fn,
    notes,
    optimizers,
    pictures,
)

UNIT = 'images'
FIGURES = {'segmentation': 10, 'geometric_matching': 11, 'alias': 12}


def built(config: Config) -> list[str]:
    """The networks a run holds: all if the last of them learns or none does, else those that learn."""
    return [name for name in PARTS if name in config.learn or 'alias' in config.learn or not config.learn]


def build(config: Config) -> dict[str, keras.Model]:
    """Those of `built`, each as its own module builds it."""
    return {name: net for name in built(config) for net in PARTS[name].build(part(config, name)).values()}


def check(config: Config, inference: Inference) -> None:
    """Refuses to export what is not the whole chain.

    Raises:
      ModelError
    """
    del inference
    if lost := [name for name in PARTS if name not in built(config)]:
        raise ModelError(f'model.learn: a run that teaches {" and ".join(config.learn)} alone holds no '
                         f'{" and no ".join(lost)}, so it cannot be exported; `python -m pipelines.train` is all there '
                         'is to it, and one that teaches alias starts from it by train.init_from.')


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
    return 2 * macs(config) + 4 * sum(PARTS[name].macs(part(config, name)) for name in config.learn)


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The networks: where the paper has them, their size, parameters and cost."""
    rows: list[tuple[str, ...]] = []
    for name in built(config):
        module, own = PARTS[name], part(config, name)
        rows.append((name, str(FIGURES[name]), ' x '.join(map(str, own.size)), f'{module.parameters(own):,}',
                     f'{module.macs(own) / 1e9:.2f}'))
    return ('network', 'figure', 'size', 'parameters', 'GMACs'), rows
