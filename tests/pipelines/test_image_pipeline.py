"""The image pipeline on striped images: training, resuming, replicas, and every way of predicting."""
import csv
import json
import os
import re
import signal

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep import UserError
from data_prep.core import records
from keras_models import vgg
from pipelines import export
from pipelines.core import config
from pipelines.core.pipeline import Pipeline
from pipelines.evaluation import verification
from pipelines.training import checkpoints, devices, trainer
from support import killed_runs
from support.commands import command

CONFIG = """\
name: stripes
data:
  module: data_prep.imagenet
  train: [{folder}]
  validation_fraction: 0.2
  test_fraction: 0.2
input: {{rows: 16, crop: 32, scales: [36, 44], flip: false, colour: 0.05}}
model:
  module: keras_models.prelu_net
  layers: ['3x3, 8', '2x2 maxpool, /2', '3x3, 8', '2x2 maxpool, /2', '3x3, 16', 'spp, {{3, 2, 1}}', 'fc, 16']
  learning_rate: 0.002
  dropout: 0.1
  patience: 1
train: {{steps: 80, log_every: 10, checkpoint_every: 40, validate_every: 20, average_checkpoints: 1}}
evaluate: {{batch_size: 8, slices: [target], thresholds: {{top1_error: {{max: 0.3}}, mean_class_error: {{max: 0.3}}}}}}
"""
KINDS = {'flat': lambda x, y: np.sin(y), 'upright': lambda x, y: np.sin(x),
         'checked': lambda x, y: np.sin(x) * np.sin(y)}  # mirrored, each is of its kind still


