"""The geometric matching module against the paper, closed forms and a direct evaluation of its weights."""
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from keras_models.viton import geometric_matching, geometry
from keras_models.viton.geometric_matching import CLOTH, PERSON, PRESETS, Config

ARCHITECTURES = ('paper', 'official')
SMALL = Config(size=[128, 64], width=1 / 32)


def small(preset):
    return dataclasses.replace(SMALL, **PRESETS[preset])


@pytest.fixture(scope='module')
def nets():
    """One net a preset, every weight and statistic random and large enough for nothing to vanish."""
    made = {}
    for preset in ARCHITECTURES:
        net, draw = geometric_matching.build(small(preset))['geometric_matching'], np.random.default_rng(0)
        for weight in net.weights:
            if len(weight.shape) > 1:
                value = draw.normal(0, np.prod(weight.shape[:-1]) ** -0.5, weight.shape)
            else:
                value = draw.uniform(0.5, 1.5, weight.shape) if 'gamma' in weight.name or 'variance' in weight.name \
                    else draw.normal(0, 0.3, weight.shape)
            weight.assign(value)
        made[preset] = net
    return made


def inputs(config=SMALL, n=2, seed=0):
    draw = np.random.default_rng(seed)
    return {name: tf.constant(draw.normal(size=(n, *config.size, channels)), tf.float32)
            for name, channels in {**PERSON, **CLOTH}.items()}


@pytest.mark.parametrize('preset', ARCHITECTURES)
def test_parameters_in_closed_form_are_keras_s(preset, nets):
    assert geometric_matching.parameters(Config(**PRESETS[preset])) == 19_042_290
    counted = {}
    for layer in nets[preset].layers:
        if layer.trainable_weights:
            name = layer.name.replace('norm', 'conv')
            counted[name] = counted.get(name, 0) + sum(np.prod(weight.shape) for weight in layer.trainable_weights)
    costs = {cost.name: cost.parameters for cost in geometric_matching.costs(small(preset))}
    assert costs.pop('correlation') == 0 and counted == costs
    assert sum(counted.values()) == geometric_matching.parameters(small(preset))


def test_multiply_adds_are_table_2s():
    """4.47 billion is what a counter of layers finds: for every output it also counts a bias, two of normalisation and
    one of ReLU, and it sees no correlation, which is none."""
    costs = {cost.name: cost for cost in geometric_matching.costs(Config())}
    assert geometric_matching.macs(Config()) == 4_477_687_296
    correlated = costs.pop('correlation').macs
    assert correlated == (16 * 12) ** 2 * 512
    extra = sum(np.prod(step.size) * step.channels * (4 if step.normalised else 2)
                for step in geometric_matching.steps(Config()))
    assert (geometric_matching.macs(Config()) - correlated + extra) / 1e9 == pytest.approx(4.47, abs=0.005)
    assert geometric_matching.macs(Config()) / 1e9 == pytest.approx(4.47, rel=0.002)


def test_the_steps_are_figure_11s():
    steps = list(geometric_matching.steps(Config()))
    assert [f'{step.kernel}x{step.kernel}-{step.channels}' for step in steps[:6]] == [
        '4x4-64', '4x4-128', '4x4-256', '4x4-512', '3x3-512', '3x3-512']
    assert [step[1:5] for step in steps[1:6]] == [step[1:5] for step in steps[7:12]]
    assert (steps[0].maps, steps[6].maps) == (7, 3)
    assert [(step.maps, step.channels, step.size) for step in steps[12:]] == [
        (192, 512, (8, 6)), (512, 256, (4, 3)), (256, 128, (4, 3)), (128, 64, (4, 3))]
    assert [step.name for step in steps if not step.normalised] == ['person/conv6', 'cloth/conv6']
    # SAME is PyTorch's padding of 1 only where a convolution of stride 2 sees even sides.
    before = {'person/conv1': (256, 192), 'cloth/conv1': (256, 192), 'regression/conv1': (16, 12)}
    for last, step in zip([None, *steps], steps):
        assert tuple(step.stride * side for side in step.size) == before.get(step.name, last and last.size)


