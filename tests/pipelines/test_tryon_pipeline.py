"""The try-on pipeline on generated people: from pairs files to images in a folder."""
import csv
import hashlib
import json
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep import UserError, tryon
from data_prep.core import records
from data_prep.people import pairs_files, sample_people
from keras_models import ModelError
from keras_models.viton import chain
from keras_models.viton.judge import THIRDS, Scorer
from keras_models.viton.serving import FILES
from pipelines import evaluate
from pipelines.core import config as configs
from pipelines.evaluation import gate
from pipelines.training import checkpoints
from support import tiny_people
from support.commands import command

CONFIG = tiny_people.DATA + """\
input: {{rows: 2, size: [64, 64]}}
model:
  module: keras_models.viton.try_on
  low: [32, 32]
  trainable_networks: []
  segmentation: {{width: 0.125}}
  geometric_matching: {{width: 0.125}}
  alias: {{width: 0.125}}
train: {{steps: 0, average_checkpoints: 1}}
export: {{warmup_requests: 1}}
evaluate: {{thresholds: {{ssim: {{min: 0.0}}, l1: {{max: 1.0}}}}}}
"""


@pytest.fixture(scope='module')
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp('people')
    sample_people.write_people(str(folder), 6, 3, (160, 120))
    return folder


@pytest.fixture(scope='module')
def finished(people, tmp_path_factory):
    folder = tmp_path_factory.mktemp('run')
    (folder / 'people.yaml').write_text(CONFIG.format(folder=people))
    done = command('pipelines.run', '--config', str(folder / 'people.yaml'), '--pipeline_root', str(folder / 'root'))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout


def evaluation(folder):
    """What the newest evaluation left."""
    return max((folder / 'root' / 'evaluate').glob('[0-9]*'), key=lambda path: int(path.name))


def test_pairs_files_become_a_pushed_model(finished, people):
    folder, printed = finished
    assert re.search(r'ssim [\d.]+.* on 3 test examples; BLESSED', printed)
    assert 'answered 1 warm-up requests' in printed
    assert 'evaluate: lpips is not computed: give evaluate.networks.alexnet=' in printed
    found = json.loads((evaluation(folder) / 'evaluation' / 'metrics.json').read_text())
    overall = found['metrics']['overall']
    assert {*overall} == {*Scorer({}).names} == {*found['protocol']}
    for name in ('l1', 'ssim', 'mask_ssim', 'warp_l1', 'parse_iou', 'chain_ssim'):
        assert 0 < overall[name] < 1  # of weights nobody trained
    worn = sorted(f'{line.split()[0]} {line.split()[0]}\n' for line in (people / 'test_pairs.txt').open())
    listed = hashlib.sha256(''.join(worn).encode()).hexdigest()
    assert all(f'list {listed[:16]}' in text for text in found['protocol'].values())
    card = (evaluation(folder) / 'report' / 'model_card.md').read_text()
    assert 'tf.image.ssim' in card and listed[:16] in card


def test_what_is_served_is_the_picture_of_the_chain_in_memory(finished, people):
    """One way through the files, the noise of the seed and the networks' weights, and the way of the SavedModel."""
    folder, _ = finished
    loaded = configs.load(str(folder / 'people.yaml'))
    [run], [exported], [examples] = ((folder / 'root').glob(place) for place in (
        'train/*/model_run', 'export/*/model/Format-Serving', 'prepare/*/examples'))
    nets = loaded.model_spec.build(loaded.model)
    checkpoints.restore(nets, str(run / 'weights'))
    person, garment = (people / 'test_pairs.txt').read_text().split()[:2]
    found = pairs_files.read(pairs_files.folders(str(people / 'test')), person, garment)
    read = {name: found['keypoints' if name == 'pose_json' else name].content for name in FILES if name != 'pose_image'}
    files = {name: tf.constant(read.get(name, b'')) for name in FILES}
    sample = tryon.assets(str(examples), loaded.input).sample(**files)
    batch = {name: value[tf.newaxis] for name, value in sample.items()}
    made = chain.try_on(nets, loaded.model, batch, tf.constant([loaded.inference.seed, 0]))['image'][0]
    served = tf.saved_model.load(str(exported)).signatures['serving_default'](
        **{name: value[tf.newaxis] for name, value in files.items()})['image_bytes'][0]
    # A level apart where rounding falls either way.
    np.testing.assert_allclose(tf.io.decode_png(served).numpy().astype(int), chain.pixels(made).numpy(), rtol=0, atol=1)


def test_evaluation_keeps_pictures_of_its_first_pairs(finished):
    folder = evaluation(finished[0]) / 'evaluation' / 'pictures'
    assert {path.name for path in folder.iterdir()} == {
        f'{n}_{what}.png' for n in range(3)
        for what in ('person', 'garment', 'warped', 'parse', 'made', 'reconstruction')}
    assert all(Image.open(path).size == (64, 64) for path in folder.iterdir())


