"""Try-on scores: equal images, a few pixels by hand, and generated people dressed by a model and perfectly."""
import hashlib
import math
import os

import numpy as np
import pytest
import tensorflow as tf

from data_prep import tryon
from data_prep.core import records
from data_prep.people import pairs_files, sample_people
from keras_models import ModelError
from keras_models.scores import fid
from keras_models.viton import judge, serving, try_on
from keras_models.viton.judge import Scorer
from support import published_files, torch_zip
from support.references import Reference

SIZE = [128, 128]
SMALL = try_on.Config(size=SIZE, low=[64, 64], segmentation={'width': 0.125}, geometric_matching={'width': 0.125},
                      alias={'width': 0.125})
ALWAYS = {'l1', 'ssim', 'ms_ssim', 'mask_ssim', 'warp_ssim', 'warp_l1', 'parse_iou', 'chain_l1', 'chain_ssim',
          'warp_l1_identity', 'misaligned', 'parse_iou_copied', 'ssim_pasted', 'mask_ssim_pasted', 'garment_lab',
          'chain_garment_lab', 'arms_lab', 'chain_arms_lab'}


def picture(seed, size=SIZE):
    return np.random.default_rng(seed).uniform(0, 1, (*size, 3)).astype(np.float32)


def found(true, **others):
    """Return what a perfect model is judged by; the garment lies in the middle half, the arms below it."""
    parse = np.zeros(SIZE, np.int32)
    parse[32:96, 32:96] = judge.UPPER
    parse[96:, :32], parse[96:, 96:] = judge.ARMS
    worn = parse == judge.UPPER
    same = {name: true for name in ('true_image', 'image', 'reconstructed')}
    same |= {name: np.where(worn[..., None], true, np.float32(1)) for name in ('warped', 'cloth')}
    same['warped_mask'] = worn.astype(np.float32)[..., None]
    given = same | {'true_parse': parse, 'removed': worn.astype(np.float32)} | others
    return {name: tf.constant(value) for name, value in given.items()}


def test_equal_pictures_have_an_ssim_of_1_and_no_difference():
    numbers = judge.compared(found(picture(0)))
    assert ALWAYS - {*Scorer.CORPUS} == {*numbers}
    for name, number in numbers.items():  # the garment where it is worn, pasted into what was removed, is the picture
        assert float(number) == pytest.approx(float('ssim' in name), abs=1e-6), name


def test_each_metric_compares_what_it_says():
    true = picture(0)
    differ = {name: {metric for metric, number in judge.compared(found(true, **{name: picture(1)})).items()
                     if float(number) != pytest.approx(float('ssim' in metric), abs=1e-6)}
              for name in ('image', 'reconstructed', 'warped', 'cloth')}
    assert differ == {'image': {'chain_l1', 'chain_ssim', 'chain_garment_lab', 'chain_arms_lab'},
                      'reconstructed': {'l1', 'ssim', 'ms_ssim', 'mask_ssim', 'garment_lab', 'arms_lab'},
                      'warped': {'warp_l1', 'warp_ssim'},
                      'cloth': {'warp_l1_identity', 'ssim_pasted', 'mask_ssim_pasted'}}


def test_beside_the_garment_the_warp_should_leave_white():
    true, warped = picture(0), np.zeros([*SIZE, 3], np.float32)
    warped[32:96, 32:96] = true[32:96, 32:96]
    numbers = judge.compared(found(true, warped=warped))
    assert float(numbers['warp_l1']) == pytest.approx(1 - 64 * 64 / np.prod(SIZE), rel=1e-4)
    assert float(numbers['warp_ssim']) == pytest.approx(1, abs=1e-5)  # which is of the garment alone


def test_colours_are_compared_over_the_true_garment_and_the_true_arms():
    black, white = np.zeros([*SIZE, 3], np.float32), np.ones([*SIZE, 3], np.float32)
    made = black.copy()
    made[32:64, 32:96] = 1  # half of the garment, and nothing of the arms
    numbers = judge.compared(found(black, reconstructed=made, image=white))
    colours = {name: float(number) for name, number in numbers.items() if name.endswith('_lab')}
    assert colours == pytest.approx({'garment_lab': 50, 'arms_lab': 0, 'chain_garment_lab': 100, 'chain_arms_lab': 100},
                                    abs=1e-3)
    nowhere = judge.colours(found(black, true_parse=np.zeros(SIZE, np.int32)))
    assert all(math.isnan(number) for number in nowhere.values())


