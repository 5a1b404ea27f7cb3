"""The ALIAS generator against the paper, closed forms and recorded PyTorch spectral normalisation."""
import dataclasses
import functools
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_models.viton import alias, layers
from keras_models.viton.alias import PRESETS, Config
from support import references
from support.commands import ROOT
from support.references import Reference

COUNTS = {'paper': 100_495_107, 'official': 100_498_115}
ARCHITECTURES = ('paper', 'official')
SMALL = Config(size=[256, 128], width=1 / 16)


def small(preset):
    return dataclasses.replace(SMALL, **PRESETS[preset])


def fill(net, seed=0):
    """Biases and scales of noise become random, and kernels as large as Glorot's, so that nothing vanishes."""
    draw = np.random.default_rng(seed)
    for weight in net.trainable_weights:
        weight.assign(weight * 50 if len(weight.shape) == 4 else draw.normal(0, 0.3, weight.shape))
    return net


@pytest.fixture(scope='module')
def nets():
    return {preset: fill(alias.build(small(preset))['alias']) for preset in ARCHITECTURES}


@pytest.fixture(scope='module')
def graphs(nets):
    """A preset -> what TensorFlow traces of its net, once."""
    return functools.cache(
        lambda preset: tf.function(nets[preset], autograph=False).get_concrete_function(maps()).graph)


