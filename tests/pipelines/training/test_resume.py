"""A training run killed at any moment ends like an uninterrupted one: records, losses and weights, bit for bit."""
import contextlib
import os
import pathlib
import resource
import shutil
import signal
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_io_ops

from benchmarks.robustness import kill_points
from data_prep import wmt
from data_prep.core import input_pipeline, records
from keras_models import transformer
from keras_models.core import optimizers
from pipelines.core import cli, config
from pipelines.reporting import report
from pipelines.training import checkpoints, trainer
from support import commands, next_word
from support.killed_runs import Killed

# 6 steps an epoch; checkpoints at every second of all, validations at others.
SETTINGS = ['input.buckets=[16]', 'input.tokens=256', 'train.steps=18', 'train.log_every=3', 'train.checkpoint_every=2',
            'train.validate_every=3', 'train.average_checkpoints=3']
EPOCH = 6
KILLS = {5: 4, EPOCH: EPOCH, 17: 16}  # before step, or as soon as its checkpoint is there -> where it resumes
LAST = 'checkpoints/ckpt-18'


@pytest.fixture(scope='module')
def few(examples, tmp_path_factory):
    """The first of the tiny corpus's pairs: an epoch is over soon."""
    folder, shards = tmp_path_factory.mktemp('few'), []
    shutil.copy(os.path.join(examples, wmt.SUBWORDS), folder)
    for split, count in (('train', 16 * EPOCH - 1), ('validation', 16)):
        part = records.open_split(examples, split)
        writer = records.ShardWriter(str(folder / f'Split-{split}' / 'part-00000.tfrecord'), wmt.LENGTHS)
        for record, row in zip(part.read(range(count)), part.index):
            writer.write(record, **{name: int(row[name]) for name in wmt.LENGTHS})
        shards.append(writer.close())
    records.write_manifest(str(folder), shards, wmt.LENGTHS, {}, {
        'vocabulary': records.read_manifest(examples).vocabulary})
    return str(folder)


def plateau(config):
    """The image papers' optimizer and schedule: every validation that is not far better drops the rate."""
    del config
    return {'transformer': optimizers.descent(optimizers.Descent(
        learning_rate=0.3, factor=2.0, max_drops=9, monitor='loss', patience=1, min_delta=0.3))}


def install(patch):
    patch.setattr(transformer, 'build', next_word.build)
    patch.setattr(transformer, 'optimizers', plateau)


def train(config_file, examples, run, *overrides):
    """Trains the small net, and says no more than its command would where that cannot be."""
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        cli.run_command(lambda: trainer.train(config.load(config_file, [*SETTINGS, *overrides]), examples, run))


@pytest.fixture(scope='module')
def whole(config_file, few, tmp_path_factory):
    """The run nobody stopped."""
    folder = tmp_path_factory.mktemp('whole')
    train(config_file, few, str(folder))
    return folder


def same(one, other, *names):
    """Every variable; the files may order them otherwise."""
    for name in names:
        readers = [tf.train.load_checkpoint(str(run / name)) for run in (one, other)]
        keys, others = ({key for key in reader.get_variable_to_shape_map() if key[0] != '_'} for reader in readers)
        assert keys == others
        for key in keys:
            np.testing.assert_array_equal(*[reader.get_tensor(key) for reader in readers], err_msg=key)


@pytest.fixture
def watched(monkeypatch):
    """Step -> (example ids, losses) as last taken; the steps at which to kill; the training records last read."""
    steps, kills, read = {}, [], []
    take, take_records, write = trainer.Trainer.train_step, records.Split.read, checkpoints.write

    def kill(step):
        if kills and step == kills[0]:
            kills.pop(0)
            read.clear()
            raise Killed

    def write_and_kill(checkpoint, folder, step, keep):
        write(checkpoint, folder, step, keep)
        kill(step)

    def train_step(self, iterator):
        step = int(self.global_step.numpy())
        kill(step)
        batch = next(iterator)
        ids = [part.numpy().tolist() for part in self.strategy.experimental_local_results(batch['id'])]
        take(self, iter([batch]))
        steps[step] = ids, tf.nest.map_structure(float, self._totals[-1])

    def read_and_tell(self, ids):
        read.extend(int(i) for i in ids if 'Split-train' in self.shards[0])
        return take_records(self, ids)
    monkeypatch.setattr(trainer.Trainer, 'train_step', train_step)
    monkeypatch.setattr(checkpoints, 'write', write_and_kill)
    monkeypatch.setattr(records.Split, 'read', read_and_tell)
    return steps, kills, read


@pytest.mark.parametrize('strategy', ['one_device', pytest.param(
    'mirrored', marks=pytest.mark.slow)])  # test_multi_worker.py resumes with two replicas
