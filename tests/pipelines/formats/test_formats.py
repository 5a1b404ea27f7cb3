"""From a trained image classifier to formats that are handed over, and to those that must not be."""
import base64
import csv
import dataclasses
import functools
import io
import os
import re
import signal
import subprocess
import sys

import grpc
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from data_prep import UserError
from keras_models import ModelError
from keras_models.formats import tflite_file
from pipelines import evaluate, lineage, predict, push
from pipelines.core import config, stage
from pipelines.core.pipeline import Pipeline
from pipelines.evaluation import verification
from pipelines.formats import runner
from pipelines.formats import served as served_format
from pipelines.formats.table import FORMATS
from pipelines.serving import published, pusher, saved_model
from support import quick_stages, served
from support.commands import command, start

# Classes that differ in colour or brightness alone, so that two channels that change places, or another mean, show.
COLOURS = {'red': (210, 60, 60), 'blue': (60, 60, 210), 'dark': (50, 50, 50), 'bright': (220, 220, 220)}
CONFIG = """\
name: colours
data:
  module: data_prep.imagenet
  train: [{folder}]
  validation_fraction: 0.1
  test_fraction: 0.2
input: {{rows: 16, crop: 16, scales: [18], flip: false, colour: 0}}
model:
  module: keras_models.prelu_net
  layers: ['3x3, 8', '2x2 maxpool, /2', 'spp, {{2, 1}}', 'fc, 16']
  learning_rate: 0.002
inference: {{views: [ten_crop]}}
train: {{steps: 60, log_every: 30, checkpoint_every: 60, validate_every: 60, average_checkpoints: 1}}
evaluate: {{thresholds: {{top1_error: {{max: 0.1}}}}, drift: {{top1_error: {{max_rise: 0.05}}}}}}
"""


def photograph(name, seed):
    draw = np.random.default_rng(seed)
    height, width = draw.integers(18, 40, 2)
    return Image.fromarray(np.clip(draw.normal(COLOURS[name], 15, (height, width, 3)), 0, 255).astype(np.uint8))


@dataclasses.dataclass
class Finished:
    """A folder of images, the flags of a configuration, its pipeline, and the pushed version."""
    folder: str
    flags: list[str]
    pipeline: Pipeline
    version: str

    def run(self, *names):
        return [self.pipeline.run(quick_stages.get(name)) for name in names][-1]


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """A model that was pushed as a SavedModel and for TensorFlow Lite."""
    folder = tmp_path_factory.mktemp('colours')
    for name in COLOURS:
        (folder / 'images' / name).mkdir(parents=True)
        for seed in range(40):
            photograph(name, seed).save(folder / 'images' / name / f'{seed:02}.jpg', quality=95)
    (folder / 'colours.yaml').write_text(CONFIG.format(folder=folder / 'images'))
    flags = ['--config', str(folder / 'colours.yaml'), '--pipeline_root', str(folder / 'root')]
    done = Finished(folder, flags, Pipeline(config.load(flags[1]), flags[3], []), '')
    done.run(*stage.STAGES[:-1], 'export-tflite', 'evaluate-tflite')
    done.version = done.run('push')['pushed_model'].properties['path']
    return done


def verdict(outputs, name):
    """What the gate said of a format: the word, and the reasons."""
    [word] = os.listdir(outputs[f'{name}_blessing'].uri)
    with open(os.path.join(outputs[f'{name}_blessing'].uri, word), encoding='utf-8') as file:
        return word, file.read()


def test_a_format_is_pushed_inside_the_version(finished, capsys):
    """Its files have hashes, are listed, and are the program, the network and what the program reads."""
    record = published.verify(finished.version)
    files, beside = record['files'], 'formats/tflite/'
    inside = {file.removeprefix(beside) for file in files if file.startswith(beside)}
    assert inside == {'classifier.tflite', 'classify.py', 'networks.py', 'resampling.py', 'landmark.json',
                      'labels.json', 'pixels.npz'}
    assert {'saved_model.pb'} < {*files}
    kit = os.path.dirname(finished.version) + '.kit'
    with open(os.path.join(kit, 'README.md'), encoding='utf-8') as file:
        assert 'The version also holds the model as tflite, in its folder `formats`' in file.read()
    push.main([*finished.flags, '--list'])
    assert 'whole, with tflite, serving loads this one' in capsys.readouterr().out


