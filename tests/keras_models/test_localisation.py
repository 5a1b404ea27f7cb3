"""Localisation: the loss by hand, windows against crops, served outputs against their parts, and one full run."""
import csv
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep import UserError, imagenet
from data_prep.core import records
from data_prep.image import job as image_job
from keras_models import ModelError, localisation, vgg
from keras_models.image import boxes, localiser, serving
from keras_models.image.box_scorer import Scorer
from keras_models.image.localiser import Inference
from keras_models.localisation import Config
from pipelines import export
from pipelines.core import config, roles
from pipelines.core.pipeline import Pipeline
from pipelines.training import checkpoints
from support.commands import command
from support.tiny_classifier import Assets, jpeg, png
from support.vgg_weights import fill, published

SMALL = {'variant': 'A', 'classes': 7, 'crop': 64, 'width': 1 / 32}
SEED = np.array([1, 2], np.int32)
PICTURES = [jpeg(height=50, width=90, seed=1), png(height=120, width=70, seed=2), jpeg(height=64, width=64, seed=3)]
SPEC = roles.model('keras_models.localisation')


def net_of(model_config, seed=0):
    nets = localisation.build(model_config)
    fill(nets['localiser'], seed)
    return nets


def export_to(folder, module):
    tf.saved_model.save(module, str(folder), signatures=module.signatures())
    return str(folder)


@pytest.fixture(scope='module')
def classifier(tmp_path_factory):
    nets = vgg.build(vgg.Config(**SMALL))
    fill(nets['classifier'], 9)
    nets['classifier'].get_layer('fc8').kernel.assign(nets['classifier'].get_layer('fc8').kernel / 30)
    return export_to(tmp_path_factory.mktemp('classifier') / '1', serving.serving(
        nets, vgg.Config(**SMALL), serving.Inference(views=['dense']), Assets(7, 80), False))


def exported_net(classifier, seed=0, nets=None, fuse=(), kind='per_class', **asked):
    model_config = Config(**SMALL, boxes=kind)
    inference = Inference(**{'classifier': classifier, 'scales': [64, 128], 'fuse': [*fuse], **asked})
    return localiser.serving(nets or net_of(model_config, seed), model_config, inference, Assets(7, 80), False)


@pytest.mark.parametrize('kind, expected', [('per_class', 150_648_544), ('shared', 134_276_932)])
def test_parameters_of_d_with_a_box_a_class_and_with_one_for_all(kind, expected):
    """The last layer is 4000-D or 4-D (A.1) where D's has 1000 outputs: 138,357,544 less 4097 * 1000."""
    d = Config(variant='D', classes=1000, crop=224, boxes=kind)
    outputs = {'per_class': 4000, 'shared': 4}[kind]
    assert localisation.parameters(d) == expected == 138_357_544 + 4097 * (outputs - 1000)
    small = Config(**SMALL, boxes=kind)
    assert localisation.build(small)['localiser'].count_params() == localisation.parameters(small)
    header, rows = localisation.table(d)
    assert [row[3] for row in rows] == ['36.4', '34.3', '33.1'] and len(header) == 4  # table 8
    assert localisation.table(small) is None


def test_euclidean_loss_by_hand():
    """Half the squared distance, of the right class's vector alone; rows without a box or a picture count nothing."""
    found = np.zeros([4, 12], np.float32)
    found[0, 4:8], found[1, :4], found[2:] = [.5, .5, .4, .4], [.5, .5, .5, .5], 9
    batch = {'image': tf.zeros([4, 64, 64, 3]), 'label': tf.constant([1, 0, 2, -1]),
             'box': tf.constant([[.5, .5, .4, .1], [.6, .5, .5, .5], [np.nan] * 4, [np.nan] * 4])}
    output = tf.Variable(found)

    def loss(kind):
        with tf.GradientTape() as tape:
            values, metrics = localisation.loss_fn({'localiser': lambda inputs, training: output}, batch, SEED, True,
                                                   Config(**SMALL, boxes=kind))
            total, n = values['localiser']
        return total, n, metrics, tape.gradient(total, output).numpy()
    total, n, metrics, gradient = loss('per_class')
    assert n == 2 and float(total) == pytest.approx((.3 ** 2 + .1 ** 2) / 2)
    expected = np.zeros([4, 12])
    expected[0, 7], expected[1, 0] = .3, -.1
    np.testing.assert_allclose(gradient, expected, atol=1e-6)
    assert float(metrics['mean_iou'][0]) == pytest.approx(.25 + .4 / .6, abs=1e-5)
    assert metrics['box_error'] == (1, 2)
    output = tf.Variable(found[:, 4:8])
    total, n, *_ = loss('shared')
    assert n == 2 and float(total) == pytest.approx((.3 ** 2 + .6 ** 2 + 3 * .5 ** 2) / 2)