def walk(net, order, given):
    """The forward pass again, padded by 1 on every side and without Keras."""
    weights = {weight.name.split(':')[0]: weight for weight in net.weights}

    def layer(name, x, order, stride, normalised=True):
        x = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]])
        x = tf.nn.conv2d(x, weights[f'{name}/kernel'], stride, 'VALID') + weights[f'{name}/bias']
        gamma, beta, mean, variance = (weights.get(f'{name}/{part}'.replace('conv', 'norm')) for part in (
            'gamma', 'beta', 'moving_mean', 'moving_variance'))

        def norm(x):
            return (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta
        if not normalised:
            return np.maximum(x, 0)
        return np.maximum(norm(x), 0) if order == 'norm_relu' else norm(np.maximum(x, 0))

    def features(part, names):
        x = np.concatenate([given[name] for name in names], -1)
        for number in range(1, 7):
            x = layer(f'{part}/conv{number}', x, order, 2 if number < 5 else 1, number < 6)
        return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
    person, cloth = features('person', PERSON), features('cloth', CLOTH)
    n, height, width, _ = person.shape
    x = np.einsum('nyxc,nijc->nijxy', person, cloth).reshape(n, height, width, width * height)
    for number in range(1, 5):
        x = layer(f'regression/conv{number}', x, 'norm_relu', 2 if number < 3 else 1)
    x = np.moveaxis(x, -1, 1).reshape(n, -1)
    return np.tanh(x @ weights['regression/linear/kernel'] + weights['regression/linear/bias']).reshape(n, 2, 5, 5)


@pytest.mark.parametrize('preset', ARCHITECTURES)
def test_theta_is_that_of_a_plain_walk(preset, nets):
    given = inputs()
    theta = nets[preset](given)
    assert theta.shape == (2, 2, 5, 5) and np.std(theta) > 0.1
    np.testing.assert_allclose(theta, walk(nets[preset], small(preset).order, given), atol=1e-4)


def test_correlation_is_the_cosine_of_every_two_places():
    draw = np.random.default_rng(0)
    person, cloth = draw.normal(size=(2, 2, 3, 4, 5)).astype(np.float32)  # two pictures of 3 x 4 places
    found = geometric_matching.correlation(person, cloth).numpy()
    assert found.shape == (2, 3, 4, 12)
    for n, i, j, y, x in np.ndindex(2, 3, 4, 3, 4):
        a, b = person[n, y, x], cloth[n, i, j]
        assert found[n, i, j, 3 * x + y] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), abs=1e-5)


def test_statistics_are_pytorchs():
    """A momentum of 0.1 there is one of 0.9 here; the variance kept is the unbiased one."""
    net = geometric_matching.build(SMALL)['geometric_matching']
    given, layer = inputs(), net.get_layer('cloth/norm1')
    before = keras.Model(net.inputs, net.get_layer('cloth/conv1').output)(given).numpy().reshape(-1, 2)
    assert (layer.epsilon, layer.momentum) == (1e-5, 0.9)
    net(given, training=True)
    np.testing.assert_allclose(layer.moving_mean, 0.1 * before.mean(0), atol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, 0.9 + 0.1 * before.var(0, ddof=1), atol=1e-5)


@pytest.mark.parametrize('preset', ARCHITECTURES)
def test_the_warp_of_theta_zero_and_its_gradients(preset):
    """A net whose last layer is zero makes theta 0: paper's warp is then the identity, official's enlarges the middle;
    loss and gradients are finite."""
    config = small(preset)
    net, given = geometric_matching.build(config)['geometric_matching'], inputs()
    for weight in net.get_layer('regression/linear').weights:
        weight.assign(tf.zeros_like(weight))
    with tf.GradientTape() as tape:
        theta = net(given, training=True)
        warped = geometry.sample(given['cloth'], geometric_matching.spline(config).grid(theta, *config.size))
        loss = tf.reduce_mean(tf.abs(warped - given['agnostic']))
    assert not np.any(theta)
    difference = np.max(np.abs(warped - given['cloth']))
    assert difference < 1e-4 if preset == 'paper' else difference > 1
    gradients = tape.gradient(loss, net.trainable_weights)
    assert np.isfinite(loss) and all(np.all(np.isfinite(gradient)) for gradient in gradients)
    assert np.any(gradients[-1])


def test_official_s_spline_is_the_authors():
    """Over +-0.9 from edge to edge, and theta's first index counts columns."""
    spline = geometric_matching.spline(Config(**PRESETS['official']))
    theta = np.zeros([1, 2, 5, 5], np.float32)
    theta[0, 0, 1, 4] = 0.05  # x of the point in column 1, row 4
    side = np.linspace(-0.9, 0.9, 5)
    expected = np.stack(np.meshgrid(side, side), -1)
    expected[4, 1, 0] += 0.05
    np.testing.assert_allclose(spline.grid(theta, 5, 5)[0], expected, atol=1e-5)


def test_xla_computes_the_same(nets):
    net, given = nets['official'], inputs(n=1)
    found = tf.function(net, autograph=False, jit_compile=True)(given)
    np.testing.assert_allclose(found, net(given), atol=1e-4)


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match=r'multiples of 32 .* it is \[256, 200\]'):
        Config(size=[256, 200])
    with pytest.raises(ValueError, match='grid must be 2 or more control points per side; it is 1'):
        Config(grid=1)
