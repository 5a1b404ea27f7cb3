"""Moving averages of weights and loss scaling: closed forms, and the same to the bit after kills."""
import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError
from keras_models import transformer
from pipelines import educate
from pipelines import train as train_stage
from pipelines.core import config
from pipelines.reporting import report
from pipelines.training import checkpoints, devices, precision, trainer
from support import killed_runs, learners, next_word

SETTINGS = ['input.buckets=[16]', 'input.tokens=256', 'train.steps=9', 'train.log_every=3', 'train.checkpoint_every=2',
            'train.validate_every=3', 'train.average_checkpoints=1', 'model.warmup_steps=5']
EMA, SCALED = ['train.ema=0.75'], ['train.precision=float16']


@pytest.fixture
def _small_net(monkeypatch):
    monkeypatch.setattr(transformer, 'build', next_word.build)


def load(config_file, *overrides):
    return config.load(config_file, [*SETTINGS, *overrides])


@pytest.mark.usefixtures('_small_net')
def test_the_average_is_that_of_all_steps_and_is_validated_and_exported(config_file, examples, tmp_path, monkeypatch):
    """average_t = 0.75 average_(t-1) + 0.25 w_t from average_0 = w_0: after 9 steps, w_0 still counts 0.75^9."""
    weights, validated, losses = [], [], []

    class Watched(trainer.Trainer):
        def train_step(self, iterator):
            if not weights:
                weights.append([each.numpy() for each in self.nets['transformer'].trainable_variables])
            super().train_step(iterator)
            weights.append([each.numpy() for each in self.nets['transformer'].trainable_variables])

        def eval_begin(self):
            validated.append([each.numpy() for each in self.nets['transformer'].trainable_variables])
            super().eval_begin()

        def eval_end(self):
            losses.append(super().eval_end()['validation/loss'])
            return {'validation/loss': losses[-1]}
    monkeypatch.setattr(trainer, 'Trainer', Watched)
    first = str(tmp_path / 'first')
    trainer.train(load(config_file, 'train.steps=2'), examples, first)
    weights.clear(), validated.clear(), losses.clear()
    resolved = load(config_file, *EMA, f'train.init_from={first}')  # the average starts from these weights
    found = trainer.train(resolved, examples, str(tmp_path / 'run'))
    averages = [weights[0]]
    for now in weights[1:]:
        averages.append([np.float32(0.75) * one + np.float32(0.25) * other for one, other in zip(averages[-1], now)])
    assert len(weights) == 10 and len(validated) == 4  # at 3, 6, 9, and of what is exported
    for step, net in zip((3, 6, 9, 9), validated):
        for one, other in zip(net, averages[step]):
            np.testing.assert_allclose(one, other, rtol=0, atol=4 * np.finfo(np.float32).eps * np.abs(other).max())
    assert losses[2] == losses[3] == found.averaged['validation/loss'] == found.last['validation/loss']
    exported = checkpoints.read(str(tmp_path / 'run' / 'weights'))['transformer']
    for name, value in zip([each.name for each in transformer.build(resolved.model)['transformer'].variables],
                           validated[3], strict=True):
        np.testing.assert_array_equal(exported[name.split(':')[0]], value)
    shown = report._training(resolved, vars(found))
    assert shown['weights'] == 'moving average, momentum 0.75, of ckpt-9'


@pytest.mark.usefixtures('_small_net')
@pytest.mark.parametrize('overrides', [
    pytest.param(EMA, id='average', marks=pytest.mark.slow), pytest.param(SCALED, id='scaled', marks=pytest.mark.slow),
    pytest.param([*EMA, *SCALED, 'train.monitor=loss'], id='best average, scaled')])  # the others are parts of it
