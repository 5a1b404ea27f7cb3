"""Weights others published, for networks that only compare pictures: nothing here is trained."""
import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.weights import torch_file

# Of ImageNet's RGB levels, 0 to 1: torchvision's networks are given pictures less the mean, over the deviation.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def read(path: str) -> dict[str, np.ndarray]:
    """PyTorch's name -> value, kernels in TensorFlow's order (height, width, maps, kernels).

    Raises:
      ModelError: as `torch_file.read`.
    """
    return {name: value.transpose(2, 3, 1, 0) if value.ndim == 4 else value
            for name, value in torch_file.read(path).items()}


def convolution(layer: keras.layers.Layer, name: str) -> dict[str, tf.Variable]:
    """A convolution's variables by PyTorch's names."""
    return {f'{name}.weight': layer.kernel, f'{name}.bias': layer.bias}


def check(shapes: dict[str, tuple[int, ...]], found: dict[str, np.ndarray], path: str, source: str) -> None:
    """Whether all is there that a network needs; what else is in a file is passed over.

    Args:
      path: where the values were found, and `source` where the right ones are published.

    Raises:
      ModelError: one is missing or has another shape, by name.
    """
    for name, shape in shapes.items():
        if name not in found:
            raise ModelError(f'{path} has no {name}; give {source}')
        if found[name].shape != shape:
            order = ' (height, width, maps, kernels)' * (len(shape) == 4)
            raise ModelError(f'{path} has {name} of shape {found[name].shape}, which is {shape}{order} in the network '
                             f'asked for; give {source}')


def assign(variables: dict[str, tf.Variable], found: dict[str, np.ndarray], path: str, source: str) -> None:
    """Gives variables the values of their names. Raises as `check`; no variable was changed then."""
    check({name: tuple(variable.shape) for name, variable in variables.items()}, found, path, source)
    for name, variable in variables.items():
        variable.assign(found[name])
