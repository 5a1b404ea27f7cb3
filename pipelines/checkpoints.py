"""Weights by name: what checkpoints hold, whether they fit, and their mean."""
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow import keras

from data_prep import UserError

_SUFFIX = '/.ATTRIBUTES/VARIABLE_VALUE'


def by_name(nets: dict[str, keras.Model]) -> dict[str, dict[str, tf.Variable]]:
    """Every net's variables under readable keys, so that checkpoints do not depend on the order of layers."""
    return {net: {variable.name.split(':')[0].replace('/', ':'): variable for variable in model.variables}
            for net, model in nets.items()}


def save(nets: dict[str, keras.Model], path: str) -> None:
    """Writes the nets' weights alone."""
    tf.train.Checkpoint(nets=by_name(nets)).write(path)


def restore(nets: dict[str, keras.Model], path: str) -> None:
    """Reads the nets' weights from any checkpoint that holds them.

    Raises:
      UserError: a variable is missing or has another shape: the checkpoint is of another model.
    """
    reader = _reader(path)
    check(nets, path)
    for net, variables in by_name(nets).items():
        for name, variable in variables.items():
            variable.assign(reader.get_tensor(f'nets/{net}/{name}{_SUFFIX}'))


def check(nets: dict[str, keras.Model], path: str) -> None:
    """Compares names and shapes without reading a weight; raises as `restore`."""
    shapes = {key: tuple(shape) for key, shape in _reader(path).get_variable_to_shape_map().items()}
    for net, variables in by_name(nets).items():
        for name, variable in variables.items():
            found = shapes.get(f'nets/{net}/{name}{_SUFFIX}')
            if found != tuple(variable.shape):
                has = 'has no such variable' if found is None else f'holds shape {list(found)}'
                raise UserError(f'{path} is a checkpoint of another model: {net}/{name} has shape '
                                f'{variable.shape.as_list()} here, the checkpoint {has}; '
                                'give the configuration it was trained with, or another --pipeline_root.')


def present(manager: tf.train.CheckpointManager) -> list[str]:
    """The manager's checkpoints that are still there, oldest first; one removed by hand is passed over."""
    return [path for path in manager.checkpoints if tf.io.gfile.exists(f'{path}.index')]


def assign_mean(nets: dict[str, keras.Model], paths: Sequence[str]) -> None:
    """Sets every weight to its arithmetic mean over checkpoints (Vaswani et al. 6.1)."""
    readers = [_reader(path) for path in paths]
    for net, variables in by_name(nets).items():
        for name, variable in variables.items():
            key = f'nets/{net}/{name}{_SUFFIX}'
            mean = np.mean([reader.get_tensor(key) for reader in readers], axis=0, dtype=np.float64)
            variable.assign(mean.astype(variable.dtype.as_numpy_dtype))


def resume(checkpoint: tf.train.Checkpoint, nets: dict[str, keras.Model], path: str) -> None:
    """Restores weights, optimizers and step.

    Raises:
      UserError: the checkpoint is of another model or optimizer, or damaged.
    """
    check(nets, path)
    try:
        checkpoint.restore(path).assert_existing_objects_matched()
    except AssertionError as error:
        raise UserError(f'{path} is of another optimizer ({str(error).splitlines()[0]}); give the configuration it was '
                        'trained with, or another --pipeline_root.') from error
    except (tf.errors.OpError, IndexError) as error:
        raise UserError(_damaged(path, error)) from error


def _reader(path: str):
    try:
        return tf.train.load_checkpoint(path)
    except (tf.errors.OpError, ValueError) as error:
        raise UserError(_damaged(path, error)) from error


def _damaged(path: str, error: Exception) -> str:
    return (f'{path} cannot be read as a checkpoint ({str(error).splitlines()[0]}); remove {os.path.basename(path)}.* '
            f'from {os.path.dirname(path)} to go on from the one before.')
