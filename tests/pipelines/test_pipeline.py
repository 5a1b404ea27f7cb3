"""The whole pipeline on a tiny corpus with the user's commands: real files, real Beam, real SavedModels."""
import json
import os
import pathlib
import re
import shutil

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf
import tensorflow_text  # noqa: F401

from data_prep import UserError, wmt
from data_prep.core import records
from keras_models.text import translator
from pipelines import evaluate, infra_validate, push
from pipelines.core import config, stage
from pipelines.core.pipeline import Pipeline
from pipelines.evaluation import corpus, gate
from pipelines.serving import labels, published, pusher, saved_model
from pipelines.training import checkpoints
from support.commands import command, exit_code, fork_fresh_processes
from support.text_data import FLAGS, LEARNED, WORDS


@pytest.fixture(scope='module')
def finished(translator_root, tmp_path_factory):
    """A copy of a pipeline root after `python -m pipelines.run`, and what it printed."""
    root = pathlib.Path(translator_root)
    printed = root.with_name('printed.txt').read_text('utf-8')
    return shutil.copytree(root, tmp_path_factory.mktemp('run') / 'root'), printed


@pytest.fixture(scope='module')
def pipeline(finished, config_file):
    return Pipeline(config.load(config_file, LEARNED), str(finished[0]), [])


@pytest.fixture(scope='module')
def model(pipeline):
    return saved_model.load(os.path.join(pipeline.outputs('export')['model'].uri, 'Format-Serving'))


def lines(pipeline, split='test'):
    part = records.open_split(pipeline.outputs('prepare')['examples'].uri, split)
    return wmt.examples(part.read(range(len(part))))[1]


def test_every_artifact_is_where_tfx_would_look(finished):
    root, printed = finished
    for pattern in ('prepare/*/examples/Split-train/*.tfrecord', 'prepare/*/examples/manifest.json',
                    'prepare/*/schema/schema.pbtxt', 'prepare/*/statistics/Split-test/FeatureStats.pb',
                    'train/*/model_run/weights.index', 'train/*/model_run/tensorboard/events*',
                    'export/*/model/Format-Serving/saved_model.pb',
                    'export/*/model/Format-Serving/assets.extra/tf_serving_warmup_requests',
                    'evaluate/*/blessing/BLESSED', 'evaluate/*/evaluation/eval_config.json',
                    'evaluate/*/report/report.html', 'evaluate/*/report/model_card.md',
                    'infra_validate/*/infra_blessing/INFRA_BLESSED', 'serving/tiny/*/saved_model.pb',
                    'metadata.sqlite'):
        assert len(list(root.glob(pattern))) >= 1, pattern
    assert not list(root.rglob('.partial-*'))
    for text in ('Unseen inputs', 'Artifacts', 'python -m pipelines.predict --config', '-m tensorboard.main --logdir'):
        assert text in printed


def test_it_learned(finished):
    [found] = [json.loads(path.read_text()) for path in finished[0].glob('evaluate/*/evaluation/metrics.json')]
    assert found['metrics']['overall']['bleu'] > 60
    assert set(found['metrics']) == {'overall', 'short', 'long'}


def test_a_second_run_skips_everything_and_says_so(finished, config_file):
    root, _ = finished
    again = command('pipelines.run', '--config', config_file, '--pipeline_root', str(root), *FLAGS)
    assert again.stdout.count('nothing it depends on has changed') == len(stage.STAGES)
    assert '0 stages run, 6 skipped' in again.stdout
    assert len(list((root / 'train').glob('[0-9]*'))) == 1


def test_a_stages_command_finds_what_run_has_done(finished, config_file):
    """The last; test_start.py runs the commands of all of them."""
    done = command('pipelines.push', '--config', config_file, '--pipeline_root', str(finished[0]), *FLAGS)
    assert done.returncode == 0, done.stderr
    assert 'push: nothing it depends on has changed since' in done.stdout


