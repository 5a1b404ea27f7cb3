"""PReLU nets against the paper's tables and equations, and internal consistency."""
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from keras_models import prelu_net
from keras_models.prelu_net import Config
from support import classifier_steps

SEED = np.array([1, 2], np.int32)
TINY = ['3x3, 32', '2x2 maxpool, /2', '2x2, 32', '2x2, 64', '2x2 maxpool, /2', '3x3, 64', 'spp, {3, 2, 1}', 'fc, 32']
SMALL = Config(layers=TINY, classes=5, crop=28)  # maps of 7 x 7 before spp


def paper(variant, **changes):
    return Config(variant=variant, classes=1000, crop=224, **changes)


def randomised(config, seed=0):
    return classifier_steps.randomised(prelu_net.build(config)['classifier'], seed)


@pytest.mark.parametrize('variant, operations, convolutions', [('A', 1.90, 1.89), ('B', 2.32, 2.31), ('C', 5.30, 5.32)])
def test_operations_are_table_3s_within_a_percent(variant, operations, convolutions):
    config = paper(variant)
    assert prelu_net.macs(config) / 1e10 == pytest.approx(operations, rel=0.01)
    alone = sum(cost.macs for cost in prelu_net.costs(config) if cost.name.startswith('conv'))
    assert alone / 1e10 == pytest.approx(convolutions, abs=0.006)


@pytest.mark.parametrize('variant, depth, sides, bins', [
    (14, 14, [109, 36, 18], 50), (30, 30, [109, 36, 18], 50), ('A', 19, [112, 56, 28, 14], 63),
    ('B', 22, [112, 56, 28, 14], 63), ('C', 22, [112, 56, 28, 14], 63)])
def test_depths_and_maps_are_the_tables(variant, depth, sides, bins):
    config = paper(variant)
    costs, net = prelu_net.costs(config), prelu_net.read(config)
    assert len(costs) == depth
    found = prelu_net.sides(net, 224)
    assert [side for side in found if side in sides] and found[-1] == sides[-1]
    if variant in (14, 30):  # 'dominantly 36 x 36 and 18 x 18' (He & Sun 2014): one less after every other convolution
        assert found[:7] == [224, 109, 36, 35, 36, 35, 36] and set(found[7:]) == {18, 17}
    else:
        assert sorted(set(found), reverse=True) == [224, *sides]
    assert sum(n ** 2 for n in net.levels) == bins
    image = keras.Input([224, 224, 3])
    small = dataclasses.replace(config, width=1 / 32)
    assert prelu_net.convolutions(prelu_net.layers(small), small, image).shape[1:3] == (sides[-1], sides[-1])


def test_names_and_filters_are_table_1s():
    costs = prelu_net.costs(paper(14))
    assert [(cost.name, cost.channels) for cost in costs] == [
        ('conv1', 64), *((f'conv2_{n}', 128) for n in range(1, 5)), *((f'conv3_{n}', 256) for n in range(1, 7)),
        ('fc1', 4096), ('fc2', 4096), ('fc3', 1000)]
    thirty = prelu_net.costs(paper(30))
    assert sum(cost.name.startswith('conv') for cost in thirty) == 27
    assert {cost.channels for cost in thirty if cost.name.startswith('conv3')} == {256}


def test_slopes_are_13_more_parameters_shared_and_as_many_as_channels_else():
    relu, shared, channel = (prelu_net.parameters(paper(14, activation=activation))
                             for activation in ('relu', 'prelu_shared', 'prelu_channel'))
    assert shared - relu == 13
    assert channel - relu == 64 + 4 * 128 + 6 * 256 + 2 * 4096
    small = [prelu_net.build(paper(14, activation=activation, width=1 / 32))['classifier'].count_params()
             for activation in ('relu', 'prelu_shared')]
    assert small[1] - small[0] == 13


@pytest.mark.parametrize('changes', [{}, {'activation': 'relu'}, {'activation': 'prelu_shared'}, {'crop': 30},
                                     {'width': 0.3}, {'layers': [], 'variant': 14, 'crop': 100, 'width': 0.05}])
def test_closed_form_counts_the_built_model(changes):
    config = dataclasses.replace(SMALL, **changes)
    assert prelu_net.build(config)['classifier'].count_params() == prelu_net.parameters(config)


def test_the_table():
    header, rows = prelu_net.table(paper('A'))
    assert [row[0] for row in rows] == ['14', '30', 'A', 'B', 'C'] and all(len(row) == len(header) for row in rows)
    assert [row[1] for row in rows] == ['14', '30', '19', '22', '22'] and rows[4][-1] == '5.71'
    assert prelu_net.table(SMALL) is None