def maps(n=1, size=(256, 128), seed=0):
    """Inputs as the chain makes them: a parse of blocks, of which a part of the upper clothing is misaligned."""
    draw = np.random.default_rng(seed)
    parse = draw.integers(0, 7, (n, size[0] // 16, size[1] // 16)).repeat(16, 1).repeat(16, 2)
    bare = (parse == 2) & (draw.random((n, *size)) < 0.5)
    divided = np.eye(8, dtype=np.float32)[np.where(bare, 7, parse)]
    return {'inputs': tf.constant(draw.uniform(-1, 1, (n, *size, 9)), tf.float32), 'seed': tf.constant([1, 2]),
            'S': tf.constant(np.eye(7, dtype=np.float32)[parse]), 'S_div': tf.constant(divided),
            'M_misalign': tf.constant(divided[..., 7:])}


def activations(region=0.2, shape=(2, 12, 10, 6), seed=0):
    """h of no special mean or deviation, and a mask of about this share of its places."""
    draw = np.random.default_rng(seed)
    h = draw.normal(draw.normal(0, 3, shape[-1:]), draw.uniform(0.01, 4, shape[-1:]), shape)
    return tf.constant(h, tf.float32), tf.constant(draw.random([*shape[:3], 1]) < region, tf.float32)


def norm(config, channels=6):
    shape = alias.Shape('block', 1, channels, channels, masked=True, classes=8)
    return alias.AliasNorm(config, shape, channels, 'block/norm_0')


@pytest.mark.parametrize('preset', ARCHITECTURES)
def test_parameters(nets, preset):
    """In closed form, and as Keras counts them."""
    assert alias.parameters(Config(**PRESETS[preset])) == COUNTS[preset]
    net, config = nets[preset], small(preset)
    assert alias.parameters(config) == sum(np.prod(weight.shape) for weight in net.trainable_weights)
    assert len({weight.name for weight in net.weights}) == len(net.weights)
    by_hand = {cost.name: cost for cost in alias.costs(Config(**PRESETS[preset]))}
    assert by_hand['output'] == ('output', (1024, 768), 3, 867, 864 * 1024 * 768)
    assert by_hand['block_4/conv_s'] == ('block_4/conv_s', (128, 96), 256, 528 * 256, 528 * 256 * 128 * 96)
    assert by_hand['block_5/norm_0/shared'].parameters == (9 * {'paper': 8, 'official': 7}[preset] + 1) * 128


@pytest.mark.parametrize('preset', [
    'official', pytest.param('paper', marks=pytest.mark.slow)])  # which is counted at another size below
def test_multiply_adds_are_those_of_the_convolutions_of_the_graph(graphs, preset):
    macs = sum(np.prod(op.inputs[1].shape) * np.prod(op.outputs[0].shape[1:3])
               for op in graphs(preset).get_operations() if op.type == 'Conv2D')
    assert alias.macs(small(preset)) == macs


def test_noise_and_divided_kernels_wait_until_they_are_needed(graphs):
    """Else those of all blocks are made at the start and kept, which takes a third more memory."""
    graph = graphs('official')

    def before(op):
        found, left = set(), [op]
        while left:
            new = {*(each.op for each in left[-1].inputs), *left.pop().control_inputs} - found
            found |= new
            left += new
        return found
    [pictures] = [op for op in graph.get_operations() if op.type == 'Placeholder' and op.outputs[0].shape[-1:] == [9]]
    draws = [op for op in graph.get_operations() if op.type.startswith('StatelessRandomUniform')]
    divided = [op for op in graph.get_operations() if op.type == 'Conv2D' and op.inputs[1].op.type == 'Mul']
    assert len(draws) == 2 * 23 and all(pictures in before(op) for op in draws)  # a key and a map for each
    assert len(divided) == 23 and all(op.inputs[0].op in before(op.inputs[1].op) for op in divided)


def test_a_picture_of_256_x_192_has_half_a_pixel_at_the_start():
    config = Config(size=[256, 192], width=1 / 16)
    net = alias.build(config)['alias']
    assert net.output_shape == (None, 256, 192, 3)
    assert alias.parameters(config) == sum(np.prod(weight.shape) for weight in net.trainable_weights)
    sizes = {cost.name: cost.size for cost in alias.costs(config)}
    assert [sizes[f'input_{level}'] for level in range(3)] == [(2, 2), (4, 3), (8, 6)]
    blank = {name: tf.zeros([1, *each.shape[1:]], each.dtype) if name != 'seed' else tf.zeros([2], tf.int32)
             for name, each in net.input.items()}
    graph = tf.function(net, autograph=False).get_concrete_function(blank).graph
    macs = sum(np.prod(op.inputs[1].shape) * np.prod(op.outputs[0].shape[1:3])
               for op in graph.get_operations() if op.type == 'Conv2D')
    assert alias.macs(config) == macs


def test_a_net_is_that_of_figure_12():
    blocks = list(alias.blocks(Config()))
    assert [block.channels for block in blocks] == [1024, 1024, 1024, 512, 256, 128, 64, 32]
    assert [1024 // block.step for block in blocks] == [8, 16, 32, 64, 128, 256, 512, 1024]
    assert [block.before for block in blocks] == [1024, 1040, 1040, 1040, 528, 272, 144, 80]
    assert [block.masked for block in blocks] == [True] * 5 + [False] * 3  # A.2
    assert not blocks[0].learned and all(block.learned for block in blocks[1:])


@pytest.mark.parametrize('preset', ARCHITECTURES)
def test_spectral_normalisation_is_on_what_the_preset_says(nets, preset):
    names = {weight.name.removesuffix('/u:0') for weight in nets[preset].weights if weight.name.endswith('/u:0')}
    convolutions = {weight.name.removesuffix('/kernel:0') for weight in nets[preset].weights
                    if weight.name.endswith('/kernel:0')}
    within = {name for name in convolutions if name.split('/')[-1] in ('conv_0', 'conv_1', 'conv_s')}
    assert len(within) == 23 and names == {'paper': convolutions, 'official': within}[preset]


def test_sizes_that_cannot_be_doubled_six_times_are_refused():
    for size in ([1024, 700], [32, 128], [0, 128], [256]):
        with pytest.raises(ValueError, match='multiples of 64'):
            Config(size=size)


@pytest.mark.parametrize('preset', ARCHITECTURES)
def test_with_an_empty_or_full_mask_it_is_plain_instance_norm(preset):
    h, _ = activations()
    h = h.numpy()
    plain = (h - h.mean((1, 2), keepdims=True)) / np.sqrt(h.var((1, 2), keepdims=True) + 1e-5)
    layer = norm(small(preset))
    for mask in (0.0, 1.0):
        # No class anywhere and biases of zero: gamma and beta are zero too.
        parse, mask = tf.zeros([*h.shape[:3], 8]), tf.fill([*h.shape[:3], 1], mask)
        found = layer(tf.constant(h), parse, mask, tf.constant([1, 2]))
        np.testing.assert_allclose(found, plain, atol=2e-5)


@pytest.mark.parametrize('share', [0.2, 0.02])
def test_each_region_gets_mean_0_and_deviation_1(share):
    """Eqs. (6) and (7). Epsilon makes the variance v a v / (v + 1e-5); the authors weigh it with all / own pixels."""
    h, mask = activations(share)
    for preset in ARCHITECTURES:
        found = sum(alias.standardise(h, region, small(preset)) for region in (mask, 1 - mask)).numpy()
        for picture, inside, answer in zip(h.numpy(), mask.numpy()[..., 0] > 0, found):
            for region in (inside, ~inside):
                epsilon = 1e-5 * {'paper': 1, 'official': region.size / region.sum()}[preset]
                v = picture[region].var(0)
                np.testing.assert_allclose(answer[region].mean(0), 0, atol=1e-5)
                np.testing.assert_allclose(answer[region].var(0), v / (v + epsilon), rtol=1e-4)


def test_a_soft_mask_as_the_authors_standardise():
    """They fill the rest of the picture with the region's mean, standardise it all and scale by the region's share."""
    h, _ = activations()
    mask = tf.constant(np.random.default_rng(1).random([*h.shape[:3], 1]), tf.float32)
    region, m = (h * mask).numpy(), mask.numpy()
    pixels = m.sum((1, 2), keepdims=True)
    filled = region + (1 - m) * region.sum((1, 2), keepdims=True) / pixels
    theirs = layers.instance_norm(tf.constant(filled)) * np.sqrt(pixels / (12 * 10))
    np.testing.assert_allclose(alias.standardise(h, mask, small('official')), theirs, atol=1e-4)


@pytest.mark.parametrize('shape', [(1, 64, 48, 5), (3, 9, 7, 5)])
def test_instance_norm(shape):
    """Both ways to compute it, and their gradients."""
    h, _ = activations(shape=shape)
    h, weights = h.numpy().astype(np.float64), np.random.default_rng(1).standard_normal(shape)
    deviation = np.sqrt(h.var((1, 2), keepdims=True) + 1e-5)
    expected = (h - h.mean((1, 2), keepdims=True)) / deviation
    x = tf.Variable(h, dtype=tf.float32)
    with tf.GradientTape() as tape:
        found = layers.instance_norm(x)
        answer = tf.reduce_sum(found * tf.cast(weights, tf.float32))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    gradient = (weights - weights.mean((1, 2), keepdims=True)
                - expected * (weights * expected).mean((1, 2), keepdims=True)) / deviation
    np.testing.assert_allclose(tape.gradient(answer, x), gradient, rtol=1e-3, atol=1e-4 / deviation.min())


@pytest.mark.parametrize('shape', [(1, 1024, 768, 2), (2, 512, 384, 2)])
def test_moments_of_pictures_keep_their_digits(shape):
    """Patches of one value each, as photographs and parse maps have, against float64. Sums of a row and of the rows
    have errors of at most eps times their terms; one sum over all places is off by up to 1.3e-2."""
    draw = np.random.default_rng(0)
    patches = draw.integers(0, 6, (*shape[:1], shape[1] // 8, shape[2] // 8)).repeat(8, 1).repeat(8, 2)
    h = (draw.normal(2, 1, (6, shape[-1])).astype(np.float32))[patches]
    mask = (patches < 2)[..., np.newaxis]
    exact = h.astype(np.float64)
    tolerance = np.finfo(np.float32).eps * sum(shape[1:3]) * np.abs(exact / exact.std((1, 2), keepdims=True)).max()
    expected = (exact - exact.mean((1, 2), keepdims=True)) / np.sqrt(exact.var((1, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(layers.instance_norm(tf.constant(h)), expected, rtol=0, atol=tolerance)
    found = alias.standardise(tf.constant(h), tf.constant(mask, tf.float32), SMALL).numpy()
    for picture, inside, answer in zip(exact, mask[..., 0], found):
        region = picture[inside]
        deviation = np.sqrt(region.var(0) + 1e-5)
        tolerance = np.finfo(np.float32).eps * sum(shape[1:3]) * np.abs(picture / deviation).max()
        np.testing.assert_allclose(answer[inside], (region - region.mean(0)) / deviation, rtol=0, atol=tolerance)


def test_spectral_normalisation_finds_the_largest_singular_value_and_leaves_kernel_and_state_alone():
    layer = layers.Convolution(7, spectral=True)
    x = tf.constant(np.random.default_rng(0).standard_normal((2, 8, 6, 5)), tf.float32)
    layer(x)
    layer.kernel.assign(tf.constant(np.random.default_rng(1).standard_normal((3, 3, 5, 7)), tf.float32))
    kernel = layer.kernel.numpy()
    for _ in range(60):
        layer(x, training=True)
    u, v = layer.u.numpy(), layer.v.numpy()
    sigma = np.linalg.svd(kernel.reshape(45, 7), compute_uv=False)[0]
    expected = tf.nn.conv2d(x, kernel / sigma, 1, 'SAME') + layer.bias
    for _ in range(2):
        np.testing.assert_allclose(layer(x), expected, rtol=1e-4, atol=1e-5)
    for before, after in ((kernel, layer.kernel), (u, layer.u), (v, layer.v)):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_allclose([np.linalg.norm(u), np.linalg.norm(v)], 1, rtol=1e-6)
    normalised = layer.weight().numpy()
    layer.fold()
    np.testing.assert_array_equal(layer.kernel, normalised)
    np.testing.assert_array_equal(layer.weight(), normalised)


def test_spectral_normalisation_is_pytorchs():
    """With its weights: the same output as it stands, and after a training step the same u, v, output and gradient."""
    reference = Reference('spectral_norm')
    state = reference.weights()
    shape = state['weight_orig'].shape
    maps, layer = tf.constant(reference.uniform('maps', [2, 8, 6, 5])), layers.Convolution(7, spectral=True)
    layer(maps)
    layer.kernel.assign(references.kernel(state['weight_orig']))
    layer.bias.assign(state['bias'])
    layer.u.assign(state['weight_u'])
    layer.v.assign(references.right_vector(state['weight_v'], shape))
    for step, training in enumerate((False, True, False)):
        with tf.GradientTape() as tape:
            ours = layer(maps, training=training)
            loss = tf.reduce_sum(ours ** 2)
        reference.compare(f'answer {step}', ours, rtol=1e-4, atol=1e-4)
        reference.compare(f'u {step}', layer.u, atol=1e-6)
        v = references.right_vector(reference.arrays[f'v {step}'], shape)
        np.testing.assert_allclose(layer.v, v, atol=1e-6)
        gradient = references.kernel(reference.arrays[f'gradient {step}'])
        np.testing.assert_allclose(tape.gradient(loss, layer.kernel), gradient, rtol=1e-3, atol=1e-4 * gradient.max())
    assert np.abs(reference.arrays['u 1'] - reference.arrays['u 0']).max() > 0.01  # a step that moves them


def test_bfloat16_is_close_and_keeps_the_digits_of_sums():
    h, mask = activations()
    arguments = h, tf.one_hot(tf.random.stateless_uniform(h.shape[:3], [1, 2], 0, 8, tf.int32), 8), mask, [1, 2]
    exact = norm(SMALL)
    expected = exact(*arguments)
    tf.keras.mixed_precision.set_global_policy('mixed_bfloat16')
    try:
        layer = norm(SMALL)
        compiled = tf.function(layer, jit_compile=True)  # as in training; not every processor's oneDNN has bfloat16
        compiled(*arguments)
        layer.set_weights(exact.get_weights())
        found = compiled(*arguments)
    finally:
        tf.keras.mixed_precision.set_global_policy('float32')
    assert found.dtype == tf.bfloat16 and layer.gamma.kernel.dtype == tf.float32
    rough = tf.cast(tf.cast(h, tf.bfloat16), tf.float32)  # what it was given
    error = np.abs(exact(rough, *arguments[1:]) - tf.cast(found, tf.float32))
    assert error.mean() < 0.005 * np.abs(expected).mean() and error.max() < 0.05 * np.abs(expected).max()


def test_noise_is_standard_normal_and_a_function_of_the_seed():
    draw = tf.function(alias.noise_map)
    noise = draw(tf.constant([3, 4]), 2, 99, 101).numpy()
    assert noise.shape == (2, 99, 101, 1)
    n = noise.size
    assert abs(noise.mean()) < 4 / n ** 0.5 and abs(noise.var() - 1) < 4 * (2 / n) ** 0.5
    assert abs((noise ** 4).mean() - 3) < 4 * (96 / n) ** 0.5 and abs((noise[0] * noise[1]).mean()) < 4 * (2 / n) ** 0.5
    np.testing.assert_array_equal(noise, draw(tf.constant([3, 4]), 2, 99, 101))
    assert abs((noise * draw(tf.constant([3, 5]), 2, 99, 101).numpy()).mean()) < 4 / n ** 0.5
    compiled = tf.function(alias.noise_map, jit_compile=True)(tf.constant([3, 4]), 2, 99, 101)
    np.testing.assert_allclose(noise, compiled, rtol=1e-4, atol=1e-5)


def test_a_picture_and_its_noise(nets):
    """One seed, one picture; the paper's net has no noise, and every noise of the other is its own."""
    given = maps()
    other = given | {'seed': tf.constant([1, 3])}
    for preset, net in nets.items():
        picture = net(given).numpy()
        assert picture.shape == (1, 256, 128, 3) and 0.5 < np.abs(picture).max() <= 1
        assert 0.1 < picture.std() < 0.9
        np.testing.assert_array_equal(picture, net(given))
        assert np.any(picture != net(other)) == (preset == 'official')
    sites = [getattr(block, name).site for block in nets['official'].layers if isinstance(block, alias.ResBlk)
             for name in ('norm_0', 'norm_1', 'norm_s') if hasattr(block, name)]
    assert len({*sites}) == len(sites) == 23


def test_what_each_input_reaches(nets):
    """S modulates the last three blocks of the authors' net only; the mask and S_div are used by both."""
    given = maps()
    blank = {name: tf.zeros_like(given[name]) for name in given if name != 'seed'}
    for preset, net in nets.items():
        picture = net(given).numpy()
        changed = {name: np.any(picture != net(given | {name: blank[name]})) for name in blank}
        assert changed == {'inputs': True, 'S': preset == 'official', 'S_div': True, 'M_misalign': True}


def test_rows_of_a_batch_do_not_see_each_other(nets):
    """Change the row beside one: nothing follows. A batch of one is another matter: its kernels round otherwise, which
    24 normalisations take to 3e-3 on some machines.
    """
    given = maps(2)
    together = nets['paper'](given).numpy()
    for row in range(2):
        here = tf.reshape(tf.range(2) == row, [2, 1, 1, 1])
        other = {name: value if name == 'seed' else tf.where(here, value, 1 - value) for name, value in given.items()}
        beside_another = nets['paper'](other).numpy()
        np.testing.assert_allclose(beside_another[row], together[row], atol=1e-4)
        assert np.abs(beside_another[1 - row] - together[1 - row]).mean() > 0.01


@pytest.mark.slow  # 8 s; test_viton_try_on.py compiles the whole chain
def test_xla_paints_the_same(nets):
    given = maps()
    compiled = tf.function(nets['official'], jit_compile=True)(given)
    np.testing.assert_allclose(nets['official'](given), compiled, atol=5e-4)  # after 24 normalisations


def test_training_reaches_every_parameter_and_takes_a_power_iteration(nets):
    net, given = nets['official'], maps(2)
    state = [(weight, weight.numpy()) for weight in net.non_trainable_weights]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(net(given, training=True) ** 2)
    gradients = tape.gradient(loss, net.trainable_weights)
    for weight, gradient in zip(net.trainable_weights, gradients):
        assert gradient is not None and np.all(np.isfinite(gradient)), weight.name
    assert all(np.any(weight.numpy() != before) for weight, before in state)
    assert {weight.name.split('/')[-1] for weight, _ in state} == {'u:0', 'v:0'}


@pytest.mark.slow  # 18 s; test_tryon_resumed.py compares bits, too
def test_a_step_is_the_same_to_the_bit_every_time(tmp_path):
    """In a process of its own, as training starts one: operations run beside each other there."""
    script = tmp_path / 'again.py'
    script.write_text("""
import numpy as np
import tensorflow as tf
from keras_models.viton import alias
from pipelines.core import sections
from pipelines.training import strategy

strategy.make(sections.TrainConfig())
net = alias.build(alias.Config(size=[192, 128], width=0.25))['alias']
draw = np.random.default_rng(0)
shapes = {'inputs': 9, 'S': 7, 'S_div': 8, 'M_misalign': 1}
given = {name: tf.constant(draw.random((4, 192, 128, n)), tf.float32) for name, n in shapes.items()}

@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(net({**given, 'seed': tf.constant([1, 0])}, training=False) ** 2)
    return tape.gradient(loss, net.trainable_variables)
first, *others = ([gradient.numpy() for gradient in step()] for _ in range(4))
print(sum(not np.array_equal(one, other) for found in others for one, other in zip(first, found)))
""")
    found = subprocess.run([sys.executable, script], env={**os.environ, 'PYTHONPATH': str(ROOT)}, check=True,
                           stdout=subprocess.PIPE, text=True)
    assert found.stdout == '0\n'