def test_pairs_are_in_thirds_by_what_of_the_garment_the_warp_leaves_bare(monkeypatch):
    bare = np.ones([*SIZE, 1], np.float32)
    bare[32:48] = 0  # a quarter of the garment, and ground, which does not matter
    assert float(judge.compared(found(picture(0), warped_mask=bare))['misaligned']) == pytest.approx(16 * 64 / 128 ** 2)
    areas = [0.3, math.nan, 0.1, 0.2, 0.6, 0.5, 0.4]
    asked = Scorer({})
    monkeypatch.setattr(asked, '_misaligned', areas)
    assert [row.get('misalignment') for row in asked.slices()] == [
        'medium', None, 'small', 'small', 'large', 'large', 'medium']
    assert Scorer({}).slices() == []


def test_a_pasted_garment_is_put_before_the_mean_of_the_background():
    true, ground = picture(0), np.ones(SIZE, bool)
    ground[20:108, 20:108] = False
    removed = 1 - ground.astype(np.float32)
    true[~ground] = true[ground].mean(0)
    index = float(judge.compared(found(true, removed=removed))['ssim_pasted'])
    assert index == pytest.approx(1, abs=np.finfo(np.float32).eps / 0.03 ** 2)  # a variance of 0 to eps, beside C2
    true[24:30, 24:30] = picture(3)[24:30, 24:30]  # a hand, which nobody could know
    numbers = judge.compared(found(true, removed=removed))
    assert 0.9 < float(numbers['ssim_pasted']) < 0.999 < float(numbers['mask_ssim_pasted'])


def by_definition(a, b, mask=None):
    """SSIM of Wang et al. 2004, eq. (13), by windows cut out one by one, where they are centred in the mask."""
    at = np.arange(11) - 5
    weights = np.exp(-(at[:, None] ** 2 + at ** 2) / (2 * 1.5 ** 2))
    weights /= weights.sum()
    values = []
    for y, x in np.argwhere(np.ones(a.shape[:2]) if mask is None else mask):
        if not (5 <= y < a.shape[0] - 5 and 5 <= x < a.shape[1] - 5):
            continue
        p, q = (each[y - 5:y + 6, x - 5:x + 6].astype(float) for each in (a, b))
        mean = [np.einsum('ij,ijc->c', weights, each) for each in (p, q)]
        var = [np.einsum('ij,ijc->c', weights, (each - m) ** 2) for each, m in zip((p, q), mean)]
        cov = np.einsum('ij,ijc->c', weights, (p - mean[0]) * (q - mean[1]))
        values.append((2 * mean[0] * mean[1] + 1e-4) * (2 * cov + 9e-4) /
                      ((mean[0] ** 2 + mean[1] ** 2 + 1e-4) * (var[0] + var[1] + 9e-4)))
    return np.mean(values)


def test_ssim_over_a_mask_is_that_of_the_windows_centred_there():
    a, b = picture(0, [24, 20]), picture(1, [24, 20])
    b[:, :10] = a[:, :10] * np.float32(0.9)
    mask = np.zeros([24, 20], bool)
    mask[2:15, 1:9] = True
    assert float(judge.ssim(a, b)) == pytest.approx(by_definition(a, b), abs=1e-4)
    assert float(judge.ssim(a, b, mask)) == pytest.approx(by_definition(a, b, mask), abs=1e-4)
    assert float(judge.ssim(a, b, mask)) > 0.9 > float(judge.ssim(a, b))
    assert math.isnan(judge.ssim(a, b, np.zeros([24, 20], bool)))  # a garment nobody sees


@pytest.mark.parametrize('side, count', [(1024, 5), (176, 5), (161, 5), (160, 4), (128, 4), (11, 1)])
def test_as_many_scales_as_windows_fit(side, count):
    """Use Wang et al.'s five weights where five windows fit; they sum to 1.0001."""
    weights = judge.scales(side)
    assert len(weights) == count and weights.sum() == pytest.approx(1)
    if side < 1000:
        a, b = picture(0, [side, side + 7]), picture(0, [side, side + 7]) * np.float32(0.8)
        assert 0.5 < float(judge.ms_ssim(a, b)) < 1
    if count == 5:
        np.testing.assert_allclose(weights, judge.SCALES, atol=1e-4)


def test_intersection_over_union_by_hand():
    true = np.array([[3, 3, 5, 0], [3, 3, 5, 0], [4, 4, 4, 4]])
    parse = np.array([[3, 3, 3, 0], [3, 0, 5, 0], [3, 3, 3, 3]])
    removed = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]], np.float32)
    overlap = judge.overlap(parse, true, removed)  # of classes 3, 5, 6 and 0
    np.testing.assert_array_equal(overlap, [[3, 1, 0, 2], [5, 2, 0, 3]])
    assert judge.mean_iou(overlap) == pytest.approx((3 / 5 + 1 / 2 + 2 / 3) / 3)  # nobody has a right arm
    assert judge.mean_iou(judge.overlap(true, true, removed)) == 1
    assert math.isnan(judge.mean_iou(judge.overlap(parse, true, 0 * removed)))