def test_its_report_can_be_computed_again(finished):
    [report] = (finished.folder / 'root').glob('evaluate-tflite/*/tflite_report/report.html')
    assert 'Change from the SavedModel' in report.read_text()
    assert '- Format: tflite, written from the same weights' in (report.parent / 'model_card.md').read_text()
    findings = verification.verify(verification.opened(str(report)))
    assert {'top1_error', 'examples'} <= {each.what for each in findings} and all(each.equal for each in findings)


def test_lineage_leads_from_the_version_to_the_format(finished, capsys):
    lineage.main([*finished.flags])
    printed = capsys.readouterr().out
    for name in ('export-tflite', 'evaluate-tflite', 'train', 'prepare'):
        assert re.search(rf'─ {name} \d+, ', printed), name
    [digest] = re.findall(r'─ tflite ([0-9a-f]{64})', printed)
    assert digest == finished.pipeline.outputs('export-tflite')['tflite'].digest


def test_predict_runs_it_as_the_saved_model(finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in COLOURS:
        photograph(name, 99).save(f'{name}.png')
    (tmp_path / 'broken.jpg').write_bytes(b'\xff\xd8')
    tables = {}
    for flags in ([], ['--format', 'tflite']):
        predict.main([*finished.flags, *flags, '--out', 'out', '.'])
        with open('out/predictions.csv', encoding='utf-8') as file:
            tables[len(flags)] = {row['file']: row for row in csv.DictReader(file)}
    assert [tables[2][f'./{name}.png']['label_1'] for name in COLOURS] == [*COLOURS]
    for file, row in tables[0].items():
        assert bool(row['error']) == bool(tables[2][file]['error']) == (file == './broken.jpg')
        other = tables[2][file]
        assert row['label_1'] == other['label_1']
        assert row['error'] or float(row['probability_1']) == pytest.approx(float(other['probability_1']), abs=2e-4)
    with pytest.raises(SystemExit):
        predict.main([*finished.flags, '--format', 'onnx', 'red.png'])
    assert 'was pushed without onnx. Run `' in capsys.readouterr().err


def over_grpc(address, model, name, values):
    """A served model's outputs for strings, as lists."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    with grpc.insecure_channel(address) as channel:
        response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)
    outputs = {key: tf.make_ndarray(each) for key, each in response.outputs.items()}
    return {key: (each.astype(str) if each.dtype == object else each).tolist() for key, each in outputs.items()}


def test_the_server_answers_with_it_as_predict_does(finished, tmp_path, monkeypatch):
    """Over REST, gRPC and the page."""
    monkeypatch.chdir(tmp_path)
    for share in range(1, 6):  # between two classes, so that the probabilities differ
        ends = (photograph(name, share).resize((30, 20)) for name in ('red', 'dark'))
        Image.blend(*ends, share / 6).save(f'{share}.png')
    files = sorted(tmp_path.glob('*.png'))
    predict.main([*finished.flags, '--format', 'tflite', *map(str, files)])
    with open('predictions/predictions.csv', encoding='utf-8') as file:
        expected = [[(row[f'label_{i}'], row[f'description_{i}'], row[f'probability_{i}']) for i in range(1, 5)]
                    for row in csv.DictReader(file)]
    images = [file.read_bytes() for file in files]
    with start('pipelines.serve', os.path.dirname(finished.version), '--format', 'tflite', '--rest_port', '0',
               '--grpc_port', '0') as server:
        try:
            assert ' is served as tflite, loaded in' in server.stdout.readline()
            [(rest, rpc)] = re.findall(r'REST at (\S+), gRPC at (\S+);', server.stdout.readline())
            model = f'{rest}/v1/models/colours'
            inputs = [{'b64': base64.b64encode(image).decode()} for image in images]
            status, answer = served.ask(f'{model}:predict', {'inputs': inputs})
            assert status == 200
            for found in (answer['outputs'], over_grpc(rpc, 'colours', 'image', images)):
                columns = zip(found['labels'], found['descriptions'], found['probabilities'])
                assert [[(label, text, f'{p:.4f}') for label, text, p in zip(*row)] for row in columns] == expected
            page = served.ask(f'{rest}/models/colours/try/image', images[2], [('Content-Type', 'image/png')])[1]
            assert [each['label'] for each in page['classes']] == [label for label, *_ in expected[2]]
            assert f'version {served.version_of(finished.version)} as tflite' in served.ask_raw(rest)[1].decode()
            assert b'Change from the SavedModel' in served.ask_raw(f'{rest}/models/colours/report')[1]
            broken = base64.b64encode(images[0][:60]).decode()
            assert served.ask(f'{model}:predict', {'inputs': [*inputs, {'b64': broken}]})[0] == 400
            assert served.ask(f'{model}:predict', {'inputs': []}) == (200, {
                'outputs': dict.fromkeys(('labels', 'descriptions', 'probabilities'), [])})
            definitions = served.ask(f'{model}/metadata')[1]['metadata']['signature_def']['signature_def']
            assert [*definitions] == ['serving_default']
        finally:
            server.send_signal(signal.SIGTERM)


def test_served_versions_change_and_one_without_the_format_is_passed_over(finished, tmp_path):
    model, tflite = (finished.pipeline.outputs(name)[key].uri for name, key in (
        ('export', 'model'), ('export-tflite', 'tflite')))
    destination = str(tmp_path / 'colours')

    def publish(formats):
        return pusher.publish(os.path.join(model, 'Format-Serving'), destination, {}, formats)
    first = publish({'tflite': tflite})
    with served.running({'colours': destination},
                        open_version=functools.partial(served_format.load, 'tflite')) as server:
        def states():
            server.look()
            found = served.ask(f'{server.rest}/v1/models/colours')[1]['model_version_status']
            return {int(each['version']): (each['state'], each['status']['error_message']) for each in found}
        without = served.version_of(publish({}))
        found = states()
        assert found[served.version_of(first)] == ('AVAILABLE', '') and found[without][0] == 'END'
        assert 'was pushed without tflite. Run `python -m pipelines.export --to tflite`, `' in found[without][1]
        again = served.version_of(pusher.rollback(destination))
        assert states()[again] == ('AVAILABLE', '')
        changed = publish({'tflite': tflite})
        with open(os.path.join(changed, 'formats', 'tflite', 'classifier.tflite'), 'ab') as file:
            file.write(b'\0')
        found = states()
        assert found[again][0] == 'AVAILABLE'
        assert 'classifier.tflite has changed since the push' in found[served.version_of(changed)][1]


def test_a_model_without_the_format_is_not_served(finished, tmp_path):
    destination = os.path.dirname(finished.version)
    run = command('pipelines.serve', destination, '--format', 'onnx')
    assert run.returncode == 2 and re.fullmatch(
        r'error: \S+/colours/\d+ was pushed without onnx\. Run `python -m pipelines\.export --to onnx`, `python -m '
        r'pipelines\.evaluate --format onnx` and `python -m pipelines\.push`\.\n', run.stderr)
    with pytest.raises(UserError, match=r'without ctranslate2\. No model of keras_models\.prelu_net for data_prep\.'
                                        r'imagenet has that format: leave out --format\.'):
        runner.find('ctranslate2', destination)


def test_its_program_needs_no_tensorflow_and_nothing_of_this_project(finished, tmp_path):
    """As a user copies it; the engine's Python package has other names than TensorFlow's."""
    photograph('blue', 99).save(tmp_path / 'one.jpg', quality=95)
    script = ('import runpy, sys, types\nfrom tensorflow.lite.python import interpreter\n'
              'sys.modules.update({name: None for name in list(sys.modules) if name.split(".")[0] == "tensorflow"})\n'
              'engine = types.ModuleType("tflite_runtime.interpreter")\nengine.Interpreter = interpreter.Interpreter\n'
              'sys.modules.update({"tflite_runtime": types.ModuleType("tflite_runtime"), engine.__name__: engine})\n'
              'sys.argv.pop(0)\nsys.path.insert(0, sys.argv[0].rpartition("/")[0])\n'
              'runpy.run_path(sys.argv[0], run_name="__main__")\n')
    program = os.path.join(finished.version, 'formats', 'tflite', 'classify.py')
    done = subprocess.run([sys.executable, '-c', script, program, 'one.jpg'], cwd=tmp_path, capture_output=True,
                          text=True, env={**os.environ, 'PYTHONPATH': ''})
    assert done.stdout.split('\t')[:2] == ['one.jpg', 'blue'], done.stderr


def test_two_channels_that_changed_places_are_refused(finished, monkeypatch, capsys):
    convert = tflite_file.convert

    def swapped(part, **arguments):
        function = tf.function(lambda image: part.function(image[..., ::-1]), part.function.input_signature,
                               autograph=False)
        return convert(dataclasses.replace(part, function=function), **arguments)
    monkeypatch.setattr(tflite_file, 'convert', swapped)
    word, reasons = verdict(finished.run('export-tflite_float16', 'evaluate-tflite_float16'), 'tflite_float16')
    assert word == 'NOT_BLESSED'
    assert re.search(r'top1_error is 0\.\d+, outside max 0\.1', reasons)
    assert re.search(r'top1_error changed by \+0\.\d+ from the SavedModel, more than max_rise 0\.05 allows', reasons)
    capsys.readouterr()
    version = finished.run('push')['pushed_model'].properties
    assert version['formats'] == ['tflite'] and published.Version(version['path']).formats == ['tflite']
    said = capsys.readouterr().out
    assert 'push: without tflite_float16: the model is not blessed by evaluation (top1_error ' in said


def test_a_mean_of_other_images_is_refused(finished):
    """What stands beside the network counts as much as the network."""
    export = stage.get('export-tflite_int8')

    def spoiled(context):
        export.execute(context)
        path = os.path.join(context.outputs['tflite_int8'], 'pixels.npz')
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        np.savez(path, **{**arrays, 'mean_image': arrays['mean_image'] - 120})
    finished.pipeline.run(dataclasses.replace(export, execute=spoiled))
    word, reasons = verdict(finished.run('evaluate-tflite_int8'), 'tflite_int8')
    assert word == 'NOT_BLESSED' and 'from the SavedModel' in reasons


def test_what_changed_after_the_gate_is_not_run(finished):
    folder = finished.pipeline.outputs('export-tflite')['tflite'].uri
    assert runner.load(folder).predict([b'no image'])[0]['error']
    path = os.path.join(folder, 'labels.json')
    with open(path, encoding='utf-8') as file:
        labels = file.read()
    for place in (path, path.replace(folder, os.path.join(finished.version, 'formats', 'tflite'))):
        with open(place, 'w', encoding='utf-8') as file:
            file.write(labels.replace('red', 'blue'))
        try:
            with pytest.raises(UserError, match='SHA-256 differs'):
                runner.load(os.path.dirname(place))
        finally:
            with open(place, 'w', encoding='utf-8') as file:
                file.write(labels)


def test_a_version_on_no_local_disk_is_run_from_a_copy(finished):
    """TensorFlow's file system in memory stands for an object store: engines cannot open its paths."""
    model, tflite = (finished.pipeline.outputs(name)[key].uri for name, key in (
        ('export', 'model'), ('export-tflite', 'tflite')))
    version = pusher.publish(os.path.join(model, 'Format-Serving'), 'ram://serving/colours', {}, {'tflite': tflite})
    assert published.Version(version).formats == ['tflite'] and not published.Version(version).damage()
    photograph('blue', 7).save(picture := io.BytesIO(), 'PNG')
    [found] = runner.load(runner.find('tflite', 'ram://serving/colours')).predict([picture.getvalue()])
    assert found['answers'][0] == 'blue'


@pytest.mark.slow  # test_image_files.py compares the program with the SavedModel
def test_nets_that_are_averaged_go_through_the_gate_together(finished):
    """The other net is held in the format in which it was pushed; one pushed without it is named."""
    both = [finished.flags[1], ['name=both', 'seed=2', f'inference.fuse=[{finished.version}]']]
    pipeline = Pipeline(config.load(*both), finished.flags[3], [])
    for name in (*stage.STAGES[1:-1], 'export-tflite', 'evaluate-tflite'):
        outputs = pipeline.run(quick_stages.get(name))
    assert verdict(outputs, 'tflite')[0] == 'BLESSED'
    version = pipeline.run(stage.get('push'))['pushed_model'].properties['path']
    assert 'formats/tflite/fuse/0/classifier.tflite' in published.verify(version)['files']
    images = []
    for seed in range(8):
        photograph('red', seed).save(picture := io.BytesIO(), 'PNG')
        images.append(picture.getvalue())
    found = runner.load(runner.find('tflite', version)).predict(images)
    expected = saved_model.run(saved_model.load(version), images)
    for ours, theirs in zip(found, expected):
        assert ours['probabilities'] == pytest.approx(theirs['probabilities'], abs=2e-4)
    with pytest.raises(UserError, match=r'inference.fuse: \S+/colours/\d+ was pushed without onnx'):
        stage.get('export-onnx').check(config.load(*both))


@pytest.mark.parametrize('name, command, overrides, said', [
    ('demo_images', 'evaluate-tflite', ['evaluate.drift={}'], 'evaluate.drift is empty, so no format can pass'),
    ('demo_images', 'evaluate-tflite', ['evaluate.drift={top1_error: {max: 0.1}}'],
     r"evaluate.drift.top1_error holds \['max'\]. Give max_drop or max_rise"),
    ('demo_images', 'evaluate', ['evaluate.drift={bleu: {max_drop: 1}}'], "evaluate.drift: there is no metric 'bleu'"),
    ('vgg_tiny_imagenet_localisation', 'export-tflite', [],
     'inference.classifier: runs/vgg_a_tiny_imagenet/serving/vgg_a_tiny_imagenet was pushed without tflite'),
    ('learning_machine_nim', 'export-onnx', [], 'holds models of image'),
    ('demo_images', 'export-ctranslate2', [], 'holds models of text')])
def test_what_cannot_be_handed_over_is_a_sentence(name, command, overrides, said):
    with pytest.raises((UserError, ModelError), match=said):
        stage.get(command).check(config.load(name, overrides))


def test_a_missing_package_is_named_with_its_version(monkeypatch):
    monkeypatch.setitem(sys.modules, 'tf2onnx', None)
    with pytest.raises(UserError, match=r'not installed. Run `python -m pip install "tf2onnx>=1.17,<2"` and start'):
        stage.get('export-onnx').check(config.load('demo_images'))


def test_every_format_is_a_stage_whose_hash_holds_its_converter():
    for name, each in FORMATS.items():
        export, judged = stage.get(f'export-{name}'), stage.get(f'evaluate-{name}')
        assert {each.writer, *filter(None, [each.converter])} <= {*export.modules} & {*judged.modules}
        assert f'export-{name}' in push.STAGE.takes and f'evaluate-{name}' in push.STAGE.takes
    assert evaluate.STAGE.needs == ('prepare', 'train', 'export')  # the SavedModel's gate waits for none of them
