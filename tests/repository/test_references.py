"""The recorded references are complete, small, and reproducible with PyTorch."""
import pathlib

import numpy as np
import pytest

from keras_models import ModelError
from keras_models.weights import torch_file
from support import references, torch_zip
from support.references import FILES, FOLDER, Draws, Reference

# Both sides are float64 rounded to float32: another machine may round the other way, and seldom twice.
TOLERANCE = 2 * float(np.finfo(np.float32).eps)


def test_they_are_small_and_none_is_without_its_record():
    assert {path.stem for path in FOLDER.glob('*.npz')} == {*references.names()}
    assert sum(path.stat().st_size for path in FOLDER.rglob('*') if path.is_file()) < 3e6


@pytest.mark.parametrize('name', references.names())
def test_what_is_stored_is_what_was_recorded(name):
    reference = Reference(name)
    assert reference.versions.keys() == {'torch', 'numpy'} and reference.arrays


def test_a_changed_reference_is_found(tmp_path):
    for suffix in ('json', 'npz'):
        (tmp_path / f'lpips.{suffix}').write_bytes((FOLDER / f'lpips.{suffix}').read_bytes())
    Reference('lpips', tmp_path)
    with np.load(tmp_path / 'lpips.npz') as file:
        changed = {key: file[key] + np.float32(1e-7) for key in file.files}
    np.savez_compressed(tmp_path / 'lpips.npz', **changed)
    with pytest.raises(AssertionError, match='lpips.npz is not what was recorded'):
        Reference('lpips', tmp_path)
    with pytest.raises(AssertionError, match='draws other numbers for made'):
        Reference('lpips').uniform('made', [2, 80, 67, 3], 0, 1.5)


def test_what_is_drawn():
    """Kernels of the variance asked for, u and v near the first singular vectors; each name its own."""
    draws = Draws('some')
    layout = {'a.weight': [64, 32, 3, 3], 'a.bias': [64], 'b.weight_orig': [40, 30, 3, 3], 'b.weight_u': [40],
              'b.weight_v': [270], 'n.running_var': [99], 'n.num_batches_tracked': []}
    state = draws.state('net', layout, gain=2.0)
    assert {name: list(values.shape) for name, values in state.items()} == layout
    assert state['a.weight'].var() * 32 * 9 == pytest.approx(2, rel=0.05)
    u, v, W = state['b.weight_u'], state['b.weight_v'], state['b.weight_orig'].reshape(40, 270)
    assert np.linalg.norm(u) == pytest.approx(1) and np.linalg.norm(v) == pytest.approx(1)
    assert u @ W @ v == pytest.approx(references.SIGMA, rel=0.2)
    assert state['n.running_var'].min() >= 0.5 and state['n.num_batches_tracked'] == 1
    np.testing.assert_array_equal(Draws('some').state('net', layout, gain=2.0)['a.weight'], state['a.weight'])
    assert np.any(Draws('other').state('net', layout, gain=2.0)['a.weight'] != state['a.weight'])


@pytest.fixture(scope='module')
def pytorch():
    try:
        import torch
    except ImportError:
        pytest.fail('There is no PyTorch in this environment: run `make torch` first.')
    return torch


@pytest.mark.torch
def test_every_reference_has_its_maker(pytorch):
    from support import make_references
    assert sorted(make_references.MAKERS) == references.names()


@pytest.mark.torch
@pytest.mark.parametrize('name', references.names())
def test_made_again_it_is_the_same(pytorch, tmp_path, name):
    """Equal shapes, inputs, weights and files; equal answers up to float32's rounding."""
    from support import make_references
    make_references.make(name, tmp_path)
    recorded, again = Reference(name), Reference(name, tmp_path)
    assert again.layouts == recorded.layouts and again.drawn == recorded.drawn
    assert again.files.keys() == recorded.files.keys()
    for file in again.files:
        if again.files[file] != recorded.files[file]:  # memory addresses and counters of hooks are in some
            assert file.startswith(('old-', 'refused-module'))
            same_answer(FILES / file, tmp_path / FILES.name / file)
    assert list(again.arrays) == list(recorded.arrays)
    for key, values in recorded.arrays.items():
        exact = name == 'torch_files' or not np.issubdtype(values.dtype, np.floating)
        atol = 0 if exact else TOLERANCE * np.abs(values).max(initial=0)
        found = again.arrays[key]
        assert found.dtype == values.dtype and found.shape == values.shape
        np.testing.assert_allclose(found, values, rtol=0, atol=atol, err_msg=key)


def same_answer(one: pathlib.Path, other: pathlib.Path) -> None:
    """Whether both files are read alike, or refused alike."""
    def answer(path):
        try:
            return torch_file.read(str(path))
        except ModelError as error:
            return str(error).removeprefix(str(path))
    np.testing.assert_equal(answer(one), answer(other))


@pytest.mark.torch
def test_pytorch_reads_the_files_our_tests_write(pytorch, tmp_path):
    tensors = dict(torch_file.read(str(FILES / 'net-protocol-2.pth')), int=np.arange(3, dtype=np.int16))
    path = torch_zip.write(pathlib.Path(tmp_path, 'net.pth'), tensors)
    found = pytorch.load(path, weights_only=True)
    assert list(found) == list(tensors)
    for name, values in tensors.items():
        np.testing.assert_array_equal(found[name].numpy(), values, strict=True)
