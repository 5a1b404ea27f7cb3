"""LPIPS against recorded results of its definition in PyTorch."""
import numpy as np
import pytest

from keras_models import ModelError
from keras_models.scores import lpips
from support import published_files, torch_zip
from support.references import Reference


def pictures(n=2, height=80, width=67, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, (n, height, width, 3)).astype(np.float32)


@pytest.fixture(scope='module')
def reference():
    return Reference('lpips')


@pytest.fixture(scope='module')
def folder(reference, tmp_path_factory):
    """Files in the published format, with random weights."""
    folder = tmp_path_factory.mktemp('weights')
    published_files.write(reference, folder / 'alexnet.pth')
    torch_zip.write(folder / 'lin.pth', published_files.lins(reference))
    return folder


@pytest.fixture(scope='module')
def net(folder):
    return lpips.load(str(folder / 'alexnet.pth'), str(folder / 'lin.pth'))


def test_the_distance_is_pytorchs(reference, net):
    made, true = (reference.uniform(name, [2, 80, 67, 3], 0, 1) for name in ('made', 'true'))
    found = lpips.distance(net, made, true)
    assert found.shape == (2,) and reference.arrays['distance'].min() > 0.1
    reference.compare('distance', found, rtol=1e-4)
    np.testing.assert_allclose(lpips.distance(net, true, made), found, rtol=1e-5)


def test_a_picture_is_at_no_distance_from_itself_and_ever_further_from_more_noise(net):
    true, noise = pictures(1), pictures(1, seed=1) - 0.5
    np.testing.assert_array_equal(lpips.distance(net, true, true), [0])
    further = [float(lpips.distance(net, true + share * noise, true)[0]) for share in (0.05, 0.2, 0.8)]
    assert 0 < further[0] < further[1] < further[2]


def test_the_smallest_picture(net):
    assert net(pictures(1, 31, 31))[-1].shape == (1, 1, 1, 256)
    assert np.isfinite(lpips.distance(net, pictures(1, 31, 31), pictures(1, 31, 31, seed=1)))


def test_nothing_is_trained(net):
    assert not net.trainable_variables and net.count_params() == 2_469_696  # torchvision's 61,100,840 less three dense


def test_other_files_are_refused_with_the_key_and_the_remedy(reference, folder, tmp_path):
    alexnet, lin, other = str(folder / 'alexnet.pth'), str(folder / 'lin.pth'), str(tmp_path / 'other.pth')
    with pytest.raises(ModelError, match='lin.pth has no features.0.weight; give torchvision'):
        lpips.load(lin, lin)
    with pytest.raises(ModelError, match='alexnet.pth has no lin0.model.1.weight; give lpips/weights/v0.1/'):
        lpips.load(alexnet, alexnet)
    lins = published_files.lins(reference)
    torch_zip.write(other, {**lins, 'lin1.model.1.weight': np.ones([1, 128, 1, 1], np.float32)})  # of VGG-16
    with pytest.raises(ModelError, match=r'has lin1.model.1.weight of shape \(1, 1, 128, 1\), but the network needs '
                                         r'\(1, 1, 192, 1\) .*; give lpips'):
        lpips.load(alexnet, other)
    torch_zip.write(other, {**lins, 'lin2.model.1.weight': -lins['lin2.model.1.weight']})
    with pytest.raises(ModelError, match='other.pth has a negative lin2.model.1.weight'):
        lpips.load(alexnet, other)