def test_a_box_of_the_right_class_is_taken():
    found = tf.reshape(tf.range(2 * 3 * 12, dtype=tf.float32), [2, 3, 12])  # three classes at three places
    taken = localisation.of_classes(found, tf.constant([[2, 0], [1, 1]]), Config(**SMALL))
    np.testing.assert_array_equal(taken[0, 1], [[20, 21, 22, 23], [12, 13, 14, 15]])
    np.testing.assert_array_equal(taken[1, 0], [[40, 41, 42, 43]] * 2)
    shared = localisation.of_classes(found[..., :4], tf.constant([[2, 0], [1, 1]]), Config(**SMALL, boxes='shared'))
    np.testing.assert_array_equal(shared[0, 1], [[12, 13, 14, 15]] * 2)


@pytest.mark.parametrize('tuned', ['all', 'dense'])
def test_what_is_fine_tuned_learns_and_the_rest_stays(tuned):
    model_config = Config(**SMALL, fine_tune=tuned)
    nets, [optimizer] = net_of(model_config), localisation.optimizers(model_config).values()
    before = {variable.name: variable.numpy() for variable in nets['localiser'].variables}
    batch = {'image': tf.random.stateless_normal([2, 64, 64, 3], SEED), 'label': tf.constant([1, 2]),
             'box': tf.fill([2, 4], .5)}
    with tf.GradientTape() as tape:
        losses, _ = localisation.loss_fn(nets, batch, SEED, True, model_config)
    variables = nets['localiser'].trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(losses['localiser'][0], variables), variables))
    changed = {variable.name.split('/')[0] for variable in nets['localiser'].variables
               if not np.array_equal(variable, before[variable.name])}
    assert changed == {name.split('/')[0] for name in before} if tuned == 'all' else {'fc6', 'fc7', 'fc8'}


def test_it_begins_with_a_classification_net_but_for_the_last_layer(tmp_path):
    theirs = vgg.build(vgg.Config(**SMALL))
    fill(theirs['classifier'], 5)
    checkpoints.save(theirs, str(tmp_path / 'classifier' / 'weights'))

    def start(path, **more):
        model_config = Config(**{**SMALL, **more})
        nets = localisation.build(model_config)
        drawn = nets['localiser'].get_layer('fc8').kernel.numpy()
        checkpoints.start(nets, [str(path)], ['localiser'], SPEC, model_config)
        return nets, drawn
    nets, drawn = start(tmp_path / 'classifier' / 'weights')
    for layer in ('conv1_1', 'conv5_2', 'fc6', 'fc7'):
        np.testing.assert_array_equal(nets['localiser'].get_layer(layer).kernel,
                                      theirs['classifier'].get_layer(layer).kernel)
        np.testing.assert_array_equal(nets['localiser'].get_layer(layer).bias,
                                      theirs['classifier'].get_layer(layer).bias)
    np.testing.assert_array_equal(nets['localiser'].get_layer('fc8').kernel, drawn)
    with pytest.raises(UserError, match='train.init_from: .* of the same variant, width and crop'):
        start(tmp_path / 'classifier' / 'weights', width=1 / 16)
    fill(nets['localiser'], 6)
    checkpoints.save(nets, str(tmp_path / 'localiser'))
    again, _ = start(tmp_path / 'localiser')  # its own: all of it
    np.testing.assert_array_equal(again['localiser'].get_layer('fc8').kernel, nets['localiser'].get_layer('fc8').kernel)
    other, drawn = start(tmp_path / 'localiser', boxes='shared')
    np.testing.assert_array_equal(other['localiser'].get_layer('fc8').kernel, drawn)
    np.testing.assert_array_equal(other['localiser'].get_layer('fc7').kernel, nets['localiser'].get_layer('fc7').kernel)


