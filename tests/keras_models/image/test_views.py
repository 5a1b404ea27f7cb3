"""The testing protocols against the papers' descriptions, written out image by image."""
import numpy as np
import pytest
import tensorflow as tf

from keras_models.image import views
from support import tiny_classifier


def scores(image):
    """A net of one layer, for three classes: any crop's scores, told by its own pixels only."""
    return tf.stack([tf.reduce_mean(image[:, :4], [1, 2, 3]), tf.reduce_mean(image[:, :, 2:, 0], [1, 2]),
                     tf.reduce_max(image, [1, 2, 3])], 1)


class Net:
    """A `views.Net` that keeps the shapes it was asked for."""

    def __init__(self, crop, logits=scores):
        self.asked = []

        def recorded(image):
            self.asked.append(tuple(image.shape))
            return logits(image)
        self.net = views.Net(crop, 3, recorded, lambda image: recorded(image)[:, None, None], None)


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def picture(height, width, seed=0):
    return np.random.default_rng(seed).normal(0, 1, (height, width, 3)).astype(np.float32)


def test_the_ten_views_are_those_of_section_4_1():
    x = picture(256, 256)
    ten = views.crops(tf.constant(x), 224, 'ten_crop').numpy()
    five = [x[:224, :224], x[:224, 32:], x[32:, :224], x[32:, 32:], x[16:240, 16:240]]
    np.testing.assert_array_equal(ten, np.stack(five + [view[:, ::-1] for view in five]))


def test_the_multi_crops_are_a_regular_grid_over_the_whole_picture():
    x = picture(256, 330)
    crops = views.crops(tf.constant(x), 224, 'multi_crop').numpy()
    assert len(crops) == 50
    grid = [(top, left) for top in (0, 8, 16, 24, 32) for left in (0, 26, 53, 79, 106)]
    for crop, mirror, (top, left) in zip(crops[:25], crops[25:], grid):
        np.testing.assert_array_equal(crop, x[top:top + 224, left:left + 224])
        np.testing.assert_array_equal(mirror, crop[:, ::-1])


@pytest.mark.parametrize('height, width', [(12, 12), (12, 31), (13, 12)])
def test_the_single_crop_is_the_centre_and_never_mirrored(height, width):
    x = picture(height, width)
    [crop] = views.crops(tf.constant(x), 12, 'single', flips=True).numpy()
    top, left = (height - 12) // 2, (width - 12) // 2
    np.testing.assert_array_equal(crop, x[top:top + 12, left:left + 12])
    assert len(views.crops(tf.constant(x), 12, 'ten_crop', flips=False)) == 5


@pytest.mark.parametrize('height, width', [(40, 61), (15, 30)])
def test_the_single_crop_is_what_validation_shows(height, width):
    assets, encoded = tiny_classifier.Assets(scale=17), tiny_classifier.jpeg(height=height, width=width)
    [crop] = views.crops(assets.picture(tf.constant(encoded), 17), 12, 'single')
    np.testing.assert_allclose(crop, assets.central(tf.constant(encoded), tf.constant([height, width])), atol=0.01)


def test_three_scales_of_the_multi_crops_are_150_and_their_posteriors_are_averaged():
    net = Net(12)
    pictures = {scale: picture(scale, scale + 5, scale) for scale in (14, 16, 20)}
    found = views.posteriors(net.net, tf.zeros([1]), lambda _, scale: tf.constant(pictures[scale]), ['multi_crop'],
                             [14, 16, 20])
    assert sum(shape[0] for shape in net.asked) == 150
    crops = np.concatenate([views.crops(tf.constant(x), 12, 'multi_crop') for x in pictures.values()])
    np.testing.assert_allclose(found, softmax(scores(crops).numpy()).mean(0)[None], atol=1e-6)


def test_views_weigh_the_same_whatever_their_number_of_crops():
    net, x = Net(12).net, tf.constant([picture(14, 17, seed) for seed in range(3)])
    found = views.posteriors(net, x, lambda each, scale: each, ['multi_crop', 'dense'], [14])
    apart = [views.posteriors(net, x, lambda each, scale: each, [view], [14]) for view in ('multi_crop', 'dense')]
    np.testing.assert_allclose(found, (apart[0] + apart[1]) / 2, atol=1e-6)
    assert np.abs(apart[0] - apart[1]).max() > 1e-3


