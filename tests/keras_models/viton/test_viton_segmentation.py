"""The segmentation generator against the paper's figure, closed forms and a direct evaluation of its weights."""
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from keras_models.viton import segmentation
from keras_models.viton.segmentation import CHANNELS, PRESETS, Config

ARCHITECTURES = ('paper', 'official')
SMALL = Config(size=[64, 32], width=1 / 16)
SEED = np.array([1, 2], np.int32)


def small(preset):
    return dataclasses.replace(SMALL, **PRESETS[preset])


@pytest.fixture(scope='module')
def nets():
    """One net a preset, its biases random and its kernels large enough for nothing to vanish."""
    made = {}
    for preset in ARCHITECTURES:
        net, draw = segmentation.build(small(preset))['segmentation'], np.random.default_rng(0)
        for weight in net.trainable_weights:
            weight.assign(draw.normal(0, 0.3 if len(weight.shape) == 1 else np.prod(weight.shape[:3]) ** -0.5,
                                      weight.shape))
        made[preset] = net
    return made


def inputs(config, n=2, seed=0):
    draw = np.random.default_rng(seed)
    given = {name: tf.constant(draw.normal(size=(n, *config.size, CHANNELS[name])), tf.float32)
             for name in config.inputs}
    return {**given, 'seed': SEED}


@pytest.mark.parametrize('preset, count', [('paper', 31_395_597), ('official', 34_531_149)])
def test_parameters_in_closed_form_are_keras_s(preset, count, nets):
    assert segmentation.parameters(Config(**PRESETS[preset])) == count
    assert nets[preset].count_params() == segmentation.parameters(small(preset))
    costs = {cost.name: cost for cost in segmentation.costs(small(preset))}
    for layer in nets[preset].layers:
        if layer.weights:
            cost = costs.pop(layer.name)
            assert (layer.count_params(), layer.output_shape[1:]) == (cost.parameters, (*cost.size, cost.channels))
    assert not costs


def test_multiply_adds_are_those_of_figure_10s_convolutions():
    """3x3 convolutions of 64 to 64 channels at full size cost as much as those of twice the channels at half of it."""
    block = 9 * 64 * 64 * 256 * 192
    down = 9 * 19 * 64 * 256 * 192 + block + 4 * (block / 2 + block)
    up = 4 * (3 * block + block)  # of the skipped and twice as many deeper channels
    assert segmentation.macs(Config()) == down + up + 9 * 64 * 13 * 256 * 192


def test_the_steps_are_figure_10s():
    steps = {step.name: step[1:] for step in segmentation.steps(Config())}
    assert [name for name in steps if name.endswith('_1')] == [f'conv{n}_1' for n in range(1, 10)]
    assert [steps[f'conv{n}_2'][1] for n in range(1, 10)] == [64, 128, 256, 512, 1024, 512, 256, 128, 64]
    assert steps['conv1_1'] == (19, 64, 0) and steps['conv6_1'] == (1536, 512, 3) and steps['conv9_3'] == (64, 13, 0)
    official = {step.name: step[1:] for step in segmentation.steps(Config(**PRESETS['official']))}
    assert official['conv1_1'] == (21, 64, 0)
    assert official['up6'] == (1024, 512, 3) and official['conv6_1'] == (1024, 512, 3)


def walk(net, config, given):
    """The forward pass again: padded by 1 and summed up by hand, without Keras and without dropout."""
    weights = {weight.name.split(':')[0]: weight for weight in net.weights}

    def convolution(name, x):
        x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        return tf.nn.conv2d(x, weights[f'{name}/kernel'], 1, 'VALID') + weights[f'{name}/bias']

    def normalised(name, x):
        x = convolution(name, x).numpy().astype(np.float64)  # the exact moments: in float32 NumPy's were off by 1.4e-4
        x = (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5)
        return np.maximum(x, 0).astype(np.float32)

    def block(number, x):
        return normalised(f'conv{number}_2', normalised(f'conv{number}_1', x))
    maps = [block(1, np.concatenate([given[name] for name in config.inputs], -1))]
    for number in range(2, 6):
        x = maps[-1]
        maps.append(block(number, x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).max((2, 4))))
    x = maps.pop()
    for number in range(6, 10):
        x = x.repeat(2, 1).repeat(2, 2)
        if config.convolve_upsampled:
            x = normalised(f'up{number}', x)
        x = block(number, np.concatenate([maps.pop(), x], -1))
    return convolution('conv9_3', x)


@pytest.mark.parametrize('preset', ARCHITECTURES)
def test_logits_are_those_of_a_plain_walk(preset, nets):
    config = small(preset)
    given = inputs(config)
    found = nets[preset](given)
    assert found.shape == (2, 64, 32, 13) and np.std(found) > 0.1
    np.testing.assert_allclose(found, walk(nets[preset], config, given), atol=1e-4)
    np.testing.assert_allclose(nets[preset]({name: value if name == 'seed' else value[:1]
                                             for name, value in given.items()}), found[:1], atol=1e-4)


def test_only_official_drops_and_only_in_training(nets):
    given = {preset: inputs(small(preset)) for preset in ARCHITECTURES}

    def ask(preset, seed, training):
        return nets[preset]({**given[preset], 'seed': tf.constant([seed, 0])}, training=training)
    np.testing.assert_array_equal(ask('paper', 1, True), ask('paper', 2, False))
    np.testing.assert_array_equal(ask('official', 1, False), ask('official', 2, False))
    np.testing.assert_array_equal(ask('official', 1, True), ask('official', 1, True))
    assert np.max(np.abs(ask('official', 1, True) - ask('official', 2, True))) > 0.1
    dropped = [layer for layer in nets['official'].layers if layer.name.endswith('dropout')]
    assert [(layer.name, layer.rate, layer.output_shape[1:]) for layer in dropped] == [
        ('conv4/dropout', 0.5, (8, 4, 32)), ('conv5/dropout', 0.5, (4, 2, 64))]


def test_probabilities():
    logits = np.random.default_rng(0).normal(0, 3, (2, 4, 4, 13)).astype(np.float32)
    softmax, sigmoid = (segmentation.probabilities(logits, small(preset)) for preset in ('paper', 'official'))
    np.testing.assert_allclose(softmax, special.softmax(logits, -1), atol=1e-6)
    np.testing.assert_allclose(sigmoid, special.expit(logits), atol=1e-6)


def test_gradients_reach_every_weight_but_biases_that_a_norm_takes_away(nets):
    net, config = nets['official'], small('official')
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(net(inputs(config), training=True)))
    for weight, gradient in zip(net.trainable_weights, tape.gradient(loss, net.trainable_weights)):
        assert np.all(np.isfinite(gradient))
        taken = 'bias' in weight.name and 'conv9_3' not in weight.name
        assert (np.max(np.abs(gradient)) < 1e-5) if taken else (np.max(np.abs(gradient)) > 1e-4), weight.name


def test_xla_computes_the_same(nets):
    net, given = nets['official'], inputs(small('official'), 1)
    found = tf.function(net, autograph=False, jit_compile=True)(given, training=True)
    np.testing.assert_allclose(found, net(given, training=True), atol=1e-3)


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match=r'multiples of 32 .* it is \[256, 200\]'):
        Config(size=[256, 200])
    with pytest.raises(ValueError, match=r'one or more of agnostic_parse, .* each once; it is .*parse.*'):
        Config(inputs=['parse', 'pose'])
