"""The trainer: replicas, XLA, resuming, averaging and refusals."""
import json
import os
import shutil
import signal
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError, wmt
from data_prep.core import records
from keras_models import transformer
from keras_models.text import translator
from pipelines.core import config, roles, shipped
from pipelines.reporting import report
from pipelines.training import checkpoints, devices, jit, loop, precision, strategy, trainer
from support import killed_runs, next_word
from support.commands import command


def losses(config_file, examples, steps, *overrides):
    """The loss of every step, the example ids of every batch, and the trainer; of one bucket, so of one trace."""
    resolved = config.load(config_file, [f'train.steps={steps}', 'input.buckets=[16]', *overrides])
    compiled = resolved.train.jit is True
    it = trainer.Trainer(resolved, devices.choose(resolved, compiled), examples)
    iterator, found, ids = iter(it._dataset('train')), [], []
    with precision.rewriting(resolved.train.precision, compiled):
        for _ in range(steps):
            batch = next(iterator)
            ids.append(sorted(np.concatenate([x.numpy() for x in it.strategy.experimental_local_results(batch['id'])])))
            batch.pop('id')
            value, normaliser = it._train(batch)['loss/transformer']
            found.append(float(value / normaliser))
    return np.array(found), ids, it


def apart(it, other) -> float:
    """Return how far all weights are from another trainer's, in lengths of those.

    Not weight by weight: where a gradient is next to nothing, as that of queries is at first, Adam makes whole steps of
    what rounding left.
    """
    ours, theirs = (np.concatenate([np.ravel(weight) for weight in each.nets['transformer'].weights])
                    for each in (it, other))
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@pytest.fixture
def small(monkeypatch):
    """Trains a net that is traced in a moment: for what the trainer does, whatever the net."""
    monkeypatch.setattr(transformer, 'build', next_word.build)


STEPS = 8
DRY = 'model.P_drop=0'  # what is dropped depends on the replica and on XLA


@pytest.fixture(scope='module')
def plain(config_file, examples):
    """`losses` of one replica without dropout, to compare others with."""
    found = losses(config_file, examples, STEPS, DRY)
    assert found[0][-1] < found[0][0] - 0.1  # it does learn
    return found


MIRRORED, COMPILED = 'train.strategy=mirrored', 'train.jit=true'
both = pytest.param([MIRRORED, COMPILED], id='mirrored, compiled', marks=pytest.mark.slow)


@pytest.mark.parametrize('overrides', [pytest.param([MIRRORED], id='mirrored'),
                                       pytest.param([COMPILED], id='compiled'), both])
def test_two_replicas_equal_one_compiled_and_not(config_file, examples, plain, overrides):
    """Losses within 1e-5, for the oneDNN graph and for XLA."""
    one, ids, _ = plain
    other, other_ids, it = losses(config_file, examples, STEPS, DRY, *overrides)
    np.testing.assert_allclose(other, one, atol=1e-5)
    assert other_ids == ids
    assert it.strategy.num_replicas_in_sync == (2 if MIRRORED in overrides else 1)


PARTS = 'train.gradient_accumulation_steps='


@pytest.mark.parametrize('overrides', [
    pytest.param([PARTS + '4'], id='in 4 parts'),
    pytest.param([PARTS + '2', MIRRORED], id='in 2 parts, mirrored', marks=pytest.mark.slow),
    pytest.param([PARTS + '4', COMPILED], id='in 4 parts, compiled', marks=pytest.mark.slow)])
def test_accumulated_gradients_equal_one_batch(config_file, examples, plain, overrides):
    """A batch in 4 parts, or in 2 on each of 2 replicas, is the same update: losses and weights."""
    one, ids, whole = plain
    other, other_ids, it = losses(config_file, examples, STEPS, DRY, *overrides)
    np.testing.assert_allclose(other, one, atol=1e-5)
    assert other_ids == ids and it.traces <= 2 * it.strategy.num_replicas_in_sync
    assert apart(it, whole) < 1e-3