def test_it_begins_with_the_weights_keras_applications_publishes(tmp_path):
    model_config = Config(**{**SMALL, 'variant': 'D'})
    layers = published(tmp_path / 'vgg16.h5', vgg.Config(**{**SMALL, 'variant': 'D'}))
    nets = localisation.build(model_config)
    drawn = nets['localiser'].get_layer('fc8').kernel.numpy()
    assert checkpoints.start(nets, [str(tmp_path / 'vgg16.h5')], ['localiser'], SPEC, model_config) == []
    np.testing.assert_array_equal(nets['localiser'].get_layer('conv4_3').kernel, layers['block4_conv3'][0])
    np.testing.assert_array_equal(nets['localiser'].get_layer('fc7').bias, layers['fc2'][1])
    np.testing.assert_array_equal(nets['localiser'].get_layer('fc8').kernel, drawn)


def test_densely_at_the_size_of_training_it_is_the_plain_net(classifier):
    """One window, which is the whole picture."""
    nets = net_of(Config(**SMALL))
    module = exported_net(classifier, nets=nets, scales=[64])
    found, scores = module.predictions(tf.constant(PICTURES[2]), tf.constant([5, 2]))
    image = Assets(7, 80).picture(tf.constant(PICTURES[2]), 64)[tf.newaxis]
    vectors = tf.reshape(nets['localiser']([image, SEED]), [7, 4])
    assert found.shape == (1, 2, 4)
    np.testing.assert_allclose(found[0], boxes.corners(tf.gather(vectors, [5, 2])), rtol=1e-4, atol=1e-4)
    there = module.classifier.score_map(tf.constant(PICTURES[2]), tf.constant(64))
    np.testing.assert_allclose(scores[0], tf.gather(there[0, 0], [5, 2]), atol=1e-6)


def test_every_window_is_where_its_place_in_the_map_is(classifier):
    """Give each box as its window where a net always says 'all that I see'; at 64 x 115 and 128 x 230 pixels."""
    nets = net_of(Config(**SMALL, boxes='shared'))
    nets['localiser'].get_layer('fc8').kernel.assign(tf.zeros([128, 4]))
    nets['localiser'].get_layer('fc8').bias.assign([.5, .5, 1, 1])
    module = exported_net(classifier, nets=nets, kind='shared')
    found, scores = module.predictions(tf.constant(PICTURES[0]), tf.constant([3]))
    small = [[x / 115, 0, (x + 64) / 115, 1] for x in (0, 32)]
    large = [[x / 230, y / 128, (x + 64) / 230, (y + 64) / 128]
             for y in (0, 32, 64) for x in (0, 32, 64, 96, 128, 160)]
    np.testing.assert_allclose(found[:, 0], small + large, atol=1e-6)
    assert scores.shape == (20, 1) and len(np.unique(scores)) == 20


def test_the_central_crop_gives_the_box_of_the_class_that_is_right(classifier):
    nets, assets = net_of(Config(**SMALL)), Assets(7, 80)
    module = exported_net(classifier, nets=nets)
    found = module.judged(tf.constant(PICTURES), tf.constant([6, 0, 3]))
    for picture, label, box in zip(PICTURES, (6, 0, 3), found):
        image = assets.picture(tf.constant(picture), 80)
        height, width = image.shape[:2]
        y, x = (height - 64) // 2, (width - 64) // 2
        vectors = tf.reshape(nets['localiser']([image[tf.newaxis, y:y + 64, x:x + 64], SEED]), [7, 4])
        left, upper, right, lower = boxes.corners(vectors[label]).numpy() * 64
        expected = [(x + left) / width, (y + upper) / height, (x + right) / width, (y + lower) / height]
        np.testing.assert_allclose(box, np.clip(expected, 0, 1), atol=1e-3)