def stripes(kind, seed):
    """Stripes of some colour, width and place in noise; pictures of several sizes."""
    draw = np.random.default_rng(seed)
    height, width = draw.integers(40, 70, 2)
    y, x = np.mgrid[:height, :width]
    pitch, right, down = draw.uniform([0.5, 0, 0], [0.9, 6, 6])
    wave = KINDS[kind](x * pitch + right, y * pitch + down)
    levels = 128 + wave[..., None] * draw.uniform(40, 90, 3) + draw.normal(0, 15, (height, width, 3))
    return Image.fromarray(np.clip(levels, 0, 255).astype(np.uint8))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Class folders, as a user has them, with a PNG and a file that is no picture among the JPEGs."""
    folder = tmp_path_factory.mktemp('stripes')
    for number, name in enumerate(KINDS):
        (folder / name).mkdir()
        for i in range(80):
            stripes(name, 1000 * number + i).save(folder / name / f'{i:03}.{"png" if i == 7 else "jpg"}')
    (folder / 'flat' / 'notes.jpg').write_text('nothing to see')
    return folder


@pytest.fixture(scope='module')
def config_file(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp('config') / 'stripes.yaml'
    path.write_text(CONFIG.format(folder=folder))
    return str(path)


@pytest.fixture(scope='module')
def finished(config_file, tmp_path_factory):
    root = tmp_path_factory.mktemp('root')
    done = command('pipelines.run', '--config', config_file, '--pipeline_root', str(root))
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done.stdout


@pytest.fixture(scope='module')
def examples(finished, config_file):
    return Pipeline(config.load(config_file), str(finished[0]), []).outputs('prepare')['examples'].uri


def test_a_folder_of_class_folders_becomes_a_pushed_model(finished, examples):
    """Nothing but the configuration is written: the classes, and so the size of the net, come from the folder."""
    root, printed = finished
    [error] = re.findall(r'top1_error ([\d.]+) on \d+ test examples; BLESSED', printed)
    assert float(error) < 0.2
    assert records.read_manifest(examples).model == {'classes': 3}
    counts = records.read_manifest(examples).counts
    assert sum(count['written'] for count in counts.values()) == 240
    assert sum(count['dead_letters'] for count in counts.values()) == 1
    assert 'flat' in re.search('top1_error by target: (.*)', printed)[1]
    [report] = root.glob('evaluate/*/report/report.html')
    assert 'top1 error' in report.read_text() and 'upright' in report.read_text()
    metrics = json.loads((report.parent.parent / 'evaluation' / 'metrics.json').read_text())['metrics']
    by_class = [metrics[name]['top1_error'] for name in KINDS]
    assert metrics['overall']['mean_class_error'] == pytest.approx(np.mean(by_class), abs=1e-6)
    assert all(each.equal for each in verification.verify(verification.opened(str(report))))


@pytest.mark.slow  # 12 s; test_pipeline.py skips stages, too
def test_asking_otherwise_trains_nothing_anew(finished, config_file):
    """The same weights behind another protocol, fused with the first export: errors are of the mean of both."""
    root, _ = finished
    [exported] = root.glob('export/*/model/Format-Serving')
    done = command('pipelines.run', '--config', config_file, '--pipeline_root', str(root), '--set',
                   'inference.views=[ten_crop,dense]', '--set', f'inference.fuse=[{exported}]')
    assert done.returncode == 0, done.stderr
    assert re.findall(r'(\w+): nothing it depends on has changed', done.stdout) == ['prepare', 'train']
    assert '; BLESSED' in done.stdout
    wrong = command('pipelines.run', '--config', config_file, '--pipeline_root', str(root), '--set',
                    'inference.scales=[24]')
    assert wrong.returncode == 2 and 'an image of 24 pixels is smaller than a crop of 32' in wrong.stderr
    assert wrong.stderr.count('\n') == 1


def test_models_to_average_with_are_known_by_what_they_hold(config_file, tmp_path):
    """Else another model under the same name would be passed over as nothing new."""
    (tmp_path / 'saved_model.pb').write_bytes(b'one')
    asked = Pipeline(config.load(config_file, [f'inference.fuse=[{tmp_path}]']), str(tmp_path / 'root'), [])
    before = export.STAGE.extra_inputs(asked)
    assert before == export.STAGE.extra_inputs(asked)
    (tmp_path / 'saved_model.pb').write_bytes(b'two')
    assert export.STAGE.extra_inputs(asked).keys() == before.keys() and export.STAGE.extra_inputs(asked) != before


def test_predict_on_a_folder_writes_a_table_and_a_sheet(finished, tmp_path):
    for name in KINDS:
        (tmp_path / 'new' / name).mkdir(parents=True)
        stripes(name, 77).save(tmp_path / 'new' / name / '1.jpg')
    (tmp_path / 'new' / 'broken.jpg').write_bytes((tmp_path / 'new' / 'flat' / '1.jpg').read_bytes()[:300])
    (tmp_path / 'new' / 'empty.png').touch()
    asked = ('pipelines.predict', '--model', str(finished[0] / 'serving' / 'stripes'))
    done = command(*asked, '--out', 'out', 'new', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {row['file']: row for row in csv.DictReader((tmp_path / 'out' / 'predictions.csv').open())}
    assert len(rows) == 5 == len(done.stdout.splitlines())
    assert 'empty' in rows['new/empty.png']['error'] and rows['new/broken.jpg']['error']
    right = [row['label_1'] == os.path.basename(os.path.dirname(file))
             for file, row in rows.items() if not row['error']]
    assert len(right) == 3 and sum(right) >= 2
    assert sum(float(rows['new/flat/1.jpg'][f'probability_{i}']) for i in (1, 2, 3)) == pytest.approx(1, abs=1e-3)
    assert Image.open(tmp_path / 'out' / 'sheet_01.png').size[0] > 400
    nothing = command(*asked, cwd=tmp_path)
    assert nothing.returncode == 2 and 'Name files or folders' in nothing.stderr


def losses(config_file, examples, *overrides):
    resolved = config.load(config_file, ['train.steps=4', 'model.classes=3', *overrides])
    it = trainer.Trainer(resolved, devices.choose(resolved, resolved.train.jit is True), examples)
    iterator, found = iter(it._dataset('train')), []
    for _ in range(4):
        batch = next(iterator)
        batch.pop('id')
        value, normaliser = it._train(batch)['loss/classifier']
        found.append(float(value / normaliser))
    return found


@pytest.mark.parametrize('overrides', [[], ['train.rematerialise=true'],
                                       ['train.strategy=mirrored', 'train.dense_layers=one_device']])
def test_the_first_crops_may_be_smaller_than_the_others(config_file, examples, overrides):
    resolved = config.load(config_file, ['train.steps=3', 'model.classes=3', 'model.learning_rate=1e-9',
                                         'train.curriculum=[{steps: 2, crop: 24, scales: [27, 33]}]', *overrides])
    it, sides = trainer.Trainer(resolved, devices.choose(resolved, False), examples), []

    def seen():
        for batch in it.train_dataset:
            sides.append(it.strategy.experimental_local_results(batch['image'])[0].shape[1])
            yield batch
    it.train_loop_begin()
    batches = seen()
    for _ in range(3):
        it.train_step(batches)
    sums = [[float(part) for part in totals['loss/classifier']] for totals in it._totals]
    assert sides == [24, 24, 32] and int(it.global_step.numpy()) == 3
    np.testing.assert_allclose([loss / images for loss, images in sums], np.log(3), rtol=0.01)  # chance, at every side


@pytest.mark.slow  # 9 s; test_trainer.py and test_compiled_steps.py prove it
def test_replicas_and_compilation_change_nothing(config_file, examples):
    """Crops, colours and updates are those of one device: a picture's draws do not depend on where it is decoded."""
    one = losses(config_file, examples, 'model.dropout=0')
    for overrides in (['train.strategy=mirrored'], ['train.jit=true'], ['train.gradient_accumulation_steps=2']):
        np.testing.assert_allclose(losses(config_file, examples, 'model.dropout=0', *overrides), one, rtol=2e-4)