def test_dense_averages_scores_over_places_and_posteriors_over_mirror_images():
    """Simonyan & Zisserman 3.2: the score map is averaged before the soft-max, the two images after it."""
    config = tiny_classifier.Config()
    nets = tiny_classifier.randomised(config)['classifier']
    layers = {layer.name: layer for layer in nets.layers}

    def score_map(image):
        return tiny_classifier.score_map(layers, config, tiny_classifier.convolutions(layers, config, image))
    net = views.Net(12, 7, lambda image: nets([image, tf.zeros([2], tf.int32)]), score_map, None)
    x = 255 * np.random.default_rng(0).random((16, 22, 3), np.float32)

    def by_windows(image):  # a stride of two, since there is one pooling
        windows = [image[top:top + 12, left:left + 12] for top in range(0, 5, 2) for left in range(0, 11, 2)]
        return softmax(net.logits(np.stack(windows)).numpy().mean(0))
    both = (by_windows(x) + by_windows(x[:, ::-1])) / 2
    assert np.abs(both - by_windows(x)).max() > 1e-3
    np.testing.assert_allclose(views.dense(net, tf.constant(x)[None], tf.identity), both[None], atol=1e-5)
    np.testing.assert_allclose(views.dense(net, tf.constant(x)[None], tf.identity, flips=False), by_windows(x)[None],
                               atol=1e-5)
    at_size = tf.constant(x[None, :12, :12])
    np.testing.assert_allclose(net.score_map(at_size)[:, 0, 0], net.logits(at_size), atol=1e-4)


@pytest.mark.parametrize('flips', [True, False])
def test_features_are_averaged_over_places_and_mirror_images(flips):
    """Simonyan & Zisserman, appendix B: one vector a picture, whatever its size."""
    def activations(image):  # [B, H, W, 3] -> [B, H - 11, W - 11, 2], told by where a crop begins
        corner = image[:, :image.shape[1] - 11, :image.shape[2] - 11]
        return tf.stack([corner[..., 0], 2 * corner[..., 1] + 1], -1)
    net = views.Net(12, 3, None, None, activations)
    pictures = [picture(12, 12), picture(13, 17, 1), picture(20, 14, 2)]
    found = views.features(net, tf.range(3), lambda n: tf.constant(pictures[int(n)]), flips)
    for row, x in zip(found, pictures):
        both = [activations(each[None]).numpy().reshape(-1, 2)
                for each in ([x, x[:, ::-1]] if flips else [x])]
        np.testing.assert_allclose(row, np.mean([each.mean(0) for each in both], 0), atol=1e-6)
    assert found.shape == (3, 2) and found.dtype == tf.float32
    if flips:
        plainly = views.features(net, tf.range(3), lambda n: tf.constant(pictures[int(n)]))
        np.testing.assert_array_equal(found, plainly)


def test_whether_mirror_images_are_shown_is_said_once_for_all_views():
    net, x = Net(12), tf.constant([picture(14, 17)])
    for view in ('single', 'ten_crop', 'multi_crop', 'dense'):
        given = views.posteriors(net.net, x, lambda each, _: each, [view], [14])
        with_them, without = (views.posteriors(net.net, x, lambda each, _: each, [view], [14], flips)
                              for flips in (True, False))
        np.testing.assert_array_equal(given, with_them)
        assert (np.abs(with_them - without).max() > 1e-5) == (view != 'single')
        alone = views.dense(net.net, x, tf.identity) if view == 'dense' else views.cropped(
            net.net, x, tf.identity, view)
        np.testing.assert_allclose(alone, given, atol=1e-6)
        assert len(views.crops(x[0], 12, 'ten_crop')) == 10


def test_pictures_may_come_encoded():
    """One after the other is decoded; the net sees the crops of all."""
    given = [tiny_classifier.png(height=height, width=20, seed=height) for height in (14, 15, 16)]

    def decoded(encoded):
        return tf.cast(tf.io.decode_png(encoded, 3), tf.float32) / 255
    for view in ('single', 'ten_crop'):
        found = views.cropped(Net(12).net, tf.constant(given), decoded, view)
        for row, encoded in zip(found, given):
            alone = softmax(scores(views.crops(decoded(encoded), 12, view)).numpy()).mean(0)
            np.testing.assert_allclose(row, alone, atol=1e-6)


@pytest.mark.parametrize('view, n, asked', [
    ('single', 70, [64, 6]),  # pictures make a batch, and not one picture's crops
    ('ten_crop', 8, [60, 20]),
    ('multi_crop', 3, [50, 50, 50]),
])
def test_a_request_goes_through_the_net_in_batches_of_bounded_size(view, n, asked, monkeypatch):
    monkeypatch.setattr(views, 'PIXELS_PER_BATCH', 64 * 12 * 12)
    net, x = Net(12), tf.constant([picture(14, 14, seed) for seed in range(n)])
    found = views.cropped(net.net, x, tf.identity, view)
    assert [shape[0] for shape in net.asked] == asked and {shape[1:] for shape in net.asked} == {(12, 12, 3)}
    for row in (0, n - 1):
        alone = softmax(scores(views.crops(x[row], 12, view)).numpy()).mean(0)
        np.testing.assert_allclose(found[row], alone, atol=1e-6)


def test_64_crops_of_the_papers_are_a_batch():
    assert views.PIXELS_PER_BATCH // 224 ** 2 == 64


@pytest.mark.parametrize('view', ['single', 'ten_crop', 'multi_crop', 'dense'])
def test_no_picture_has_no_answer(view):
    assert views.posteriors(Net(12).net, tf.zeros([0, 14, 14, 3]), lambda each, _: each, [view], [14]).shape == (0, 3)
