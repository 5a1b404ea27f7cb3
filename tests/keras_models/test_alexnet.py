"""AlexNet against the paper, and against its equations written in NumPy."""
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from keras_models import alexnet
from keras_models.alexnet import Config
from keras_models.core import layers
from support import classifier_steps

PAPER = Config(classes=1000, crop=224)
SMALL = Config(classes=5, crop=96, width=1 / 16)  # 2 x 2 places before fc6
CIFAR10 = Config(variant='cifar10', classes=10, crop=24)
SMALL_CIFAR10 = dataclasses.replace(CIFAR10, classes=5, width=1 / 8)
SEED = np.array([1, 2], np.int32)


def randomised(config, seed=0):
    return classifier_steps.randomised(alexnet.build(config)['classifier'], seed)


def pictures(n=2, side=96, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(0, 60, (n, side, side, 3)), tf.float32)


@pytest.mark.parametrize('towers, count', [(2, 60_965_224), (1, 62_378_344)])
def test_parameters_and_maps_of_the_papers_net(towers, count):
    config = dataclasses.replace(PAPER, towers=towers)
    made = alexnet.layers(config)
    image = keras.Input([224, 224, 3])
    maps = alexnet.convolutions(made, config, image)
    model = keras.Model(image, alexnet.dense(made, config, maps))
    assert model.count_params() == alexnet.parameters(config) == count
    assert maps.shape == (None, 6, 6, 256)
    assert [made[f'conv{n}'].output_shape for n in range(1, 6)] == [
        (None, 55, 55, 96), (None, 27, 27, 256), (None, 13, 13, 384), (None, 13, 13, 384), (None, 13, 13, 256)]
    assert [(cost.side, cost.channels) for cost in alexnet.costs(config)] == [
        (55, 96), (27, 256), (13, 384), (13, 384), (13, 256), (1, 4096), (1, 4096), (1, 1000)]


def test_neurons_are_figure_2s_but_for_the_first():
    _, rows = alexnet.table(PAPER)
    differ = [row[0] for row in rows if row[2] != row[3]]
    assert differ == ['conv1'] and rows[0][2] == '290,400'
    assert alexnet.table(SMALL) is None
    # Multiply-adds: 105.4 + 223.9 + 149.5 + 112.1 + 74.8 + 37.7 + 16.8 + 4.1 million, by hand.
    assert alexnet.macs(PAPER) / 1e6 == pytest.approx(724.4, abs=0.1)
    assert alexnet.flops_per_unit(PAPER) == 6 * alexnet.macs(PAPER)


@pytest.mark.parametrize('changes', [{}, {'towers': 1}, {'width': 0.3, 'crop': 64}, {'width': 0.1, 'crop': 127}])
def test_closed_form_counts_the_built_model(changes):
    config = dataclasses.replace(SMALL, **changes)
    assert alexnet.build(config)['classifier'].count_params() == alexnet.parameters(config)


@pytest.mark.parametrize('changes', [{}, {'normalisation': False}, {'crop': 32, 'width': 0.3}, {'crop': 17}])
def test_closed_form_counts_cifar10s_net(changes):
    config = dataclasses.replace(CIFAR10, **changes)
    model = alexnet.build(config)['classifier']
    assert model.count_params() == alexnet.parameters(config)
    maps = alexnet.convolutions(alexnet.layers(config), config, tf.zeros([1, config.crop, config.crop, 3]))
    assert maps.shape[1:3] == (alexnet.costs(config)[-2].side,) * 2


def test_cifar10s_net_by_hand():
    """Convolutions of 5 x 5 x 3 x 64 and 5 x 5 x 64 x 64; at 6 x 6 places 3 x 3 x 64 x 64 and 3 x 3 x 64 x 32, and as
    many biases; 6 x 6 x 32 x 10."""
    assert [(cost.side, cost.channels, cost.parameters) for cost in alexnet.costs(CIFAR10)] == [
        (24, 64, 4_864), (12, 64, 102_464), (6, 64, 36 * 36_928), (6, 32, 36 * 18_464), (1, 10, 11_530)]
    assert alexnet.parameters(CIFAR10) == 2_112_970
    assert alexnet.macs(CIFAR10) == 576 * 4_800 + 144 * 102_400 + 36 * (36_864 + 18_432) + 11_520
    assert alexnet.table(CIFAR10) is None