def test_the_next_commands_repeat_the_flags(finished, config_file):
    root, printed = finished
    [line] = [line.strip() for line in printed.splitlines() if line.strip().startswith('echo ')]
    assert f'--config {config_file} --set train.steps=300' in line and '--pipeline_root ' in line
    listed = command('pipelines.push', '--list', '--config', config_file, '--pipeline_root', str(root), *FLAGS)
    assert listed.returncode == 0 and 'whole' in listed.stdout


def test_a_misspelt_flag_is_refused(config_file):
    for flags, name in ((['--confg', 'my.yaml'], 'confg'), (['--stategy', 'mirrored'], 'stategy')):
        done = command('pipelines.run', *flags)
        assert done.returncode == 2, done.stderr
        assert f'--{name} is a flag of neither this command nor Beam' in done.stderr, done.stderr


def test_the_metrics_are_sacrebleus(pipeline, finished):
    [path] = finished[0].glob('evaluate/*/evaluation/predictions.tfrecord')
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in ('target', 'candidate', 'kind')}
    rows = [{name: value.numpy().decode() for name, value in tf.io.parse_single_example(record, features).items()}
            for record in tf.data.TFRecordDataset(str(path))]
    found = pipeline.outputs('evaluate')['evaluation'].properties['metrics']
    for name in ('overall', 'short', 'long'):
        some = [row for row in rows if name in ('overall', row['kind'])]
        answers, references = [row['candidate'] for row in some], [row['target'] for row in some]
        assert found[name]['bleu'] == pytest.approx(sacrebleu.corpus_bleu(answers, [references]).score, abs=1e-9)
        assert found[name]['exact_match'] == pytest.approx(np.mean([a == b for a, b in zip(answers, references)]))
    assert corpus.signature().startswith('nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp')


def test_both_signatures_and_the_batched_way_agree(model, pipeline):
    source = lines(pipeline)['source'][:8]
    direct = model.signatures['serving_default'](text=tf.constant(source))
    serialized = [tf.train.Example(features=tf.train.Features(feature={'source': tf.train.Feature(
        bytes_list=tf.train.BytesList(value=[line.encode()]))})).SerializeToString() for line in source]
    by_example = model.signatures['tf_examples'](examples=tf.constant(serialized))
    batched = saved_model.run(model, source)
    several = saved_model.run(model, source, batch_size=3)  # some of them decoded at once
    compiled = saved_model.run(model, source, jit=True)
    for key in ('text', 'score', 'truncated'):
        np.testing.assert_array_equal(direct[key], by_example[key])
    for results in (batched, several, compiled):
        assert [result['answers'][0].encode() for result in results] == direct['text'].numpy().tolist()
        np.testing.assert_allclose([result['score'] for result in results], direct['score'], atol=1e-4)
    explored = {key: value.numpy() for key, value in model.signatures['explore'](text=tf.constant(source)).items()}
    np.testing.assert_array_equal(explored['alternatives'][:, 0], direct['text'])
    np.testing.assert_allclose(explored['scores'][:, 0], direct['score'], atol=1e-4)
    for row, (line, text) in enumerate(zip(source, direct['text'].numpy())):
        assert b''.join(explored['target'][row]).strip() == text
        assert b''.join(explored['source'][row]).strip() == line.encode()
    assert explored['attention'].shape == (8, explored['target'].shape[1], explored['source'].shape[1])


def load_and_count(path, threads):
    """In a new process: how many threads an operation has once a model is loaded."""
    saved_model.load(path)
    assert tf.config.threading.get_intra_op_parallelism_threads() == threads


def test_a_model_is_loaded_with_the_cores_divided_between_batches(pipeline):
    cores = os.cpu_count() or 1
    threads = cores // min(4, cores) if cores > 1 else 0  # 0: all, as TensorFlow has it
    assert exit_code(load_and_count, f'{pipeline.outputs("export")["model"].uri}/Format-Serving', threads) == 0


