"""The best checkpoint by a validation metric, and training that ends early: to the bit after kills, too."""
import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError
from keras_models import transformer
from pipelines import educate
from pipelines import train as train_stage
from pipelines.core import config
from pipelines.core.sections import TrainConfig
from pipelines.reporting import report
from pipelines.training import best, checkpoints, trainer
from support import killed_runs, next_word

# Checkpoints at every second step, validations at every third: most validations are not where a checkpoint is.
SETTINGS = ['input.buckets=[16]', 'input.tokens=256', 'train.steps=18', 'train.log_every=3', 'train.checkpoint_every=2',
            'train.validate_every=3', 'train.monitor=loss', 'model.warmup_steps=5']
# The loss falls at every validation, so that to look for its maximum finds the first and waits for nothing.
WORST = ['train.monitor_mode=max', 'train.patience=2']


@pytest.fixture(autouse=True)
def _small_net(monkeypatch):
    monkeypatch.setattr(transformer, 'build', next_word.build)


def train(config_file, examples, run, *overrides):
    return trainer.train(config.load(config_file, [*SETTINGS, *overrides]), examples, str(run))


def weights(path):
    reader = tf.train.load_checkpoint(str(path))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map() if key.startswith('nets/')}


def same(one, other):
    assert one.keys() == other.keys() and one
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key], err_msg=key)


def test_the_best_is_exported_and_nothing_is_averaged(config_file, examples, tmp_path):
    found = train(config_file, examples, tmp_path)
    curve = dict(report.curves(str(tmp_path / 'tensorboard'))['validation/loss'])
    step = min(curve, key=curve.get)
    assert found.best == {'metric': 'loss', 'value': pytest.approx(curve[step], rel=1e-6), 'step': step}
    assert found.steps == 18 and found.averaged_checkpoints == [f'ckpt-{step}']
    assert found.averaged['validation/loss'] == pytest.approx(found.best['value'], rel=1e-6)
    same(weights(tmp_path / 'weights'), weights(tmp_path / f'best/ckpt-{step}'))
    shown = report._training(config.load(config_file), vars(found))
    assert f'ckpt-{step}, the best loss in validation' in shown['weights']


def test_training_ends_once_nothing_gets_better(config_file, examples, tmp_path):
    """At 9: the validation at 3 was the best, those at 6 and 9 were not. The same command again does nothing more."""
    found = train(config_file, examples, tmp_path, *WORST)
    assert (found.steps, found.best['step']) == (9, 3)
    same(weights(tmp_path / 'weights'), weights(tmp_path / 'best/ckpt-3'))
    assert [checkpoints.step_of(path) for path in checkpoints.present(str(tmp_path / 'checkpoints'))][-2:] == [8, 9]
    again = train(config_file, examples, tmp_path, *WORST)
    assert (again.resumed_at, again.steps, again.best) == (9, 9, found.best)


@pytest.mark.slow  # test_ema.py kills one with more state as often
def test_killed_at_every_checkpoint_it_ends_as_undisturbed(config_file, examples, tmp_path):
    """Also between the best checkpoint and the next one, which is where the state of the search is kept."""
    straight, killed = tmp_path / 'straight', tmp_path / 'killed'
    found = train(config_file, examples, straight, *WORST)
    again, done = killed_runs.after_each_checkpoint(lambda: train(config_file, examples, killed, *WORST))
    assert done == [('checkpoints', 2), ('best', 3), ('checkpoints', 4), ('checkpoints', 6), ('checkpoints', 8),
                    ('checkpoints', 9)]
    assert (again.steps, again.best, again.averaged) == (found.steps, found.best, found.averaged)
    for name in ('weights', 'checkpoints/ckpt-9', 'best/ckpt-3'):
        same(weights(straight / name), weights(killed / name))


@pytest.mark.parametrize('mode, values, better', [
    ('min', [3.0, 2.0, 2.0, float('nan'), 1.0], [True, True, False, False, True]),
    ('max', [0.5, 0.5, 0.4, float('nan'), 0.6], [True, False, False, False, True])])
def test_better_is_better_than_the_best(mode, values, better):
    search = best.Best(TrainConfig(monitor='x', monitor_mode=mode, patience=2))
    found = [(search.update({'x': value}, step), search.stopped) for step, value in enumerate(values)]
    assert [each for each, _ in found] == better
    worse = [0]
    for each in better:
        worse.append(0 if each else worse[-1] + 1)
    assert [stopped for _, stopped in found] == [number >= 2 for number in worse[1:]]


def test_patience_is_for_the_last_phase():
    search = best.Best(TrainConfig(monitor='loss', patience=2), since=40)
    found = []
    for step, value in zip(range(10, 80, 10), (1.0, 2.0, 2.0, 2.0, 2.0, 0.5, 2.0)):
        better = search.update({'loss': value}, step)
        found.append((better, int(search.worse.numpy())))
    assert found == [(True, 0), *[(False, 0)] * 3, (False, 1), (True, 0), (False, 1)]


def test_without_a_metric_nothing_is_kept():
    search = best.Best(TrainConfig())
    assert search.state == {} == search.facts() and not search.update({'loss': 1.0}, 1) and not search.stopped


def test_mistakes_are_sentences(config_file, examples, tmp_path):
    with pytest.raises(UserError, match=r"train\.monitor: validation computes no 'top1_error'\. Give one of loss"):
        train(config_file, examples, tmp_path, 'train.monitor=top1_error')
    with pytest.raises(UserError, match=r'train\.patience needs a metric .*train\.monitor=loss'):
        train_stage.check(config.load(config_file, ['train.patience=2']))
    with pytest.raises(UserError, match=r'train\.monitor and train\.ema are for networks'):
        educate.check(config.load('learning_machine_nim', ['train.monitor=degree']))