@pytest.fixture(scope='module')
def pairs(tmp_path_factory):
    """Inputs and rows: two people in what they wear, and the first in what the other wears."""
    folder = str(tmp_path_factory.mktemp('people'))
    sample_people.write_people(folder, 2, 0, SIZE)
    folders = pairs_files.folders(pairs_files.root(os.path.join(folder, 'train_pairs.txt')))
    asked = {'image': 'image', 'parse': 'parse', 'pose_json': 'keypoints', 'cloth': 'cloth', 'cloth_mask': 'cloth_mask'}
    inputs, rows = [], []
    for person, garment in ((0, 0), (1, 1), (0, 1)):
        names = [f'0000{number}_00.jpg' for number in (person, garment)]
        files = pairs_files.read(folders, *names)
        inputs.append({name: files[key].content for name, key in asked.items()})
        rows.append({'person': names[0], 'garment': names[1], 'target': names[0] if person == garment else ''})
    return inputs, rows


@pytest.fixture(scope='module')
def assets(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp('examples'))
    records.write_manifest(folder, [], (), {}, {'padding': 40})
    return tryon.assets(folder, tryon.Input(size=SIZE))


@pytest.fixture(scope='module')
def model(assets):
    tf.keras.utils.set_random_seed(0)
    return serving.serving(try_on.build(SMALL), SMALL, serving.Inference(), assets)


class Perfect(tf.Module):
    """Makes the picture that is to come out, of the garment as it is worn."""

    def __init__(self, assets):
        super().__init__()
        self._assets = assets

    @tf.function
    def judged(self, **files):
        given = self._assets.sample(**files)
        image, cloth = given['image'] / 2 + 0.5, given['cloth'] / 2 + 0.5
        S_c = given['parse'][..., tf.newaxis] == judge.UPPER
        return {'image': image, 'reconstructed': image, 'true_image': image, 'cloth': cloth,
                'warped': tf.where(S_c, image, 1), 'warped_mask': tf.cast(S_c, tf.float32), 'parse': given['parse'],
                'true_parse': given['parse'], 'agnostic_parse': given['agnostic_parse'], 'removed': given['removed']}


class Negative(Perfect):
    """Makes the negative of that picture."""

    @tf.function
    def judged(self, **files):
        found = super().judged(**files)
        return {**found, **{name: 1 - found[name] for name in ('image', 'reconstructed', 'warped')}}


@pytest.fixture(scope='module')
def perfect(assets):
    return Perfect(assets)


def test_a_perfect_model(perfect, pairs):
    judged = Scorer({})
    assert {*judged.names} == ALWAYS and judged.names[-1] == 'ssim'
    found = judged(perfect, *pairs)
    for row, numbers in zip(pairs[1], found):
        assert {*numbers} == ALWAYS - {*Scorer.CORPUS}
        assert all(map(math.isfinite if row['target'] else math.isnan, numbers.values()))
    for numbers in found[:2]:
        for name in {*numbers} - {'warp_l1_identity', 'ssim_pasted', 'mask_ssim_pasted'}:
            assert numbers[name] == pytest.approx(float('ssim' in name), abs=1e-4)  # float32 where a picture is flat
    assert judged.corpus()['parse_iou'] == 1
    assert 0 < judged.corpus()['parse_iou_copied'] < 0.25  # of four classes only the background is copied, and it
    # fills what the others lack


@pytest.mark.slow  # test_tryon_pipeline.py judges one, too
def test_a_model_nobody_trained(model, perfect, pairs):
    of_random, of_perfect = Scorer({}), Scorer({})
    found, best = of_random(model, *pairs), of_perfect(perfect, *pairs)
    for one, other in zip(found[:2], best[:2]):
        for name in {*one} - {'warp_l1_identity', 'ssim_pasted', 'mask_ssim_pasted'}:
            assert one[name] > 0.05 if 'l1' in name or 'lab' in name else one[name] < 0.95
        for name in ('warp_l1_identity', 'ssim_pasted', 'mask_ssim_pasted'):  # for which no model is asked
            assert one[name] == pytest.approx(other[name], abs=1e-4)
    assert of_random.corpus()['parse_iou'] < 0.5
    assert of_random.corpus()['parse_iou_copied'] == of_perfect.corpus()['parse_iou_copied']


