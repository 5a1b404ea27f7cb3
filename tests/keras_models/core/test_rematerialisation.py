"""Rematerialisation: equal values, gradients and states, with less memory kept."""
import numpy as np
import pytest
import tensorflow as tf

from keras_models import prelu_net, transformer, vgg
from keras_models.core import rematerialisation
from keras_models.viton import try_on

SEED = np.array([1, 2], np.int32)


def text():
    net = transformer.build(transformer.Config(vocab_size=50, N=2, d_model=16, d_ff=32, h=2))['transformer']
    ids = tf.constant([[3, 4, 5, 2, 0], [6, 7, 2, 0, 0]])
    return net, [ids, ids[::-1], tf.constant(SEED)]


def pictures(paper, **keys):
    [net] = paper.build(paper.Config(classes=5, **keys)).values()
    shape = [2, net.input_shape[0][1], net.input_shape[0][2], 3]
    return net, [tf.random.stateless_normal(shape, SEED), tf.constant(SEED)]


def people(name):
    of = name.removesuffix('_discriminator')
    config = try_on.Config(preset='official', size=[128, 128], low=[64, 64], segmentation={'width': 0.0625},
                           geometric_matching={'width': 0.0625}, alias={'width': 0.0625}, trainable_networks=[of])
    net = (try_on.PARTS[of].build(try_on.part(config, of)) if name == of else try_on.discriminators(config))[name]
    shapes = dict(zip(net.input_names, net.inputs))
    draw = {key: tf.random.stateless_uniform([2, *shape.shape[1:]], SEED + n) for n, (key, shape) in
            enumerate(shapes.items())} | {'seed': tf.constant(SEED)}
    return net, {key: draw[key] for key in shapes}


PEOPLE = ('segmentation', 'geometric_matching', 'alias', 'segmentation_discriminator', 'alias_discriminator')
CASES = {
    'transformer': text,
    'vgg': lambda: pictures(vgg, variant='A-LRN', crop=32, width=0.05, preset='official'),
    'prelu': lambda: pictures(prelu_net, variant='A', crop=224, width=0.05),
    **{name: lambda name=name: people(name) for name in PEOPLE}}


FIRST_PROOFS = ('transformer', 'vgg', 'segmentation', 'alias')  # of each kind of state


@pytest.mark.parametrize('name', [name if name in FIRST_PROOFS else pytest.param(name, marks=pytest.mark.slow)
                                  for name in CASES])
def test_values_gradients_and_states_are_the_nets(name):
    """With dropout, spectral normalisation (whose power iteration steps once a pass) and batch normalisation.

    Try-on networks take four times as long to trace as to be computed once, so they are not traced.
    """
    net, given = CASES[name]()
    states = [variable.numpy() for variable in net.non_trainable_variables]

    def pass_of(called):
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(called(given, training=True))
            loss = tf.add_n([tf.reduce_mean(output ** 2) for output in outputs])
        return outputs, tape.gradient(loss, net.trainable_variables, unconnected_gradients='zero')
    if name not in PEOPLE:
        pass_of = tf.function(pass_of, autograph=False)
    found = []
    for called in (net, rematerialisation.Rematerialised(net)):
        for variable, value in zip(net.non_trainable_variables, states):
            variable.assign(value)
        outputs, gradients = pass_of(called)
        found.append([*outputs, *map(tf.convert_to_tensor, gradients), *net.non_trainable_variables])
    if states:
        assert any(np.abs(before - after).max() > 1e-6 for before, after in zip(states, net.non_trainable_variables))
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5 * max(1e-3, np.abs(theirs).max()))


def chain(n):
    """n steps that take each other's number."""
    tensors = [object() for _ in range(n + 1)]
    return [rematerialisation.Step(None, [tensors[i]], [tensors[i + 1]], 1, 1, i + 1, True) for i in range(n)]


@pytest.mark.parametrize('n, least', [(16, 7), (100, 19), (400, 39)])
def test_a_chain_is_kept_in_its_square_root(n, least):
    """Chen et al. 2016, section 4.1: sqrt(n) segments of sqrt(n); the last needs no number kept at its end."""
    bounds = rematerialisation.cuts(chain(n))
    longest = max(np.diff([0, *bounds, n]))
    assert len(bounds) + longest <= 1.1 * least


NETS = {'base': (lambda: transformer.build(transformer.Config(vocab_size=8000))['transformer'], 0.2),
        'VGG-D': (lambda: vgg.build(vgg.Config(classes=1000, crop=224))['classifier'], 0.6)}


@pytest.mark.parametrize('net', ['base', pytest.param('VGG-D', marks=pytest.mark.slow)])
def test_little_is_kept_of_the_papers_nets(net):
    """Of VGG-D's numbers at 224 pixels and the base Transformer's, what is held at once in a backward pass."""
    build, most = NETS[net]
    steps = rematerialisation.graph(build())
    pieces = rematerialisation.pieces(steps, rematerialisation.cuts(steps))
    kept = sum(step.size for start, stop in pieces for step in steps[start:stop] if len(steps) > step.last >= stop)
    largest = max(sum(step.size for step in steps[start:stop]) for start, stop in pieces)
    assert kept + largest < most * sum(step.size for step in steps)