def test_a_batch_that_cannot_be_divided_is_refused(config_file, examples, small):
    with pytest.raises(UserError, match='cannot be divided into 6 parts'):
        losses(config_file, examples, 1, PARTS + '3', MIRRORED)


@pytest.mark.slow  # test_rematerialisation.py has its gradients, test_hybrid.py its losses, test_resume.py its runs
@pytest.mark.parametrize('overrides', [pytest.param([], id='one replica'), pytest.param([COMPILED], id='compiled'),
                                       pytest.param([MIRRORED], id='mirrored')])
def test_a_pass_computed_twice_changes_nothing(config_file, examples, overrides):
    """Rematerialised, with dropout: losses and weights."""
    one, _, kept = losses(config_file, examples, STEPS, *overrides)
    two, _, it = losses(config_file, examples, STEPS, *overrides, 'train.rematerialise=true')
    np.testing.assert_allclose(two, one, atol=1e-5)
    assert apart(it, kept) < 1e-3


@pytest.mark.parametrize('compiled', [pytest.param('false', id='rewriter'), pytest.param('true', id='policy')])
def test_bfloat16_stays_near_float32(config_file, examples, plain, rewritten_graphs, compiled):
    """Products of 8 significant bits: losses within 0.03, and not the same; weights stay float32."""
    other, _, it = losses(config_file, examples, STEPS, DRY, 'train.precision=bfloat16', f'train.jit={compiled}')
    np.testing.assert_allclose(other, plain[0], atol=0.03)
    rounded = not precision.hindrance(compiled == 'true')
    assert (np.abs(other - plain[0]).max() > 1e-5) == rounded
    assert {w.dtype for w in it.nets['transformer'].weights} == {tf.float32}


@pytest.mark.parametrize('short, flags, onednn, most, said', [
    (True, {'avx2'}, '1', 'ALL', 'this processor has no AVX-512, so '), (True, {'avx2', 'avx512f'}, '1', 'ALL', ''),
    (True, {'avx2', 'avx512f'}, '0', 'ALL', 'TF_ENABLE_ONEDNN_OPTS switches oneDNN off, so '),
    (True, {'avx2', 'avx512f'}, '1', 'AVX2', 'ONEDNN_MAX_CPU_ISA holds oneDNN to AVX2, so '),
    (False, {'avx2'}, '1', 'ALL', '')])
def test_bfloat16_that_changes_nothing_is_told(config_file, examples, small, tmp_path, monkeypatch, capsys, short,
                                               flags, onednn, most, said):
    monkeypatch.setattr(precision.platform, 'machine', lambda: 'x86_64')
    monkeypatch.setattr(precision.machine, 'cpu', lambda: ('', frozenset(flags)))
    monkeypatch.setenv('TF_ENABLE_ONEDNN_OPTS', onednn)
    monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', most)
    kind = 'bfloat16' if short else 'float32'
    trainer.train(config.load(config_file, ['train.steps=0', f'train.precision={kind}']), examples, str(tmp_path))
    told = f'train: {said}train.precision: bfloat16 has no effect.'
    assert (told in capsys.readouterr().out) == bool(said)


@pytest.mark.parametrize('onednn, most, hindered', [('0', 'AVX2', False), ('1', 'AVX2', True), ('1', 'ALL', False)])
def test_a_compiled_run_has_bfloat16_where_its_validation_cannot_abort(config_file, monkeypatch, onednn, most,
                                                                       hindered):
    """Validation is not compiled, and a oneDNN held to AVX2 aborts when it is asked for bfloat16."""
    monkeypatch.setattr(precision.machine, 'cpu', lambda: ('', frozenset({'avx2', 'avx512f'})))
    monkeypatch.setenv('TF_ENABLE_ONEDNN_OPTS', onednn)
    monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', most)
    chosen = devices.choose(config.load(config_file, ['train.precision=bfloat16', COMPILED]))
    assert chosen.use_mixed_policy != hindered


