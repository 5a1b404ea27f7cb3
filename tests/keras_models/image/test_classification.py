"""Shared code of the image classifiers: batch errors, and images in, classes out, also in another process."""
import dataclasses
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_models import ModelError, alexnet, prelu_net, vgg
from keras_models.core import losses
from keras_models.image import classification, views
from keras_models.image import serving as classifiers
from keras_models.image.serving import Inference
from pipelines.infra_validate import must_compile
from support import tiny_classifier
from support.tiny_classifier import Assets, Config, jpeg, png

EVERYTHING = Inference(views=['single', 'ten_crop', 'multi_crop', 'dense'], scales=[14, 16])
# Of any size: smaller than the crop, long, and large.
PICTURES = [jpeg(height=5, width=9, seed=1), png(height=40, width=12, seed=2), jpeg(seed=3), png(seed=4),
            jpeg(height=60, width=200, seed=5)]


def serving(inference=EVERYTHING, seed=0, jit=False, **config):
    config = Config(**config)
    nets = tiny_classifier.randomised(config, seed)
    return tiny_classifier.serving(nets, config, inference, Assets(config.classes), jit)


def export(folder, module):
    tf.saved_model.save(module, str(folder), signatures=module.signatures())
    return str(folder)


def example(image):
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image]))
    return tf.train.Example(features=tf.train.Features(feature={'image': feature})).SerializeToString()


@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    """The path of a model with every view, and the same in memory."""
    module = serving()
    return export(tmp_path_factory.mktemp('exported') / '1', module), module


def loss(logits, labels):
    batch = {'image': tf.zeros([len(labels), 12, 12, 3]), 'label': tf.constant(labels)}
    found, metrics = tiny_classifier.loss_fn({'classifier': lambda inputs, training: tf.constant(logits)}, batch,
                                             tf.constant([1, 2]), False, Config())
    return found['classifier'], metrics


def test_errors_and_cross_entropy_of_a_batch():
    logits = np.array([[3, 9, 1, 2, 4, 5, 6],   # right
                       [3, 9, 1, 2, 4, 5, 6],   # third
                       [3, 9, 1, 2, 4, 5, 6],   # last
                       [9, 0, 0, 0, 0, 0, 0]], np.float32)  # an empty row
    (total, images), metrics = loss(logits, [1, 5, 2, -1])
    p = np.exp(logits[[0, 1, 2], [1, 5, 2]]) / np.exp(logits[:3]).sum(1)
    np.testing.assert_allclose(total, -np.log(p).sum(), rtol=1e-6)
    assert images == 3
    assert metrics['top1_error'] == (2, 3) and metrics['top5_error'] == (1, 3)


def test_ties_and_nan_count_as_errors():
    _, metrics = loss(np.zeros([3, 7], np.float32), [0, 3, 6])
    assert metrics['top1_error'] == metrics['top5_error'] == (3, 3)
    _, metrics = loss(np.full([3, 7], np.nan, np.float32), [0, 3, 6])
    assert metrics['top1_error'] == metrics['top5_error'] == (3, 3)
    _, metrics = loss(np.zeros([2, 4], np.float32), [0, 3])  # of four classes five hold all
    assert metrics['top1_error'] == (2, 2) and metrics['top5_error'] == (0, 2)


def test_the_answer_is_the_mean_over_all_views_at_all_scales(exported):
    module, assets = exported[1], Assets()
    nets = tiny_classifier.randomised(Config())['classifier']  # the same ones
    layers = {layer.name: layer for layer in nets.layers}

    def p(x):
        return tf.nn.softmax(nets([x, tf.zeros([2], tf.int32)])).numpy()
    found = []
    for scale in (14, 16):
        x = assets.picture(tf.constant(PICTURES[1]), scale)
        assert min(x.shape[:2]) == scale
        found += [p(views.crops(x, 12, view)).mean(0) for view in ('single', 'ten_crop', 'multi_crop')]
        maps = tiny_classifier.convolutions(layers, Config(), tf.stack([x, x[:, ::-1]]))
        z = tiny_classifier.score_map(layers, Config(), maps).numpy().mean((1, 2))
        found.append(tf.nn.softmax(z).numpy().mean(0))
    np.testing.assert_allclose(module.posteriors(tf.constant(PICTURES))[1], np.mean(found, 0), atol=1e-5)


