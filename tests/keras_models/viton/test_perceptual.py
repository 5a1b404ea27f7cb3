"""Eq. (16) by hand, and VGG-19 against recorded PyTorch results and the project's own VGG-19."""
import dataclasses

import h5py
import numpy as np
import pytest
import tensorflow as tf

from keras_models import ModelError, vgg
from keras_models.viton import perceptual
from keras_models.weights import published
from pipelines.training import checkpoints
from support import published_files, torch_zip
from support.references import Reference

ONES = [1.0] * 5
SMALL = vgg.Config(variant='E', classes=3, crop=32, width=1 / 16)


def pictures(n=2, height=48, width=33, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, height, width, 3)).astype(np.float32)


def classifier(config=SMALL, seed=0):
    """A net of ours whose every weight is random and large enough for nothing to vanish."""
    nets, draw = vgg.build(config), np.random.default_rng(seed)
    for weight in nets['classifier'].weights:
        n = np.prod(weight.shape[:-1])
        weight.assign(draw.standard_normal(weight.shape, np.float32) * ((2 / n) ** 0.5 if n > 1 else 0.3))
    return nets


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    path = str(tmp_path_factory.mktemp('run') / 'weights')
    checkpoints.save(classifier(), path)
    return path


def of_ours(nets, picture):
    """The five features by the classifier's own layers."""
    x, found = (picture + 1) * 127.5 - 255 * published.MEAN, []
    for name, _, channels in vgg.steps(SMALL):
        x = nets['classifier'].get_layer(name)(x) if channels else tf.nn.max_pool2d(x, 2, 2, 'VALID')
        if name.endswith('_1'):
            found.append(x)
    return found


def test_torchvisions_file_gives_torchs_features(tmp_path):
    reference = Reference('vgg19')
    path = published_files.write(reference, tmp_path / 'vgg19-dcbb9e9d.pth')
    found = perceptual.features(perceptual.load(path), reference.uniform('image', [1, 48, 33, 3]))
    assert [maps.shape[-1] for maps in found] == [64, 128, 256, 512, 512]
    for number, maps in enumerate(found, 1):
        assert reference.deviation(f'relu{number}_1') > 0.1
        reference.compare(f'relu{number}_1', maps, atol=2e-4 * reference.arrays[f'relu{number}_1'].max())


def test_a_run_of_ours_gives_its_own_features_of_any_width(checkpoint):
    net = perceptual.load(checkpoint)
    for ours, theirs in zip(perceptual.features(net, pictures()), of_ours(classifier(), pictures()), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-3)


