"""VITON-HD's discriminators and their losses against closed forms and recorded PyTorch results."""
import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from keras_models.viton import adversary, layers
from support import references
from support.references import Reference

MAPS = 5
SMALL = {'maps': MAPS, 'size': [45, 34], 'width': 1 / 8}  # both sides are odd in places
LOSSES = {'lsgan': adversary.lsgan, 'hinge': adversary.hinge}


def discriminator(spectral=False, layers=3):
    """Kernels as large as Glorot's and random biases, so that nothing vanishes."""
    keras.utils.set_random_seed(0)
    net = adversary.build('discriminator', spectral=spectral, layers=layers, **SMALL)
    for weight in net.trainable_weights:
        weight.assign(weight * 50 if len(weight.shape) == 4 else tf.random.normal(weight.shape, 0, 0.3))
    return net


def pictures(n=2, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(0, 0.5, (n, *SMALL['size'], MAPS)), tf.float32)


def constant(*scales):
    """Outputs whose maps are constant: for every scale the numbers of its layers, a row of two batches' each."""
    return [[tf.broadcast_to(tf.constant(rows, tf.float32)[:, None, None, None], [2, 3 + depth, 2, 4])
             for depth, rows in enumerate(scale)] for scale in scales]


def test_parameters():
    """Count those of 39 channels, as pix2pixHD has on Cityscapes: its 5,603,202 without the biases that do nothing."""
    by_hand = [(16 * 39 + 1) * 64, 16 * 64 * 128, 16 * 128 * 256, 16 * 256 * 512, 16 * 512 + 1]
    assert adversary.parameters(39) == 2 * sum(by_hand) == 5_603_202 - 2 * (128 + 256 + 512)
    for settings in ({}, {'layers': 4, 'scales': 3}, {'width': 1 / 4, 'scales': 1}):
        net = adversary.build('one', 7, [96, 64], spectral=True, **settings)
        assert adversary.parameters(7, **settings) == sum(np.prod(weight.shape) for weight in net.trainable_weights)
        assert len({weight.name for weight in net.weights}) == len(net.weights)


