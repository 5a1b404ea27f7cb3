"""Deep features by hand, and a support vector machine on them against one on raw pixels."""
import numpy as np
import pytest
import tensorflow as tf

from keras_models import ModelError, alexnet, prelu_net, vgg
from keras_models.image import deep_features, views
from keras_models.image.deep_features import Known
from support import tiny_classifier
from support.tiny_classifier import Assets, Config, Inference, jpeg, png

PICTURES = [jpeg(seed=1), png(height=17, width=16, seed=2), jpeg(height=33, width=20, seed=3)]
NETS = {'alexnet': (alexnet, alexnet.Config(classes=5, crop=67, width=1 / 32), 'fc7', 67),
        'vgg': (vgg, vgg.Config(classes=5, crop=64, width=1 / 32), 'fc7', 64),
        'prelu_net': (prelu_net, prelu_net.Config(classes=5, crop=24, layers=[
            '3x3, 4', '2x2 maxpool, /2', '3x3, 6', 'spp, {3, 1}', 'fc, 8']), 'fc1/prelu', 24)}


def model(seed=0, **asked):
    return tiny_classifier.serving(tiny_classifier.randomised(Config(), seed), Config(), Inference(**asked), Assets(),
                                   False)


@pytest.mark.parametrize('name', NETS)
def test_at_the_size_of_a_crop_they_are_the_last_hidden_layers(name):
    """Every net: what the functional model computes before its last layer, and what its scores are made of."""
    paper, config, last, side = NETS[name]
    net = tiny_classifier.randomised_net(paper.build(config))['classifier']
    image = tf.constant(np.random.default_rng(0).normal(0, 60, (2, side, side, 3)), tf.float32)
    layers = {layer.name: layer for layer in net.layers}
    hidden = tf.keras.Model(net.inputs, net.get_layer(last).output)([image, tf.zeros([2], tf.int32)])
    found = paper.activations(layers, config, paper.convolutions(layers, config, image))
    assert found.shape[1:3] == (1, 1) and np.abs(hidden).max() > 1e-3
    np.testing.assert_allclose(found[:, 0, 0], hidden, rtol=1e-3, atol=1e-4)
    larger = tf.image.resize(image, [side + 40, side + 70])
    maps = paper.convolutions(layers, config, larger)
    many = paper.activations(layers, config, maps)
    assert many.shape[1] > 1 < many.shape[2]
    np.testing.assert_allclose(net.layers[-1](many), paper.score_map(layers, config, maps), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('flips', [True, False])
def test_features_are_averaged_over_places_and_mirror_images(flips):
    module = model(flips=flips)
    found = module.features(tf.constant(PICTURES), tf.constant(18)).numpy()
    nets = tiny_classifier.randomised(Config())['classifier']
    layers = {layer.name: layer for layer in nets.layers}
    for picture, row in zip(PICTURES, found):
        x = Assets().picture(tf.constant(picture), 18).numpy()
        places = []
        for shown in [x, x[:, ::-1]][:2 if flips else 1]:
            for top in range(0, x.shape[0] - 11, 2):  # a stride of two, since there is one pooling
                for left in range(0, x.shape[1] - 11, 2):
                    maps = tiny_classifier.convolutions(layers, Config(), shown[None, top:top + 12, left:left + 12])
                    places.append(layers['fc2'](tf.reshape(maps, [1, -1]))[0])
        np.testing.assert_allclose(row, np.mean(places, 0), rtol=1e-3, atol=1e-3)


def test_scales_are_averaged_or_stacked_nets_are_stacked_and_length_is_one():
    one, other = model(), model(1)
    averaged = deep_features.describe([one], PICTURES, [16, 20])
    stacked = deep_features.describe([one], PICTURES, [16, 20], stack=True)
    both = deep_features.describe([one, other], PICTURES, [16, 20])
    assert averaged.shape == (3, 16) and stacked.shape == (3, 32) and both.shape == (3, 32)
    for found in (averaged, stacked, both):
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    at = [one.features(tf.constant(PICTURES), tf.constant(scale)).numpy() for scale in (16, 20)]
    np.testing.assert_allclose(averaged, deep_features.unit((at[0] + at[1]) / 2), rtol=1e-5)
    np.testing.assert_allclose(stacked, deep_features.unit(np.concatenate(at, 1)), rtol=1e-5)
    np.testing.assert_allclose(both[:, :16] * 2 ** 0.5, averaged, rtol=1e-4)  # each net has as much weight
    assert deep_features.describe([one], [], [16]).shape == (0, 0)
    np.testing.assert_array_equal(deep_features.unit(np.zeros([1, 4])), np.zeros([1, 4]))


def test_what_cannot_be_described_is_told():
    with pytest.raises(ModelError, match='features at 11 pixels: the image is smaller than a crop of 12'):
        deep_features.describe([model()], PICTURES, [11])
    with pytest.raises(ModelError, match='has no features'):
        deep_features.describe([object()], PICTURES, [16])


def test_a_split_takes_as_many_of_every_class_and_none_twice():
    label = np.repeat([0, 1, 2], [50, 40, 33])
    parts = deep_features.splits(label, 30, 15, seed=3)
    assert [np.bincount(label[part]).tolist() for part in parts] == [[24] * 3, [6] * 3, [15, 10, 3]]
    rows = np.concatenate(parts)
    assert len({*rows}) == len(rows)
    assert not np.array_equal(parts[0], deep_features.splits(label, 30, 15, seed=4)[0])
    with pytest.raises(ModelError, match='class 2 has 33 images, too few for 35'):
        deep_features.splits(label, 35, 15, 0)


@pytest.mark.parametrize('classes', [2, 3])
def test_measures_of_a_perfect_and_of_a_useless_descriptor(classes):
    label = np.tile(np.arange(classes), 20)
    perfect, useless = Known(np.eye(classes)[label], label), Known(np.ones([20 * classes, 3]), label)
    found = deep_features.judged(perfect, perfect, perfect)
    assert found['mean class recall'] == 100 and found['mAP'] == pytest.approx(100)
    found = deep_features.judged(useless, useless, useless)
    assert found['mean class recall'] == pytest.approx(100 / classes) and found['mAP'] == pytest.approx(100 / classes)


def test_recall_weighs_classes_alike():
    """Ten pictures of one class and two of another, whose one is wrong: (1 + 1/2) / 2, not 11 of 12."""
    train = Known(np.eye(2)[[0, 1] * 10], np.array([0, 1] * 10))
    test = Known(np.eye(2)[[0] * 10 + [1, 0]], np.array([0] * 10 + [1, 1]))
    assert deep_features.judged(train, train, test)['mean class recall'] == pytest.approx(75)


def test_a_net_taught_other_classes_helps_where_pixels_do_not():
    """Stripes of any place and colour, told apart by their direction: a net that was taught four directions describes
    two others."""
    def stripes(angle, seed):
        draw = np.random.default_rng(seed)
        y, x = np.mgrid[:24, :24]
        wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * 0.9 + draw.uniform(0, 6.3))
        return (wave[..., None] * draw.choice([-1, 1], 3) + draw.normal(0, 0.2, (24, 24, 3))).astype(np.float32)

    def made(angles, n):
        label = np.arange(n) % len(angles)
        return np.stack([stripes(angles[each], 100 * n + i) for i, each in enumerate(label)]), label
    config = prelu_net.Config(classes=4, crop=24, layers=['5x5, 8', '2x2 maxpool, /2', '3x3, 8', 'spp, {1}', 'fc, 16'],
                              dropout=0.0)
    tf.keras.utils.set_random_seed(0)
    net = prelu_net.build(config)['classifier']
    optimizer, seed = tf.keras.optimizers.Adam(0.01), tf.zeros([2], tf.int32)
    image, label = made(np.pi * np.array([0, 0.25, 0.5, 0.75]), 64)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            losses, _ = prelu_net.loss_fn({'classifier': net}, {'image': image, 'label': tf.constant(label, tf.int32)},
                                          seed, True, config)
            loss = losses['classifier'][0]
        optimizer.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables))
    for _ in range(60):
        step()
    layers = {layer.name: layer for layer in net.layers}
    asked = views.Net(24, 4, None, None, lambda x: prelu_net.activations(
        layers, config, prelu_net.convolutions(layers, config, x)))

    def judged(described):
        known = [Known(described(x), label) for x, label in (made(np.pi * np.array([0.125, 0.625]), n)
                                                             for n in (40, 20, 100))]
        return deep_features.judged(*known)['mean class recall']
    pixels = judged(lambda x: deep_features.unit(x.reshape(len(x), -1)))
    deep = judged(lambda x: deep_features.unit(views.features(asked, tf.constant(x), tf.identity, flips=False).numpy()))
    assert deep > 90 > 75 > pixels, (deep, pixels)