def test_an_exported_models_variables_are_as_good(checkpoint, tmp_path):
    exported = tf.Module()
    exported.nets = classifier()
    tf.saved_model.save(exported, str(tmp_path / 'model'))
    a, b = perceptual.load(checkpoint), perceptual.load(str(tmp_path / 'model' / 'variables' / 'variables'))
    for ours, theirs in zip(a.variables, b.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_kerass_file_takes_red_as_its_last_channel(tmp_path):
    path, maps = str(tmp_path / 'vgg19.h5'), 3
    shapes = {'fc1': (25088, 4096), 'fc2': (4096, 4096), 'predictions': (4096, 1000)}
    for name, size, channels in vgg.steps(vgg.Config(variant='E')):
        if channels:
            shapes[f'block{name[4]}_conv{name[6]}'] = size, size, maps, channels
            maps = channels
    first = np.random.default_rng(0).standard_normal((3, 3, 3, 64), np.float32)
    with h5py.File(path, 'w') as file:
        for layer, shape in shapes.items():
            group = file.create_group(layer)
            group.attrs['weight_names'] = np.array([b'kernel', b'bias'], 'S')
            group.create_dataset('kernel', shape, 'f4')  # zeros that take no room
            group.create_dataset('bias', shape[-1:], 'f4')
        file['block1_conv1/kernel'][...] = first
    net = perceptual.load(path)
    np.testing.assert_array_equal(net.get_layer('conv1_1').kernel, first[:, :, ::-1])


def test_equation_16_by_hand(checkpoint):
    net, made, true = perceptual.load(checkpoint), pictures(2), pictures(2, seed=1)
    F = [(a.numpy(), b.numpy()) for a, b in zip(of_ours(classifier(), made), of_ours(classifier(), true))]
    for weights in (ONES, perceptual.SPADE):
        expected = [sum(w * np.abs(a[row] - b[row]).sum() / a[row].size for w, (a, b) in zip(weights, F))
                    for row in range(2)]
        found = perceptual.loss(net, made, true, weights)
        assert found.shape == (2,)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_array_equal(perceptual.loss(net, true, true, ONES), [0, 0])
    with pytest.raises(ValueError, match='zip'):
        perceptual.loss(net, made, true, ONES[:4])


def test_only_the_made_picture_is_pulled_and_the_network_is_frozen(checkpoint):
    net, made, true = perceptual.load(checkpoint), tf.constant(pictures(1)), tf.constant(pictures(1, seed=1))
    assert net.trainable_variables == [] and len(net.variables) == 2 * 13
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([made, true])
        loss = perceptual.loss(net, made, true, ONES)
    assert tape.gradient(loss, true) is None
    slope, step = tape.gradient(loss, made).numpy(), 1e-3
    further = perceptual.loss(net, made + step * np.sign(slope), true, ONES)
    assert float(further[0] - loss[0]) == pytest.approx(step * np.abs(slope).sum(), rel=0.05)


def test_xla_computes_the_same_loss(checkpoint):
    net, made, true = perceptual.load(checkpoint), pictures(1, 32, 32), pictures(1, 32, 32, seed=1)
    compiled = tf.function(perceptual.loss, jit_compile=True)
    np.testing.assert_allclose(compiled(net, made, true, perceptual.SPADE),
                               perceptual.loss(net, made, true, perceptual.SPADE), rtol=1e-5)


def test_another_file_is_refused_with_the_key_and_the_remedy(tmp_path):
    path = str(tmp_path / 'weights')
    checkpoints.save(classifier(dataclasses.replace(SMALL, variant='D')), path)  # VGG-16
    with pytest.raises(ModelError, match=r'weights has no conv3_4/kernel; give torchvision\'s vgg19-dcbb9e9d.pth'):
        perceptual.load(path)
    checkpoints.save({'transformer': classifier()['classifier']}, path)
    with pytest.raises(ModelError, match='weights has no conv1_1/kernel; give '):
        perceptual.load(path)
    with pytest.raises(ModelError, match='nowhere.pth cannot be read'):
        perceptual.load(str(tmp_path / 'nowhere.pth'))
    with open(f'{path}.index', 'w') as file:
        file.write('no index')
    with pytest.raises(ModelError, match='weights cannot be read as a checkpoint .*; give torchvision'):
        perceptual.load(path)


def test_torchvisions_vgg16_is_refused(tmp_path):
    path = str(tmp_path / 'vgg16.pth')
    torch_zip.write(path, {
        f'features.{number}.{part}': np.zeros(shape, np.float32) for number, before, width in (
            (0, 3, 64), (2, 64, 64), (5, 64, 128), (7, 128, 128), (10, 128, 256), (12, 256, 256),
            (14, 256, 256), (17, 256, 512))
        for part, shape in (('weight', (width, before, 3, 3)), ('bias', (width,)))})
    with pytest.raises(ModelError, match='vgg16.pth has no features.16.weight; give torchvision'):
        perceptual.load(path)
    torch_zip.write(path, {'features.0.weight': np.zeros([64, 3, 5, 5], np.float32)})
    with pytest.raises(ModelError, match=r'vgg16.pth has features.0.weight of shape \(5, 5, 3, 64\), but the network '
                                         r'needs \(3, 3, 3, 64\) \(height, width, maps, kernels\)'):
        perceptual.load(path)