@pytest.mark.parametrize('shared', [False, True])
def test_prelu_is_equations_1_to_3(shared):
    draw = np.random.default_rng(0)
    y, dE_df = (draw.normal(size=(3, 4, 5, 6)).astype(np.float32) for _ in range(2))
    y[0, 0, 0] = 0
    layer = prelu_net.PReLU(0.25, shared, 'prelu')
    layer(y)
    np.testing.assert_array_equal(layer.a, [0.25] * (1 if shared else 6))
    a = draw.normal(size=layer.a.shape).astype(np.float32)  # it may be negative: the function need not be monotonic
    layer.a.assign(a)
    x = tf.constant(y)
    with tf.GradientTape() as tape:
        tape.watch(x)
        f = layer(x)
        E = tf.reduce_sum(f * dE_df)
    of_y, of_a = tape.gradient(E, [x, layer.a])
    np.testing.assert_allclose(f, np.where(y > 0, y, a * y), rtol=1e-6)
    np.testing.assert_allclose(of_y.numpy()[y != 0], (dE_df * np.where(y > 0, 1, a))[y != 0], rtol=1e-6)
    expected = dE_df * np.where(y > 0, 0, y)
    np.testing.assert_allclose(of_a, [expected.sum()] if shared else expected.sum((0, 1, 2)), rtol=1e-4)


def test_slopes_feel_no_decay():
    config = dataclasses.replace(SMALL, learning_rate=0.1, weight_decay=0.5)
    nets, [optimizer] = prelu_net.build(config), prelu_net.optimizers(config).values()
    variables = nets['classifier'].trainable_variables
    for variable in variables:
        variable.assign(tf.ones_like(variable))
    optimizer.apply_gradients([(tf.zeros_like(variable), variable) for variable in variables])
    for variable in variables:
        expected = 0.95 if 'kernel' in variable.name else 1.0
        np.testing.assert_allclose(variable, tf.fill(variable.shape, expected), rtol=1e-6, err_msg=variable.name)
    assert sum(variable.name.endswith('/a:0') for variable in variables) == 5


def test_first_weights():
    def deviations(**changes):
        keras.utils.set_random_seed(0)
        model = prelu_net.build(dataclasses.replace(SMALL, **changes))['classifier']
        made = {layer.name: layer for layer in model.layers}
        assert not any(np.any(layer.bias) for layer in made.values() if hasattr(layer, 'bias'))
        return [float(np.std(made[name].kernel)) for name in ('conv2_2', 'fc1', 'fc2')]
    n, n_hat = 4 * 32, 4 * 64
    conv, *fc = deviations()
    assert conv == pytest.approx((2 / (1 + 0.25 ** 2) / n_hat) ** 0.5, rel=0.03)  # (14) with (15)'s slope
    assert fc == [pytest.approx(0.01, rel=0.03), pytest.approx(0.001, rel=0.2)]
    assert deviations(weights='forward')[0] == pytest.approx((2 / (1 + 0.25 ** 2) / n) ** 0.5, rel=0.03)
    assert deviations(activation='relu')[0] == pytest.approx((2 / n_hat) ** 0.5, rel=0.03)
    assert deviations(weights='xavier')[0] == pytest.approx((1 / n) ** 0.5, rel=0.03)


def test_two_by_two_convolutions_are_padded_in_turn_and_shift_nothing():
    """A point at the middle stays there: two 2 x 2 kernels of ones spread it over 3 x 3 places around it."""
    config = Config(layers=['2x2, 2', '2x2, 2', 'spp, {1}'], classes=2, crop=9, activation='relu')
    made = prelu_net.layers(config)
    image = np.zeros([1, 9, 9, 3], np.float32)
    image[0, 4, 4] = 1
    prelu_net.convolutions(made, config, tf.constant(image))
    for name in ('conv1_1', 'conv1_2'):
        made[name].kernel.assign(tf.ones_like(made[name].kernel))
    maps = prelu_net.convolutions(made, config, tf.constant(image)).numpy()[0, ..., 0]
    assert maps.shape == (9, 9)
    np.testing.assert_array_equal(maps[3:6, 3:6] / maps[4, 4], [[.25, .5, .25], [.5, 1, .5], [.25, .5, .25]])
    assert np.count_nonzero(maps) == 9


@pytest.mark.parametrize('side, n, expected', [
    (14, 7, [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14)]), (14, 3, [(0, 5), (4, 10), (9, 14)]),
    (18, 6, [(0, 3), (3, 6), (6, 9), (9, 12), (12, 15), (15, 18)]), (13, 2, [(0, 7), (6, 13)]),
    (2, 3, [(0, 1), (0, 2), (1, 2)])])
def test_bins(side, n, expected):
    assert prelu_net.bins(side, n) == expected


