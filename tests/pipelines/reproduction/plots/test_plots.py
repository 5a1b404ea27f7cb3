"""Plots of reproduced tables and figures, drawn from small data with known results."""
import io
import os
import re
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep import UserError
from data_prep.core import records
from data_prep.image import shards
from keras_models.image import deep_features as descriptors
from pipelines import evaluate
from pipelines.core import config, roles
from pipelines.core.artifacts import Artifact
from pipelines.reporting import contact_sheet
from pipelines.reproduction.experiments import Run, Study
from pipelines.reproduction.plots import deep_features, parsing, tried_on, vgg_configurations
from pipelines.serving import pusher
from support import tiny_classifier


def run(setting, seed, resolved=None, **stages):
    """A run whose stages are finished: stage -> its outputs, key -> (folder, what it found out)."""
    outputs = {stage: {key: Artifact(1, 'x', str(folder), 'd', found)
                       for key, (folder, found) in made.items()} for stage, made in stages.items()}
    return Run(setting, seed, types.SimpleNamespace(config=resolved, outputs=outputs.__getitem__), [*stages])


# ---- people in garments

WHAT = ('person', 'garment', 'reconstruction')


def colour(setting, seed, pair, what):
    """One of its own for every picture."""
    return 40 + 60 * WHAT.index(what), 30 + 90 * setting + 30 * seed, 50 * pair


def solid(rgb):
    return tf.io.encode_png(np.full([64, 48, 3], rgb, np.uint8)).numpy()


def tried(folder, setting, seed, pairs):
    """An evaluation that kept so many pairs."""
    pictures = [{what: solid(colour(setting, seed, pair, what)) for what in WHAT} for pair in range(pairs)]
    evaluation = folder / f'{setting}_{seed}'
    evaluate.keep_pictures(pictures, str(evaluation))
    return run(f'setting {setting}', seed, evaluate={'evaluation': (evaluation, {})})


def where(page, rgb):
    """The middle of what has a colour, as (row, column)."""
    found = np.argwhere((page == rgb).all(-1))
    assert len(found) > 1000, f'{rgb} is not drawn'
    return found.mean(0)


def test_people_in_garments_stand_a_row_a_pair_and_a_column_a_setting(tmp_path, monkeypatch):
    titles = []
    draw = contact_sheet.draw_rows

    def noted(path, rows):
        titles.append([one.title for one in rows[0]])
        draw(path, rows)
    monkeypatch.setattr(contact_sheet, 'draw_rows', noted)
    # The second setting kept a pair less: a row lacking a picture is left out.
    runs = [tried(tmp_path, setting, seed, 3 - setting) for seed in (0, 1) for setting in (0, 1)]
    exhibit = tried_on.draw(Study(runs, '', str(tmp_path), 'small'))
    assert exhibit.values == {} and [figure.title for figure in exhibit.figures] == ['seed 0', 'seed 1']
    assert titles == [['person', 'garment', 'setting 0: reconstruction', 'setting 1: reconstruction']] * 2
    for seed, figure in enumerate(exhibit.figures):
        [name] = re.findall('src="(.*?)"', figure.html)
        page = np.asarray(Image.open(tmp_path / name).convert('RGB'))
        columns = [(0, 'person'), (0, 'garment'), (0, 'reconstruction'), (1, 'reconstruction')]
        cells = np.array([[where(page, colour(setting, seed, pair, what)) for setting, what in columns]
                          for pair in range(2)])  # [row, column, (y, x)]
        assert np.ptp(cells[..., 0], 1).max() < 1 and np.ptp(cells[..., 1], 0).max() < 1  # in lines
        assert np.diff(cells[..., 1], axis=1).min() > 100 < np.diff(cells[..., 0], axis=0).min()  # in order
        assert not (page == colour(0, seed, 2, 'person')).all(-1).any()
        assert not (page == colour(0, 1 - seed, 0, 'person')).all(-1).any()  # that seed has a page of its own


def test_rows_and_columns_are_those_asked_for(tmp_path):
    tried_on.draw(Study([tried(tmp_path, 0, 0, 3)], '', str(tmp_path), 'small'), ('garment',), rows=1)
    page = np.asarray(Image.open(tmp_path / 'tried_on_0.png').convert('RGB'))
    assert where(page, colour(0, 0, 0, 'garment'))[1] < where(page, colour(0, 0, 0, 'reconstruction'))[1]
    for rgb in (colour(0, 0, 0, 'person'), colour(0, 0, 1, 'garment')):
        assert not (page == rgb).all(-1).any()


# ---- VGG's tables 1 and 2