def test_small_pictures_are_refused_as_soon_as_nothing_is_left():
    assert alexnet.costs(Config(classes=2, crop=64))[5].macs == 256 * 4096  # one place
    with pytest.raises(ValueError, match='crop 63 leaves no maps'):
        Config(classes=2, crop=63)


def lrn(a):
    """3.3, a loop a channel."""
    b, N = np.empty_like(a), a.shape[-1]
    for i in range(N):
        total = sum(a[..., j] ** 2 for j in range(max(0, i - 2), min(N - 1, i + 2) + 1))
        b[..., i] = a[..., i] / (2 + 1e-4 * total) ** 0.75
    return b


def convolution(x, kernel, bias, stride=1, pad=0):
    x = np.pad(x, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], (1, 2))[:, ::stride, ::stride]
    return np.maximum(0, np.einsum('bhwcij,ijcd->bhwd', windows, kernel) + bias)


def pool(x):
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))[:, ::2, ::2].max((-1, -2))


def numpy_alexnet(w, image):
    """Section 3.5 once more, with two towers."""
    def apart(x, name, pad):
        kernel, bias = w[f'{name}/kernel'], w[f'{name}/bias']
        half, n = len(bias) // 2, x.shape[-1] // 2
        return np.concatenate([convolution(x[..., :n], kernel[..., :half], bias[:half], pad=pad),
                               convolution(x[..., n:], kernel[..., half:], bias[half:], pad=pad)], -1)
    x = np.pad(image, [(0, 0), (1, 2), (1, 2), (0, 0)])
    x = pool(lrn(convolution(x, w['conv1/kernel'], w['conv1/bias'], stride=4)))
    x = pool(lrn(apart(x, 'conv2', 2)))
    x = convolution(x, w['conv3/kernel'], w['conv3/bias'], pad=1)
    x = pool(apart(apart(x, 'conv4', 1), 'conv5', 1))
    x = x.reshape(len(x), -1)
    for name in ('fc6', 'fc7'):
        x = np.maximum(0, x @ w[f'{name}/kernel'] + w[f'{name}/bias'])
    return x @ w['fc8/kernel'] + w['fc8/bias']


def test_equals_the_paper_written_in_numpy():
    model, _ = randomised(SMALL)
    image = pictures()
    w = {weight.name.split(':')[0]: weight.numpy().astype(np.float64) for weight in model.weights}
    expected = numpy_alexnet(w, image.numpy().astype(np.float64))
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(model([image, SEED]), expected, rtol=1e-3, atol=1e-3)


def numpy_cifar10(w, image, activation, normalised):
    """The four layers and their pooling, which reaches over the lower and right edge."""
    def conv(x, name):
        x = np.pad(x, [(0, 0), (2, 2), (2, 2), (0, 0)])
        windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), (1, 2))
        x = activation(np.einsum('bhwcij,ijcd->bhwd', windows, w[f'{name}/kernel']) + w[f'{name}/bias'])
        return pool(np.pad(lrn(x) if normalised else x, [(0, 0), (0, 1), (0, 1), (0, 0)], constant_values=-np.inf))

    def local(x, name):
        x, kernel = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)]), w[f'{name}/kernel']
        return activation(np.stack([np.stack([
            x[:, i:i + 3, j:j + 3].reshape(len(x), -1) @ kernel[i, j] for j in range(kernel.shape[1])], 1)
            for i in range(kernel.shape[0])], 1) + w[f'{name}/bias'])
    x = local(local(conv(conv(image, 'conv1'), 'conv2'), 'local3'), 'local4')
    return x.reshape(len(x), -1) @ w['fc5/kernel'] + w['fc5/bias']


@pytest.mark.parametrize('activation, function', [('relu', lambda x: np.maximum(0, x)), ('tanh', np.tanh)])
@pytest.mark.parametrize('normalised', [True, False])
def test_cifar10s_net_equals_it_written_in_numpy(activation, function, normalised):
    config = dataclasses.replace(SMALL_CIFAR10, activation=activation, normalisation=normalised)
    model, _ = randomised(config)
    image = pictures(side=24) / (60 if activation == 'tanh' else 1)
    w = {weight.name.split(':')[0]: weight.numpy().astype(np.float64) for weight in model.weights}
    expected = numpy_cifar10(w, image.numpy().astype(np.float64), function, normalised)
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(model([image, SEED]), expected, rtol=1e-3, atol=2e-3 * np.abs(expected).max())