def test_labels_are_the_most_probable_classes_best_first(exported):
    module = exported[1]
    posteriors, answers = module.posteriors(tf.constant(PICTURES)).numpy(), module.serve(tf.constant(PICTURES))
    order = np.argsort(-posteriors, 1)[:, :5]
    np.testing.assert_allclose(answers['probabilities'], np.take_along_axis(posteriors, order, 1))
    assert [[int(name[1:]) for name in row] for row in answers['labels'].numpy()] == order.tolist()
    assert answers['descriptions'].numpy()[0, 0].decode() == f'thing {order[0, 0]}, a thing'
    assert module.classes().numpy()[6] == b'n0006' and module.descriptions().numpy()[6] == b'thing 6, a thing'
    np.testing.assert_allclose(posteriors.sum(1), 1, atol=1e-5)
    assert len({tuple(row) for row in order}) > 1  # it does look
    few = serving(Inference(), classes=3)
    assert few.serve(tf.constant(PICTURES))['labels'].shape == (5, 3)


def test_a_batch_equals_one_by_one_and_a_jpeg_the_png_of_its_pixels(exported):
    module = exported[1]
    together = module.posteriors(tf.constant(PICTURES)).numpy()
    np.testing.assert_allclose(together, [module.posteriors(tf.constant([each]))[0] for each in PICTURES], atol=1e-5)
    assert module.posteriors(tf.constant([], tf.string)).shape == (0, 7)
    pixels = tf.io.decode_jpeg(PICTURES[0], dct_method='INTEGER_ACCURATE')  # as Pillow decodes
    pair = tf.constant([PICTURES[0], tf.io.encode_png(pixels).numpy()])
    np.testing.assert_allclose(*module.posteriors(pair).numpy(), rtol=1e-6)


def test_the_export_holds_nothing_a_server_refuses(exported, tmp_path):
    assert not must_compile(exported[0])
    compiled = serving(Inference(), jit=True)
    assert must_compile(export(tmp_path / '1', compiled))


def test_compiling_the_net_changes_no_answer():
    plain, compiled = (serving(Inference(views=['ten_crop', 'dense']), jit=jit) for jit in (False, True))
    image = tf.constant(PICTURES[:3])
    np.testing.assert_allclose(plain.posteriors(image), compiled.posteriors(image), atol=1e-5)


FRESH = """
import sys
import numpy as np, tensorflow as tf
folder, pictures, found = sys.argv[1:]
pictures = np.load(pictures, allow_pickle=False)
model = tf.saved_model.load(folder)
image = tf.constant([bytes(pictures[name]) for name in sorted(pictures.files)])
answers = model.signatures['serving_default'](image=image)
tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': True})  # which rewrote the net once already
answers = {name: value.numpy().astype(str if value.dtype == tf.string else float) for name, value in answers.items()}
np.savez(found, posteriors=model.posteriors(image), **answers)
assert 'keras_models' not in sys.modules
"""


def in_a_fresh_process(folder, tmp_path):
    np.savez(tmp_path / 'pictures.npz', **{str(i): np.frombuffer(each, np.uint8) for i, each in enumerate(PICTURES)})
    subprocess.run([sys.executable, '-c', FRESH, folder, str(tmp_path / 'pictures.npz'), str(tmp_path / 'found.npz')],
                   check=True, cwd=tmp_path, env={**os.environ, 'CUDA_VISIBLE_DEVICES': ''}, timeout=300)
    return np.load(tmp_path / 'found.npz')


@pytest.mark.slow  # test_localisation.py serves a fused net, exported too
def test_fused_models_are_averaged_and_the_export_holds_them_all(tmp_path):
    """Simonyan & Zisserman 4.4; the other comes with views and a crop of its own."""
    own = Inference(views=['single', 'dense'], scales=[14])
    alone = [serving(own), serving(Inference(views=['ten_crop']), seed=1, crop=14)]
    folders = [export(tmp_path / '1', alone[1])]
    module = serving(dataclasses.replace(own, fuse=folders))
    image = tf.constant(PICTURES)
    expected = np.mean([each.posteriors(image) for each in alone], 0)
    np.testing.assert_allclose(module.posteriors(image), expected, atol=1e-6)
    path = export(tmp_path / 'all', module)
    for folder in folders:
        shutil.rmtree(folder)
    found = in_a_fresh_process(path, tmp_path)
    np.testing.assert_allclose(found['posteriors'], expected, atol=1e-5)
    in_memory = module.serve(image)
    np.testing.assert_allclose(found['probabilities'], in_memory['probabilities'], atol=1e-5)
    for name in ('labels', 'descriptions'):
        assert found[name].tolist() == in_memory[name].numpy().astype(str).tolist()