def test_what_is_served_is_made_of_its_parts_also_once_it_was_exported(classifier, tmp_path):
    """Classes are the classifier's; a class's box is its predictions merged; a fused net's are united with its own."""
    other = export_to(tmp_path / 'other', exported_net(classifier, seed=3, scales=[96]))
    module = exported_net(classifier, fuse=[other])
    answers = module.serve(tf.constant(PICTURES))
    p = module.classifier.posteriors(tf.constant(PICTURES)).numpy()
    order = np.argsort(-p, 1)[:, :5]
    np.testing.assert_allclose(answers['probabilities'], np.take_along_axis(p, order, 1), atol=1e-6)
    assert [[int(name[1:]) for name in row] for row in answers['labels'].numpy()] == order.tolist()
    models = [exported_net(classifier, scales=[scale]) for scale in (64, 128)] + [tf.saved_model.load(other)]
    for picture, labels, box, score in zip(PICTURES, order.astype(np.int32), answers['boxes'], answers['scores']):
        parts = [model.predictions(tf.constant(picture), tf.constant(labels)) for model in models]
        found, scores = (np.concatenate(part) for part in zip(*parts))
        expected = boxes.best(found.transpose(1, 0, 2), scores.T, Inference().merge)
        np.testing.assert_allclose(box, np.clip(expected[0], 0, 1), atol=1e-3)
        np.testing.assert_allclose(score, expected[1], atol=1e-4)
    assert np.ptp(answers['boxes'].numpy(), 1).max() > 0.01  # classes differ in theirs
    again = tf.saved_model.load(export_to(tmp_path / 'exported', module))
    served = again.signatures['serving_default'](image=tf.constant(PICTURES))
    for name, values in answers.items():
        if values.dtype == tf.string:
            np.testing.assert_array_equal(served[name], values)
        else:
            np.testing.assert_allclose(served[name], values, atol=1e-3)
    results = localiser.predict(again, [PICTURES[0], b'nothing', *PICTURES[1:]], 2)
    assert results[1]['error'] and not results[1]['answers']
    np.testing.assert_allclose([results[i]['boxes'] for i in (0, 2, 3)], answers['boxes'], atol=1e-3)
    assert results[0].keys() == {'answers', 'descriptions', 'probabilities', 'boxes', 'scores', 'error'}


def test_a_classifiers_score_map_at_the_size_of_training_is_its_answer(classifier):
    model = tf.saved_model.load(classifier)
    found = model.score_map(tf.constant(PICTURES[2]), tf.constant(64))
    nets = vgg.build(vgg.Config(**SMALL))
    checkpoints.restore(nets, f'{classifier}/variables/variables')
    image = Assets(7, 80).picture(tf.constant(PICTURES[2]), 64)[tf.newaxis]
    np.testing.assert_allclose(found[0], tf.nn.softmax(nets['classifier']([image, SEED])), atol=1e-5)
    assert model.score_map(tf.constant(PICTURES[0]), tf.constant(128)).shape == (3, 6, 7)


class Made:
    """A model whose answers are given: of each picture, by its bytes, five (class, box) and the central box."""

    def __init__(self, answers, central):
        self._answers, self._central = answers, central

    def classes(self):
        return tf.constant(['a', 'b', 'c'])

    def serve(self, image):
        found = [self._answers[each] for each in image.numpy()]
        return {'labels': tf.constant([[name for name, _ in row] for row in found]),
                'descriptions': tf.constant([[name for name, _ in row] for row in found]),
                'probabilities': tf.zeros([len(found), len(found[0])]),
                'boxes': tf.constant([[box for _, box in row] for row in found], tf.float32)}

    def judged(self, image, label):
        return tf.constant([self._central[each][i] for each, i in zip(image.numpy(), label.numpy())], tf.float32)


def test_errors_are_ilsvrcs():
    """Right is the class with a box that has more than half in common with any of its things."""
    whole, left, right, half = [0, 0, 1, 1], [0, 0, .5, 1], [.5, 0, 1, 1], [0, 0, .5, 1]
    rows = [{'target': 'a', 'boxes': [*left, *right]}, {'target': 'b', 'boxes': whole},
            {'target': 'c', 'boxes': [.25, .25, .75, .75]}, {'target': 'a', 'boxes': []}]
    answers = {b'0': [('b', left), ('a', right)], b'1': [('b', half), ('a', whole)],
               b'2': [('a', [.25, .25, .75, .75]), ('b', whole)], b'3': [('a', whole), ('b', whole)]}
    central = {b'0': [right, whole, whole], b'1': [whole, half, whole], b'2': [whole, whole, [.25, .25, .75, .65]],
               b'3': [whole] * 3}
    judge = Scorer({})
    found = judge(Made(answers, central), [b'0', b'1', b'2', b'3'], rows)
    expected = {'class_error': [0, 0, 1], 'mean_iou': [1, .5, .8], 'box_error': [0, 1, 0],
                'localisation_error': [0, 1, 1]}
    for name, values in expected.items():
        np.testing.assert_allclose([row[name] for row in found[:3]], values, atol=1e-6)
    assert all(np.isnan(value) for value in found[3].values())  # nothing is known of where it is
    assert set(found[0]) == set(judge.names) - set(judge.CORPUS)
    assert '3 of 4 images have boxes' in judge.protocol()['localisation_error']