def test_features_of_a_folder(tmp_path, monkeypatch, capsys):
    """The command writes a row a picture that can be decoded, and says what cannot be."""
    from pipelines import features
    from pipelines.serving import saved_model
    (tmp_path / 'cats').mkdir()
    for name, content in (('a.jpg', PICTURES[0]), ('b.png', PICTURES[1]), ('c.jpg', PICTURES[0][:300])):
        (tmp_path / 'cats' / name).write_bytes(content)
    folder = str(tmp_path / 'model')
    module = model()
    tf.saved_model.save(module, folder, signatures=module.signatures())
    loaded = tf.saved_model.load(folder)
    loaded.description = {'config': {'data': {'max_pixels': 1_000_000}}}
    monkeypatch.setattr(saved_model, 'load', lambda path: loaded)
    out = tmp_path / 'found.npz'
    features.main(['--model', folder, '--scales', '16', '20', '--stack', '--out', str(out), str(tmp_path / 'cats')])
    with np.load(out) as found:
        assert found['files'].tolist() == [str(tmp_path / 'cats' / name) for name in ('a.jpg', 'b.png')]
        np.testing.assert_allclose(found['features'], deep_features.describe([module], PICTURES[:2], [16, 20], True),
                                   atol=1e-6)
    said = capsys.readouterr()
    assert '2 images, 32 numbers each' in said.out and 'c.jpg left out: damaged or truncated' in said.err
