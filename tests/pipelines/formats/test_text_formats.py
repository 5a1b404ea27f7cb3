"""From a trained translator to formats that are handed over, and one whose tokenizer is another's."""
import dataclasses
import functools
import os
import shutil
import sys

import numpy as np
import pytest

from data_prep import UserError
from data_prep.text import subwords
from pipelines import predict
from pipelines.core import config, stage
from pipelines.core.pipeline import Pipeline
from pipelines.formats import runner
from pipelines.formats import served as served_format
from pipelines.serving import saved_model
from support import quick_stages, served
from support.text_data import FLAGS, LEARNED, WORDS, number_words


@pytest.fixture(scope='module')
def finished(config_file, translator_root, tmp_path_factory):
    """A pipeline whose model was evaluated, and its flags."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('OMP_NUM_THREADS', '1')  # CTranslate2's threads wait for each other by spinning
        root = shutil.copytree(translator_root, str(tmp_path_factory.mktemp('formats') / 'root'))
        yield (Pipeline(config.load(config_file, LEARNED), root, []),
               ['--config', config_file, '--pipeline_root', root, *FLAGS])


@pytest.mark.parametrize('name', [
    'tflite_float16', 'ctranslate2',  # the others by test_transformer_files.py, too, and the stage is that of all
    pytest.param('tflite', marks=pytest.mark.slow), pytest.param('onnx', marks=pytest.mark.slow)])
def test_a_format_translates_as_the_saved_model(finished, name):
    pipeline, _ = finished
    folder = pipeline.run(stage.get(f'export-{name}'))[name].uri
    lines = [*number_words(40), '', '   ', 'TWO']
    ours = saved_model.load(os.path.join(pipeline.outputs('export')['model'].uri, 'Format-Serving'))
    expected, found = (saved_model.run(model, lines) for model in (ours, runner.load(folder)))
    assert [each['answers'] for each in found] == [each['answers'] for each in expected]
    assert found[0]['answers'] == [WORDS[lines[0]]]
    assert [each['score'] for each in found] == pytest.approx([each['score'] for each in expected], abs=2e-2)


@pytest.mark.parametrize('name', [
    'ctranslate2', pytest.param('tflite', marks=pytest.mark.slow)])  # which test_formats.py pushes
def test_it_passes_the_gate_and_is_pushed(finished, name, monkeypatch, capsysbinary):
    pipeline, flags = finished
    blessing = pipeline.run(stage.get(f'evaluate-{name}'))[f'{name}_blessing']
    assert os.listdir(blessing.uri) == ['BLESSED'] and blessing.properties['metrics']['overall']['bleu'] > 80
    assert blessing.properties['changes']['bleu']['value'] == pytest.approx(0, abs=0.5)
    assert name in pipeline.run(stage.get('push'))['pushed_model'].properties['formats']
    capsysbinary.readouterr()
    read, write = os.pipe()
    os.write(write, b'one\ntwo\n')
    os.close(write)
    with open(read, encoding='utf-8') as lines:
        monkeypatch.setattr('sys.stdin', lines)
        predict.main([*flags, '--format', name])
    assert capsysbinary.readouterr().out == b'eins\nzwei\n'
    with served.running({'words': pipeline.outputs('push')['pushed_model'].properties['destination']},
                        open_version=functools.partial(served_format.load, name)) as server:
        url = f'{server.rest}/v1/models/words:predict'
        outputs = served.ask(url, {'inputs': ['one', '', 'two']})[1]['outputs']
        assert outputs['text'] == ['eins', '', 'zwei'] and outputs['truncated'] == [False] * 3
        assert served.ask(url, {'inputs': [{'b64': '/w=='}]})[1] == {
            'error': 'text: not UTF-8 (byte 0xff at position 0).'}
        page = served.ask(f'{server.rest}/models/words/try/text', {'text': 'two'})[1]
        assert page['answer'] == 'zwei' and page['score'] == pytest.approx(outputs['score'][2], abs=1e-3)


def test_a_missing_engine_is_named(finished, monkeypatch):
    folder = finished[0].run(stage.get('export-ctranslate2'))['ctranslate2'].uri
    monkeypatch.setitem(sys.modules, 'ctranslate2', None)
    with pytest.raises(UserError, match=r'not installed. Run `python -m pip install "ctranslate2>=4.8,<5"` and start'):
        runner.load(folder)


def test_a_stale_tokenizer_is_refused(finished):
    """The subwords of another corpus: the same number, the same network, other words."""
    pipeline, _ = finished
    export = stage.get('export-tflite_float16')
    texts = [' '.join(np.random.default_rng(i).choice([*WORDS, *WORDS.values()], 9)).title() for i in range(500)]
    stale = subwords.learn(texts, subwords.Config(pipeline.config.data.vocab_size))

    def spoiled(context):
        export.execute(context)
        with open(os.path.join(context.outputs['tflite_float16'], 'subwords.model'), 'wb') as file:
            file.write(stale)
    other = config.load(pipeline.config.source, [*LEARNED, 'export.calibration_examples=1'])  # an export of its own
    pipeline = Pipeline(other, pipeline.root, [])
    pipeline.run(quick_stages.get('export'))
    pipeline.run(dataclasses.replace(export, execute=spoiled))
    blessing = pipeline.run(stage.get('evaluate-tflite_float16'))['tflite_float16_blessing']
    assert os.listdir(blessing.uri) == ['NOT_BLESSED']
    assert any('from the SavedModel, more than max_drop 0.5 allows' in each for each in blessing.properties['reasons'])