def test_training_starts_from_named_weights(config_file, examples, tmp_path):
    """From a ModelRun, a checkpoint and a pushed model alike."""
    first = str(tmp_path / 'first')
    resolved = config.load(config_file, ['train.steps=2', 'train.checkpoint_every=1', 'train.validate_every=2',
                                         'input.buckets=[16]'])
    trainer.train(resolved, examples, first)
    nets = transformer.build(resolved.model)
    checkpoints.restore(nets, os.path.join(first, 'weights'))
    module = translator.serving(nets, resolved.model, resolved.inference, wmt.assets(examples), False)
    tf.saved_model.save(module, str(tmp_path / 'pushed' / '3'), signatures=module.signatures())
    for path in (first, os.path.join(first, 'weights'), str(tmp_path / 'pushed'), str(tmp_path / 'pushed' / '3')):
        resolved = config.load(config_file, [f'train.init_from={path}', 'seed=7'])
        it = trainer.Trainer(resolved, devices.choose(resolved, False), examples)
        drawn = [weight.numpy() for weight in it.nets['transformer'].weights]
        assert trainer.start(it, str(tmp_path / 'second')) == 0
        for found, expected, before in zip(it.nets['transformer'].weights, nets['transformer'].weights, drawn,
                                           strict=True):
            np.testing.assert_array_equal(found, expected)
            assert not np.array_equal(found, before)
    wider = config.load(config_file, [f'train.init_from={first}', 'model.d_ff=72'])
    with pytest.raises(UserError, match=r'W_1:kernel has shape \[32, 72\] here, but the checkpoint holds .*\[32, 64\]'):
        trainer.start(trainer.Trainer(wider, devices.choose(wider, False), examples), str(tmp_path / 'third'))
    with pytest.raises(UserError, match='holds no weights'):
        checkpoints.find(examples, roles.model('keras_models.transformer'))
    foreign = str(tmp_path / 'foreign')
    shutil.copytree(first, foreign)
    with open(os.path.join(foreign, 'run.json'), 'w') as file:
        json.dump({'vocabulary': 'another'}, file)
    resolved = config.load(config_file, [f'train.init_from={foreign}'])
    with pytest.raises(UserError, match='other subwords than the data. Prepare the data again .*data.subword_model'):
        trainer.start(trainer.Trainer(resolved, devices.choose(resolved, False), examples), str(tmp_path / 'new'))


def test_one_trace_a_bucket(config_file, examples, small):
    _, _, it = losses(config_file, examples, STEPS, 'input.buckets=[8, 16]')
    assert it.traces == 2  # the two buckets of the configuration, met many times each


def test_dropout_replays_and_differs_between_steps_and_replicas(config_file, examples, small):
    first, _, _ = losses(config_file, examples, 2)
    again, _, _ = losses(config_file, examples, 2)
    np.testing.assert_array_equal(first, again)
    other, _, _ = losses(config_file, examples, 2, 'seed=2')
    assert not np.array_equal(first, other)


def test_two_losses_two_optimizers(config_file, examples, small, monkeypatch):
    """Train as a GAN needs it: each loss moves exactly its own net's weights, from one forward pass."""
    build = transformer.build

    def two(config):
        nets = build(config)
        nets['other'] = build(config)['transformer']
        return nets
    rates = {'transformer': 0.0, 'other': 0.1}

    def loss_fn(nets, batch, seed, training, config):
        total = {name: transformer_loss({'transformer': net}, batch, seed, training, config)[0]['transformer']
                 for name, net in nets.items()}
        return total, {}
    transformer_loss = transformer.loss_fn
    monkeypatch.setattr(transformer, 'build', two)
    monkeypatch.setattr(transformer, 'loss_fn', loss_fn)
    monkeypatch.setattr(transformer, 'optimizers', lambda config: {
        name: tf.keras.optimizers.SGD(rate) for name, rate in rates.items()})
    resolved = config.load(config_file)
    it = trainer.Trainer(resolved, devices.choose(resolved, False), examples)
    before = {name: [w.numpy() for w in net.weights] for name, net in it.nets.items()}
    batch = next(iter(it._dataset('train')))
    batch.pop('id')
    assert set(it._train(batch)) == {'loss/transformer', 'loss/other'}
    moved = {name: any(not np.array_equal(w, old) for w, old in zip(it.nets[name].weights, before[name]))
             for name in it.nets}
    assert moved == {'transformer': False, 'other': True}


