"""The export to CTranslate2: its own engine reads its own files and gives the same translations."""
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from data_prep import UserError, wmt
from data_prep.text import subwords
from keras_models import transformer
from keras_models.formats import transformer_ctranslate2 as engine
from keras_models.text import translator
from keras_models.text.translator import Inference
from keras_models.transformer import EOS, PAD, Config
from pipelines.core import config, stage
from pipelines.core.pipeline import Pipeline
from pipelines.formats import ctranslate2, export, runner, table
from pipelines.serving import saved_model
from pipelines.serving.kit import translate
from support.commands import ROOT, command
from support.copier import BASE, PIECES, batch, sentences
from support.text_data import FLAGS, LEARNED, WORDS, number_words

VARIANTS = {
    'post, sinusoids': {'N': 2},
    'pre, sinusoids, d_k > d_v': {'norm': 'pre', 'd_k': 11, 'd_v': 7},
    'pre, learned positions that end, d_k < d_v, names to spare': {
        'norm': 'pre', 'positions': 'learned', 'max_positions': 6, 'd_k': 5, 'd_v': 9, 'vocab_size': len(PIECES) + 3},
}


@pytest.fixture(scope='module', autouse=True)
def one_thread():
    """The engine's threads wait for each other by spinning, which on a machine that is busy takes minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('OMP_NUM_THREADS', '1')
        yield


@pytest.fixture(scope='module', params=[
    pytest.param(overrides, id=name, marks=() if overrides is VARIANTS['post, sinusoids'] else pytest.mark.slow)
    for name, overrides in VARIANTS.items()])
def model(request, trained_copier, tmp_path_factory):
    """Trained nets, their configuration, and the folder the engine loads."""
    c = Config(**{**BASE, **request.param})
    nets = trained_copier(c)
    folder = str(tmp_path_factory.mktemp('model'))
    engine.save(engine.specification(nets, c, PIECES, subwords.UNK, 64), folder)
    return nets, c, folder


def describe(folder, inference):
    """Write what `translate.py` reads beside the engine's own files."""
    learned = subwords.learn([' '.join(WORDS), ' '.join(WORDS.values())], subwords.Config(vocab_size=40))
    asked = json.dumps({'config': {'inference': dataclasses.asdict(inference)}}).encode()
    for name, content in {'landmark.json': asked, 'subwords.model': learned}.items():
        with open(os.path.join(folder, name), 'wb') as file:
            file.write(content)


@pytest.mark.parametrize('beam_size, alpha, extra_length', [(1, 0.0, 8), (4, 0.0, 8), (4, 0.6, 8), (4, 0.6, 0)])
def test_translations_are_ours_token_for_token(model, beam_size, alpha, extra_length):
    nets, c, folder = model
    inference = Inference(beam_size, alpha, extra_length, max_input_length=32)
    describe(folder, inference)
    theirs = translate.Translator(folder)
    source = sorted(sentences(80, 7), key=len)  # how long an answer may be depends on the source
    found = [answer for _, rows in itertools.groupby(source, len)
             for answer in theirs.translate([row[:-1] for row in rows])]
    ids, scores = translator.Translator(nets, c, inference)(batch(source, 10))
    for ours, score, [(answer, their_score)] in zip(ids.numpy().tolist(), scores.numpy(), found):
        assert answer == [i for i in ours if i != PAD]
        assert their_score == pytest.approx(score, abs=1e-3)
    ended = sum(answer[-1] == EOS for [(answer, _)] in found)
    assert ended > 60 if extra_length else 0 < ended < 80  # both the search and its end are compared


def test_log_probabilities_are_ours_and_a_weight_that_is_not_shows(model):
    nets, _, folder = model
    pairs = sentences(50, 3), sentences(50, 4)
    assert engine.difference(folder, nets, *pairs) < 1e-4
    for weight in nets['transformer'].weights:
        value = weight.numpy()
        weight.assign(value * 1.5 + 0.1)
        assert engine.difference(folder, nets, *pairs) > ctranslate2.TOLERANCE, weight.name
        weight.assign(value)