def test_killed_at_every_checkpoint_it_ends_as_undisturbed(config_file, examples, tmp_path, monkeypatch, overrides):
    straight, killed = tmp_path / 'straight', tmp_path / 'killed'
    monkeypatch.setattr(precision, 'GROWTH', 3)  # the scale is doubled on the way
    found = trainer.train(load(config_file, *overrides), examples, str(straight))
    again, done = killed_runs.after_each_checkpoint(
        lambda: trainer.train(load(config_file, *overrides), examples, str(killed)))
    assert [step for kind, step in done if kind == 'checkpoints'] == [2, 4, 6, 8, 9]
    assert len(done) == 5 + 3 * ('train.monitor=loss' in overrides)
    assert (again.best, again.averaged) == (found.best, found.averaged)
    for name in ('weights', 'checkpoints/ckpt-9'):
        killed_runs.same(killed_runs.stored(straight / name), killed_runs.stored(killed / name))
    if SCALED[0] in overrides:
        last = killed_runs.stored(killed / 'checkpoints/ckpt-9')
        scales = [value for key, value in last.items() if 'loss_scale' in key]
        assert 2. ** 18 in scales  # 2^15, doubled three times


@pytest.mark.parametrize('name', [
    'Transformer', *(pytest.param(name, marks=pytest.mark.slow) for name in ('AlexNet', 'segmentation'))])
def test_scaled_gradients_in_float16_are_those_of_float32(tmp_path, monkeypatch, name):
    """Losses within 2^-10, the precision of float16; without scaling, some gradients are zero that are not."""
    file, overrides, batch = learners.LEARNERS[name]
    found = {}
    with learners.making(str(tmp_path)) as make:
        for kind in ('float32', 'float16'):
            monkeypatch.setitem(learners.LEARNERS, name, (file, [*overrides, f'train.precision={kind}'], batch))
            it = make(name, False)
            totals = [it._train(learners.batch(name)) for _ in range(8)]
            found[kind] = np.array([[float(value) / float(n) for key, (value, n) in sorted(total.items())
                                     if key.startswith('loss/')] for total in totals])
            scales = [optimizer.loss_scale.numpy() for optimizer in it.optimizers.values()] if kind == 'float16' else []
    whole = found['float32'][0] - found['float32'][-1]
    assert np.isfinite(found['float16']).all() and min(scales) >= 1
    np.testing.assert_allclose(found['float16'][0], found['float32'][0], rtol=2 ** -10)
    assert (found['float16'][0] - found['float16'][-1] > 0.5 * whole)[np.abs(whole) > 2 ** -8].all()


@pytest.mark.usefixtures('_small_net')
def test_an_update_that_overflows_is_left_out_and_the_scale_is_halved(config_file, examples):
    resolved = load(config_file, *SCALED)
    it = trainer.Trainer(resolved, devices.choose(resolved), examples)
    [optimizer], net = it.optimizers.values(), it.nets['transformer']
    gradients = [np.zeros(variable.shape, np.float32) for variable in net.trainable_variables]
    for value, scale, moved in ((1.0, 2. ** 15, True), (np.inf, 2. ** 14, False), (np.nan, 2. ** 13, False)):
        before = [variable.numpy() for variable in net.trainable_variables]
        optimizer.apply_gradients(zip([tf.constant(each + value) for each in gradients], net.trainable_variables))
        assert optimizer.loss_scale == scale
        assert moved == any((one != other.numpy()).any() for one, other in zip(before, net.trainable_variables))
    loss, normaliser = tf.constant(6.0), tf.constant(3.0)
    assert precision.scaled(optimizer, loss, normaliser) == 2 * 2. ** 13
    assert precision.unscaled(optimizer, [tf.constant(2. ** 13)], normaliser) == [3.0]
    assert precision.scaled(optimizer.inner_optimizer, loss, normaliser) is loss


@pytest.mark.parametrize('overrides, words', [
    (['train.ema=1'], r'train\.ema is the share .* from 0 to below 1; it is 1'),
    (['train.ema=0.9', 'train.average_checkpoints=5'], r'train\.ema and train\.average_checkpoints both .*=1, or'),
    (['train.ema=0.9', 'train.strategy=mirrored', 'train.dense_layers=one_device'], 'Leave train.ema out'),
    (['train.precision=float16', 'train.dense_layers=one_device'], 'give another train.precision than float16')])
def test_mistakes_are_sentences(config_file, overrides, words):
    with pytest.raises(UserError, match=words):
        train_stage.check(load(config_file, *overrides))
    with pytest.raises(UserError, match=r'train\.monitor and train\.ema are for networks'):
        educate.check(config.load('learning_machine_nim', ['train.ema=0.9']))