def test_reloaded_equals_in_memory(model, pipeline):
    fresh = translator.Translation(*in_memory(pipeline))
    source = tf.constant(lines(pipeline)['source'][:8])
    for key, value in fresh.serve(source).items():
        np.testing.assert_array_equal(value, model.serve(source)[key])


@pytest.mark.slow
def test_a_canary_is_promoted_unless_it_is_worse_or_slower(pipeline, config_file, tmp_path, capsys):
    """The same network again, which changes nothing: too little for a threshold that asks for an improvement."""
    exported, destination = os.path.join(pipeline.outputs('export')['model'].uri, 'Format-Serving'), tmp_path / 'tiny'
    served = pusher.publish(exported, str(destination), {})
    shutil.copytree(exported, tmp_path / 'other')
    (tmp_path / 'other' / 'assets.extra' / 'changed').write_text('yes')
    tried = int(os.path.basename(pusher.publish(str(tmp_path / 'other'), str(destination), {}, canary=True)))
    labels.write(str(destination), 'tiny', canary=tried)

    def promote(*overrides):
        words = [*LEARNED, f'push.destination={destination}', 'canary.requests=4', *overrides]
        push.main(['--promote', '--config', config_file, '--pipeline_root', pipeline.root,
                   *(word for override in words for word in ('--set', override))])
        return capsys.readouterr().out
    for overrides, reason in (
            (['evaluate.thresholds={bleu: {max_drop: -1}}', 'canary.max_slowdown=1e-9'],
             r'bleu changed by \+0 from .*; it takes \S+ times as long, more than canary.max_slowdown 1e-09 allows'),
            (['evaluate.thresholds={bleu: {min: 0}}'], 'evaluate.thresholds bounds no change')):
        with pytest.raises(SystemExit) as left:
            promote(*overrides)
        assert left.value.code == 2 and re.search(reason, capsys.readouterr().err)
        assert labels.read(str(destination))['canary'] == tried
    said = promote('canary.max_slowdown=1e9')
    assert re.search(rf'canary {tried} compared with version \d+: bleu [\d.]+ \(\+0\), ', said)
    assert '4 of 4 requests answered alike' in said
    newest = published.versions(str(destination))[-1]
    assert newest.record['comparison']['changes']['bleu'] == 0 and newest.path != served
    assert labels.read(str(destination)) == {'stable': newest.number}


def test_predict_answers_every_line_in_order(finished, config_file, pipeline):
    """Text in, text out through the pushed model in a process of its own: empty, odd and very long lines included."""
    found = lines(pipeline)
    words = list(WORDS)
    odd = ['', '   ', 'one two', '日本語', '\tthree\x00four', ' '.join(words * 40), 'x' * 500]
    text = [*found['source'], *odd, *found['source'][::-1]]
    root = finished[0]
    done = command('pipelines.predict', '--model', str(root / 'serving' / 'tiny'), input='\n'.join(text) + '\n')
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split('\n')[:-1]
    n = len(found['source'])
    assert len(answers) == len(text)
    assert answers[:n] == answers[n + len(odd):][::-1]  # order, and independence of neighbours
    assert answers[n:n + 2] == ['', '']
    assert f'note: line {n + 4} is unlike the training text: 0%' in done.stderr  # the one in Japanese
    assert 'note: line 1 ' not in done.stderr
    assert len(answers[n + 5].split()) > 200  # 400 words in, translated in parts, not cut off
    flags = ['--config', config_file, '--pipeline_root', str(root), *FLAGS]
    pushed = command('pipelines.predict', *flags, input=found['source'][0])
    assert pushed.stdout == answers[0] + '\n'


def test_predict_names_what_it_cannot_read(finished, tmp_path):
    done = command('pipelines.predict', '--model', str(tmp_path), input='one\n')
    assert done.returncode == 2 and 'neither a SavedModel nor a folder of pushed versions' in done.stderr
    done = command('pipelines.predict', '--model', str(tmp_path / 'no'), input='one\n')
    assert done.returncode == 2 and 'there is no such folder' in done.stderr and 'Traceback' not in done.stderr


