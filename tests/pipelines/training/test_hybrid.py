"""Dense layers on one of two devices: losses, weights and answers equal those of data parallelism."""
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError
from keras_models.core import layers
from pipelines.core import config
from pipelines.training import checkpoints, hybrid_parallel
from support.tensorflow_state import renumber

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / 'benchmarks' / 'speed' / 'sides'))
import inputs  # noqa: E402
from trained import Trained  # noqa: E402

MIRRORED, HYBRID = 'train.strategy=mirrored', 'train.dense_layers=one_device'
SMALL = ['model.learning_rate=0.02', 'model.weights=glorot']
NETS = {'vgg': ('vgg_a_tiny_imagenet', [*SMALL, 'model.width=0.05', 'model.crop=32', 'model.dropout=0.0']),
        'prelu_net': ('prelu_cifar10', ['model.crop=32', 'model.dropout=0.0', 'model.warmup=0.0'])}
BATCH, CLASSES = 8, 5


def run(net, *overrides, steps=5):
    """Losses of every step, and the trainer."""
    name, values = NETS[net]
    renumber()
    it = Trained(name, f'model.classes={CLASSES}', 'train.precision=float32', *values, *overrides)
    crop = it.config.model.crop
    batch = it.shares({'image': tf.constant(inputs.pictures(BATCH, crop)),
                       'label': tf.constant(inputs.labels(BATCH) % CLASSES)})
    return np.array([it.step(batch) for _ in range(steps)]), it, batch


@pytest.mark.parametrize('net', [pytest.param(net, marks=[pytest.mark.slow] if net == 'prelu_net' else [])
                                 for net in NETS])
def test_losses_and_weights_are_those_of_data_parallelism(net):
    plain, one, _ = run(net, MIRRORED)
    assert abs(plain[0] - plain[-1]) > 0.01  # weights do change
    for overrides in ([], ['train.jit=true'], ['train.rematerialise=true']):
        found, other, _ = run(net, MIRRORED, HYBRID, *overrides)
        np.testing.assert_allclose(found, plain, atol=1e-5, err_msg=str(overrides))
        for name, weight in layers.by_name(one.nets)['classifier'].items():
            np.testing.assert_allclose(layers.by_name(other.nets)['classifier'][name], weight, atol=2e-5, err_msg=name)
    alone, _, _ = run(net, HYBRID)  # one device has all layers anyway
    np.testing.assert_allclose(alone, plain, atol=1e-5)


def test_only_the_first_device_learns_dense_layers_and_all_answers_are_its_own(tmp_path):
    """The second one's copy stays as drawn; validation, and a checkpoint taken up again, are of the first one's."""
    _, plain, batch = run('vgg', MIRRORED)
    _, it, _ = run('vgg', MIRRORED, HYBRID)
    for variable in it.net.trainable_variables:
        first, second = (copy.numpy() for copy in it.strategy.experimental_local_results(variable))
        assert np.array_equal(first, second) == variable.name.startswith('conv')
    for one, other in zip(evaluated(plain, batch), evaluated(it, batch)):
        assert other == pytest.approx(one, abs=1e-5)
    checkpoints.write(it.checkpoint, str(tmp_path), 5, 1)
    on = [it.step(batch) for _ in range(3)]
    _, again, _ = run('vgg', MIRRORED, HYBRID, 'seed=3', steps=0)
    checkpoints.resume(again.checkpoint, again.nets, checkpoints.present(str(tmp_path))[0])
    assert [again.step(batch) for _ in range(3)] == on
    for variable, other in zip(it.net.trainable_variables, again.net.trainable_variables):
        (first, second), (first_again, second_again) = (
            [copy.numpy() for copy in it.strategy.experimental_local_results(each)]
            for each in (variable, other))
        np.testing.assert_array_equal(first_again, first, err_msg=variable.name)
        if variable.name.startswith('conv'):
            np.testing.assert_array_equal(second_again, second, err_msg=variable.name)
    kept = [[moment.numpy() for optimizer in each.optimizers.values() for moment in optimizer.variables]
            for each in (it, again)]
    assert len(kept[0]) > len(it.net.trainable_variables)
    for one, other in zip(*kept):
        np.testing.assert_array_equal(other, one)


def evaluated(it, batch):
    total, normaliser = it._evaluate(batch)['loss/classifier']
    return [float(total), float(normaliser)]


def test_what_is_dropped_is_drawn_by_the_first_replica_for_all():
    """With dropout the losses are those of one device at the same seeds, as the first replica's of step 0 is 0."""
    dropped = 'model.dropout=0.5'
    _, alone, _ = run('vgg', dropped, steps=0)
    _, it, _ = run('vgg', MIRRORED, HYBRID, dropped, steps=0)
    _, _, batch = run('vgg', MIRRORED, steps=0)
    whole = {name: tf.concat(it.strategy.experimental_local_results(x), 0) for name, x in batch.items()}
    assert it.step(batch) == pytest.approx(alone.step(alone.shares(whole)), abs=1e-5)


@pytest.mark.parametrize('name, overrides, message', [
    ('vgg_a_tiny_imagenet', ['train.strategy=multi_worker_mirrored'], 'needs devices of one machine'),
    ('vgg_a_tiny_imagenet', ['train.strategy=mirrored', 'train.gradient_accumulation_steps=2'], 'needs whole batches'),
    ('multi30k_en_de', ['train.strategy=mirrored'], 'keras_models.transformer has none')])
def test_what_cannot_be_is_refused(name, overrides, message):
    with pytest.raises(UserError, match=message):
        hybrid_parallel.check(config.load(name, [HYBRID, *overrides]))
