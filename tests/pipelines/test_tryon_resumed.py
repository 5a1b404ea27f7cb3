"""Interrupted try-on training resumes exactly: networks, discriminators, optimizers and normalisation state."""
import numpy as np
import pytest
import tensorflow as tf

from data_prep.core import records
from pipelines.core import config
from pipelines.training import checkpoints, devices
from support import tiny_people
from support.learners import Undriven

SEPARATE, ALL = ['segmentation', 'geometric_matching'], ['segmentation', 'geometric_matching', 'alias']


@pytest.fixture(scope='module')
def people(tmp_path_factory):
    """A configuration of made people, their examples, and two batches of them."""
    file, examples = tiny_people.prepare(tmp_path_factory.mktemp('people'), 6)
    resolved = config.load(file)
    decode = resolved.data_spec.decoder(examples, resolved.input, True)
    found = records.open_split(examples, 'train').read(range(4))
    batches = [decode(tf.constant(found[n:n + 2]), None, tf.constant([[n, 0], [n, 1]])) for n in (0, 2)]
    return file, examples, batches


@pytest.mark.parametrize('learn', [pytest.param(SEPARATE, id='two networks'),
                                   pytest.param(ALL, id='three networks', marks=pytest.mark.slow)])
def test_a_run_cut_after_a_step_ends_in_the_weights_of_one_that_was_not(people, eager, tmp_path, learn):
    """Eagerly, for graphs take most of such a short run. Which records are read is tested for all models."""
    file, examples, batches = people
    resolved = config.load(file, [f'model.trainable_networks=[{", ".join(learn)}]',
                                  'model.geometric_matching.synchronized=false'])
    tf.config.experimental.enable_op_determinism()

    def begun():
        it = Undriven(resolved, devices.choose(resolved, False), examples)
        return it, it.checkpoint
    it, checkpoint = begun()
    it._train(batches[0])
    checkpoints.write(checkpoint, str(tmp_path), 1, 1)
    before = state(it)
    it._train(batches[1])
    expected = state(it)
    again, checkpoint = begun()
    checkpoints.resume(checkpoint, again.nets, str(tmp_path / 'ckpt-1'))
    again._train(batches[1])
    found = state(again)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    parts = [*it.nets, *(f'optimizer of {net}' for net in it.optimizers), 'moving_variance']
    parts += ['/u:0'] if 'alias' in learn else []
    for part in parts:  # each of them was changed by the second step
        names = [name for name in expected if part in name]
        assert any(not np.array_equal(before[name], expected[name]) for name in names), part


def state(it):
    """Every variable of a trainer, by name."""
    found = {'step': int(it.global_step.numpy())}
    found |= {f'{net}: {variable.name}': variable.numpy() for net, model in it.nets.items()
              for variable in model.variables}
    found |= {f'optimizer of {net}: {number} {variable.name}': variable.numpy()
              for net, optimizer in it.optimizers.items()
              for number, variable in enumerate(optimizer.variables)}
    return found
