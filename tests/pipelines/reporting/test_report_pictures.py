"""Sample images of a run: the same validation rows for any number of replicas, shown on the page."""
import base64
import dataclasses
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from keras_models import transformer
from keras_models.core import layers
from pipelines.core import config
from pipelines.reporting import report, strips
from pipelines.training import devices, trainer
from support.finished_run import make_context, predictions

NAMES = ('person', 'made')


def draw(nets, batch, config):
    """A row's tokens as greys, brighter the more weights there are to train: uint8 [B, 3, length, 3]."""
    shade = tf.reduce_sum(tf.abs(nets['transformer'].trainable_variables[0]))
    levels = tf.cast(batch['inputs'], tf.float32) + tf.round(shade)  # [B, length]
    return tf.cast(tf.tile(levels[:, tf.newaxis, :, tf.newaxis] % 256, [1, 3, 1, 3]), tf.uint8)


def drawn(folder):
    """(tag, step) -> pixels, of the last that was written."""
    return {(tag, step): tf.io.decode_png(tensor.string_val[2]).numpy()
            for tag, plugin, step, tensor in strips.events(folder) if plugin == 'images'}


def decoded(uri):
    kind, data = uri.split(',')
    assert kind == 'data:image/jpeg;base64'
    return tf.io.decode_jpeg(base64.b64decode(data)).numpy()


def write(folder, steps, level, rows=(0,), size=(12, 9)):
    with tf.summary.create_file_writer(folder).as_default():
        for step in steps:
            for row in rows:
                tf.summary.image(f'pictures/{row}', tf.fill([1, *size, 3], tf.cast(level(step), tf.uint8)), step)


@pytest.mark.parametrize('kind', ['one_device', pytest.param('mirrored', marks=pytest.mark.slow)])
def test_every_validation_draws_the_first_rows(config_file, examples, tmp_path, monkeypatch, kind):
    """What is in the event files is what the module draws of the rows themselves, in the split's order."""
    monkeypatch.setattr(transformer, 'pictures', draw, raising=False)
    resolved = config.load(config_file, ['train.steps=4', 'train.validate_every=2', f'train.strategy={kind}',
                                         'train.checkpoint_every=4'])
    trainer.train(resolved, examples, str(tmp_path))
    found = drawn(str(tmp_path / 'tensorboard'))
    assert found.keys() == {(f'pictures/{n}', step) for n in range(trainer.DRAWN) for step in (2, 4)}
    it = trainer.Trainer(resolved, devices.choose(resolved, False), examples)
    tf.train.Checkpoint(nets=layers.by_name(it.nets)).restore(
        str(tmp_path / 'checkpoints' / 'ckpt-4')).expect_partial()
    batch = next(iter(it._dataset('validation')))
    one = {name: np.stack([x.numpy() for x in it.strategy.experimental_local_results(batch[name])], 1)
           for name in ('id', 'inputs')}
    ids, inputs = one['id'].ravel(), one['inputs'].reshape([-1, one['inputs'].shape[-1]])
    assert ids[:4].tolist() == sorted(ids[:4])
    expected = draw(it.nets, {'inputs': inputs[:4]}, None)
    for n in range(trainer.DRAWN):
        np.testing.assert_array_equal(found[f'pictures/{n}', 4], expected[n])
    assert len(report.curves(str(tmp_path / 'tensorboard'))['validation/loss']) == 2


def test_drawing_is_compiled_once_needs_a_writer_and_leaves_padding_out(config_file, examples, tmp_path, monkeypatch):
    traced, folders = [], [str(tmp_path / name) for name in ('whole', 'padded')]
    monkeypatch.setattr(transformer, 'pictures', lambda *args: traced.append(1) or draw(*args), raising=False)
    resolved = config.load(config_file)
    it = trainer.Trainer(resolved, devices.choose(resolved, False), examples)
    it.evaluate(tf.constant(-1))
    assert not traced
    with tf.summary.create_file_writer(folders[0]).as_default():
        for _ in range(3):
            it.evaluate(tf.constant(-1))
    assert len(drawn(folders[0])) == trainer.DRAWN
    batch = next(iter(it._dataset('validation')))
    batch['id'] = tf.where(tf.range(tf.shape(batch['id'])[0]) < 1, batch['id'], -1)
    it.eval_begin()
    with tf.summary.create_file_writer(folders[1]).as_default():
        it.eval_step(iter([batch]))
    assert [tag for tag, _ in drawn(folders[1])] == ['pictures/0']
    assert len(traced) == 1