def test_a_damaged_record_stops_training_with_its_place(config_file, examples, small, tmp_path):
    damaged = tmp_path / 'examples'
    shutil.copytree(examples, damaged)
    [shard] = (damaged / 'Split-train').glob('*.tfrecord')
    body = bytearray(shard.read_bytes())
    for row in records.open_split(examples, 'train').index[::20]:  # one record of every batch or so
        body[int(row['offset']) + 12] ^= 1
    shard.write_bytes(bytes(body))
    with pytest.raises(UserError, match=r'\.tfrecord, record \d+ at byte \d+: the bytes were changed'):
        trainer.train(config.load(config_file), str(damaged), str(tmp_path / 'run'))


FLAGS = ['--set', 'train.steps=40', '--set', 'train.validate_every=20', '--set', 'train.average_checkpoints=4']


def model_run(root):
    [folder] = root.glob('train/*/model_run')
    return folder


def curve(root, tag='loss'):
    return dict(report.curves(str(model_run(root) / 'tensorboard'))[tag])


@pytest.mark.slow  # 12 s; test_resume.py kills one three times
def test_a_killed_run_resumes_to_the_same_weights(config_file, tmp_path):
    """SIGKILL, then SIGTERM, then to the end, dropout on: records, losses and weights are an uninterrupted run's."""
    whole, killed = tmp_path / 'whole', tmp_path / 'killed'

    def train(root, then=None):
        return command('pipelines.train', '--config', config_file, '--pipeline_root', str(root), *FLAGS,
                       before=killed_runs.recorded(f'{root}.ids', then))
    assert command('pipelines.prepare', '--config', config_file, '--pipeline_root', str(whole)).returncode == 0
    shutil.copytree(whole, killed)
    assert train(whole).returncode == 0
    assert train(killed, killed_runs.at_step(15)).returncode == -signal.SIGKILL
    terminated = train(killed, killed_runs.at_step(28, signal.SIGTERM))
    assert 'resuming at step 10 of 40' in terminated.stdout and 'SIGTERM: saved' in terminated.stderr
    assert terminated.returncode == loop.PREEMPTED == 42
    resumed = train(killed)
    assert resumed.returncode == 0 and 'resuming at step 28 of 40' in resumed.stdout, resumed.stderr
    ids = [killed_runs.records(f'{root}.ids') for root in (killed, whole)]
    assert ids[0] == ids[1] and len(ids[1]) == 40
    # The mean of the loop that SIGTERM cut in two is logged for its second part only; every other is the same.
    curves = [curve(root) for root in (killed, whole)]
    assert {*curves[1]} - {30} == {5, 10, 15, 20, 25, 35, 40}
    assert {step: loss for step, loss in curves[0].items() if step != 30} == {
        step: loss for step, loss in curves[1].items() if step != 30}
    assert curve(killed, 'validation/loss') == curve(whole, 'validation/loss')
    for name in ('weights.index', 'weights.data-00000-of-00001'):
        assert (model_run(killed) / name).read_bytes() == (model_run(whole) / name).read_bytes()


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(config_file, examples, small, tmp_path, capsys):
    run = str(tmp_path / 'run')
    resolved = config.load(config_file, ['train.steps=20', 'input.buckets=[16]'])
    found = trainer.train(resolved, examples, run)
    os.truncate(os.path.join(run, 'checkpoints', 'ckpt-20.data-00000-of-00001'), 1000)
    again = trainer.train(resolved, examples, run)
    assert again.resumed_at == 10 and again.averaged == found.averaged
    assert 'ckpt-20 is damaged: ckpt-20.data-00000-of-00001 has changed since it was written' in capsys.readouterr().out


