"""Published weights of frozen networks that compare images."""
import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.weights import torch_file

# ImageNet's RGB mean and deviation, levels 0 to 1: torchvision's networks take images standardised by them.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)


def read(path: str) -> dict[str, np.ndarray]:
    """Read PyTorch's name -> value, with kernels in TensorFlow's order (height, width, maps, kernels).

    Raises:
      ModelError: as `torch_file.read`.
    """
    return {name: value.transpose(2, 3, 1, 0) if value.ndim == 4 else value
            for name, value in torch_file.read(path).items()}


def convolution(layer: keras.layers.Layer, name: str) -> dict[str, tf.Variable]:
    """Return a convolution's variables by PyTorch's names."""
    return {f'{name}.weight': layer.kernel, f'{name}.bias': layer.bias}


def check(shapes: dict[str, tuple[int, ...]], found: dict[str, np.ndarray], path: str, source: str) -> None:
    """Check that a file has everything a network needs; other tensors are ignored.

    Args:
      path: the file, and `source` where the right one is published.

    Raises:
      ModelError: one is missing or has another shape; the message names it.
    """
    for name, shape in shapes.items():
        if name not in found:
            raise ModelError(f'{path} has no {name}; give {source}')
        if found[name].shape != shape:
            order = ' (height, width, maps, kernels)' * (len(shape) == 4)
            raise ModelError(f'{path} has {name} of shape {found[name].shape}, but the network needs {shape}{order}'
                             f'; give {source}')


def assign(variables: dict[str, tf.Variable], found: dict[str, np.ndarray], path: str, source: str) -> None:
    """Assign values to variables by name; raises as `check`, before any is changed."""
    check({name: tuple(variable.shape) for name, variable in variables.items()}, found, path, source)
    for name, variable in variables.items():
        variable.assign(found[name])
