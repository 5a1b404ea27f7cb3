"""The arrays in a weight file of Keras 1 or 2 (.h5): no layer, no configuration and no function is made of it."""
import os

import h5py
import numpy as np

from keras_models import ModelError

_ROOM = 1 << 30  # bytes that a small file may have too: what was never written takes none


def read(path: str) -> dict[str, list[np.ndarray]]:
    """Reads every layer's weights.

    Returns:
      layer -> its arrays, in the order of its weight_names.

    Raises:
      ModelError: the file is none of Keras, is damaged, or points to what is not in it.
    """
    try:
        found: dict[str, list[np.ndarray]] = {}
        room = max(os.path.getsize(path), _ROOM)
        with h5py.File(path) as file:
            for layer, group in file.items():
                found[layer] = []
                for name in group.attrs['weight_names']:
                    found[layer].append(_array(group[name], path, room))
                    room -= found[layer][-1].nbytes
    except Exception as error:  # HDF5 has many ways to say what is wrong with a file
        what = str(error).partition('\n')[0][:200]
        raise ModelError(f'{path} is not a weight file of Keras ({what}); give the one Keras Applications publishes '
                         'for VGG16 or VGG19') from error
    return found


def _array(found: h5py.Dataset, path: str, room: int) -> np.ndarray:
    if found.file.filename != path or found.external or found.is_virtual:
        raise ValueError(f'{found.name} lies in another file')
    if found.dtype.kind != 'f' or found.nbytes > room:
        raise ValueError(f'{found.name}, {found.dtype} {found.shape}, is no array of numbers the file has room for')
    return found[()]