def test_a_strip_is_thinned_evenly_and_keeps_its_ends(tmp_path):
    write(str(tmp_path), range(10, 310, 10), lambda step: step // 2, rows=(10, 2))
    first, second = strips.strips(str(tmp_path))
    assert (first['name'], second['name']) == ('2', '10')  # by number
    steps = [step for step, _ in first['shown']]
    assert len(steps) == strips.STEPS and (steps[0], steps[-1]) == (10, 300)
    assert set(np.diff(steps)) <= {40, 50}
    assert first['aspect'] == 0.75
    for step, uri in first['shown']:
        assert decoded(uri).shape == (12, 9, 3) and abs(decoded(uri).astype(int) - step // 2).max() <= 1


def test_of_a_repeated_step_the_last_picture_counts(tmp_path):
    """Also where a killed run left a file that breaks off in the middle of a picture."""
    write(str(tmp_path), (1, 2, 3), lambda step: 50)
    [path] = tmp_path.glob('*tfevents*')
    path.write_bytes(path.read_bytes()[:-20])
    write(str(tmp_path), (2,), lambda step: 200)
    [row] = strips.strips(str(tmp_path))
    assert [(step, round(decoded(uri).mean())) for step, uri in row['shown']] == [(1, 50), (2, 200)]


def test_no_pictures_are_no_strips(tmp_path):
    assert strips.strips(str(tmp_path / 'missing')) == []
    assert strips.sheet(str(tmp_path)) == strips.sheet(str(tmp_path / 'missing')) == {}


def test_thumbnails_are_no_higher_than_they_may_be():
    """A picture that is half black and half white is so when it is small, at its shape."""
    half = np.repeat(np.array([0, 255], np.uint8), 384)[np.newaxis, :, np.newaxis] * np.ones([1024, 1, 3], np.uint8)
    small = decoded(strips.uri(tf.io.encode_png(half).numpy()))
    assert small.shape == (192, 144, 3)
    np.testing.assert_allclose(small[:, :68], 0, atol=3)
    np.testing.assert_allclose(small[:, 76:], 255, atol=3)


def test_page_carries_strips_sheet_and_notes(tmp_path):
    context = make_context(str(tmp_path), predictions())
    run = context.inputs['model_run']
    context.inputs['model_run'] = dataclasses.replace(run, properties={**run.properties, 'notes': ['a <term> was off']})
    context.properties['protocol'] = {'bleu': 'at 1024 x 768 < 2'}  # as a judge says it
    write(os.path.join(run.uri, 'tensorboard'), (4, 8), lambda step: 10 * step, rows=(0, 1))
    folder = os.path.join(context.outputs['evaluation'], 'pictures')
    os.makedirs(folder)
    for n in (0, 1, 10):
        for i, what in enumerate(NAMES[:1] if n == 10 else NAMES):
            tf.io.write_file(f'{folder}/{n}_{what}.png', tf.io.encode_png(tf.fill([4, 3, 3], np.uint8(20 * n + i))))
    with open(report.write(context.outputs['report'], context), encoding='utf-8') as file:
        page = file.read()
    images = re.findall('<img src="([^"]*)" alt="([^"]*)">', page)
    assert [alt for _, alt in images] == [
        'person of 0', 'made of 0', 'person of 1', 'made of 1', 'person of 10',
        'example 0 at step 4', 'example 0 at step 8', 'example 1 at step 4', 'example 1 at step 8']
    levels = [round(decoded(uri).mean()) for uri, _ in images]
    np.testing.assert_allclose(levels, [0, 1, 20, 21, 200, 40, 80, 40, 80], atol=1)
    assert page.count('<img') == len(images) and 'img-src data:' in page
    assert re.search(r'<th>person</th>\s*<th>made</th>', page) and 'garment</th>' not in page
    assert 'at 1024 x 768 &lt; 2' in page and 'fraction of outputs equal' in page
    assert 'A &lt;term&gt; was off.' in page
    with open(os.path.join(context.outputs['report'], 'model_card.md'), encoding='utf-8') as file:
        assert '- A <term> was off.' in file.read()


def test_every_net_has_a_figure_of_its_loss():
    found = {f'{side}loss/{net}': [(1, 2.0), (2, 1.0)] for side in ('', 'validation/') for net in ('alias', 'judge')}
    found |= {f'{side}L_cGAN/{net}': [(1, 2.0)] for side in ('', 'validation/') for net in ('alias', 'judge')}
    found['learning_rate/alias'] = [(1, 1e-4)]
    titles = [re.search('aria-label="(.*?)"', figure)[1] for figure in report._figures(found, 0)]
    assert titles == ['loss of alias', 'loss of judge', 'L_cGAN', 'learning rate']