@pytest.fixture
def forked(monkeypatch):
    """Infra validation's fresh process is forked."""
    monkeypatch.setattr(infra_validate, 'subprocess', infra_validate.subprocess)  # put back afterwards
    fork_fresh_processes()


def test_no_function_must_be_compiled_unless_asked(pipeline, tmp_path, forked):
    """With export.jit the model answers the same here, and infra validation says why no server would take it."""
    exported = os.path.join(pipeline.outputs('export')['model'].uri, 'Format-Serving')
    assert not infra_validate.must_compile(exported)
    compiled = translator.Translation(*in_memory(pipeline), jit=True)
    tf.saved_model.save(compiled, str(tmp_path), signatures=compiled.signatures())
    assert infra_validate.must_compile(str(tmp_path))
    ok, reason = infra_validate.in_fresh_process(str(tmp_path), 120)
    assert not ok and 'marked for XLA' in reason
    source = tf.constant(lines(pipeline)['source'][:4])
    plain, reloaded = saved_model.load(exported), tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(reloaded.serve(source)['text'], plain.serve(source)['text'])


def in_memory(pipeline):
    """What an export is made from: the trained nets, configuration, decoding and tokenizer."""
    c = pipeline.config
    nets = c.model_spec.build(c.model)
    checkpoints.restore(nets, os.path.join(pipeline.outputs('train')['model_run'].uri, 'weights'))
    return nets, c.model, c.inference, wmt.assets(pipeline.outputs('prepare')['examples'].uri)


def test_infra_validation_refuses_what_a_server_could_not_serve(pipeline, tmp_path, forked):
    exported = os.path.join(pipeline.outputs('export')['model'].uri, 'Format-Serving')
    for name, damage in {
        'could not serve it': lambda folder: os.remove(folder / 'variables/variables.index'),
    }.items():
        copy = tmp_path / name.replace(' ', '_')
        shutil.copytree(exported, copy)
        damage(copy)
        ok, reason = infra_validate.in_fresh_process(str(copy), 120)
        assert not ok and name in reason, reason
    assert infra_validate.in_fresh_process(exported, 120)[0]
    ok, reason = infra_validate.in_fresh_process(exported, 0.001)
    assert not ok and 'longer than infra_validate.max_seconds 0.001' in reason


def test_a_model_below_its_threshold_is_not_pushed_and_compared_with_the_blessed_one(finished, config_file):
    """An untrained candidate, by value and by change; test_decide.py has each alone."""
    root, _ = finished
    before = sorted(os.listdir(root / 'serving' / 'tiny'))
    done = command('pipelines.run', '--config', config_file, '--pipeline_root', str(root), *FLAGS, '--set',
                   'train.steps=2', '--set', 'evaluate.thresholds.bleu={min: 101, max_drop: 5}')
    assert done.returncode == 2, done.stdout
    assert 'not pushed: ' in done.stderr and 'outside' in done.stderr and 'Traceback' not in done.stderr
    assert 'bleu changed by -' in done.stderr and 'from the blessed model' in done.stderr
    assert sorted(os.listdir(root / 'serving' / 'tiny')) == before
    path = max(root.glob('evaluate/*/evaluation/predictions.tfrecord'), key=os.path.getmtime)
    [record] = list(tf.data.TFRecordDataset(str(path)).take(1))
    assert {'candidate', 'baseline'} <= set(tf.train.Example.FromString(record.numpy()).features.feature)


ROWS = [('eins', 'eins', 'zwei'), ('zwei', 'zwei', 'drei'), ('drei', 'eins', 'eins')]  # target, candidate, baseline


@pytest.mark.parametrize('thresholds, models, blessed, reason', [
    ({'exact_match': {'min': 0.7}}, ['candidate'], False, 'exact_match is 0.6667, outside min 0.7'),
    # The baseline's exact match is 0: an improvement over it is one, though TFMA divides by it.
    ({'exact_match': {'max_drop': 0.0}}, ['candidate', 'baseline'], True, 'all thresholds are met')])
