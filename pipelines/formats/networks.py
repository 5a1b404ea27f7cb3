"""Write a model's networks as files of TensorFlow Lite or ONNX."""
import importlib
import os
import typing

import numpy as np

from data_prep import UserError
from data_prep.core import records

if typing.TYPE_CHECKING:
    from pipelines.core.config import Config
    from pipelines.formats.export import Trained
    from pipelines.formats.table import Format


def check(format: 'Format', config: 'Config') -> None:
    """Refuse a model whose networks are not known."""
    if config.model_spec.networks is None:
        raise UserError(f'--to {format.name}: {config.model_spec.name} cannot be taken apart into networks. Export it '
                        'without --to.')


def write(format: 'Format', trained: 'Trained', folder: str) -> dict:
    """Write a file for each network, and another with its fixed inputs, if any; return the networks' names."""
    config = trained.config
    assert config.model_spec.networks is not None
    assets = config.data_spec.assets(trained.examples, config.input)
    arguments = dict(format.options)
    if format.is_calibrated:
        arguments['inputs'] = examples(trained)
    convert = importlib.import_module(format.converter).convert
    parts = config.model_spec.networks(trained.nets, config.model, config.inference, assets)
    for name, part in parts.items():
        with open(os.path.join(folder, name + format.suffix), 'wb') as file:
            file.write(convert(part, **arguments))
        if part.fixed:
            np.savez(os.path.join(folder, f'{name}.fixed.npz'), **part.fixed)
    return {'networks': [*parts]}


def examples(trained: 'Trained') -> list:
    """Return inputs of the model, from places spread over the training split."""
    config, split = trained.config, records.open_split(trained.examples, 'train')
    count = min(config.export.calibration_examples, len(split))
    inputs, _ = config.data_spec.examples(split.read([i * len(split) // count for i in range(count)]))
    return inputs