def test_tanh_and_no_normalization_reach_every_layer_of_the_papers_net():
    net, tanh = alexnet.layers(SMALL), alexnet.layers(dataclasses.replace(SMALL, activation='tanh'))
    for name in ('conv1', 'conv2', 'conv5', 'fc6', 'fc7'):
        assert (net[name].activation, tanh[name].activation) == (keras.activations.relu, keras.activations.tanh)
    model, made = randomised(SMALL)
    plain = dataclasses.replace(SMALL, normalisation=False)
    maps, image = alexnet.convolutions(made, plain, pictures()), pictures()
    assert np.abs(maps - alexnet.convolutions(made, SMALL, image)).max() > 0.1 * np.abs(maps).max()


def test_in_cifar10s_net_convolutions_and_biases_do_not_decay():
    config = dataclasses.replace(SMALL_CIFAR10, learning_rate=0.5, momentum=0.0, weight_decay=0.1)
    model, [optimizer] = alexnet.build(config)['classifier'], alexnet.optimizers(config).values()
    before = {weight.name: weight.numpy() for weight in model.weights}
    optimizer.apply_gradients((tf.zeros_like(weight), weight) for weight in model.trainable_variables)
    for weight in model.weights:
        decays = 'kernel' in weight.name and 'conv' not in weight.name
        np.testing.assert_allclose(weight, before[weight.name] * (0.95 if decays else 1), rtol=1e-6)


def test_local_response_normalization_where_it_does_much():
    a = np.random.default_rng(0).normal(0, 200, (2, 3, 3, 7))
    assert np.abs(lrn(a) / (a / 2 ** 0.75)).min() < 0.3
    np.testing.assert_allclose(layers.local_response_normalization(tf.constant(a, tf.float32)), lrn(a), rtol=1e-4)
    half = layers.local_response_normalization(tf.constant(a, tf.bfloat16))
    np.testing.assert_allclose(half.numpy().astype(np.float32), lrn(a), rtol=0.03)


@pytest.mark.parametrize('towers', [2, 1])
def test_towers_see_their_own_maps_only(towers):
    config = dataclasses.replace(SMALL, towers=towers)
    _, made = randomised(config)
    x = tf.constant(np.random.default_rng(1).normal(size=(1, 9, 9, made['conv2'].kernel.shape[2] * towers)), tf.float32)
    half = made['conv2'].bias.shape[0] // 2
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(made['conv2'](x)[..., :half])
    of_own, of_other = tf.split(tf.abs(tape.gradient(y, x)), 2, -1)
    assert float(tf.reduce_max(of_own)) > 0 and (float(tf.reduce_max(of_other)) == 0) == (towers == 2)


def test_weights_begin_as_section_5_says():
    config = dataclasses.replace(PAPER, classes=10, width=0.25)
    keras.utils.set_random_seed(3)
    made = {layer.name: layer for layer in alexnet.build(config)['classifier'].layers}
    keras.utils.set_random_seed(3)
    again = alexnet.build(config)['classifier'].get_layer('conv3').kernel
    np.testing.assert_array_equal(made['conv3'].kernel, again)
    for name in (*config.net.convolutions, 'fc6', 'fc7', 'fc8'):
        assert np.std(made[name].kernel) == pytest.approx(0.01, rel=0.05)
        ones = name in ('conv2', 'conv4', 'conv5', 'fc6', 'fc7')
        np.testing.assert_array_equal(made[name].bias, np.full(made[name].bias.shape, float(ones)))
    glorot = alexnet.build(dataclasses.replace(config, weights='glorot'))['classifier']
    for name in (*config.net.convolutions, 'fc6', 'fc7', 'fc8'):
        kernel, bias = glorot.get_layer(name).kernel, glorot.get_layer(name).bias
        places = np.prod(kernel.shape[:-2])
        assert np.std(kernel) == pytest.approx((2 / places / sum(kernel.shape[-2:])) ** 0.5, rel=0.05), name
        np.testing.assert_array_equal(bias, np.zeros(bias.shape))