def test_normalisation_is_ours_where_its_epsilon_counts(tmp_path):
    """Embeddings so small that their variance is about epsilon."""
    c = Config(**{**BASE, 'norm': 'pre', 'positions': 'learned'})
    nets = transformer.build(c)
    for weight in nets['transformer'].weights:
        weight.assign(weight * (0.004 if 'embeddings' in weight.name else 1))
    engine.save(engine.specification(nets, c, PIECES, subwords.UNK, 64), str(tmp_path))
    pairs = sentences(20, 3), sentences(20, 4)
    assert engine.difference(str(tmp_path), nets, *pairs) < 1e-6
    (tmp_path / 'config.json').write_text((tmp_path / 'config.json').read_text().replace('1e-06', '1e-05'))
    assert engine.difference(str(tmp_path), nets, *pairs) > 1e-4


@pytest.mark.parametrize('byte_fallback', [False, True])
def test_word_pieces_without_tensorflow_are_those_with_it(byte_fallback):
    text = [*(ROOT / 'README.md').read_text('utf-8').splitlines()[:150], *WORDS.values(), 'Größe é e\u0301 ﬁn 12 ½']
    learned = subwords.learn(text, subwords.Config(500, 'wordpiece', normalization='nfkc', byte_fallback=byte_fallback))
    ours, theirs = subwords.Tokenizer(learned), translate.load_subwords(learned)
    odd = ['', '  ', 'onetwo  three\tfour\u00a0five', '日本語 ⁇ x', 'a▁b ▁ one', 'Ünïcode\u2028é\x00', '🙂fünf',
           'ﬁve Ⅳ', '<s> </s>']
    for line in text + odd:
        [ids] = ours.tokenize([line]).to_list()
        assert [*theirs.encode(line), EOS] == ids
        assert theirs.decode(ids[:-1]) == ours.detokenize(tf.constant([ids])).numpy()[0].decode()


@pytest.fixture(scope='module')
def finished(config_file, translator_root, tmp_path_factory):
    """A trained pipeline after the command a user types, and what that printed."""
    root = shutil.copytree(translator_root, str(tmp_path_factory.mktemp('engine') / 'root'))
    done = command('pipelines.export', '--to', 'ctranslate2', '--config', config_file, '--pipeline_root', root,
                   *FLAGS)
    assert done.returncode == 0, done.stderr
    return Pipeline(config.load(config_file, LEARNED), root, []), done.stdout


def test_lines_in_lines_out_without_tensorflow(finished):
    """`translate.py` as the command tells, in a process of its own, against the SavedModel in this one."""
    pipeline, printed = finished
    ours = saved_model.load(os.path.join(pipeline.outputs('export')['model'].uri, 'Format-Serving'))
    lines = number_words(60)
    lines += ['', '   ', 'one  TWO', '日本語 three', ' '.join(['four'] * 40)]
    expected = {key: value.numpy().tolist() for key, value in ours.serve(tf.constant(lines)).items()}
    texts = [text.decode() for text in expected['text']]
    assert texts[0] == WORDS[lines[0]]  # it learned

    path = printed.split(' --help`')[0].split()[-1]
    script = ('import runpy, sys\nsys.modules.update(tensorflow=None, tensorflow_text=None)\n'
              'sys.argv.pop(0)\nrunpy.run_path(sys.argv[0], run_name="__main__")\n')
    done = subprocess.run([sys.executable, '-c', script, path], input='\n'.join(lines) + '\n', capture_output=True,
                          text=True, timeout=120)
    # Of the last, at whose length it repeats itself, rounding decides how often.
    assert done.stdout.split('\n')[:-2] == texts[:-1], done.stderr
    assert done.stderr == f'line {len(lines)} is too long; only its beginning was used\n'

    answers = translate.Translator(os.path.dirname(path))(lines)
    assert [answer['truncated'] for answer in answers] == expected['truncated']
    for line, answer, score in zip(lines[:-1], answers, expected['score']):
        assert not line.strip() or answer['score'] == pytest.approx(score, abs=1e-3)
    bits = translate.Translator(os.path.dirname(path), 'int8')(lines)
    assert [answer['text'] for answer in bits[:60:5]] == [WORDS[line] for line in lines[:60:5]]  # lines of one word
    assert max(abs(a['score'] - b['score']) for a, b in zip(bits, answers)) > 1e-4  # it did round