@pytest.mark.slow  # 15 s; test_resume.py kills runs with this schedule
def test_the_plateau_schedule_survives_a_kill(config_file, finished, tmp_path):
    """SIGKILL after a checkpoint: rate and weights are an uninterrupted run's, though the rate has dropped."""
    flags = ['--config', config_file, '--set', 'model.min_delta=0.5', '--set', 'train.steps=30', '--set',
             'train.validate_every=5', '--set', 'train.checkpoint_every=10']
    weights, rates = [], []
    for root, killed in ((tmp_path / 'whole', False), (tmp_path / 'killed', True)):
        assert command('pipelines.prepare', *flags, '--pipeline_root', str(root)).returncode == 0
        train = ('pipelines.train', *flags, '--pipeline_root', str(root))
        if killed:
            assert command(*train, before=killed_runs.at_step(25)).returncode == -signal.SIGKILL
        done = command(*train)
        assert done.returncode == 0 and ('resuming at step 20' in done.stdout) == killed, done.stderr
        [run] = root.glob('train/*/model_run')
        weights.append((run / 'weights.data-00000-of-00001').read_bytes())
        reader = tf.train.load_checkpoint(str(run / 'checkpoints'))
        [key] = [key for key in reader.get_variable_to_shape_map() if key.startswith('schedules') and 'rate' in key]
        rates.append(float(reader.get_tensor(key)))
    assert weights[0] == weights[1] and rates[0] == rates[1] < 0.002


