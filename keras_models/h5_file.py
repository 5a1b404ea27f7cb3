"""The arrays in a weight file of Keras 1 or 2 (.h5): no layer, no configuration and no function is made of it."""
import os

import h5py
import numpy as np

from keras_models import ModelError


def read(path: str) -> dict[str, list[np.ndarray]]:
    """Reads every layer's weights.

    Returns:
      layer -> its arrays, in the order of its weight_names.

    Raises:
      ModelError: the file is none of Keras, is damaged, or points to what is not in it.
    """
    try:
        size = os.path.getsize(path)
        with h5py.File(path) as file:
            found = {layer: [_array(group[name], path, size) for name in group.attrs['weight_names']]
                     for layer, group in file.items()}
    except Exception as error:  # HDF5 has many ways to say what is wrong with a file
        what = str(error).partition('\n')[0][:200]
        raise ModelError(f'{path} is not a weight file of Keras ({what}); give the one Keras Applications publishes '
                         'for VGG16 or VGG19') from error
    return found


def _array(found: h5py.Dataset, path: str, size: int) -> np.ndarray:
    if found.file.filename != path or found.external or found.is_virtual:
        raise ValueError(f'{found.name} lies in another file')
    if found.dtype.kind != 'f' or found.nbytes > size:
        raise ValueError(f'{found.name}, {found.dtype} {found.shape}, is no array of numbers the file has room for')
    return found[()]
