"""A localiser in other formats: its network, and the program beside it, give the SavedModel's classes and boxes."""
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from keras_models import localisation, vgg
from keras_models.image import boxes, localiser, portable, serving
from pipelines.serving.kit import classify, localise
from support import image_files
from support.tiny_classifier import Assets, jpeg, png
from support.vgg_weights import fill

SMALL = {'variant': 'A', 'classes': 7, 'crop': 64, 'width': 1 / 32}
PICTURES = [jpeg(height=50, width=90, seed=1), png(height=120, width=70, seed=2), jpeg(height=64, width=64, seed=3)]
ASSETS = Assets(7, 80)


def write(folder, suffix, parts, inference):
    """A folder of networks, for images of which nothing is subtracted."""
    zeros, settings = np.zeros([3, 3]), {'crop': 64, 'mean': 'pixel', 'square': False, 'standardise': False}
    pixels = {'mean_image': np.zeros([256, 256, 3]), 'mean_rgb': zeros[0], 'covariance': zeros}
    image_files.write(folder, suffix, parts, ASSETS, pixels, settings | {'scales': [80]}, inference)


@pytest.fixture(scope='module')
def classifier(tmp_path_factory):
    """The folder of an exported classifier, its nets and its settings."""
    config, inference = vgg.Config(**SMALL), serving.Inference(views=['dense'])
    nets = vgg.build(config)
    fill(nets['classifier'], 9)
    nets['classifier'].get_layer('fc8').kernel.assign(nets['classifier'].get_layer('fc8').kernel / 30)
    module = serving.serving(nets, config, inference, ASSETS, False)
    folder = str(tmp_path_factory.mktemp('classifier') / '1')
    tf.saved_model.save(module, folder, signatures=module.signatures())
    return folder, nets, config, inference


def localiser_of(folder, suffix, own, seed, inference):
    """A localiser's module; it is also written to a folder."""
    trained = localisation.build(own)
    fill(trained['localiser'], seed)
    write(folder, suffix, localiser.networks(trained, own, inference, ASSETS), inference)
    return localiser.serving(trained, own, inference, ASSETS, False)


@pytest.mark.parametrize('suffix, kind, fused', [('tflite', 'per_class', False), ('onnx', 'shared', True)])
def test_the_program_answers_as_the_saved_model(classifier, tmp_path, suffix, kind, fused):
    """Alone, and united with a localiser that has a box for each class and sees another scale."""
    folder, nets, config, views = classifier
    inference, model = localiser.Inference(classifier=folder, scales=[64, 128]), tmp_path / 'model'
    if fused:
        other = dataclasses.replace(inference, scales=[96])
        module = localiser_of(model / 'fuse/0', suffix, localisation.Config(**SMALL), 1, other)
        tf.saved_model.save(module, str(tmp_path / 'other'), signatures=module.signatures())
        write(model / 'fuse/0/classifier', suffix, portable.networks(nets, config, views, ASSETS), views)
        inference = dataclasses.replace(inference, fuse=[str(tmp_path / 'other')])
    module = localiser_of(model, suffix, localisation.Config(**SMALL, boxes=kind), 0, inference)
    write(model / 'classifier', suffix, portable.networks(nets, config, views, ASSETS), views)
    program, expected = localise.load(model), localiser.predict(module, PICTURES)
    *found, last = program.predict([*PICTURES, b'no image'])
    assert last['error'] and last['answers'] == []
    for ours, theirs in zip(expected, found):
        assert (theirs['answers'], theirs['descriptions']) == (ours['answers'], ours['descriptions'])
        for name in ('probabilities', 'boxes', 'scores'):
            np.testing.assert_allclose(theirs[name], ours[name], atol=1e-3)
    assert len(program.predictions(classify.read(PICTURES[0]), [0])) == 2 + fused
    labels = [6, 0, 3]
    np.testing.assert_allclose(program.judged(PICTURES, [ASSETS.names[label] for label in labels]),
                               module.judged(tf.constant(PICTURES), tf.constant(labels)), atol=1e-4)


def test_boxes_are_merged_as_ours():
    """Whatever the bound: none, some, or all become one."""
    draw = np.random.default_rng(0)
    for bound in (0.0, 0.5, 1.0, 2.0, 9.0):
        start = draw.uniform(-0.1, 0.7, (3, 14, 2))
        box = np.concatenate([start, start + draw.uniform(-0.05, 0.4, (3, 14, 2))], -1).astype(np.float32)
        score = draw.uniform(0, 1, (3, 14)).astype(np.float32)
        for expected, total, of_class, scores in zip(*boxes.best(box, score, bound), box, score):
            found, sum_ = localise.merged(of_class, scores, bound)
            np.testing.assert_allclose(found, expected, atol=1e-5)
            assert sum_ == pytest.approx(float(total), abs=1e-5)


def test_a_classifier_that_does_not_fit_is_refused(classifier, tmp_path):
    """One whose network takes crops alone, and one of other classes."""
    _, nets, config, _ = classifier
    views = serving.Inference()
    own = localisation.Config(**SMALL)
    inference = localiser.Inference(classifier='elsewhere')
    write(tmp_path / 'model', 'tflite', localiser.networks(localisation.build(own), own, inference, ASSETS), inference)
    write(tmp_path / 'model/classifier', 'tflite', portable.networks(nets, config, views, ASSETS), views)
    with pytest.raises(ValueError, match=r'without its score map. Export it with --set inference.views=\[dense\]'):
        localise.load(tmp_path / 'model')
    (tmp_path / 'model/classifier/labels.json').write_text(json.dumps([['x', 'other']]))
    with pytest.raises(ValueError, match='inference.classifier has other classes'):
        localise.load(tmp_path / 'model')
