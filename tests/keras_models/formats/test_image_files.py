"""An image classifier in other formats: its networks, and the program beside them, give the SavedModel's answers."""
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from data_prep.image import augmentation
from keras_models import alexnet, prelu_net, vgg
from keras_models.formats import onnx_file, tflite_file
from keras_models.image import portable, serving
from pipelines.serving.kit import classify, networks
from support import image_files, tiny_classifier

PHOTOGRAPHS = [tiny_classifier.jpeg(height=height, width=width, seed=seed) for seed, (height, width) in enumerate(
    [(20, 30), (40, 22), (13, 13), (100, 60), (12, 200)])] + [tiny_classifier.png(height=50, width=31)]
# `mean`, `square`, `standardise`, `scales` of the input; and of inference.
SETTINGS = [('pixel', False, False, [14, 20], ['single'], []), ('pixel', True, False, [16], ['ten_crop'], [15, 22]),
            ('rgb', False, True, [13], ['dense'], [15, 22]), ('none', True, True, [14], ['dense', 'multi_crop'], [])]


@pytest.fixture(scope='module')
def pixels():
    """Statistics of a training set that is not even; the mean image is smooth, as a mean of many is."""
    draw = np.random.default_rng(0)
    coarse = tf.image.resize(draw.uniform(0, 255, (5, 5, 3)), [augmentation.SIDE] * 2).numpy()
    return augmentation.Pixels(coarse, draw.uniform(0, 255, 3), np.cov(draw.normal(0, 50, (3, 100))))


class Assets:
    """The parts of a data set that a served model needs."""
    names, descriptions = list('abcdefg'), list('ABCDEFG')

    def __init__(self, pixels, mean, square, standardise, scales):
        view = augmentation.View(pixels, 12, (scales[0], scales[-1]), square, False, 0, mean, standardise)
        self.picture, self.scale = view.picture, view.scale


def write(folder, suffix, nets, pixels, settings, inference):
    """A folder of the networks of a classifier."""
    assets = Assets(pixels, *settings)
    parts = portable.networks(nets, tiny_classifier.Config(), inference, assets)
    asked = dict(zip(('mean', 'square', 'standardise', 'scales'), settings), crop=12)
    image_files.write(folder, suffix, parts, assets, dataclasses.asdict(pixels), asked, inference)


@pytest.mark.parametrize('suffix', ['tflite', 'onnx'])
@pytest.mark.parametrize('mean, square, standardise, scales, views, asked', SETTINGS)
def test_the_program_answers_as_the_saved_model(pixels, tmp_path, suffix, mean, square, standardise, scales, views,
                                                asked):
    """Images of several sizes, one of which is cut for its length, in every view and with every mean."""
    settings, config = (mean, square, standardise, scales), tiny_classifier.Config()
    assets, nets = Assets(pixels, *settings), tiny_classifier.randomised(config)
    inference = serving.Inference(views=views, scales=asked)
    write(tmp_path / 'model', suffix, nets, pixels, settings, inference)
    found = classify.load(tmp_path / 'model').predict([*PHOTOGRAPHS, b'no image'])
    expected = serving.predict(serving.serving(nets, config, inference, assets, False), PHOTOGRAPHS)
    assert found.pop()['error'] and not any(each['error'] for each in found)
    for ours, theirs in zip(expected, found):
        assert len(theirs['answers']) == 5 and theirs['descriptions'] == [name.upper() for name in theirs['answers']]
        assert theirs['probabilities'] == pytest.approx(ours['probabilities'], abs=1e-4)
        both = dict(zip(ours['answers'], ours['probabilities'])), dict(zip(theirs['answers'], theirs['probabilities']))
        assert all(both[1].get(name, 0) == pytest.approx(p, abs=1e-4) for name, p in both[0].items() if p > 1e-3)


@pytest.mark.parametrize('settings', [each[:4] for each in SETTINGS])
def test_an_image_is_prepared_as_for_training(pixels, settings):
    """To a hundredth of a level of 255, which is float32's rounding in the mean image's coordinates."""
    assets, program = Assets(pixels, *settings), object.__new__(classify.Classifier)
    mean, square, standardise, _ = settings
    program.input = {'mean': mean, 'square': square, 'standardise': standardise}
    program.pixels = dataclasses.asdict(pixels)
    for data in PHOTOGRAPHS:
        for scale in (12, 15, 40):
            decoded = augmentation.decoded(data).numpy()
            assert np.allclose(program.shown(decoded, scale), assets.picture(data, scale), atol=0.01)