def test_what_blesses_and_what_does_not(config_file, tmp_path, thresholds, models, blessed, reason):
    """Through TFMA itself, on three answers; test_decide.py has every other case."""
    loaded = config.load(config_file)
    loaded.evaluate.thresholds, loaded.evaluate.slices = thresholds, []
    path = str(tmp_path / 'predictions.tfrecord')
    with tf.io.TFRecordWriter(path) as writer:
        for row in ROWS:
            writer.write(evaluate._example(dict(zip(('target', 'candidate', 'baseline'), row))))
    _, validation = evaluate.analyse(loaded, path, str(tmp_path), models)
    verdict = gate.decide(thresholds, validation, {} if 'baseline' in models else None)
    assert verdict.blessed == blessed and reason in '; '.join(verdict.reasons), verdict


@pytest.mark.parametrize('override, message', [
    ('evaluate.thresholds.blue={min: 3}', "there is no metric 'blue'"),
    ('evaluate.thresholds.bleu={mn: 3}', "evaluate.thresholds.bleu holds ['mn']"),
    ('evaluate.thresholds.bleu={}', 'evaluate.thresholds.bleu holds nothing'),
    ('evaluate.thresholds.bleu={max_drop: 1, max_rise: 1}', 'exclude each other'),
    ('evaluate.split=tset', "evaluate.split must be one of train, validation, test; it is 'tset'")])
def test_a_gate_that_would_stand_open_is_refused_before_any_work(config_file, override, message):
    with pytest.raises(UserError) as error:
        stage.get('evaluate').check(config.load(config_file, [override]))
    assert message in str(error.value)


def test_a_stage_names_the_command_that_makes_its_input(config_file, tmp_path):
    with pytest.raises(UserError, match=r'Run `python -m pipelines\.prepare` first'):
        Pipeline(config.load(config_file), str(tmp_path), []).run(stage.get('train'))


def test_lineage_leads_from_the_push_to_the_data(pipeline):
    found = {name: pipeline.outputs(name) for name in stage.STAGES}
    [(push, _, _)] = pipeline.metadata.completed('push')
    inputs = set(pipeline.metadata.inputs_of(push))
    assert {found['export']['model'].id, found['evaluate']['blessing'].id,
            found['infra_validate']['infra_blessing'].id} <= inputs
    export = next(i for i, _, outputs in pipeline.metadata.completed('export')
                  if outputs['model'].id == found['export']['model'].id)
    assert {found['train']['model_run'].id, found['prepare']['examples'].id} <= set(pipeline.metadata.inputs_of(export))


def test_a_folder_that_cannot_be_written_is_a_sentence(config_file, tmp_path):
    blocked = tmp_path / 'blocked'
    blocked.write_text('a file where a folder should be')
    done = command('pipelines.prepare', '--config', config_file, '--pipeline_root', str(blocked / 'root'))
    assert done.returncode == 2 and 'Traceback' not in done.stderr and str(blocked) in done.stderr, done.stderr


def fill_disk():
    def full(path, data):
        open('/dev/full', 'wb', 0).write(data)
    records.write_atomically = full


def test_a_full_disk_is_a_sentence_and_loses_nothing(finished, config_file, tmp_path):
    """/dev/full says ENOSPC to every write: a checkpoint folder that leads there stands for a full disk."""
    root = tmp_path / 'root'
    shutil.copytree(finished[0], root)
    done = command('pipelines.prepare', '--config', config_file, '--pipeline_root', str(root), '--set',
                   'data.max_length=100', before=fill_disk)
    assert done.returncode == 2 and 'No space left on device' in done.stderr, done.stderr
    assert 'Traceback' not in done.stderr
    assert len(list(root.glob('prepare/[0-9]*/examples/manifest.json'))) == 1  # the good one