def test_serialized_examples_get_the_same_answers(exported):
    loaded = tf.saved_model.load(exported[0])
    by_picture = loaded.signatures['serving_default'](image=tf.constant(PICTURES))
    by_example = loaded.signatures['tf_examples'](examples=tf.constant([example(each) for each in PICTURES]))
    assert by_picture.keys() == by_example.keys() == {'labels', 'descriptions', 'probabilities'}
    for name, values in by_picture.items():
        np.testing.assert_array_equal(values, by_example[name])


@pytest.mark.parametrize('paper, config', [
    pytest.param(alexnet, alexnet.Config(classes=7, crop=67, width=0.06), id='alexnet'),
    pytest.param(alexnet, alexnet.Config(variant='cifar10', classes=7, crop=24, width=0.06), id='alexnet_cifar10',
                 marks=pytest.mark.slow),
    pytest.param(vgg, vgg.Config(classes=7, crop=32, width=0.06, variant='A'), id='vgg'),
    pytest.param(prelu_net, prelu_net.Config(classes=7, crop=28, width=0.06, layers=[
        '7x7, 96, /2', '3x3, 256', '2x2 maxpool, /2', '3x3, 256', 'spp, {7, 3, 2, 1}', 'fc, 256']), id='prelu_net')])
def test_the_papers_nets_are_served(paper, config, tmp_path):
    nets = tiny_classifier.randomised_net(paper.build(config))
    side = config.crop
    asked = {view: classifiers.serving(nets, config, Inference(views=[view], flips=False), Assets(7, side), False)
             for view in ('single', 'dense')}
    square = tf.constant([jpeg(height=side, width=side, seed=seed) for seed in range(2)])
    posteriors = asked['single'].posteriors(square).numpy()
    np.testing.assert_allclose(asked['dense'].posteriors(square), posteriors, atol=1e-4)
    assert np.ptp(posteriors, 1).min() > 0.01 and np.abs(posteriors[0] - posteriors[1]).max() > 1e-3
    answers = classifiers.predict(tf.saved_model.load(export(tmp_path / '1', asked['dense'])), PICTURES)
    expected = asked['dense'].serve(tf.constant(PICTURES))
    np.testing.assert_allclose([row['probabilities'] for row in answers], expected['probabilities'], atol=1e-5)


@pytest.mark.parametrize('jit', [False, True])
def test_predict_answers_in_order_and_one_bad_picture_loses_no_other(exported, jit):
    model = tf.saved_model.load(exported[0])
    bad = [b'', b'text', PICTURES[2][:300]]
    inputs = [*PICTURES[:3], bad[0], *PICTURES[3:], bad[1], bad[2]]
    found = tiny_classifier.predict(model, iter(inputs), batch_size=4, jit=jit)
    good = [row for row, image in zip(found, inputs) if image not in bad]
    assert [bool(row['error']) for row in found] == [image in bad for image in inputs]
    assert all(row['answers'] == row['descriptions'] == row['probabilities'] == [] for row in found if row['error'])
    expected = exported[1].serve(tf.constant(PICTURES))
    np.testing.assert_allclose([row['probabilities'] for row in good], expected['probabilities'], atol=1e-5)
    assert [row['answers'] for row in good] == expected['labels'].numpy().astype(str).tolist()
    assert [row['descriptions'] for row in good] == expected['descriptions'].numpy().astype(str).tolist()
    assert tiny_classifier.predict(model, [], 4, jit) == []


def test_a_failure_that_is_no_pictures_fault_is_not_laid_to_one(exported):
    model = tf.saved_model.load(exported[0])

    def serve(image):
        raise tf.errors.InvalidArgumentError(None, None, 'a bug')
    model.serve = serve
    with pytest.raises(tf.errors.InvalidArgumentError, match='a bug'):
        tiny_classifier.predict(model, PICTURES, 2)