PAPER = {'A': (11, 133), 'A-LRN': (11, 133), 'B': (13, 133), 'C': (16, 134), 'D': (16, 138), 'E': (19, 144)}
TABLE_1 = [  # as the paper prints it, a row a line, poolings where it has them
    'conv3-64 conv3-64 conv3-64 conv3-64 conv3-64 conv3-64',
    '- LRN conv3-64 conv3-64 conv3-64 conv3-64', 'maxpool',
    'conv3-128 conv3-128 conv3-128 conv3-128 conv3-128 conv3-128',
    '- - conv3-128 conv3-128 conv3-128 conv3-128', 'maxpool',
    *['conv3-256 conv3-256 conv3-256 conv3-256 conv3-256 conv3-256'] * 2,
    '- - - conv1-256 conv3-256 conv3-256', '- - - - - conv3-256', 'maxpool',
    *[*['conv3-512 conv3-512 conv3-512 conv3-512 conv3-512 conv3-512'] * 2,
      '- - - conv1-512 conv3-512 conv3-512', '- - - - - conv3-512', 'maxpool'] * 2,
    *[' '.join([f'FC-{units}'] * 6) for units in (4096, 4096, 1000)]]


def test_vggs_configurations_are_table_1_and_count_what_table_2_does(tmp_path):
    runs = [run(name, 0, config.load('vgg_a_imagenet', [f'model.variant={name}', 'model.crop=224',
                                                        'model.classes=1000'])) for name in PAPER]
    study = Study(runs, '', str(tmp_path), 'small')
    exhibit = vgg_configurations.draw(study, layers=True)
    for name, (depth, millions) in PAPER.items():
        found = exhibit.values[name, 0]
        assert found['weight layers'] == depth
        assert found['million parameters'] == pytest.approx(millions, abs=0.5)
        # By hand, of two of them: a kernel is used once for each place of its output.
        places = [224, 112, 56, 28, 14]
        if name in 'AE':
            per_stage = {'A': [1, 1, 2, 2, 2], 'E': [2, 2, 4, 4, 4]}[name]
            maps, by_hand = 3, 25088 * 4096 + 4096 ** 2 + 4096 * 1000
            for side, count, width in zip(places, per_stage, [64, 128, 256, 512, 512]):
                for _ in range(count):
                    by_hand, maps = by_hand + 9 * maps * width * side ** 2, width
            assert found['billion multiply-adds'] == pytest.approx(by_hand / 1e9, rel=1e-6)
    [figure] = exhibit.figures
    rows = [re.findall(r'<t[hd][^>]*>(.*?)</t[hd]>', row)
            for row in re.findall('<tr>(.*?)</tr>', figure.html)]
    assert rows[0] == [*PAPER]
    assert [' '.join(cell or '-' for cell in row) for row in rows[1:]] == TABLE_1
    assert figure.html.count('<td colspan="6"') == 5
    assert vgg_configurations.draw(study).figures == []


# ---- parsing

def test_right_branching_is_a_row_of_the_first_settings_evaluations():
    evaluations = [('ours', 1, 11.5), ('other', 1, 99.0), ('ours', 2, 12.5)]
    runs = [run(setting, seed, evaluate={'evaluation': ('', {'metrics': {
        'overall': {'right_branching_f1': f1, 'bracket_f1': 50.0},
        'of a slice': {'right_branching_f1': 1.0}}})}) for setting, seed, f1 in evaluations]
    exhibit = parsing.draw(Study(runs, '', '', 'small'))
    assert exhibit.values == {('right branching', 1): {'F1': 11.5}, ('right branching', 2): {'F1': 12.5}}
    assert not exhibit.figures


# ---- deep features

def picture(kind, number):
    """Noise of 20 x 24 in a colour by which its class is known."""
    draw = np.random.default_rng(100 * kind + number)
    pixels = draw.integers(0, 60, (20, 24, 3))
    pixels[..., kind] += 150
    return tf.io.encode_png(pixels.astype(np.uint8)).numpy()


@pytest.fixture(scope='module')
def target(tmp_path_factory):
    """A data set of 24 pictures of three classes, prepared, and each one's box: its left half."""
    folder = tmp_path_factory.mktemp('target')
    writer = records.ShardWriter(str(folder / 'Split-train' / 'part-00000.tfrecord'))
    for number in range(24):
        item = types.SimpleNamespace(label=f'class {number % 3}', name=f'{number}.png')
        shown = types.SimpleNamespace(encoded=picture(number % 3, number), height=20, width=24)
        writer.write(shards.example(shown, number % 3, item, [(0.0, 0.0, 0.5, 1.0)]))
    records.write_manifest(str(folder), [writer.close()], (), {}, {})
    return folder


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    """Two exported classifiers, as pushed versions: their hashes go with them."""
    folder, made = tmp_path_factory.mktemp('exported'), {}
    for seed, name in enumerate(('shallow', 'deep')):
        settings = tiny_classifier.Config()
        module = tiny_classifier.serving(tiny_classifier.randomised(settings, seed), settings,
                                         tiny_classifier.Inference(), tiny_classifier.Assets(), False)
        saved = folder / f'{name}_saved'
        tf.saved_model.save(module, str(saved), signatures=module.signatures())
        os.makedirs(saved / 'assets.extra', exist_ok=True)
        (saved / 'assets.extra' / 'landmark.json').write_text('{"model_module": "keras_models.vgg"}')
        version = pusher.publish(str(saved), str(folder / 'serving' / name), {})
        shutil.copytree(version, folder / name / 'Format-Serving')
        made[name] = folder / name, module
    return made