def test_killed_three_times_and_not_at_all(config_file, few, tmp_path, watched, monkeypatch, strategy):
    """Within epoch 0, at its end, in epoch 2; dropout, plateau: records, losses, curves, weights to the bit.

    Of the paper's Adam and schedule test_trainer.py asks the same.
    """
    install(monkeypatch)
    steps, kills, read = watched
    resolved = config.load(config_file, [*SETTINGS, f'train.strategy={strategy}'])
    batches = input_pipeline.Batches(records.open_split(few, 'train'), [16], [16], resolved.seed)
    assert resolved.model.P_drop and batches.steps_per_epoch == EPOCH
    straight, killed = tmp_path / 'straight', tmp_path / 'killed'
    found = trainer.train(resolved, few, str(straight))
    expected, resumed = dict(steps), []
    steps.clear()
    kills.extend(KILLS)
    while kills:
        with pytest.raises(Killed):
            trainer.train(resolved, few, str(killed))
        resumed.append(checkpoints.step_of(checkpoints.present(str(killed / 'checkpoints'))[-1]))
    again = trainer.train(resolved, few, str(killed))
    assert resumed == [*KILLS.values()] and again.resumed_at == resumed[-1]
    assert steps == expected and len(steps) == resolved.train.steps
    assert again.averaged == found.averaged and again.last == found.last
    same(straight, killed, 'weights', LAST)
    curves = [report.curves(str(run / 'tensorboard')) for run in (straight, killed)]
    assert len(curves[0]['loss']) == 12 and len(curves[0]['validation/loss']) == 6
    for tag in curves[0]:
        assert curves[0][tag] == curves[1][tag] or tag.endswith('per_second'), tag
    reader = tf.train.load_checkpoint(str(straight / LAST))
    rates = [float(reader.get_tensor(key)) for key in reader.get_variable_to_shape_map() if '/rate/' in key]
    assert rates and max(rates) < 0.3  # it dropped
    # The records of the two steps that were left, and no other: none of those before was looked at again.
    assert sorted(read) == sorted(i for step in (16, 17) for i in batches[step][1])


def before_merge(number, work):
    """Calls `work` where the data of the checkpoint of this number are about to get their name."""
    merge, calls = gen_io_ops.merge_v2_checkpoints, []

    def work_and_merge(prefixes, destination, *args, **kwargs):
        calls.append(destination)
        if len(calls) == number:
            work(destination.numpy().decode())
        return merge(prefixes, destination, *args, **kwargs)
    return mock.patch.object(gen_io_ops, 'merge_v2_checkpoints', work_and_merge)


def train_and_die(config_file, examples, run):
    cli.prepare_libraries()
    with before_merge(2, lambda path: os.kill(os.getpid(), signal.SIGKILL)):
        train(config_file, examples, run)


def test_sigkill_in_the_middle_of_a_checkpoint(config_file, few, whole, tmp_path):
    """Its data lie in a temporary folder and are about to be renamed."""
    assert commands.exit_code(train_and_die, config_file, few, str(tmp_path)) == -signal.SIGKILL
    left = os.listdir(tmp_path / 'checkpoints')
    assert 'ckpt-4_temp' in left and 'ckpt-2.sha256' in left
    assert not [name for name in left if name.startswith('ckpt-4.')]
    train(config_file, few, str(tmp_path))
    same(whole, tmp_path, 'weights', LAST)
    assert not [name for name in os.listdir(tmp_path / 'checkpoints') if 'temp' in name or 'damaged' in name]


@contextlib.contextmanager
def no_room_for_data():
    """The third checkpoint's data end in the middle: no file may take more than 1,000 bytes."""
    before, calls, write = resource.getrlimit(resource.RLIMIT_FSIZE), [], checkpoints.write

    def limited(*args):
        calls.append(args)
        if len(calls) == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            return write(*args)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with mock.patch.object(checkpoints, 'write', limited):
        yield


def no_room_for_the_index():
    """The third checkpoint's data are in place, and not a byte is left for its index."""
    return before_merge(3, lambda path: os.symlink('/dev/full', f'{path}.index'))


@pytest.mark.parametrize('full, words', [
    pytest.param(no_room_for_data, 'File too large. Raise the file size limit', id='data'),
    pytest.param(no_room_for_the_index, 'No space left on device. Free some space and run the same command',
                 id='index')])