def test_what_cannot_be_fused_is_refused_by_name(tmp_path):
    six = serving(Inference(), classes=6)
    other = export(tmp_path / 'other', six)
    with pytest.raises(ModelError, match='other has 6 classes, but this data set has 7'):
        serving(Inference(fuse=[other]))
    with pytest.raises(ModelError, match="other has 'n0000' where this data set has 'n0005'"):
        nets, assets = tiny_classifier.randomised(Config(6)), Assets(6)
        assets.names.reverse()
        tiny_classifier.serving(nets, Config(6), Inference(fuse=[other]), assets, False)
    with pytest.raises(ModelError, match=r'nowhere has no saved_model.pb'):
        serving(Inference(fuse=[str(tmp_path / 'nowhere')]))
    tf.saved_model.save(tf.Module(), str(tmp_path / 'empty'))
    with pytest.raises(ModelError, match=r'empty cannot be loaded as a classifier'):
        serving(Inference(fuse=[str(tmp_path / 'empty')]))


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ModelError, match='an image of 10 pixels is smaller than a crop of 12'):
        serving(Inference(scales=[16, 10]))
    with pytest.raises(ModelError, match='model.classes is 9, but the data set has 7 classes'):
        classifiers.serving(tiny_classifier.randomised(Config(9)), Config(9), Inference(), Assets(7), False)
    for wrong in (['dense', 'dense'], [], ['dense', 'half_crop']):
        with pytest.raises(ValueError, match='single, ten_crop, multi_crop, dense, each once'):
            Inference(views=wrong)
    with pytest.raises(ValueError, match='scales must be sides'):
        Inference(scales=[0])


def test_the_loss_is_weighted_by_the_shares():
    """It is the cross-entropy with the mixed targets; errors are those of the first class."""
    draw = np.random.default_rng(0)
    logits = tf.constant(draw.normal(size=(4, 3)), tf.float32)
    batch = {'image': tf.zeros([4, 8, 8, 3]), 'label': tf.constant([0, 1, 2, -1]), 'other': tf.constant([-1, 0, 1, 2]),
             'kept': tf.constant([1, 0.75, 0.25, 1])}

    smoothed = Config(label_smoothing=0.1)
    found, metrics = classification.loss_fn({'classifier': lambda inputs, training: logits}, batch, tf.zeros([2]), True,
                                            smoothed)
    targets = 0.9 * np.array([[1, 0, 0], [0.25, 0.75, 0], [0, 0.75, 0.25]]) + 0.1 / 3
    expected = -(targets * tf.nn.log_softmax(logits[:3]).numpy()).sum()
    assert float(found['classifier'][0]) == pytest.approx(expected, rel=1e-5) and found['classifier'][1] == 3
    assert float(metrics['top1_error'][0]) == (np.argmax(logits[:3], 1) != [0, 1, 2]).sum()
    plain = losses.cross_entropy(logits[:3], tf.range(3), 0.1)[0]
    unmixed = classification.loss_fn({'classifier': lambda inputs, training: logits}, {
        name: batch[name] for name in ('image', 'label')}, tf.zeros([2]), True, smoothed)[0]
    assert float(unmixed['classifier'][0]) == pytest.approx(float(tf.reduce_sum(plain)), rel=1e-6)


def test_with_class_counts_a_rare_class_is_not_held_back_by_its_rarity():
    """Find the least loss over ten images that look alike: at equal scores, and without counts at nine to one."""
    batch = {'image': tf.zeros([10, 8, 8, 3]), 'label': tf.constant([0] * 9 + [1])}
    for counts, smoothing, scores in ([], 0, [np.log(9), 0]), ([90, 10], 0, [0, 0]), ([90, 10], 0.1, [0, 0]):
        z = tf.Variable([scores], dtype=tf.float32)
        with tf.GradientTape() as tape:
            logits = tf.tile(z, [10, 1])
            net = {'classifier': lambda inputs, training, logits=logits: logits}
            found, _ = classification.loss_fn(net, batch, tf.zeros([2]), True,
                                              Config(class_counts=counts, label_smoothing=smoothing))
        np.testing.assert_allclose(tape.gradient(found['classifier'][0], z), [[0, 0]], atol=1e-6)
    with pytest.raises(ModelError, match=r'model\.class_counts has 3 numbers, but there are 2 classes'):
        classification.loss_fn(net, batch, tf.zeros([2]), True, Config(class_counts=[1, 2, 3]))
    with pytest.raises(ValueError, match='class_counts must be at least 1 each'):
        vgg.Config(class_counts=[5, 0])