def study(target, exported, out=''):
    data = types.SimpleNamespace(data_spec=roles.data('data_prep.imagenet'))
    models = [run(name, 0, export={'model': (folder, {})}) for name, (folder, _) in exported.items()]
    return Study([run('target', 0, data, prepare={'examples': (target, {})}), *models], '', out, 'small')


ROWS = {'one scale': {'nets': ['shallow'], 'only': 1}, 'averaged': {'nets': ['shallow']},
        'stacked': {'nets': ['shallow'], 'stack': True}, 'both': {'nets': ['shallow', 'deep'], 'stack': True},
        'with the box': {'nets': ['shallow'], 'box': True}}


def test_deep_features_are_those_of_the_models_at_the_scales_of_each_row(target, exported, monkeypatch):
    """What the SVM of each row learns from, and is judged by, are descriptors of the models in memory."""
    judged, known = descriptors.judged, []

    def noted(*parts):
        known.append(parts)
        return judged(*parts)
    monkeypatch.setattr(descriptors, 'judged', noted)
    exhibit = deep_features.draw(study(target, exported), 'target', {'small': [14, 18]}, ROWS, 5, 3, splits=2)
    assert [*exhibit.values] == [('raw pixels', 0), *((name, 0) for name in ROWS)]
    label = np.arange(24) % 3
    contents = [picture(number % 3, number) for number in range(24)]
    left = [tf.io.encode_png(tf.io.decode_png(content)[:, :12]).numpy() for content in contents]
    one, other = (exported[name][1] for name in ('shallow', 'deep'))
    described = {
        'one scale': descriptors.describe([one], contents, [18]),
        'averaged': descriptors.describe([one], contents, [14, 18]),
        'stacked': descriptors.describe([one], contents, [14, 18], stack=True),
        'both': descriptors.describe([one, other], contents, [14, 18], stack=True),
        'with the box': descriptors.joined([
            descriptors.describe([one], each, [14, 18]) for each in (contents, left)])}
    drawn = [descriptors.splits(label, 5, 3, number) for number in range(2)]
    for number, (name, x) in enumerate(described.items(), 1):  # before them raw pixels
        seen = known[2 * number:2 * number + 2]
        for found, rows in zip(seen, drawn):
            for part, expected in zip(found, rows):
                np.testing.assert_allclose(part.x, x[expected], atol=1e-5, err_msg=name)
                np.testing.assert_array_equal(part.label, label[expected])
        for measure in ('mean class recall', 'mAP'):
            expected = np.mean([judged(*parts)[measure] for parts in seen])
            assert exhibit.values[name, 0][measure] == pytest.approx(expected), name
    assert len(known) == 12
    assert exhibit.values['raw pixels', 0] == pytest.approx({'mean class recall': 100, 'mAP': 100})


def test_a_setting_that_is_not_run_has_no_features(target, exported):
    with pytest.raises(UserError, match="exhibit deep_features: 'deeper' is not a setting"):
        deep_features.draw(study(target, exported), 'target', {'small': [14]}, {'row': {'nets': ['deeper']}},
                           5, 3, 1)


@pytest.mark.parametrize('box, size', [
    ([0.25, 0.5, 0.75, 1.0], (12, 10)), ([0.5, 0.5, 0.5, 0.5], (1, 1)), ([], (24, 20))])
def test_a_box_is_cut_by_fractions_and_is_one_pixel_at_least(box, size):
    whole = Image.open(io.BytesIO(picture(0, 0)))
    part = Image.open(io.BytesIO(deep_features.cut(picture(0, 0), box)))
    assert part.size == size
    left, upper = (round(end * side) for end, side in zip(box or [0, 0], whole.size))
    np.testing.assert_array_equal(part, np.asarray(whole)[upper:upper + size[1], left:left + size[0]])


def test_raw_pixels_are_levels_less_their_mean_as_vectors_of_unit_length():
    found = deep_features.pixels([solid((10, 20, 30)), solid((30, 20, 10))])
    assert found.shape == (2, 3 * 32 ** 2)
    np.testing.assert_allclose(found[0], -found[1])
    np.testing.assert_allclose(found[0].reshape(32, 32, 3)[5, 7], np.array([-1, 0, 1]) / 2 ** 5.5, rtol=1e-6)
