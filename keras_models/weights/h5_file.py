"""Read the arrays in a weight file of Keras 1 or 2 (.h5) without making layers, configurations or functions of it."""
import os

import h5py
import numpy as np

from keras_models import ModelError

_ROOM = 1 << 30  # bytes that arrays may have even in a small file, where unwritten data takes no space


def read(path: str) -> dict[str, list[np.ndarray]]:
    """Read every layer's weights.

    Returns:
      layer -> its arrays, in the order of its weight_names.

    Raises:
      ModelError: the file is not Keras's, is damaged, or points outside of itself.
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
    except Exception as error:  # HDF5 raises many types of errors for a damaged file
        what = str(error).partition('\n')[0][:200]
        raise ModelError(f'{path} is not a weight file of Keras ({what}); give the one Keras Applications publishes '
                         'for VGG16 or VGG19') from error
    return found


def _array(found: h5py.Dataset, path: str, room: int) -> np.ndarray:
    if found.file.filename != path or found.external or found.is_virtual:
        raise ValueError(f'{found.name} lies in another file')
    if found.dtype.kind != 'f' or found.nbytes > room:
        raise ValueError(f'{found.name}, {found.dtype} {found.shape}, is not an array of numbers that fits the file')
    return found[()]