def test_dropout_follows_relu_in_training_only():
    model, made = randomised(SMALL)
    image = pictures(1)
    plain = model([image, SEED])
    maps = alexnet.convolutions(made, SMALL, image)
    np.testing.assert_array_equal(alexnet.dense(made, SMALL, maps), plain)
    drawn, again, other = (model([image, seed], training=True) for seed in (SEED, SEED, SEED + 1))
    np.testing.assert_array_equal(drawn, again)
    assert np.abs(drawn - plain).max() > 0.01 and np.abs(drawn - other).max() > 0.01
    x = made['fc6'](tf.reshape(maps, [1, -1])).numpy()
    kept = np.array([made['fc6/dropout'](x, tf.constant([0, n]), training=True) for n in range(400)])
    np.testing.assert_array_equal(kept, np.where(kept == 0, 0, 2 * x))  # a unit is gone, or doubled
    gone = (kept == 0)[:, x > 0]  # [400, units that ReLU leaves]
    assert gone.shape[1] > 50 and gone.mean() == pytest.approx(0.5, abs=3 * 0.5 / gone.size ** 0.5)
    # each unit half of the time, by five deviations
    assert np.abs(gone.mean(0) - 0.5).max() < 5 * 0.5 / 400 ** 0.5
    np.testing.assert_array_equal(made['fc6/dropout'](x, SEED), x)


def test_score_map_of_cifar10s_net_is_its_layers_at_every_place():
    _, made = randomised(SMALL_CIFAR10)
    maps = alexnet.convolutions(made, SMALL_CIFAR10, pictures(side=32))
    scores = alexnet.score_map(made, SMALL_CIFAR10, maps)
    assert scores.shape == (2, 3, 3, 5)
    for i, j in np.ndindex(3, 3):
        np.testing.assert_allclose(scores[:, i, j], alexnet.dense(made, SMALL_CIFAR10, maps[:, i:i + 6, j:j + 6]),
                                   rtol=1e-4, atol=1e-4)


def test_score_map_is_the_dense_layers_at_every_place():
    _, made = randomised(SMALL)
    one = alexnet.convolutions(made, SMALL, pictures())
    found = alexnet.score_map(made, SMALL, one)
    assert found.shape == (2, 1, 1, 5)
    np.testing.assert_allclose(found[:, 0, 0], alexnet.dense(made, SMALL, one), rtol=1e-4, atol=1e-4)
    more = alexnet.convolutions(made, SMALL, tf.random.normal([1, 160, 130, 3], stddev=60.0))
    scores = alexnet.score_map(made, SMALL, more)
    assert scores.shape[1:] == (more.shape[1] - 1, more.shape[2] - 1, 5) and scores.shape[1] > scores.shape[2] > 1
    for i, j in np.ndindex(*scores.shape[1:3]):
        np.testing.assert_allclose(scores[:, i, j], alexnet.dense(made, SMALL, more[:, i:i + 2, j:j + 2]),
                                   rtol=1e-4, atol=1e-4)


def test_learns_four_pictures():
    """Loss, optimizer and net together; so narrow a net needs larger weights to begin with."""
    config = dataclasses.replace(SMALL, classes=4, dropout=0.0, width=1 / 8, stddev=0.05)
    first, last = classifier_steps.train(alexnet, config, pictures(4), steps=151)
    assert first[0] > 1 and last[0] < 0.1 and last[1] == 0


@pytest.mark.parametrize('activation', ['relu', 'tanh'])
def test_cifar10s_net_learns_four_pictures(activation):
    config = dataclasses.replace(CIFAR10, classes=4, activation=activation, learning_rate=0.02)
    first, last = classifier_steps.train(alexnet, config, pictures(4, 24), steps=101)
    assert first[0] > 1 and last[0] < 0.1 and last[1] == 0


@pytest.mark.parametrize('config, side', [(SMALL, 96), (SMALL_CIFAR10, 24)])
def test_xla_computes_the_same_step(config, side):
    classifier_steps.assert_xla_computes_the_same(alexnet, config, randomised(config)[0], pictures(side=side))