def test_it_is_skipped_where_nothing_changed_and_lineage_leads_to_the_weights(finished):
    pipeline, _ = finished
    pipeline.run(stage.get('export-ctranslate2'))
    assert pipeline.skipped == ['export-ctranslate2']
    [(execution, _, outputs)] = pipeline.metadata.completed('export-ctranslate2')
    inputs = pipeline.metadata.inputs_of(execution)
    assert {pipeline.outputs('train')['model_run'].id, pipeline.outputs('prepare')['examples'].id} <= set(inputs)
    with open(os.path.join(outputs['ctranslate2'].uri, 'landmark.json'), encoding='utf-8') as file:
        assert json.load(file)['model_run'] == pipeline.outputs('train')['model_run'].digest
    loaded = runner.load(outputs['ctranslate2'].uri)
    [found] = loaded.predict(['one'])
    assert found['answers'] == [WORDS['one']] and loaded.description['format'] == 'ctranslate2'


def test_an_engine_that_answers_otherwise_leaves_nothing(finished, config_file, monkeypatch, tmp_path):
    """Sinusoids as the engine would make them, from position 1 on."""
    pipeline, _ = finished

    class Shifted(transformer.Stacks):
        def positions(self, pos):
            return super().positions(pos + 1)

    monkeypatch.setattr(engine, 'Stacks', Shifted)
    context = stage.Context(pipeline.config, {**pipeline.outputs('prepare'), **pipeline.outputs('train')},
                            {'ctranslate2': str(tmp_path)}, [], {}, pipeline)
    with pytest.raises(UserError, match=r'differs by .* from ours\. Install the version in requirements\.lock'):
        export.execute(table.FORMATS['ctranslate2'], context)
    assert os.listdir(tmp_path) == []


def test_what_it_cannot_do_is_a_sentence(config_file, tmp_path, monkeypatch):
    loaded = config.load(config_file)
    with pytest.raises(UserError, match=r'Run `python -m pipelines\.prepare` first'):
        Pipeline(loaded, str(tmp_path), []).run(stage.get('export-ctranslate2'))
    check = stage.get('export-ctranslate2').check
    with pytest.raises(UserError, match='holds models of text, tree; data.module data_prep.imagenet is for image'):
        check(config.load('demo_images'))
    spec = dataclasses.replace(loaded.model_spec, check=lambda *_: None)
    other = dataclasses.replace(loaded, model=object(), model_spec=spec, values={'model': {'module': 'x.y'}})
    with pytest.raises(UserError, match=r'keras_models\.transformer; model\.module is x\.y'):
        check(other)
    with pytest.raises(UserError, match='subwords.model is missing'):
        wmt.subword_model(str(tmp_path))
    monkeypatch.setitem(sys.modules, 'ctranslate2', None)  # as if it were not installed
    with pytest.raises(UserError, match='python -m pip install "ctranslate2>=4.8,<5"'):
        check(loaded)


def test_a_misspelt_engine_is_refused_and_needs_no_engine():
    script = ('import sys\nfrom pipelines import export, evaluate\nfrom pipelines.core import stage\n'
              'stage.get("export-ctranslate2"), stage.get("evaluate-onnx")\n'
              'assert not {"tensorflow", "ctranslate2", "onnx"} & set(sys.modules)')
    subprocess.run([sys.executable, '-c', script], check=True)
    done = command('pipelines.export', '--to', 'onxx')
    assert done.returncode == 2 and "invalid choice: 'onxx'" in done.stderr