@pytest.mark.parametrize('side, levels', [(14, [7, 3, 2, 1]), (18, [6, 3, 2, 1]), (5, [7, 2])])
def test_spp_takes_the_largest_of_every_bin(side, levels):
    maps = np.random.default_rng(0).normal(size=(2, side, side, 3)).astype(np.float32)
    expected = []
    for n in levels:
        for i in range(n):
            for j in range(n):
                rows = slice(int(np.floor(i / n * side)), int(np.ceil(round((i + 1) / n * side, 9))))
                columns = slice(int(np.floor(j / n * side)), int(np.ceil(round((j + 1) / n * side, 9))))
                expected.append(maps[:, rows, columns].max((1, 2)))
    np.testing.assert_array_equal(prelu_net.spp(tf.constant(maps), levels), np.concatenate(expected, -1))


@pytest.mark.parametrize('side, levels', [(14, [7, 3, 2, 1]), (5, [4, 2])])
def test_sliding_spp_is_spp_of_every_window(side, levels):
    maps = tf.constant(np.random.default_rng(0).normal(size=(2, side + 3, side + 1, 4)), tf.float32)
    found = prelu_net.sliding_spp(maps, levels, side)
    assert found.shape[1:3] == (4, 2)
    for i, j in np.ndindex(4, 2):
        np.testing.assert_array_equal(found[:, i, j], prelu_net.spp(maps[:, i:i + side, j:j + side], levels))


def test_score_map_is_the_dense_layers_on_every_window():
    model, made = randomised(SMALL)
    image = tf.random.normal([2, 28, 28, 3])
    one = prelu_net.convolutions(made, SMALL, image)
    scores = prelu_net.score_map(made, SMALL, one)
    assert scores.shape == (2, 1, 1, 5)
    np.testing.assert_allclose(scores[:, 0, 0], model([image, SEED]), atol=1e-4)
    compiled = tf.function(lambda image: prelu_net.score_map(made, SMALL, prelu_net.convolutions(made, SMALL, image)),
                           input_signature=[tf.TensorSpec([None, None, None, 3])])
    more = tf.random.normal([1, 40, 44, 3])
    maps, scores = prelu_net.convolutions(made, SMALL, more), compiled(more)
    assert scores.shape == (1, 4, 5, 5)
    for i, j in np.ndindex(4, 5):
        np.testing.assert_allclose(scores[:, i, j], prelu_net.dense(made, SMALL, maps[:, i:i + 7, j:j + 7]), atol=1e-4)


@pytest.mark.parametrize('side', [20, 28, 35])  # maps of 5, 7 and 8
def test_smaller_and_larger_crops_give_what_a_net_built_for_them_does(side):
    model, _ = randomised(SMALL)
    own = prelu_net.build(dataclasses.replace(SMALL, crop=side))['classifier']
    own.set_weights(model.get_weights())
    image = np.random.default_rng(3).normal(size=[2, side, side, 3]).astype(np.float32)
    np.testing.assert_allclose(model([image, SEED], training=True), own([image, SEED], training=True), atol=1e-5)


def test_dropout_in_training_only():
    model, _ = randomised(SMALL)
    image = tf.random.normal([1, 28, 28, 3])
    plain, drawn, again, other = (model([image, seed], training=training).numpy() for seed, training in (
        (SEED, False), (SEED, True), (SEED, True), (SEED + 1, True)))
    np.testing.assert_array_equal(drawn, again)
    assert np.abs(drawn - plain).max() > 0.01 and np.abs(drawn - other).max() > 0.01


@pytest.mark.parametrize('lines, message', [
    (['3x3,256', 'spp, {1}'], "'3x3,256' is not in the notation"), (['3x2, 16', 'spp, {1}'], 'not in the notation'),
    (['3x3, 16', 'spp, 2'], 'not in the notation'), (['3x3, 16'], 'then one spp'), (['spp, {1}'], 'then one spp'),
    (['3x3, 16', 'spp, {1}', '3x3, 16'], 'then one spp'), (['3x3, 16', 'spp, {1}', 'spp, {1}'], 'then one spp')])
def test_layers_not_in_the_notation_are_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        Config(layers=lines, classes=2)


def test_crops_of_which_nothing_is_left_are_refused():
    assert prelu_net.sides(prelu_net.read(Config(layers=TINY, crop=4)), 4) == [4, 4, 2, 1, 2, 1, 1]
    with pytest.raises(ValueError, match='crop 3 leaves no map'):
        Config(layers=TINY, crop=3)


def test_learns_four_pictures():
    """Loss, optimizer and net together, with the paper's rate, rule and first weights, at a tenth of its contrast."""
    config = dataclasses.replace(SMALL, classes=4, dropout=0.0)
    image = tf.random.normal([4, 28, 28, 3], stddev=10.0, seed=1)
    first, last = classifier_steps.train(prelu_net, config, image, steps=101)
    assert first[0] == pytest.approx(np.log(4), abs=0.1) and last[0] < 0.1 and last[1] == 0


def test_xla_computes_the_same_step():
    image = tf.random.normal([2, 28, 28, 3])
    classifier_steps.assert_xla_computes_the_same(prelu_net, SMALL, randomised(SMALL)[0], image)