def test_a_disk_that_is_full_at_the_third_checkpoint(config_file, few, whole, tmp_path, capsys, full, words):
    """A sentence and exit code 2; two good checkpoints and no litter; with room again the command goes on."""
    with full(), pytest.raises(SystemExit) as left:
        train(config_file, few, str(tmp_path))
    errors = capsys.readouterr().err
    assert left.value.code == 2 and errors.startswith('error: ') and errors.count('\n') == 1
    assert words in errors and 'ckpt-6' in errors
    suffixes = ('.data-00000-of-00001', '.index', '.sha256')
    assert sorted(os.listdir(tmp_path / 'checkpoints')) == [
        'checkpoint', *(f'ckpt-{step}{suffix}' for step in (2, 4) for suffix in suffixes)]
    train(config_file, few, str(tmp_path))
    assert 'resuming at step 4 of 18' in capsys.readouterr().out
    same(whole, tmp_path, 'weights')


def test_ctrl_c_leaves_what_the_same_command_goes_on_from(config_file, few, whole, tmp_path, monkeypatch,
                                                          capsys):
    step = trainer.Trainer.train_step

    def step_and_interrupt(self, iterator):
        if int(self.global_step.numpy()) == 5:
            signal.raise_signal(signal.SIGINT)
        step(self, iterator)
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as left:
        patch.setattr(trainer.Trainer, 'train_step', step_and_interrupt)
        train(config_file, few, str(tmp_path))
    assert left.value.code == 130 and capsys.readouterr().err == 'interrupted: finished work is kept.\n'
    assert not (tmp_path / 'weights.index').exists()
    train(config_file, few, str(tmp_path))
    assert 'resuming at step 4 of 18' in capsys.readouterr().out
    same(whole, tmp_path, 'weights', LAST)


def cut(run, to, *steps):
    """What a run killed right after the last of these checkpoints has left."""
    (to / 'checkpoints').mkdir(parents=True)
    for step in steps:
        for path in (run / 'checkpoints').glob(f'ckpt-{step}.*'):
            shutil.copy(path, to / 'checkpoints')


ACCUMULATED, RECOMPUTED, SHORT = ('train.gradient_accumulation_steps=2', 'train.rematerialise=true',
                                  'train.precision=bfloat16')
MIRRORED, COMPILED = 'train.strategy=mirrored', 'train.jit=true'


@pytest.mark.parametrize('how', [
    pytest.param([ACCUMULATED], id='accumulated'), pytest.param([RECOMPUTED], id='recomputed'),
    pytest.param([SHORT, COMPILED], id='bfloat16'),
    pytest.param([SHORT], id='bfloat16 by the rewriter', marks=pytest.mark.slow),
    pytest.param([ACCUMULATED, RECOMPUTED, SHORT, COMPILED, MIRRORED], id='all on two replicas',
                 marks=pytest.mark.slow)])
def test_however_a_step_is_computed_a_run_goes_on_as_if_never_cut(config_file, few, tmp_path, capsys, how,
                                                                  request):
    """Dropout of every part of a batch, moments, schedule: weights and the last checkpoint to the bit."""
    if SHORT in how and COMPILED not in how:
        request.getfixturevalue('rewritten_graphs')
    short = ['train.steps=6', 'train.validate_every=6', *how]
    straight, killed = tmp_path / 'straight', tmp_path / 'killed'
    train(config_file, few, str(straight), *short)
    cut(straight, killed, 2, 4)
    capsys.readouterr()
    train(config_file, few, str(killed), *short)
    assert 'resuming at step 4 of 6' in capsys.readouterr().out
    same(straight, killed, 'weights', 'checkpoints/ckpt-6')
    assert moved(straight, 'checkpoints/ckpt-4', 'checkpoints/ckpt-6')


def moved(run, before, after):
    """Whether all weights differ between two checkpoints; else their being the same says nothing."""
    readers = [tf.train.load_checkpoint(str(run / name)) for name in (before, after)]
    keys = [key for key in readers[0].get_variable_to_shape_map() if key.startswith('nets/')]
    return all(not np.array_equal(*(reader.get_tensor(key) for reader in readers)) for key in keys)


@pytest.mark.slow  # a tool of the benchmarks
def test_a_point_of_the_sweep(config_file, examples, tmp_path):
    """Short benchmarks/robustness/kill_points.py: SIGKILL to all of prepare's processes, and the same command again."""
    flags = ['--config', config_file]
    # as it begins
    assert kill_points.kill_after(0, 'prepare', flags, tmp_path), (tmp_path / 'said').read_text()
    kill_points.finish('prepare', flags, tmp_path)
    assert not list(tmp_path.glob('root/prepare/.partial-*'))
    [made] = tmp_path.glob('root/prepare/*/examples')
    for pattern in ('subwords.model', 'Split-*/*'):
        expected = sorted(pathlib.Path(examples).glob(pattern))
        assert [path.read_bytes() for path in sorted(made.glob(pattern))] == [path.read_bytes() for path in expected]