def test_deeper_vgg_nets_begin_with_the_layers_of_a(config_file, examples, tmp_path):
    """Section 3.1, by `train.init_from`; and a net that does not fit is a sentence."""
    net = '{module: keras_models.vgg, width: 0.05, preset: official, variant: %s}'
    flags = ['train.steps=1', 'train.checkpoint_every=1', 'train.validate_every=1']

    def load(*more, variant='A'):
        loaded = config.load(config_file, [f'model={net % variant}', *flags, *more])
        return config.with_data_set(loaded, records.read_manifest(examples).model)
    trainer.train(load(), examples, str(tmp_path / 'a'))
    begin = load(f'train.init_from={tmp_path / "a"}', variant='B')
    it = trainer.Trainer(begin, devices.choose(begin, False), examples)
    drawn = {variable.name: variable.numpy() for variable in it.nets['classifier'].variables}
    trainer.start(it, str(tmp_path / 'b'))
    a = checkpoints.read(str(tmp_path / 'a' / 'weights'))['classifier']
    for variable in it.nets['classifier'].variables:
        name = variable.name.split(':')[0]
        expected = a[name] if name.split('/')[0] in vgg.FROM_A else drawn[variable.name]
        np.testing.assert_array_equal(variable, expected)
    other = load('model.width=0.1', f'train.init_from={tmp_path / "a"}', variant='B')
    with pytest.raises(UserError, match='train.init_from: .* at the same width, crop and classes'):
        trainer.start(trainer.Trainer(other, devices.choose(other, False), examples), str(tmp_path / 'c'))
    kept = load(f'train.init_from={tmp_path / "a"}', 'train.steps=0')
    trainer.train(kept, examples, str(tmp_path / 'd'))
    found = checkpoints.read(str(tmp_path / 'd' / 'weights'))['classifier']
    assert all((found[name] == a[name]).all() for name in a)  # no step: weights as they were


def test_vgg_at_many_scales_begins_with_one_scale_after_the_other(examples, tmp_path, monkeypatch):
    """Section 3.1, by the shipped configurations alone, small: each net begins with the one that it names."""
    monkeypatch.chdir(tmp_path)
    given: dict = {}
    for name, scales in (('vgg_a_imagenet', '[36]'), ('vgg_d_256_imagenet', '[36]'), ('vgg_d_384_imagenet', '[40]'),
                         ('vgg_d_imagenet', '[36, 44]')):
        loaded = config.load(name, [
            'input.rows=16', 'input.crop=32', f'input.scales={scales}', 'model.width=0.03125', 'model.classes=3',
            'train.steps=1', 'train.checkpoint_every=1', 'train.validate_every=1'])
        nets = vgg.build(loaded.model)
        if paths := checkpoints.sources(loaded.train.init_from, loaded.model_spec):
            checkpoints.start(nets, paths, [], loaded.model_spec, loaded.model)
        for variable in nets['classifier'].variables:
            taken = given and (name != 'vgg_d_256_imagenet' or variable.name.split('/')[0] in vgg.FROM_A)
            assert not taken or (variable.numpy() == given[variable.name]).all(), variable.name
            variable.assign_add(tf.fill(variable.shape, 1e-3))  # as if trained
        given = {variable.name: variable.numpy() for variable in nets['classifier'].variables}
        pushed = tmp_path / 'runs' / name / 'serving' / name / '1' / 'variables'
        pushed.mkdir(parents=True)
        checkpoints.save(nets, str(pushed / 'variables'))
    found = trainer.train(loaded, examples, str(tmp_path / 'run'))
    assert found.steps == 1 and np.isfinite(found.averaged['validation/loss'])
    begun, ended = (checkpoints.read(path)['classifier']['fc8/kernel'] for path in (
        'runs/vgg_d_384_imagenet/serving/vgg_d_384_imagenet/1/variables/variables', str(tmp_path / 'run' / 'weights')))
    assert 0 < abs(ended - begun).max() < 0.01  # one step at 10^-3


def test_a_model_told_of_too_few_classes_is_refused(config_file, examples):
    with pytest.raises(UserError, match='model.classes 2 is less than the 3 of the data set'):
        config.with_data_set(config.load(config_file, ['model.classes=2']), records.read_manifest(examples).model)
    done = command('pipelines.train', '--config', config_file, '--explain')
    assert 'known once the data set is prepared, which sets model.classes' in done.stdout
