"""The try-on kind through the one frame, on people the project makes: from pairs files to pictures in a folder."""
import csv
import json
import os
import re
import shutil

import pytest
import tensorflow as tf
from PIL import Image

from conftest import command
from data_prep import sample_people

CONFIG = """\
name: people
data:
  module: data_prep.tryon
  folder: {folder}
  train: [train_pairs.txt]
  validation_fraction: 0.3
  test: [test_pairs.txt]
input: {{rows: 2, size: [128, 128]}}
model:
  module: keras_models.viton.try_on
  low: [64, 64]
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


def test_pairs_files_become_a_pushed_model(finished):
    folder, printed = finished
    l1, ssim = map(float, re.search(r'l1 ([\d.]+), ssim ([\d.]+) on 3 test examples; BLESSED', printed).groups())
    assert 0 < l1 < 1 and 0 < ssim < 1  # of weights nobody trained
    assert 'answered 1 warm-up requests' in printed
    [card] = (folder / 'root').glob('evaluate/*/report/model_card.md')
    assert 'tf.image.ssim' in card.read_text()


def test_predict_writes_a_picture_a_pair_a_table_and_a_sheet(finished, people, tmp_path):
    folder, _ = finished
    shutil.copytree(people / 'test', tmp_path / 'test')
    lines = (people / 'test_pairs.txt').read_text().splitlines()
    first, second, third = (line.split()[0] for line in lines)
    pose = tmp_path / 'test' / 'openpose-json' / f'{os.path.splitext(second)[0]}_keypoints.json'
    said = json.loads(pose.read_text())
    pose.write_text(json.dumps({**said, 'people': said['people'] * 2}))
    (tmp_path / 'test_pairs.txt').write_text('\n'.join([*lines, f'{third} nowhere.jpg', 'lonely.jpg']) + '\n')
    asked = ('pipelines.predict', '--model', str(folder / 'root' / 'serving' / 'people'))
    done = command(*asked, '--out', 'out', 'test_pairs.txt', cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / 'out' / 'predictions.csv').open()))
    assert [bool(row['error']) for row in rows] == [False, True, False, True, True]
    assert '2 persons' in rows[1]['error'] and f'{os.path.splitext(second)[0]}_keypoints.json' in rows[1]['error']
    assert 'nowhere.jpg: there is no such file' in rows[3]['error'] and 'line 5' in rows[4]['error']
    for row in (rows[0], rows[2]):
        assert Image.open(tmp_path / 'out' / row['picture']).size == (128, 128)
    assert Image.open(tmp_path / 'out' / 'sheet_01.png').size[0] > 600
    same = command(*asked, '--out', 'again', 'test', 'test_pairs.txt', cwd=tmp_path)  # the folder may be named
    assert same.stdout == done.stdout.replace('out/', 'again/')
    nothing = command(*asked, 'test', cwd=tmp_path)
    assert nothing.returncode == 2 and 'give pairs files' in nothing.stderr and nothing.stderr.count('\n') == 1


def test_a_model_asked_for_lines_says_what_it_wants(finished):
    done = command('pipelines.predict', '--model', str(finished[0] / 'root' / 'serving' / 'people'), input='a line\n')
    assert done.returncode == 2 and 'name a pairs file' in done.stderr


def test_worn_garments_alone_are_trained_on(finished):
    [manifest] = (finished[0] / 'root').glob('prepare/*/examples/manifest.json')
    counts = json.loads(tf.io.read_file(str(manifest)).numpy())['counts']
    assert counts['train']['written'] + counts['validation']['written'] == 6 and counts['test']['written'] == 3