def test_the_best_constant_box_is_found():
    judge = Scorer({})
    whole = [0., 0., 1., 1.]
    middle, off = [.3, .2, .7, .8], [0., 0., .1, .1]
    for true in (middle, middle, [.3, .2, .7, .8], off):
        judge._compared({'answers': ['a'], 'boxes': [whole]}, np.array(whole), {'target': 'a', 'boxes': true})
    found = judge.corpus()
    assert found['box_error_constant'] == .25 and found['mean_iou_constant'] == pytest.approx(.75, abs=1e-5)
    assert all(np.isnan(value) for value in Scorer({}).corpus().values())


def test_mistakes_are_sentences(classifier):
    with pytest.raises(ModelError, match='inference.classifier is empty'):
        localiser.check(Config(**SMALL), Inference())
    with pytest.raises(ModelError, match='inference.scales: an image of 32 pixels is smaller than a crop of 64'):
        localiser.check(Config(**SMALL), Inference(classifier=classifier, scales=[32]))
    with pytest.raises(ModelError, match=r'inference.classifier: /none has no saved_model.pb'):
        exported_net('/none')
    with pytest.raises(ModelError, match=r'inference.fuse: .* cannot be loaded as a localiser'):
        exported_net(classifier, fuse=[classifier])
    with pytest.raises(ValueError, match='top must be 5 or more'):
        Inference(top=1)
    with pytest.raises(ValueError, match='class_counts is for nets that choose a class'):
        Config(**SMALL, class_counts=[1, 2])
    with pytest.raises(ModelError, match='Set input.boxes: true'):
        localisation.loss_fn({}, {'image': 0, 'label': 0}, SEED, True, Config(**SMALL))
    with pytest.raises(ModelError, match='evaluate.networks.lpips'):
        Scorer({'lpips': 'x'})


DATA = """
data: {module: data_prep.imagenet, train: [FOLDER], validation_fraction: 0.2, test_fraction: 0.2}
train: {steps: STEPS, log_every: 30, checkpoint_every: 30, validate_every: 30, average_checkpoints: 1}
"""
NET = 'variant: A, width: 0.1, weights: glorot, learning_rate: 0.01, dropout: 0'
SEEN = 'rows: 16, crop: 32, scales: [32, 64], colour: 0, mean: rgb, standardise: true'
CLASSIFIER = f'''{DATA}
input: {{{SEEN}}}
model: {{module: keras_models.vgg, {NET}}}
inference: {{views: [dense]}}
evaluate: {{thresholds: {{top1_error: {{max: 0.5}}}}, drift: {{top1_error: {{max_rise: 0.02}}}}}}
'''
LOCALISER = f'''{DATA}
input: {{{SEEN}, boxes: true}}
model: {{module: keras_models.localisation, {NET}}}
inference: {{classifier: runs/things/serving/things, scales: [32, 64]}}
evaluate:
  slices: [target]
  thresholds: {{localisation_error: {{max: 0.8}}, box_error: {{max: 0.8}}}}
  drift: {{localisation_error: {{max_rise: 0.05}}, box_error: {{max_rise: 0.05}}}}
'''
MORE = {'things': (), 'located': ('--set', 'train.init_from=runs/things/serving/things')}
COLOURS = {'blue': (40, 60, 220), 'green': (40, 200, 60), 'red': (220, 50, 40)}


