"""From trees to a served parser with the user's commands (Vaswani et al. 6.3)."""
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from data_prep import treebank
from data_prep.core import records
from data_prep.trees import tree_graph, trees
from pipelines.core import config, stage
from pipelines.core.pipeline import Pipeline
from pipelines.evaluation import parseval
from pipelines.formats import runner
from pipelines.reporting import answers
from pipelines.serving import saved_model
from support.commands import command
from support.tiny_treebank import corpus

CONFIG = """
name: parsing
data:
  module: data_prep.treebank
  folder: {folder}
  train: [bank]
  validation_fraction: 0.1
  test_fraction: 0.1
  vocab_size: 130
input: {{buckets: [32, 64], tokens: 1024}}
model: {{module: keras_models.transformer, N: 1, norm: pre, d_model: 64, d_ff: 128, h: 4, P_drop: 0,
         preset: own_data}}
inference: {{extra_length: 60}}
train: {{steps: 300, log_every: 100, checkpoint_every: 100, validate_every: 300, average_checkpoints: 1}}
evaluate:
  slices: [kind]
  thresholds: {{bracket_f1: {{min: 60, max_drop: 5}}, well_formed: {{min: 0.5}}}}
  drift: {{bracket_f1: {{max_drop: 1}}}}
"""


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """A pipeline after `python -m pipelines.run`, and what it printed."""
    folder = tmp_path_factory.mktemp('parsing')
    (folder / 'bank').mkdir()
    for number in range(40):
        (folder / 'bank' / f'{number}.mrg').write_text('\n'.join(corpus(40, number)))
    (folder / 'parsing.yaml').write_text(CONFIG.format(folder=folder))
    done = command('pipelines.run', '--config', str(folder / 'parsing.yaml'), '--pipeline_root', str(folder / 'root'))
    assert done.returncode == 0, done.stdout + done.stderr
    return Pipeline(config.load(str(folder / 'parsing.yaml')), str(folder / 'root'), []), done.stdout


def rows(pipeline):
    uri = pipeline.outputs('evaluate')['evaluation'].uri
    return answers.read(os.path.join(uri, 'predictions.tfrecord'))


def test_the_gate_shows_brackets_as_parseval_counts_them(finished):
    pipeline, printed = finished
    with open(os.path.join(pipeline.outputs('evaluate')['evaluation'].uri, 'metrics.json')) as file:
        found = json.load(file)
    sums = sum(parseval.counts(row['target'], row['candidate']) for row in rows(pipeline))
    branching = sum(parseval.counts(row['target'], parseval.right_branching(row['target'])) for row in rows(pipeline))
    overall = found['metrics']['overall']
    assert set(overall) == set(treebank.METRICS)
    assert overall['bracket_f1'] == pytest.approx(parseval.score('f1', sums))
    assert overall['right_branching_f1'] == pytest.approx(parseval.score('f1', branching))
    assert overall['right_branching_f1'] < overall['bracket_f1']
    assert overall['well_formed'] == pytest.approx(np.mean([float(row['candidate_well_formed'])
                                                            for row in rows(pipeline)]))
    assert 'COLLINS.prm' in found['protocol']['bracket_f1'] and found['blessed']
    assert f'bracket_f1 {overall["bracket_f1"]:.4g}' in printed and 'bracket_f1 by kind: ' in printed
    report = os.path.join(pipeline.outputs('evaluate')['report'].uri, 'report.html')
    with open(report) as file:
        assert 'right branching f1' in file.read()


def test_every_answer_is_a_tree_of_the_words_asked_about(finished):
    pipeline, _ = finished
    for row in rows(pipeline):
        [tree] = trees.parse(row['candidate'])
        assert ' '.join(leaf.word for leaf in tree.leaves()) == row['source']


def test_predict_answers_a_sentence_with_a_tree(finished, tmp_path):
    pipeline, _ = finished
    asked = ['the dog sees 3 birds .', '', 'Ｎever seen words , (or brackets) !']
    done = command('pipelines.predict', '--config', pipeline.config.source, '--pipeline_root', pipeline.root,
                   input='\n'.join(asked) + '\n')
    assert done.returncode == 0, done.stderr
    one, nothing, other = done.stdout.splitlines()
    assert one == '(S (NP (XX the) (XX dog)) (VP (XX sees) (NP (XX 3) (XX birds))) (. .))' and nothing == ''
    [tree] = trees.parse(other)
    assert [leaf.word for leaf in tree.leaves()] == 'Ｎever seen words , -LRB-or brackets-RRB- !'.split()


def test_what_is_served_ends_with_the_tree(finished):
    pipeline, _ = finished
    version = saved_model.load(os.path.join(pipeline.outputs('export')['model'].uri, 'Format-Serving'))
    asked = [row['source'] for row in rows(pipeline)[:5]]
    served = version.signatures['serving_default'](text=tf.constant(asked))
    assert [tree.decode() for tree in served['text'].numpy()] == [row['candidate'] for row in rows(pipeline)[:5]]
    assert served['well_formed'].numpy().tolist() == [row['candidate_well_formed'] == '1' for row in rows(pipeline)[:5]]


