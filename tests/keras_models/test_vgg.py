"""VGG against the paper, and against Keras's own model with the same weights."""
import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError, vgg
from keras_models.vgg import Config
from support import classifier_steps
from support.vgg_weights import fill, published

SMALL = Config(classes=5, crop=64, width=1 / 32)  # 2 x 2 places before fc6
SEED = np.array([1, 2], np.int32)
COUNTS = {'A': 132_863_336, 'A-LRN': 132_863_336, 'B': 133_047_848, 'C': 133_638_952, 'D': 138_357_544,
          'E': 143_667_240}


def randomised(config, seed=0):
    """A net whose every weight is random and large enough for nothing to vanish, and its layers by name."""
    model = vgg.build(config)['classifier']
    fill(model, seed)
    return model, {layer.name: layer for layer in model.layers}


def pictures(n=2, side=64, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(0, 60, (n, side, side, 3)), tf.float32)


@pytest.mark.parametrize('variant', COUNTS)
def test_parameters_of_every_configuration(variant):
    config = Config(variant=variant, classes=1000, crop=224)
    assert vgg.parameters(config) == COUNTS[variant]
    assert round(COUNTS[variant] / 1e6) == vgg.RESULTS[variant][0]  # table 2
    layers = {'A': 11, 'A-LRN': 11, 'B': 13, 'C': 16, 'D': 16, 'E': 19}
    assert len(vgg.costs(config)) == layers[variant]
    small = dataclasses.replace(SMALL, variant=variant)
    assert vgg.build(small)['classifier'].count_params() == vgg.parameters(small)


def test_the_cost_of_d_and_the_table():
    config = Config(variant='D', classes=1000, crop=224)
    assert vgg.macs(config) / 1e9 == pytest.approx(15.47, abs=0.005)
    header, rows = vgg.table(config)
    assert [row[0] for row in rows] == list(vgg.TABLE_1) and rows[4][4] == '15.47'
    assert all(len(row) == len(header) for row in rows)
    assert vgg.table(SMALL) is None


def test_a_column_reads_as_table_1():
    names = [name for name, *_ in vgg.steps(Config(variant='C'))]
    assert names == ['conv1_1', 'conv1_2', 'maxpool', 'conv2_1', 'conv2_2', 'maxpool', 'conv3_1', 'conv3_2', 'conv3_3',
                     'maxpool', 'conv4_1', 'conv4_2', 'conv4_3', 'maxpool', 'conv5_1', 'conv5_2', 'conv5_3', 'maxpool']
    sizes = {name: (size, channels) for name, size, channels in vgg.steps(Config(variant='C'))}
    assert [sizes[name] for name in ('conv3_2', 'conv3_3', 'conv4_3', 'conv5_3')] == [
        (3, 256), (1, 256), (1, 512), (1, 512)]


def test_only_a_lrn_normalises():
    """And normalises what follows the first ReLU: the same weights give another answer."""
    plain, normalised = (dataclasses.replace(SMALL, variant=variant) for variant in ('A', 'A-LRN'))
    model, made = randomised(normalised)
    found = vgg.convolutions(made, normalised, pictures())
    x = tf.nn.local_response_normalization(made['conv1_1'](pictures()), 2, 2.0, 1e-4, 0.75)
    for name, *_ in list(vgg.steps(plain))[1:]:
        x = tf.nn.max_pool2d(x, 2, 2, 'VALID') if name == 'maxpool' else made[name](x)
    np.testing.assert_allclose(found, x, rtol=1e-4)
    np.testing.assert_allclose(vgg.dense(made, normalised, found), model([pictures(), SEED]), rtol=1e-4)
    assert np.abs(found - vgg.convolutions(made, plain, pictures())).max() > 0.1


def test_the_first_weights():
    def std(name='conv4_1', **changes):
        config = dataclasses.replace(SMALL, width=0.125, variant='A', **changes)
        keras.utils.set_random_seed(1)
        layer = vgg.build(config)['classifier'].get_layer(name)
        assert not np.any(layer.bias)
        return np.std(layer.kernel)
    assert std() == pytest.approx(0.1, rel=0.05) and std('fc7') == pytest.approx(0.1, rel=0.05)  # variance 10^-2
    assert std(**vgg.PRESETS['official']) == pytest.approx(0.01, rel=0.05)
    assert std(weights='glorot') == pytest.approx((2 / (9 * (32 + 64))) ** 0.5, rel=0.05)
    assert std(weights='he') == pytest.approx((2 / (9 * 32)) ** 0.5, rel=0.05)


@pytest.mark.parametrize('variant', ['B', 'C', 'D', 'E'])
def test_pre_initialisation_takes_a_s_layers_and_leaves_the_others(variant):
    shallow, _ = randomised(dataclasses.replace(SMALL, variant='A'), seed=1)
    deep, made = randomised(dataclasses.replace(SMALL, variant=variant), seed=2)
    weights = {weight.name.split(':')[0]: weight.numpy() for weight in shallow.weights}
    before = {weight.name.split(':')[0]: weight.numpy() for weight in deep.weights}
    vgg.warm_start({'classifier': deep}, {'classifier': weights})
    same = {name for name in made if made[name].weights and name in vgg.FROM_A}
    assert len(same) == 7  # four convolutional layers, three dense ones
    for weight in deep.weights:
        name = weight.name.split(':')[0]
        np.testing.assert_array_equal(weight, weights[name] if name.split('/')[0] in same else before[name])
    del weights['fc6/bias']
    with pytest.raises(ModelError, match='fc6/bias has shape .* have nothing'):
        vgg.warm_start({'classifier': deep}, {'classifier': weights})