@pytest.mark.parametrize('size', [[256, 192], [45, 34], [17, 3]])
def test_maps_are_halved(size):
    net = adversary.build('one', MAPS, size, width=1 / 4)
    sides = np.array(size)
    assert len(net.output_shape) == 2
    for found in net.output_shape:
        expected, h = [], sides
        for stride, channels in zip((2, 2, 2, 1, 1), (16, 32, 64, 128, 1)):
            h = -(-h // stride)
            expected.append((None, *h, channels))
        assert found == expected
        sides = -(-sides // 2)


def test_wide_nets_stop_at_512_channels():
    net = adversary.build('one', MAPS, [64, 64], layers=5, scales=1)
    [found] = net(tf.zeros([1, 64, 64, MAPS]))
    assert [maps.shape[-1] for maps in found] == [64, 128, 256, 512, 512, 512, 1]


def test_sizes_whose_last_maps_would_be_normalised_to_nothing_are_refused():
    with pytest.raises(ValueError, match=r'one halves its maps 4 times, so each side must be over 16; the size is'):
        adversary.build('one', MAPS, [16, 12])


@pytest.mark.parametrize('spectral', [False, True], ids=['plain', 'spectral'])
def test_a_net_is_pytorchs(spectral):
    reference, net = Reference('discriminator'), discriminator(spectral)
    name = 'spectral' if spectral else 'plain'
    state = reference.weights(name)
    for layer in net.layers:
        if isinstance(layer, layers.Convolution):
            theirs = layer.name.replace('/', '.')
            weight = state.pop(f'{theirs}.weight_orig' if spectral else f'{theirs}.weight')
            layer.kernel.assign(references.kernel(weight))
            if layer.has_bias:
                layer.bias.assign(state.pop(f'{theirs}.bias'))
            if spectral:
                layer.u.assign(state.pop(f'{theirs}.weight_u'))
                layer.v.assign(references.right_vector(state.pop(f'{theirs}.weight_v'), weight.shape))
    assert not state
    found = net(reference.uniform('images', [2, *SMALL['size'], MAPS]))
    for scale, ours in enumerate(found):
        for layer, maps in zip(('conv1', 'conv2', 'conv3', 'conv4', 'decisions'), ours, strict=True):
            assert reference.deviation(f'{name}/scale{scale}/{layer}') > 0.01
            reference.compare(f'{name}/scale{scale}/{layer}', maps, rtol=1e-3, atol=1e-4)


def test_losses_of_constants():
    real = constant([(9, 9), (2, 0)], [(9, 9), (0.5, -1)])  # two scales' last: decisions of two rows
    fake = constant([(9, 9), (-3, 1)], [(9, 9), (0.5, 0)])
    generator, judge = adversary.lsgan(real, fake)
    np.testing.assert_allclose(generator, [16 + 0.25, 0 + 1])
    np.testing.assert_allclose(judge, [(1 + 0.25 + 9 + 0.25) / 2, (1 + 4 + 1 + 0) / 2])
    generator, judge = adversary.hinge(real, fake)
    np.testing.assert_allclose(generator, [(3 - 0.5) / 2, (-1 - 0) / 2])
    np.testing.assert_allclose(judge, [(0 + 0.5 + 0 + 1.5) / 2, (1 + 2 + 2 + 1) / 2])


def test_features_match_what_is_real_and_not_the_decisions():
    real = constant([(1, 2), (3, 4), (100, 100)], [(0, 0), (0, 1), (100, 100)])
    fake = constant([(2, 2), (-1, 4), (0, 0)], [(3, 0), (0, 0), (0, 0)])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([real, fake])
        found = adversary.feature_matching(real, fake)
    np.testing.assert_allclose(found, [(1 + 4 + 3 + 0) / 2, (0 + 0 + 0 + 1) / 2])
    assert all(each is None for maps in tape.gradient(found, real) for each in maps)
    moved = tape.gradient(found, fake)
    np.testing.assert_allclose(moved[0][0], np.broadcast_to([[[[1]]], [[[0]]]], [2, 3, 2, 4]) / 24 / 2)
    assert [maps[-1] for maps in moved] == [None, None]


def test_spectral_normalisation_moves_in_training_only():
    net, given = discriminator(spectral=True), pictures()
    assert sum(isinstance(layer, layers.Convolution) and layer.spectral for layer in net.layers) == 10
    assert not any(weight.name.endswith('/u:0') for weight in discriminator().weights)

    def state():
        return {weight.name: weight.numpy() for weight in net.non_trainable_weights}
    before = state()
    net(given, training=False)
    np.testing.assert_equal(before, state())
    first = net(given, training=True)
    after = state()
    moved = [np.any(before[name] != after[name]) for name in after if 'decisions' not in name]  # theirs is one column
    assert len(moved) == 16 and all(moved)
    np.testing.assert_allclose(first[1][-1], net(given, training=False)[1][-1], rtol=1e-5)  # of the same weights
    np.testing.assert_equal(after, state())
    again = tf.function(lambda: net(given, training=True)[1][-1], autograph=False)
    for _ in range(100):
        again()
    for layer in net.layers:
        if isinstance(layer, layers.Convolution):
            weight = layer.weight().numpy().reshape(-1, layer.kernels)
            assert np.linalg.svd(weight, compute_uv=False)[0] == pytest.approx(1, abs=0.01)


def step(net, real, fake, loss):
    """One step's losses, and their gradients: the generator's by what it made, the discriminator's by its weights."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(fake)
        truth, made = net(real, training=True), net(fake, training=False)
        generator, judge = LOSSES[loss](truth, made)
        generator += adversary.feature_matching(truth, made)
        generator, judge = tf.reduce_sum(generator), tf.reduce_sum(judge)
    return generator, judge, tape.gradient(generator, fake), tape.gradient(judge, net.trainable_variables)


def test_xla_computes_the_same():
    net, given = discriminator(layers=2), (pictures(), pictures(seed=1))
    plain, compiled = (tf.function(lambda *given: step(net, *given, 'lsgan'), autograph=False, jit_compile=jit)(*given)
                       for jit in (None, True))
    for one, other in zip(tf.nest.flatten(plain), tf.nest.flatten(compiled), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(one).max())


@pytest.mark.slow  # test_viton_training.py has two replicas, and XLA by itself is above
def test_two_replicas_under_xla_are_one_without():
    """Gradients are the sum of those of the halves, and all keep the same of spectral normalisation."""
    def run(strategy, jit, real, fake):
        with strategy.scope():
            net = discriminator(spectral=True, layers=2)
        compute = tf.function(lambda *given: step(net, *given, 'hinge'), autograph=False, jit_compile=jit)

        @tf.function(autograph=False)
        def replicas():
            def parts(given):
                return strategy.experimental_distribute_values_from_function(
                    lambda context: tf.split(given, strategy.num_replicas_in_sync)[context.replica_id_in_sync_group])
            # Not `run(compute, …)`: a compiled function outside sees the variables of one device only.
            return strategy.run(lambda *given: compute(*given), (parts(real), parts(fake)))
        *_, gradients = replicas()
        kept = [strategy.experimental_local_results(weight) for weight in net.non_trainable_weights]
        return [sum(strategy.experimental_local_results(each)) for each in gradients], kept
    given = pictures(4), pictures(4, seed=1)
    alone, state = run(tf.distribute.OneDeviceStrategy('CPU:0'), None, *given)
    both, states = run(tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1']), True, *given)
    for one, pair in zip(alone, both, strict=True):
        np.testing.assert_allclose(one, pair, rtol=1e-3, atol=1e-4 * np.abs(one).max())
    for [one], pair in zip(state, states, strict=True):
        assert len(pair) == 2
        np.testing.assert_array_equal(*pair)
        np.testing.assert_allclose(one, pair[0], rtol=1e-5, atol=1e-6)


def test_bfloat16_is_close_and_normalises_in_float32():
    exact, given = discriminator(), pictures()
    keras.mixed_precision.set_global_policy('mixed_bfloat16')
    try:
        net = adversary.build('discriminator', **SMALL)
    finally:
        keras.mixed_precision.set_global_policy('float32')
    net.set_weights(exact.get_weights())
    compiled = tf.function(net, jit_compile=True)  # as in training; not every processor's oneDNN has bfloat16
    for found, expected in zip(compiled(given), exact(given)):
        assert [maps.dtype for maps in found] == [tf.bfloat16] + 4 * [tf.float32]
        for one, other in zip(found[1:4], expected[1:4]):
            plain = np.where(one > 0, one, one / 0.2)
            np.testing.assert_allclose(plain.mean((1, 2)), 0, atol=1e-5)
            np.testing.assert_allclose(plain.std((1, 2)), 1, atol=0.01)
            assert np.abs(one - other).mean() < 0.02
        assert np.abs(found[-1] - expected[-1]).mean() < 0.02 * np.std(expected[-1])


@pytest.mark.parametrize('loss, spectral', [('lsgan', False), ('hinge', True)])
def test_it_learns_to_tell_stripes_from_noise(loss, spectral):
    """From the weights it starts with, at the paper's rate: 0.0004."""
    keras.utils.set_random_seed(0)
    net = adversary.build('discriminator', spectral=spectral, **SMALL)
    optimizer = keras.optimizers.Adam(4e-4, 0.5 if loss == 'lsgan' else 0.0, 0.999 if loss == 'lsgan' else 0.9)
    real = pictures(8) * 0.1 + tf.sin(tf.range(34, dtype=tf.float32))[:, None]

    @tf.function(autograph=False)
    def train(fake):
        _, judge, _, gradients = step(net, real, fake, loss)
        optimizer.apply_gradients(zip(gradients, net.trainable_variables))
        return judge / 8
    losses = [float(train(pictures(8, seed))) for seed in range(60)]
    assert losses[0] == pytest.approx({'lsgan': 1.0, 'hinge': 2.0}[loss], abs=0.3)
    assert losses[-1] < losses[0] / 4
