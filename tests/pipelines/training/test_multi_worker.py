"""`--strategy multi_worker_mirrored`: two processes over loopback, one of them killed, against one process."""
import json
import os
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError
from pipelines.core import config, pipeline, stage
from pipelines.core.sections import TrainConfig
from pipelines.reporting import report
from pipelines.training import checkpoints, loop, strategy
from pipelines.training.loop import PREEMPTED
from support import killed_runs, tiny_people
from support.commands import ROOT, Started, command, environment, exit_code, start
from support.ports import free_ports

SETTINGS = ['train.steps=40', 'train.validate_every=20', 'model.P_drop=0', 'input.buckets=[16]']
FLAGS = [part for setting in SETTINGS for part in ('--set', setting)]


def start_workers(config_file, root, before=None, overrides=FLAGS) -> list[Started]:
    """Chief and another; `before` is the chief's, see `commands.start`."""
    cluster = {'worker': [f'127.0.0.1:{port}' for port in free_ports(2)]}

    def worker(index):
        of_worker = json.dumps({'cluster': cluster, 'task': {'type': 'worker', 'index': index}})
        return start('pipelines.train', '--strategy', 'multi_worker_mirrored', '--config', config_file,
                     '--pipeline_root', str(root), *overrides, cwd=ROOT, env=environment(TF_CONFIG=of_worker),
                     before=None if index else before)
    return [worker(0), worker(1)]


def until(child, text):
    for line in child.stdout:
        if text in line:
            return
    raise AssertionError(child.communicate()[1])


def finish(children) -> None:
    for child in children:
        _, errors = child.communicate()
        assert child.returncode == 0, errors


def model_run(root):
    [folder] = root.glob('train/*/model_run')  # one of all workers published, under one name
    return folder


def weights(root):
    from tensorflow.train import load_checkpoint
    reader = load_checkpoint(str(model_run(root) / 'weights'))
    return {key: reader.get_tensor(key) for key in checkpoints._keys(reader, 'weights').values()}


def test_two_workers_equal_one_process_even_when_the_chief_is_killed_and_its_checkpoint_damaged(config_file, tmp_path):
    one, two = tmp_path / 'one', tmp_path / 'two'
    assert command('pipelines.prepare', '--config', config_file, '--pipeline_root', str(one)).returncode == 0
    shutil.copytree(one, two)
    alone = command('pipelines.train', '--config', config_file, '--pipeline_root', str(one), *FLAGS)
    assert alone.returncode == 0, alone.stderr
    chief, other = start_workers(config_file, two, killed_runs.at_step(25))
    chief.communicate()
    assert chief.returncode == -signal.SIGKILL
    _, errors = other.communicate()
    assert other.returncode == PREEMPTED and 'Start all workers again' in errors, errors
    assert 'Traceback' not in errors
    [newest] = two.glob('train/.partial-*/model_run/checkpoints/ckpt-20.data*')
    os.truncate(newest, 1000)
    children = start_workers(config_file, two)
    until(children[0], 'ckpt-20 is damaged: ckpt-20.data-00000-of-00001 has changed since it was written')
    for child in children:  # the other one takes what the chief found
        until(child, 'resuming at step 10 of 40')
    finish(children)
    for tag in ('loss', 'validation/loss'):
        curves = [dict(report.curves(str(model_run(root) / 'tensorboard'))[tag]) for root in (one, two)]
        assert curves[0].keys() == curves[1].keys()
        np.testing.assert_allclose(list(curves[1].values()), list(curves[0].values()), atol=1e-5)
    expected, found = weights(one), weights(two)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, atol=1e-4, err_msg=key)
    skipped = start_workers(config_file, two)
    finish(skipped)  # both see that it is done


@pytest.mark.slow  # test_decoded.py compares the number; only who decodes is proven here
def test_the_chief_decodes_and_both_keep_its_best(config_file, tmp_path):
    monitor = ['--set', 'train.monitor=chrf', '--set', 'train.monitor_mode=max']
    assert command('pipelines.prepare', '--config', config_file, '--pipeline_root', str(tmp_path)).returncode == 0
    finish(start_workers(config_file, tmp_path, overrides=[*FLAGS, *monitor]))
    run = model_run(tmp_path)
    curve = dict(report.curves(str(run / 'tensorboard'))['validation/chrf'])
    assert [*curve] == [20, 40] and curve[40] > curve[20]
    assert [path.name for path in run.glob('best/*.index')] == ['ckpt-40.index']


@pytest.mark.slow  # 90 s, of which most traces three networks twice; test_viton_training.py has the reason
def test_networks_with_states_are_saved_by_the_chief_alone(tmp_path):
    """Batch normalisation and power iterations: a mean over replicas would need all workers to save."""
    file, _ = tiny_people.prepare(tmp_path, 12)
    assert command('pipelines.prepare', '--config', file, '--pipeline_root', str(tmp_path)).returncode == 0
    finish(start_workers(file, tmp_path, overrides=[]))
    assert [path.name for path in sorted(model_run(tmp_path).glob('checkpoints/*.index'))] == [
        'ckpt-2.index', 'ckpt-4.index']


def lose(error: type) -> None:
    """In a new process: the error with which a collective operation ends."""
    with loop.errors_in_words(tf.distribute.MultiWorkerMirroredStrategy()):
        raise error(None, None, 'Collective ops is aborted')


@pytest.mark.parametrize('error, code', [
    (tf.errors.UnavailableError, PREEMPTED), (tf.errors.DeadlineExceededError, PREEMPTED),
    (tf.errors.DataLossError, 1)])
def test_a_worker_that_loses_another_leaves_with_42(error, code):
    """Killed, or cut off: benchmarks/robustness/hosts_sweep.py does both to hosts of their own."""
    assert exit_code(lose, error) == code


@pytest.mark.parametrize('cluster, task, expected', [
    ({'worker': ['a:1', 'b:1']}, ('worker', 0), False), ({'worker': ['a:1', 'b:1']}, ('worker', 1), True),
    ({'chief': ['c:1'], 'worker': ['a:1']}, ('chief', 0), False),
    ({'chief': ['c:1'], 'worker': ['a:1']}, ('worker', 0), True)])
def test_who_follows(monkeypatch, cluster, task, expected):
    monkeypatch.setenv('TF_CONFIG', json.dumps({'cluster': cluster, 'task': dict(zip(('type', 'index'), task))}))
    config = TrainConfig(strategy='multi_worker_mirrored')
    strategy.check(config)
    assert strategy.is_worker(config) is expected


def test_a_worker_that_follows_makes_no_other_stage(config_file, tmp_path, monkeypatch):
    monkeypatch.setenv('TF_CONFIG', json.dumps({'cluster': {'worker': ['a:1', 'b:1']},
                                                'task': {'type': 'worker', 'index': 1}}))
    resolved = config.load(config_file, ['train.strategy=multi_worker_mirrored'])
    with pytest.raises(UserError, match='has no finished prepare, and only the chief worker can make it'):
        pipeline.Pipeline(resolved, str(tmp_path), []).run(stage.get('prepare'))