def thing(colour, seed):
    """A picture of noise with a coloured rectangle in it, and where that is: x, y, x, y in pixels."""
    draw = np.random.default_rng(seed)
    height = int(draw.integers(48, 72))
    size = draw.uniform(.3, .7, 2) * [height + 8, height]
    start = draw.uniform(0, [height + 8, height] - size)
    x, y, right, lower = np.round([*start, *(start + size)]).astype(int)
    pixels = draw.normal(120, 25, (height, height + 8, 3))
    pixels[y:lower, x:right] = colour + draw.normal(0, 10, (lower - y, right - x, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)), (x, y, right, lower)


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    """A working folder with pictures as Tiny ImageNet lays them out, of every tenth without its box, and two
    configurations: a classifier, and a localisation net that begins with it and asks it."""
    place = tmp_path_factory.mktemp('place')
    for number, (name, colour) in enumerate(COLOURS.items()):
        (place / 'train' / name / 'images').mkdir(parents=True)
        lines = []
        for i in range(100):
            image, box = thing(colour, 1000 * number + i)
            image.save(place / 'train' / name / 'images' / f'{name}_{i}.JPEG', quality=95)
            lines += ['\t'.join(map(str, (f'{name}_{i}.JPEG', *box)))] if i % 10 else []
        (place / 'train' / name / f'{name}_boxes.txt').write_text('\n'.join(lines))
    for name, text, steps in (('things', CLASSIFIER, '90'), ('located', LOCALISER, '480')):
        (place / f'{name}.yaml').write_text(text.replace('FOLDER', str(place / 'train')).replace('STEPS', steps))
    return place


@pytest.fixture(scope='module')
def finished(place):
    """Both, run; and what the second printed."""
    for name, more in MORE.items():
        done = command('pipelines.run', '--config', f'{name}.yaml', *more, cwd=place)
        assert done.returncode == 0 and '; BLESSED' in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_folder_becomes_a_pushed_model_that_beats_every_constant_box(place, finished):
    assert 'train: starting from the weights of runs/things/serving/things/1' in finished
    found = {name: float(value) for name, value in re.findall(r'(\w+) ([\d.]+)(?:,| on)', re.search(
        'evaluate: (.*) test examples', finished)[1])}
    assert found.keys() == set(Scorer({}).names)
    assert found['box_error'] < found['box_error_constant'] and found['mean_iou'] > found['mean_iou_constant']
    assert found['localisation_error'] >= found['class_error']
    [report] = place.glob('runs/located/evaluate/*/report/report.html')
    assert 'localisation error' in report.read_text() and 'images have boxes' in report.read_text()


@pytest.mark.slow
def test_predict_writes_boxes_and_draws_them(place, finished):
    image, _ = thing(COLOURS['red'], 77)
    (place / 'new' / 'red').mkdir(parents=True)
    image.save(place / 'new' / 'red' / '1.jpg')
    (place / 'new' / 'broken.jpg').write_bytes((place / 'new' / 'red' / '1.jpg').read_bytes()[:300])
    done = command('pipelines.predict', '--model', 'runs/located/serving/located', 'new', cwd=place)
    assert done.returncode == 0, done.stderr
    rows = {row['file']: row for row in csv.DictReader((place / 'predictions' / 'predictions.csv').open())}
    assert rows['new/broken.jpg']['error'] and not rows['new/broken.jpg']['left_1']
    model = tf.saved_model.load(str(next(place.glob('runs/located/serving/located/[0-9]*'))))
    [answer] = localiser.predict(model, [(place / 'new' / 'red' / '1.jpg').read_bytes()])
    for i in range(3):
        row = [float(rows['new/red/1.jpg'][f'{end}_{i + 1}']) for end in ('left', 'upper', 'right', 'lower')]
        np.testing.assert_allclose(row, answer['boxes'][i], atol=1e-3)
    assert Image.open(place / 'predictions' / 'sheet_01.png').size[0] > 400


@pytest.mark.slow
def test_the_newest_of_pushed_versions_is_asked_and_known_by_what_it_holds(place, finished, monkeypatch):
    monkeypatch.chdir(place)
    resolved = config.load('located.yaml')
    [version] = (place / 'runs/things/serving/things').glob('[0-9]*')
    newest = export.with_newest(resolved.inference, localiser.EXPORTED_MODELS)
    assert newest.classifier == str(version.relative_to(place))
    assert [*export.STAGE.extra_inputs(Pipeline(resolved, 'runs/located', []))] == [str(version.relative_to(place))]


