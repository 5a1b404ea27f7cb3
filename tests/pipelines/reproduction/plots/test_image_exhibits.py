"""Pages' plots of image nets: kernels, predictions, neighbours, layers."""
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep import UserError
from keras_models import alexnet
from pipelines.core import config
from pipelines.core.pipeline import Pipeline
from pipelines.reproduction import experiments
from pipelines.reproduction.plots import kernels, layers, nearest, trained
from support.commands import command
from support.forked_stages import fork_stages

ITEM = '''
title: Digits
source: a test
stages: [prepare, train, export]
scales:
  small:
    config: demo_images
    set: [train.steps=30, train.validate_every=30, train.checkpoint_every=30, train.log_every=30]
settings:
  a: {}
measures:
  steps to nothing: {metric: training/top1_error, take: steps, below: -1}
  steps to anything: {metric: training/top1_error, take: steps, below: 1}
  least training error: {metric: training/top1_error, take: least}
exhibit:
  - {draw: kernels}
  - {draw: top5, setting: a, pictures: 3}
  - {draw: nearest, pictures: 2, neighbours: 4, asked: 30}
  - {draw: layers}
'''


@pytest.mark.slow
def test_a_page_of_pictures(tmp_path):
    (tmp_path / 'ours').mkdir()
    (tmp_path / 'ours' / 'digits.yaml').write_text(ITEM)
    done = command('pipelines.reproduce', 'ours/digits.yaml', '--out', 'out', cwd=tmp_path, before=fork_stages)
    assert done.returncode == 0, done.stderr
    out = tmp_path / 'out' / 'ours' / 'digits'
    page, table = (out / 'page.html').read_text(), json.loads((out / 'found.json').read_text())['table']
    for name in ('kernels.png', 'top5.png', 'nearest.png', 'layers.png'):
        assert f'src="{name}"' in page and np.ptp(np.asarray(Image.open(out / name))) > 100
    near, pixels = table['last hidden layer'], table['pixels']
    assert all(0 <= row['of the same class'][0] <= 1 for row in (near, pixels))
    among = int(page.split(' training images')[0].split(' nearest of ')[-1].replace(',', ''))
    assert pixels['nearer in pixels'] == pytest.approx([1.5 / among], rel=0.1)  # places 0 to 3, but for ties
    assert near['nearer in pixels'][0] > pixels['nearer in pixels'][0]
    assert table['a']['steps to nothing'] == ['inf'] and table['a']['steps to anything'] == [30]
    assert 0 < table['a']['least training error'][0] < 1 and 0.3 < table['a']['colour'][0] < 1


def test_colour_is_what_is_not_grey():
    draw = np.random.default_rng(0)
    grey = np.repeat(draw.normal(size=(5, 5, 1, 4)), 3, 2)
    np.testing.assert_allclose(kernels.colour(grey), 0, atol=1e-12)
    opposed = grey * np.array([1, -1, 0])[:, None]
    np.testing.assert_allclose(kernels.colour(opposed), 1)
    np.testing.assert_allclose(kernels.colour(grey + opposed), 2 / 5 * np.ones(4))  # 2 of 3 + 2 squared lengths
    assert kernels.colour(draw.normal(size=(11, 11, 3, 500))).mean() == pytest.approx(2 / 3, abs=0.01)


def test_kernels_are_where_they_belong():
    every = np.zeros((2, 2, 3, 10))
    every[0, 1, 2, 6] = 1.0  # the second of the second tower
    every[1, 0, :, 0] = -2.0
    page = kernels.grid(every, towers=2, columns=4)
    assert page.shape == (2 * (2 * 3 + 4) - 4 + 1, 4 * 3 + 1, 3)
    assert page[1:3, 1:3].tolist() == [[[128] * 3] * 2, [[0] * 3, [128] * 3]]
    assert page[11, 5].tolist()[:2] == [128, 128] and 180 < page[11, 5, 2] < 200
    assert (page[0] == 255).all() and (page[7:11] == 255).all()


def test_how_near_neighbours_are_in_pixels():
    draw = np.random.default_rng(0)
    test, train = draw.normal(size=(20, 6)), draw.normal(size=(100, 6))
    order = np.argsort(((test[:, None] - train) ** 2).sum(-1), 1)
    assert nearest.closer(test, train, order[:, :3]) == pytest.approx((0 + 1 + 2) / 3 / 100)
    assert nearest.closer(test, train, order[:, -1:]) == pytest.approx(0.99)
    assert nearest.closer(test, train, order) == pytest.approx(0.495)


def test_the_last_hidden_layer_is_what_the_last_one_takes():
    net = alexnet.build(alexnet.Config(classes=5, crop=64, width=1 / 16))['classifier']
    image, seed = tf.random.normal([2, 64, 64, 3], seed=1) * 60, tf.zeros([2], tf.int32)
    vectors, last = nearest.hidden(net)([image, seed]), net.get_layer('fc8')
    assert vectors.shape == (2, 256)
    np.testing.assert_allclose(vectors @ last.kernel + last.bias, net([image, seed]), rtol=1e-4, atol=1e-6)


def test_figure_2_counts_neurons(tmp_path):
    opened = Pipeline(config.load('alexnet_imagenet'), str(tmp_path), [])
    study = experiments.Study([experiments.Run('AlexNet', 1, opened, [])], '', str(tmp_path), 'small')
    values = layers.draw(study, towers=2, joined=['conv3']).values
    assert [values[name, 1]['neurons'] for name in ('conv2', 'conv3', 'conv4', 'conv5', 'fc6', 'fc7', 'fc8')] == [
        186_624, 64_896, 64_896, 43_264, 4096, 4096, 1000]
    assert values['AlexNet', 1]['million parameters'] == pytest.approx(60.965224)
    with pytest.raises(UserError, match="no run of the setting 'VGG'. Settings with runs: AlexNet"):
        trained.run(study, 'VGG')
