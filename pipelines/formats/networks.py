"""Write a model's networks as files of TensorFlow Lite or ONNX."""
import importlib
import os
import typing
from collections.abc import Mapping

import numpy as np

from data_prep import UserError
from data_prep.core import files, records
from pipelines.serving import published

if typing.TYPE_CHECKING:
    from keras_models.protocol import Part
    from pipelines.core.config import Config
    from pipelines.formats.export import Trained
    from pipelines.formats.table import Format


def check(format: 'Format', config: 'Config') -> None:
    """Refuse a model whose networks are not known, or one with others that were pushed without the format."""
    if config.model_spec.networks is None:
        raise UserError(f'--to {format.name}: {config.model_spec.name} cannot be taken apart into networks. Export it '
                        'without --to.')
    embedded(format, config)


def write(format: 'Format', trained: 'Trained', folder: str) -> dict:
    """Write a file for each network, and another with its fixed inputs, if any; return the networks' names."""
    config = trained.config
    assert config.model_spec.networks is not None
    assets = config.data_spec.assets(trained.examples, config.input)
    parts = config.model_spec.networks(trained.nets, config.model, config.inference, assets)
    write_parts(format, parts, folder, **({'inputs': examples(trained)} if format.is_calibrated else {}))
    for key, held in embedded(format, config).items():
        published.verify(os.path.dirname(os.path.dirname(held)))
        files.copy(held, os.path.join(folder, key))
    return {'networks': [*parts]}


def write_parts(format: 'Format', parts: Mapping[str, 'Part'], folder: str, **arguments) -> None:
    """Write networks as `kit/networks.py` opens them; `arguments` go to the converter, as the format's options do."""
    convert = importlib.import_module(format.converter).convert
    for name, part in parts.items():
        with open(os.path.join(folder, name + format.suffix), 'wb') as file:
            file.write(convert(part, **format.options, **arguments))
        if part.fixed:
            np.savez(os.path.join(folder, f'{name}.fixed.npz'), **part.fixed)


def embedded(format: 'Format', config: 'Config') -> dict[str, str]:
    """Return the folders of this format of the models that the configuration names, by key, or `key/0` and so on.

    Raises:
      UserError: a model was pushed without it.
    """
    from pipelines.formats import runner
    found: dict[str, str] = {}
    for key in config.model_spec.exported_models:
        asked = getattr(config.inference, key)
        named = {key: asked} if isinstance(asked, str) else {f'{key}/{i}': each for i, each in enumerate(asked)}
        try:
            found |= {name: runner.find(format.name, path) for name, path in named.items() if path}
        except UserError as error:
            raise UserError(f'inference.{key}: {error}') from error
    return found


def examples(trained: 'Trained') -> list:
    """Return inputs of the model, from places spread over the training split."""
    config, split = trained.config, records.open_split(trained.examples, 'train')
    count = min(config.export.calibration_examples, len(split))
    inputs, _ = config.data_spec.examples(split.read([i * len(split) // count for i in range(count)]))
    return inputs