def network(module, **changes):
    """A paper's net, made small, with weights that tell crops apart."""
    config = module.Config(classes=5, **changes)
    nets = tiny_classifier.randomised_net(module.build(config))
    inference = serving.Inference()

    class Crops:
        scale = config.crop

        def picture(data, scale):
            return tf.image.resize(tf.cast(tf.io.decode_jpeg(data, 3), tf.float32), [scale, scale])
    return config, portable.networks(nets, config, inference, Crops)['classifier']


NETS = {'alexnet': (alexnet, {'crop': 64, 'width': 0.125}), 'vgg': (vgg, {'variant': 'A', 'crop': 32, 'width': 0.125}),
        'prelu': (prelu_net, {'crop': 28, 'layers': ['3x3, 8', '2x2 maxpool, /2', '3x3, 16', 'spp, {3, 2, 1}',
                                                     'fc, 128']})}


@pytest.mark.parametrize('name', NETS)
def test_every_papers_net_has_every_format(name, tmp_path):
    """Differences as a share of the largest score: float16 keeps 11 bits of a weight, int8 7 of each value."""
    module, changes = NETS[name]
    config, part = network(module, **changes)
    examples = [tiny_classifier.jpeg(height=80, width=80, seed=seed) for seed in range(24)]
    crops = np.concatenate([each['image'] for each in part.samples(examples)])
    expected = part.function(tf.constant(crops))['logits'].numpy()
    files = {'float32.tflite': tflite_file.convert(part), 'float32.onnx': onnx_file.convert(part),
             'float16.tflite': tflite_file.convert(part, 'float16'),
             'int8.tflite': tflite_file.convert(part, 'int8', examples)}
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    bounds = {'float32.tflite': 1e-5, 'float32.onnx': 1e-5, 'float16.tflite': 2e-3, 'int8.tflite': 0.06}
    for file, bound in bounds.items():
        found = networks.network(tmp_path / file)
        for rows in (crops[:1], crops):  # any number of crops
            difference = np.abs(found(image=rows)['logits'] - expected[:len(rows)]).max() / np.abs(expected).max()
            assert difference < bound, (file, difference)
    float32, float16, int8 = (len(files[f'{weights}.tflite']) for weights in ('float32', 'float16', 'int8'))
    assert float16 < 0.6 * float32 and int8 < 0.45 * float32


def test_a_tflite_file_holds_built_in_operations_alone(tmp_path):
    """TensorFlow's own, which need a library, would be named Flex."""
    _, part = network(alexnet, crop=64, width=0.125)
    path = tmp_path / 'classifier.tflite'
    path.write_bytes(tflite_file.convert(part))
    interpreter = tf.lite.Interpreter(str(path))
    operations = {each['op_name'] for each in interpreter._get_ops_details()}
    assert 'CONV_2D' in operations and not [name for name in operations if name.startswith('Flex')]


def test_nets_that_are_averaged_are_handed_over_together(pixels, tmp_path):
    """One of them has a preparation and views of its own; one of other classes is refused."""
    config, image = tiny_classifier.Config(), tf.constant(PHOTOGRAPHS)
    other, settings = serving.Inference(views=['ten_crop']), [each[:4] for each in SETTINGS]
    nets = [tiny_classifier.randomised(config, seed) for seed in range(2)]
    second = serving.serving(nets[1], config, other, Assets(pixels, *settings[2]), False)
    tf.saved_model.save(second, str(tmp_path / 'second'), signatures=second.signatures())
    both = serving.Inference(views=['dense'], fuse=[str(tmp_path / 'second')])
    write(tmp_path / 'model', 'tflite', nets[0], pixels, settings[0], both)
    write(tmp_path / 'model/fuse/0', 'tflite', nets[1], pixels, settings[2], other)
    module, program = serving.serving(nets[0], config, both, Assets(pixels, *settings[0]), False), classify.load(
        tmp_path / 'model')
    found = np.stack([program.posteriors(classify.read(photograph)) for photograph in PHOTOGRAPHS])
    np.testing.assert_allclose(found, module.posteriors(image), atol=1e-4)
    assert np.abs(found - second.posteriors(image)).max() > 0.01
    (tmp_path / 'model/fuse/0/labels.json').write_text(json.dumps([[name, ''] for name in 'gfedcba']))
    with pytest.raises(ValueError, match='inference.fuse has other classes. Give models of one data set'):
        classify.load(tmp_path / 'model')