@pytest.mark.slow
def test_a_format_is_handed_over_with_its_classifier(place, finished):
    """The classifier must have been pushed in the format; then both go through the gate and answer alike."""
    def run(model, name, *args):
        return command(f'pipelines.{name}', '--config', f'{model}.yaml', *args, *MORE[model], cwd=place)
    refused = run('located', 'export', '--to', 'tflite')
    assert refused.returncode == 2 and 'inference.classifier: runs/things/serving/things/' in refused.stderr
    assert 'was pushed without tflite. Run `python -m pipelines.export --to tflite`' in refused.stderr
    printed = ''
    for model, again in (('things', ()), ('located', (('run',),))):  # a pushed classifier is another one
        for args in (*again, ('export', '--to', 'tflite'), ('evaluate', '--format', 'tflite'), ('push',)):
            done = run(model, *args)
            assert done.returncode == 0, done.stdout + done.stderr
            printed += done.stdout
    assert printed.count('; BLESSED') >= 3 and printed.count('it holds tflite too') == 2
    [folder] = (place / 'runs/located/serving/located').glob('[0-9]*/formats/tflite')
    held = {str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file()}
    assert {'localise.py', 'dense.tflite', 'classifier/dense.tflite', 'classifier/landmark.json'} < held
    image, _ = thing(COLOURS['green'], 78)
    image.save(place / 'green.jpg')
    [answer] = localiser.predict(tf.saved_model.load(str(folder.parents[1])), [(place / 'green.jpg').read_bytes()])
    done = subprocess.run([sys.executable, 'localise.py', str(place / 'green.jpg')], cwd=folder, capture_output=True,
                          text=True, check=True)
    _, name, probability, *box, _ = done.stdout.rstrip('\n').split('\t')
    assert name == answer['answers'][0] == 'green'
    assert float(probability) == pytest.approx(answer['probabilities'][0], abs=1e-3)
    np.testing.assert_allclose([float(end) for end in box], answer['boxes'][0], atol=2e-3)
    shown = run('located', 'predict', '--format', 'tflite', '--out', 'by_tflite', 'green.jpg')
    assert shown.returncode == 0, shown.stderr
    [row] = csv.DictReader((place / 'by_tflite/predictions.csv').open())
    np.testing.assert_allclose([float(row[f'{end}_1']) for end in ('left', 'upper', 'right', 'lower')],
                               answer['boxes'][0], atol=2e-3)


@pytest.fixture(scope='module')
def located(place, tmp_path_factory):
    """The pictures and boxes of `place`, prepared."""
    folder = tmp_path_factory.mktemp('examples')
    image_job.run(config.load(str(place / 'located.yaml')).data, str(folder), [])
    return folder


@pytest.mark.parametrize('training', [True, False])
def test_boxes_change_no_picture_and_are_missing_where_nothing_is_known(located, training):
    folder = located
    split = records.open_split(str(folder), 'train')
    rows = [*split.read(range(24)), b'']
    seeds = tf.constant([[1, i] for i in range(25)])

    def batch(**more):
        seen = imagenet.Input(crop=32, scales=[32, 44], **more)
        return imagenet.decoder(str(folder), seen, training)(tf.constant(rows), tf.constant(0, tf.int64), seeds)
    plain, found = batch(), batch(boxes=True)
    assert 'box' not in plain
    for name in plain:
        np.testing.assert_array_equal(plain[name], found[name])
    box, (_, columns) = found['box'].numpy(), imagenet.examples(rows[:24])
    unknown = np.array([not each for each in columns['boxes']] + [True])
    assert np.isnan(box[unknown]).all() and 2 <= unknown.sum() <= 12
    loose, strict = (batch(boxes=True, box_inside=part)['box'].numpy() for part in (0., 1.))
    ends = boxes.corners(tf.constant(loose)).numpy()
    shown = np.prod(np.clip(ends[:, 2:], 0, 1) - np.clip(ends[:, :2], 0, 1), 1) / np.prod(loose[:, 2:], 1)
    clear, there = np.abs(shown - .5) > 1e-4, np.isfinite(box).all(1)
    np.testing.assert_array_equal(there[clear], (shown > .5)[clear])
    np.testing.assert_array_equal(box[there], loose[there])
    np.testing.assert_array_equal(np.isfinite(strict).all(1), shown > 1 - 1e-5)
    assert 0 < np.isfinite(strict).all(1).sum() < there.sum() <= np.isfinite(loose).all(1).sum() <= 22