def test_pre_initialisation_refuses_another_shape_and_then_changes_nothing():
    shallow, _ = randomised(dataclasses.replace(SMALL, variant='A', classes=6), seed=1)
    deep, _ = randomised(dataclasses.replace(SMALL, variant='B'), seed=2)
    before = [weight.numpy() for weight in deep.weights]
    with pytest.raises(ModelError, match=r'fc8/kernel has shape \(128, 5\) here, .* have \(128, 6\)'):
        vgg.warm_start({'classifier': deep}, {'classifier': {
            weight.name.split(':')[0]: weight.numpy() for weight in shallow.weights}})
    for one, other in zip(before, deep.weights):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('variant, theirs', [('D', keras.applications.VGG16), ('E', keras.applications.VGG19)])
def test_weights_of_keras_applications_give_keras_s_own_answer(variant, theirs, tmp_path):
    """At 64 pixels, where fc6 is 512 x 4 by 4096; the order of its inputs is as at 224."""
    path = str(tmp_path / 'weights.h5')
    model = theirs(weights=None, input_shape=(64, 64, 3), classes=7)
    fill(model)
    model.layers[-1].kernel.assign(model.layers[-1].kernel / 100)  # else one class has all of the soft-max
    model.save_weights(path)
    config = Config(variant=variant, classes=7, crop=64)
    ours = vgg.build(config)['classifier']
    weights = vgg.weight_readers['.h5'](path, config)['classifier']
    assert {variable.name.split(':')[0] for variable in ours.variables} == set(weights)
    for variable in ours.variables:
        variable.assign(weights[variable.name.split(':')[0]])
    rgb = np.random.default_rng(1).uniform(0, 255, (3, 64, 64, 3)).astype(np.float32)
    expected = model(keras.applications.vgg16.preprocess_input(rgb.copy()))
    found = tf.nn.softmax(ours([rgb - np.float32([123.68, 116.779, 103.939]), SEED]))
    assert 0.3 < np.max(expected) < 0.99
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_published_files_older_names_are_read(tmp_path):
    config = dataclasses.replace(SMALL, variant='E')
    layers = published(tmp_path / 'vgg19.h5', config)
    weights = vgg.keras_weights(str(tmp_path / 'vgg19.h5'), config)['classifier']
    assert len(weights) == 2 * 19
    np.testing.assert_array_equal(weights['conv3_4/kernel'], layers['block3_conv4'][0])
    np.testing.assert_array_equal(weights['fc8/bias'], layers['predictions'][1])
    np.testing.assert_array_equal(weights['conv1_1/kernel'][:, :, 0], layers['block1_conv1'][0][:, :, 2])


def test_a_file_of_another_net_is_refused_by_name(tmp_path):
    path, config = str(tmp_path / 'weights.h5'), dataclasses.replace(SMALL, variant='D')
    published(path, dataclasses.replace(config, variant='E'))
    with pytest.raises(ModelError, match='configuration D: expected no block3_conv4, .*; found block3_conv4 '):
        vgg.keras_weights(path, config)
    published(path, config, lambda layers: layers.pop('predictions'))  # a file without the top
    with pytest.raises(ModelError, match=r'expected predictions \(128, 5\) \(5,\); found no predictions$'):
        vgg.keras_weights(path, config)
    published(path, dataclasses.replace(config, classes=6))
    with pytest.raises(ModelError, match=r'expected predictions \(128, 5\) .*; found predictions \(128, 6\) \(6,\)$'):
        vgg.keras_weights(path, config)
    with open(path, 'w') as file:
        file.write('no weights')
    with pytest.raises(ModelError, match='is not a weight file of Keras'):
        vgg.keras_weights(path, config)


def test_score_map_is_the_dense_layers_at_every_place():
    config = dataclasses.replace(SMALL, variant='B')
    _, made = randomised(config)
    one = vgg.convolutions(made, config, pictures())
    found = vgg.score_map(made, config, one)
    assert found.shape == (2, 1, 1, 5)
    within = 16 * np.finfo(np.float32).eps * np.abs(found).max()  # roundings of the largest score
    same = functools.partial(np.testing.assert_allclose, rtol=0, atol=within)
    same(found[:, 0, 0], vgg.dense(made, config, one))
    more = vgg.convolutions(made, config, tf.random.normal([1, 130, 100, 3], stddev=60.0))
    scores = vgg.score_map(made, config, more)
    assert scores.shape == (1, 3, 2, 5)
    for i, j in np.ndindex(3, 2):
        same(scores[:, i, j], vgg.dense(made, config, more[:, i:i + 2, j:j + 2]))


def test_crops_of_which_nothing_is_left_are_refused():
    assert vgg.costs(dataclasses.replace(SMALL, crop=32))[-3].macs == 16 * 128
    with pytest.raises(ValueError, match='crop 31 leaves no maps'):
        dataclasses.replace(SMALL, crop=31)


def test_xla_computes_the_same_step():
    config = dataclasses.replace(SMALL, variant='A-LRN')
    classifier_steps.assert_xla_computes_the_same(vgg, config, randomised(config)[0], pictures())