@pytest.mark.slow  # test_pipeline.py compares with a blessed model, test_judge.py holds the metrics
def test_beside_a_blessed_model_and_by_slices(finished, tmp_path):
    """The same model twice: nothing dropped, and what belongs to all pairs together is said of no part of them."""
    folder, _ = finished
    config = configs.load(str(folder / 'people.yaml'), [
        'evaluate.slices=[kind, misalignment]',
        'evaluate.thresholds={ssim: {max_drop: 0.01}, parse_iou: {min: 0, max_drop: 0.01}}'])
    [examples], [model] = ((folder / 'root').glob(place) for place in ('prepare/*/examples', 'export/*/model/Format-*'))
    models, path = ['candidate', 'baseline'], str(tmp_path / 'predictions')
    split = records.open_split(str(examples), 'test')
    evaluate.write_predictions(config, split, evaluate.load(config, dict.fromkeys(models, str(model))), path)
    metrics, validation = evaluate.analyse(config, path, str(tmp_path), models)
    assert gate.decide(config.evaluate.thresholds, validation, {}) == (True, ['all thresholds are met'], [])
    rows = [tf.train.Example.FromString(row).features.feature for row in
            tf.data.TFRecordDataset(path).as_numpy_iterator()]
    candidate, baseline = (np.array([row[name].float_list.value for row in rows]) for name in models)
    names = Scorer({}).names
    assert candidate.shape == (3, len(names)) and (candidate == baseline).all()
    assert metrics['overall'] == pytest.approx(dict(zip(names, candidate.mean(0))))
    of_pairs = [name for name in names if name not in Scorer.CORPUS]
    [part] = metrics.keys() - {'overall', *THIRDS}  # all are of one kind
    assert metrics[part] == {name: metrics['overall'][name] for name in of_pairs}
    of_area = candidate[np.argsort(candidate[:, names.index('misaligned')])]
    assert [metrics[third] for third in THIRDS] == [pytest.approx(
        {name: row[names.index(name)] for name in of_pairs}, nan_ok=True) for row in of_area]


@pytest.mark.parametrize('setting, said', [
    ('evaluate.thresholds.lpips.max=0.1', 'evaluate.thresholds.lpips: lpips is not computed: give evaluate.networks.'),
    ('evaluate.networks.inception=nowhere.pth', 'evaluate.networks.inception: there is no file nowhere.pth'),
    ('evaluate.networks.vgg=nowhere.pth', 'evaluate.networks.vgg: no metric uses such a network'),
    ('evaluate.thresholds.psnr.min=3', 'there is no metric \'psnr\'. Known metrics: l1, '),
])
def test_what_cannot_be_judged_is_refused_before_any_work(people, tmp_path, setting, said):
    (tmp_path / 'people.yaml').write_text(CONFIG.format(folder=people))
    with pytest.raises((UserError, ModelError), match=re.escape(said)):
        evaluate.check(configs.load(str(tmp_path / 'people.yaml'), [setting]))


def test_networks_nobody_asks_are_refused(tmp_path):
    with pytest.raises(UserError, match='no metric of keras_models.transformer uses networks'):
        evaluate.check(configs.load('demo_translation', ['evaluate.networks.inception=nowhere.pth']))


@pytest.mark.parametrize('named', [pytest.param([], id='folder beside the pairs'),
                                   pytest.param(['test'], id='folder named', marks=pytest.mark.slow)])
def test_predict_writes_a_picture_a_pair_a_table_and_a_sheet(finished, people, tmp_path, named):
    folder, _ = finished
    shutil.copytree(people / 'test', tmp_path / 'test')
    lines = (people / 'test_pairs.txt').read_text().splitlines()
    first, second, third = (line.split()[0] for line in lines)
    pose = tmp_path / 'test' / 'openpose-json' / f'{os.path.splitext(second)[0]}_keypoints.json'
    said = json.loads(pose.read_text())
    pose.write_text(json.dumps({**said, 'people': said['people'] * 2}))
    (tmp_path / 'test_pairs.txt').write_text('\n'.join([*lines, f'{third} nowhere.jpg', 'lonely.jpg']) + '\n')
    asked = ('pipelines.predict', '--model', str(folder / 'root' / 'serving' / 'people'))
    done = command(*asked, '--out', 'out', *named, 'test_pairs.txt', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / 'out' / 'predictions.csv').open()))
    assert [bool(row['error']) for row in rows] == [False, True, False, True, True]
    assert '2 persons' in rows[1]['error'] and f'{os.path.splitext(second)[0]}_keypoints.json' in rows[1]['error']
    assert 'nowhere.jpg: there is no such file' in rows[3]['error'] and 'line 5' in rows[4]['error']
    for row in (rows[0], rows[2]):
        assert Image.open(tmp_path / 'out' / row['picture']).size == (64, 64)
    assert Image.open(tmp_path / 'out' / 'sheet_01.png').size[0] > 600
    nothing = command(*asked, 'test', cwd=tmp_path)
    assert nothing.returncode == 2 and 'give pairs files' in nothing.stderr and nothing.stderr.count('\n') == 1


def test_a_model_asked_for_lines_says_what_it_wants(finished):
    done = command('pipelines.predict', '--model', str(finished[0] / 'root' / 'serving' / 'people'), input='a line\n')
    assert done.returncode == 2 and 'Name a pairs file' in done.stderr


def test_worn_garments_alone_are_trained_on(finished):
    [manifest] = (finished[0] / 'root').glob('prepare/*/examples/manifest.json')
    counts = json.loads(tf.io.read_file(str(manifest)).numpy())['counts']
    assert counts['train']['written'] + counts['validation']['written'] == 6 and counts['test']['written'] == 3