def test_a_sentence_longer_than_the_model_takes_is_parsed_in_parts(finished):
    pipeline, _ = finished
    version = saved_model.load(os.path.join(pipeline.outputs('export')['model'].uri, 'Format-Serving'))
    words = ' '.join(['the dog sees'] * 300)
    [found] = saved_model.run(version, [words])
    assert found['parts'] > 1 and isinstance(found['well_formed'], bool)
    assert ' '.join(leaf.word for tree in trees.parse(found['answers'][0]) for leaf in tree.leaves()) == words
    reference = str(trees.Tree('S', tuple(trees.Tree('XX', word=word) for word in words.split())))
    assert parseval.counts(reference, found['answers'][0])[2] > 1


FORMATS = ('tflite', 'tflite_float16', 'tflite_int8', 'onnx', 'ctranslate2')


@pytest.mark.slow  # 10 s each; that of translations is the same stage
@pytest.mark.parametrize('name', FORMATS)
def test_a_format_passes_the_gate_of_brackets(finished, name, monkeypatch):
    monkeypatch.setenv('OMP_NUM_THREADS', '1')  # CTranslate2's threads wait for each other by spinning
    pipeline, _ = finished
    pipeline.run(stage.get(f'export-{name}'))
    blessing = pipeline.run(stage.get(f'evaluate-{name}'))[f'{name}_blessing']
    assert os.listdir(blessing.uri) == ['BLESSED']
    assert blessing.properties['changes']['bracket_f1']['value'] == pytest.approx(0, abs=1)


@pytest.mark.parametrize('name', [FORMATS[0], *(pytest.param(name, marks=pytest.mark.slow) for name in FORMATS[1:])])
def test_a_format_parses_as_the_saved_model(finished, name, monkeypatch):
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    pipeline, _ = finished
    folder = pipeline.run(stage.get(f'export-{name}'))[name].uri
    asked = ['the dog sees 3 birds .', '', 'Ｎever seen words , (or brackets) !']
    ours = saved_model.load(os.path.join(pipeline.outputs('export')['model'].uri, 'Format-Serving'))
    for line, expected, found in zip(asked, *(saved_model.run(model, asked) for model in (ours, runner.load(folder)))):
        assert found['answers'] == expected['answers']
        assert found['well_formed'] == expected.get('well_formed', False) and found['truncated'] is False
        assert bool(line) == bool(found['score'])
    alone = subprocess.check_output([sys.executable, 'parse.py', asked[0]], cwd=folder, text=True)
    assert alone == '(S (NP (XX the) (XX dog)) (VP (XX sees) (NP (XX 3) (XX birds))) (. .))\n'


@pytest.mark.parametrize('name', ['tflite', pytest.param('ctranslate2', marks=pytest.mark.slow)])
def test_well_formed_hypotheses_are_preferred_in_every_format(finished, name, monkeypatch):
    """Sentences unlike those learned from, whose best hypotheses need repair; training is not repeated."""
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    pipeline, _ = finished
    draw = random.Random(0)
    asked = [' '.join(draw.choice('the dog tree sees knows 7 birds .'.split()) for _ in range(n % 9 + 2))
             for n in range(60)]

    def parsed(run):
        run.run(stage.get('export'))
        ours = saved_model.load(os.path.join(run.outputs('export')['model'].uri, 'Format-Serving'))
        return ours, saved_model.run(ours, asked)
    model, plain = parsed(pipeline)
    file = os.path.join(os.path.dirname(pipeline.root), 'parsing.yaml')
    preferring = Pipeline(config.load(file, ['inference.prefer_well_formed=true']), pipeline.root, [])
    chosen, ours = parsed(preferring)
    more = model.signatures['explore'](text=tf.constant(asked))
    again = chosen.signatures['explore'](text=tf.constant(asked))
    mended = 0
    for row, (before, found) in enumerate(zip(plain, ours)):
        assert found['well_formed'] >= before['well_formed']
        assert found['score'] == pytest.approx(before['score'], rel=1e-5) or not before['well_formed']
        assert again['alternatives'][row, 0] == found['answers'][0]
        places = np.flatnonzero(more['alternatives'][row].numpy() == found['answers'][0].encode())
        assert min(abs(more['scores'][row].numpy()[places] - found['score'])) < 1e-4
        mended += found['well_formed'] and not before['well_formed']
    assert mended >= 3
    folder = preferring.run(stage.get(f'export-{name}'))[name].uri
    theirs = saved_model.run(runner.load(folder), asked)
    if name == 'ctranslate2':  # its search stops earlier
        assert sum(found['well_formed'] for found in theirs) >= sum(found['well_formed'] for found in plain) + 2
    else:
        assert [found['answers'] for found in theirs] == [found['answers'] for found in ours]


def test_records_hold_what_the_files_say(finished):
    pipeline, _ = finished
    part = records.open_split(pipeline.outputs('prepare')['examples'].uri, 'test')
    asked, columns = treebank.examples(part.read(range(len(part))))
    linear = [trees.linear(*trees.parse(tree)) for tree in columns['target']]
    assert [words for words, _ in linear] == asked == columns['source']
    found, well_formed = tree_graph.delinearise(tf.constant(asked), tf.constant([text for _, text in linear]))
    assert [tree.decode() for tree in found.numpy()] == columns['target'] and well_formed.numpy().all()