def test_pairs_worn_by_nobody_have_no_scores_and_still_pictures(perfect, pairs):
    unworn = [each[2:] for each in pairs]
    judged = Scorer({})
    [numbers] = judged(perfect, *unworn)
    assert all(map(math.isnan, [*numbers.values(), *judged.corpus().values()]))
    [pictures] = judged.pictures
    assert {*pictures} == {'person', 'garment', 'warped', 'parse', 'made', 'reconstruction'}
    decoded = {what: tf.io.decode_png(png).numpy() for what, png in pictures.items()}
    assert all(each.shape == (*SIZE, 3) for each in decoded.values())
    original = tf.io.decode_jpeg(unworn[0][0]['image'], dct_method='INTEGER_ACCURATE').numpy().astype(int)
    assert np.abs(decoded['person'] - original).max() <= 1


def test_files_that_cannot_be_used_are_told_and_count_nothing(perfect, pairs):
    judged = Scorer({})
    inputs, rows = pairs
    results = judged(perfect, [{**inputs[0], 'pose_json': b'{"people": []}'}, inputs[1]], rows[:2])
    assert 'one person' in results[0]['error'] and 'ssim' in results[1]
    assert '1 of 1 pairs' in judged.protocol()['ssim'] and len(judged.pictures) == 1


def test_every_number_says_how_and_on_which_pairs(perfect, pairs):
    judged = Scorer({})
    judged(perfect, *pairs)
    said = judged.protocol()
    digest = hashlib.sha256(b'00000_00.jpg 00000_00.jpg\n00000_00.jpg 00001_00.jpg\n00001_00.jpg 00001_00.jpg\n')
    assert said.keys() == {*judged.names}
    for text in said.values():
        assert 'at 128 x 128 ' in text and f'2 of 3 pairs paired, list {digest.hexdigest()[:16]}' in text
    assert f'tf.image.ssim of TensorFlow {tf.__version__}' in said['ssim'] and 'true parse' in said['ssim']
    assert 'predicted parse' in said['chain_ssim'] and '4 of 5 scales' in said['ms_ssim']
    again = Scorer({})
    again(perfect, *(each[::-1] for each in pairs))
    assert again.protocol() == said  # in whatever order
    again(perfect, *(each[:1] for each in pairs))
    assert again.protocol() != said


def test_metrics_without_their_networks_are_named_with_the_remedy():
    none, half = Scorer({}).missing, Scorer({'alexnet': 'a.pth', 'inception': 'i.pth'}).missing
    assert {*none} == {'lpips', 'fid'} and {*half} == {'lpips'}
    assert none['lpips'].startswith('lpips is not computed: give evaluate.networks.alexnet=')
    assert 'pt_inception-2015-12-05' in none['fid']
    assert 'networks.lpips=' in half['lpips'] and 'alexnet=' not in half['lpips']
    every = Scorer({'alexnet': 'a.pth', 'lpips': 'l.pth', 'inception': 'i.pth'})
    assert not every.missing and {*every.names} == ALWAYS | {'lpips', 'fid'}
    with pytest.raises(ModelError, match='evaluate.networks.vgg: no metric uses such a network; known '):
        Scorer({'vgg': 'v.pth'})


def mean_colours(shown, training):
    """In place of Inception: 48 features of an image [1, 299, 299, 3]."""
    return tf.reshape(tf.nn.avg_pool2d(shown[:, :296, :296], 74, 74, 'VALID'), [1, 48])


@pytest.mark.parametrize('inception', [
    pytest.param(False, id='mean colours'),
    pytest.param(True, id='inception', marks=pytest.mark.slow)])  # which test_fid.py proves by itself
def test_published_networks_see_no_distance_between_equal_pictures(
        assets, perfect, pairs, tmp_path, monkeypatch, inception):
    if not inception:
        statistics = fid.Statistics
        monkeypatch.setattr(fid, 'load', lambda path: mean_colours)
        monkeypatch.setattr(fid, 'Statistics', lambda: statistics(48))
    reference = Reference('lpips')
    judged = Scorer({'alexnet': published_files.write(reference, tmp_path / 'alexnet.pth'),
                    'lpips': torch_zip.write(tmp_path / 'lpips.pth', published_files.lins(reference)),
                    'inception': published_files.write(Reference('inception'), tmp_path / 'inception.pth')
                    if inception else 'unread.pth'})
    best = judged(perfect, *(each[:1] for each in pairs))
    assert math.isnan(judged.corpus()['fid'])  # there is no covariance of a single picture
    best += judged(perfect, *(each[1:] for each in pairs))
    none = judged.corpus()['fid']
    found = judged(Negative(assets), *(each[:2] for each in pairs))
    assert [numbers['lpips'] for numbers in best[:2]] == [0, 0] and math.isnan(best[2]['lpips'])
    assert min(numbers['lpips'] for numbers in found) > 0.01
    distance = judged.corpus()['fid']
    assert distance > 1 and none < 1e-6 * distance
