"""Training rules for user data: ordinary keys, off by default, that end with the run."""
import math

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError, wmt
from data_prep.text import job as text_job
from keras_models import alexnet, prelu_net, transformer, vgg
from keras_models.core import optimizers
from keras_models.image import classification
from pipelines.core import config
from pipelines.training import divergence

WRITTEN = '''
data: {module: data_prep.wmt, train: [a.tsv], validation_fraction: 0.1, test_fraction: 0.1}
input: {buckets: [16], tokens: 128}
model: {module: keras_models.transformer, preset: %s, d_model: 64, h: 4}
train: {steps: 200}
'''


@pytest.fixture
def written(tmp_path):
    def write(preset):
        path = tmp_path / f'{preset}.yaml'
        path.write_text(WRITTEN % preset)
        return str(path)
    return write


def test_a_cosine_rises_and_ends_with_the_run():
    schedule = optimizers.Cosine(2.0, steps=50, warmup=0.2)
    rates = [float(schedule(tf.constant(step))) for step in range(50)]
    expected = [2 * n / 10 for n in range(1, 11)] + [
        1 + math.cos(math.pi * n / 41) for n in range(1, 41)]  # zero would be the update after the last
    np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-6)
    assert float(schedule(tf.constant(10 ** 6))) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize('make', [
    lambda clip: optimizers.Momentum(0.5, 0.9, clip_norm=clip),
    lambda clip: optimizers.descent(
        optimizers.Descent(0.5, weight_decay=0.0, schedule='cosine', steps=1, clip_norm=clip))])
def test_gradients_longer_than_the_norm_are_scaled_together(make):
    for clip, scale in ((0.0, 1.0), (10.0, 1.0), (1.0, 0.2)):
        a, b = tf.Variable([0.0, 0.0], name='a/kernel'), tf.Variable([0.0], name='b/kernel')
        make(clip).apply_gradients([(tf.constant([3.0, 0.0]), a), (tf.constant([4.0]), b)])  # of norm 5
        np.testing.assert_allclose(np.concatenate([a, b]), [-1.5 * scale, 0, -2 * scale], rtol=1e-6)


@pytest.mark.parametrize('module', [alexnet, vgg, prelu_net, transformer])
def test_papers_rules_are_the_default_and_own_data_is_a_preset(module):
    keys = module.PRESETS['own_data']
    assert keys['schedule'] == 'cosine' and keys['clip_norm'] == 1
    paper = module.Config()
    assert paper.preset == 'paper' and not module.PRESETS['paper']
    assert (paper.schedule, paper.clip_norm, paper.warmup) != ('cosine', 1, 0.1) and paper.clip_norm == 0
    assert getattr(paper, 'label_smoothing', 0) == 0


def test_the_schedule_spans_the_steps_of_training(written):
    own, paper = (config.load(written(preset)) for preset in ('own_data', 'paper'))
    assert own.model.steps == 200 and own.model.schedule == 'cosine'
    assert config.load(written('own_data'), ['train.steps=70']).model.steps == 70
    assert config.load(written('own_data'), ['model.steps=9']).model.steps == 9
    rate = transformer.optimizers(own.model)['transformer']._learning_rate  # noqa: SLF001
    assert float(rate(19)) == pytest.approx(0.03 / 8) and float(rate(199)) < 1e-5
    rate = transformer.optimizers(paper.model)['transformer']._learning_rate  # noqa: SLF001
    assert isinstance(rate, optimizers.InverseSquareRoot)
    with pytest.raises(UserError, match=r'warmup must be a share of the steps'):
        config.load(written('own_data'), ['model.warmup=400.0'])


def test_labels_are_smoothed_if_wanted():
    logits = tf.constant([[2.0, 0.0, -1.0]])
    batch = {'image': tf.zeros([1, 1, 1, 3]), 'label': tf.constant([0])}
    p = tf.nn.softmax(logits).numpy()[0]
    for share in (0.0, 0.3):
        net = {'classifier': lambda inputs, training: logits}
        losses, _ = classification.loss_fn(net, batch, None, True, vgg.Config(label_smoothing=share))
        q = np.array([1 - share, 0, 0]) + share / 3
        assert float(losses['classifier'][0]) == pytest.approx(-(q * np.log(p)).sum(), rel=1e-5)


def test_pairs_are_split_off_by_their_source(tmp_path):
    """Every pair is in one split, those of one source in the same, and about as many as asked for."""
    path = tmp_path / 'all.tsv'
    path.write_text(''.join(f'source {n % 400}\ttarget {n}\n' for n in range(800)))
    settings = wmt.Config(train=[str(path)], validation_fraction=0.25, test_fraction=0.1, vocab_size=60)
    manifest = text_job.run(settings, str(tmp_path / 'examples'), [])
    counts = {split: numbers['written'] for split, numbers in manifest.counts.items()}
    assert sum(counts.values()) == 800
    assert counts['validation'] == pytest.approx(200, abs=50) and counts['test'] == pytest.approx(80, abs=35)
    seen = {}
    for split in counts:
        for shard in (tmp_path / 'examples' / f'Split-{split}').glob('*.tfrecord'):
            for record in tf.data.TFRecordDataset(str(shard)):
                seen.setdefault(wmt.examples([record.numpy()])[0][0], set()).add(split)
    assert len(seen) == 400 and all(len(splits) == 1 for splits in seen.values())


def test_validation_is_listed_or_split_off():
    with pytest.raises(ValueError, match='validation must list files, or validation_fraction'):
        wmt.Config(train=['a.tsv'], test=['b.tsv'])


@pytest.mark.parametrize('overrides, sentence', [
    ([], 'Clip the gradients, with --set model.clip_norm=1.'),
    (['model.clip_norm=1'], 'Lower the learning rate, with --set model.learning_rate_factor=0.33.'),
    (['model.clip_norm=1', 'model.schedule=cosine', 'model.learning_rate=0.3'],
     'Lower the learning rate, with --set model.learning_rate=0.1.')])
def test_what_keeps_a_loss_finite_is_a_key_and_a_value(written, overrides, sentence):
    loaded = config.load(written('paper'), overrides)
    assert divergence.remedy(loaded, 'transformer') == sentence
    key, value = sentence.split('--set ')[1].removesuffix('.').split('=')
    assert config.load(written('paper'), [*overrides, f'{key}={value}']).values['model'] != loaded.values['model']


def test_where_a_loss_grew_is_the_layer_whose_weights_did():
    net = tf.keras.Sequential([tf.keras.layers.Dense(2, name='first'), tf.keras.layers.Dense(2, name='second')])
    net.build([None, 2])
    began = divergence.sizes({'net': net})
    assert list(began) == ['first', 'second']
    net.layers[1].kernel.assign(net.layers[1].kernel * 50)
    loaded = config.load('demo_images', ['model.clip_norm=1', 'model.learning_rate=0.03', 'input.standardise=true'])
    good, bad = {'loss/net': (tf.constant(1.0), 1)}, {'loss/net': (tf.constant(float('inf')), 1)}
    divergence.check([good, good], 7, {'net': net}, began, loaded)
    with pytest.raises(UserError, match=r'at step 6 the loss is inf\. It grew in second, whose weights are 50 times as '
                       r'large as at the start\. Lower the learning rate, with --set model.learning_rate=0.01\.'):
        divergence.check([good, bad, good], 7, {'net': net}, began, loaded)
    with pytest.raises(UserError, match='Standardise them, with --set input.standardise=true'):
        divergence.check([bad], 1, {'net': net}, began, config.load('demo_images'))