@pytest.mark.parametrize('overrides, message', [
    ([], 'no TPU is named'), (['train.tpu=grpc://127.0.0.1:9'], 'nothing listens at grpc://127.0.0.1:9'),
    (['train.tpu=local'], 'no TPU answers at local'), (['train.tpu=grpc://'], 'nothing listens')])
def test_no_tpu_is_one_sentence_at_once(config_file, overrides, message):
    started = time.monotonic()
    with pytest.raises(UserError, match=message):
        strategy.make(config.load(config_file, ['train.strategy=tpu', *overrides]).train)
    assert time.monotonic() - started < 240  # TensorFlow itself would wait for ever


@pytest.mark.parametrize('value', [None, '{', '{}', json.dumps({'cluster': {'worker': []}, 'task': {'index': 0}})])
def test_multi_worker_needs_a_whole_tf_config(config_file, monkeypatch, value):
    monkeypatch.delenv('TF_CONFIG', raising=False)
    if value is not None:
        monkeypatch.setenv('TF_CONFIG', value)
    with pytest.raises(UserError, match='TF_CONFIG'):
        strategy.make(config.load(config_file, ['train.strategy=multi_worker_mirrored']).train)


def test_a_loss_that_is_no_number_stops_training_before_it_is_saved(config_file, examples, small, tmp_path):
    resolved = config.load(config_file, [*FLAGS[1::2], 'input.buckets=[16]', 'model.learning_rate_factor=1e30'])
    with pytest.raises(UserError, match=r'at step \d the loss is \w+\. It grew in \S+, whose weights are \S+ times .*'
                       r'--set model.clip_norm=1'):
        trainer.train(resolved, examples, str(tmp_path / 'run'))
    assert not checkpoints.present(str(tmp_path / 'run' / 'checkpoints'))


@pytest.mark.parametrize('name, compiled', [('multi30k_en_de', False), ('vgg_d_imagenet', False),
                                            ('learning_machine_nim', True)])
def test_auto_compiles_on_accelerators_and_where_it_was_faster(name, compiled):
    asked = {jit_: config.load(name, [f'train.jit={jit_}']) for jit_ in ('auto', 'true', 'false')}
    assert jit.decided(asked['auto'], accelerated=True)
    assert jit.decided(asked['auto'], accelerated=False) == compiled
    assert jit.decided(asked['true'], False) and not jit.decided(asked['false'], True)


def test_every_shipped_model_was_measured():
    names = [*shipped.paths()]
    assert {config.load(name).model_spec.name for name in names} <= set(jit.ON_CPU)


def test_checkpoints_of_other_phases_are_not_averaged():
    """A small crop's weights, or a network's before its phase, are no estimate of the last phase's."""
    paths = [f'checkpoints/checkpoint-{step}' for step in (3000, 4000, 5000, 6000, 6800)]
    for start, kept in ((0, 5), (4200, 3), (4000, 3), (6800, 1)):
        it = types.SimpleNamespace(phases=[types.SimpleNamespace(start=0), types.SimpleNamespace(start=start)])
        assert trainer._of_last_phase(it, paths) == paths[-kept:]


def test_units_of_steps_that_train_other_networks_add_up():
    totals = [{'loss/warp': (8.0, 4.0)}] * 2 + [{'loss/alias': (3.0, 3.0), 'loss/judge': (6.0, 6.0), 'l1': (9.0, 9.0)}]
    means, units = trainer._means(totals, 3)
    assert units == 4 + 4 + 6 and means == {'loss/warp': 2, 'loss/alias': 1, 'loss/judge': 1, 'l1': 1}
    assert trainer._means(totals[:2], 1) == ({'loss': 2}, 8) and 'loss' not in trainer._means(totals[:2], 3)[0]
