"""Keras weight files, and files that only look like one."""
import h5py
import numpy as np
import pytest

from keras_models import ModelError
from keras_models.weights import h5_file


def weights(path, make):
    """A file with a layer `fc1` whose one weight `make` puts into its group."""
    with h5py.File(path, 'w') as file:
        group = file.create_group('fc1')
        group.attrs['weight_names'] = np.array(['w'], 'S')
        make(group)
    return str(path)


def external(group):
    group.create_dataset('w', (2,), 'f4', external=[('/etc/passwd', 0, 8)])


def elsewhere(group):
    with h5py.File(f'{group.file.filename}.other', 'w') as other:
        other['w'] = np.ones(2, np.float32)
    group['w'] = h5py.ExternalLink(f'{group.file.filename}.other', 'w')


def virtual(group):
    layout = h5py.VirtualLayout((2,), 'f4')
    layout[:] = h5py.VirtualSource('other.h5', 'w', (2,))
    group.create_virtual_dataset('w', layout)


def test_arrays_by_layer(tmp_path):
    path = weights(tmp_path / 'a.h5', lambda group: group.create_dataset('w', data=np.arange(6, dtype=np.float32)))
    [found] = h5_file.read(path)['fc1']
    np.testing.assert_array_equal(found, np.arange(6))


@pytest.mark.parametrize('make, what', [
    (external, 'lies in another file'), (elsewhere, 'lies in another file'), (virtual, 'lies in another file'),
    (lambda group: group.create_dataset('w', (1 << 40,), 'f4', chunks=(1 << 20,)), 'not an array of numbers that fits'),
    (lambda group: group.create_dataset('w', data=['text']), 'not an array of numbers'),
    (lambda group: group.create_group('w'), "'Group' object has no attribute"),
    (lambda group: None, "object 'w' doesn't exist")])
def test_what_is_not_in_the_file_is_not_read(tmp_path, make, what):
    with pytest.raises(ModelError, match=rf'a\.h5 is not a weight file of Keras \(.*{what}.*\); give the one'):
        h5_file.read(weights(tmp_path / 'a.h5', make))
