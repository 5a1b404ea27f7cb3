"""Generated people: the published layout, labels and points that match the image, and a known deformation."""
import json
import os

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scipy import ndimage
from scipy.interpolate import RBFInterpolator

from data_prep import UserError
from data_prep.people import sample_garments, sample_people

SIZE = 256, 192
UPPER = 5
LABELS = {0, 2, 5, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19}
HIPS = {5, 9, 12}
# BODY_25, https://github.com/CMU-Perceptual-Computing-Lab/openpose/blob/master/doc/02_output.md: the labels a point can
# lie on, of the person's own right and left.
POINTS = [{13}, {5, 10}, {2, 5, 10, 15}, {5, 15}, {5, 15}, {2, 5, 10, 14}, {5, 14}, {5, 14}, HIPS,
          HIPS, {9, 12, 17}, {9, 12, 17, 19}, HIPS, {9, 12, 16}, {9, 12, 16, 18}, {13}, {13}, {13}, {13},
          {18}, {18}, {18}, {19}, {19}, {19}]


@pytest.fixture(scope='module')
def people():
    return [sample_people.make_person(7, number, SIZE) for number in range(40)]


def test_the_published_layout(tmp_path):
    paths = sample_people.write_people(str(tmp_path / 'new'), 2, 3, (128, 96), seed=4)
    assert [os.path.relpath(path, tmp_path / 'new') for path in paths] == ['train_pairs.txt', 'test_pairs.txt']
    train, test = ([line.split() for line in open(path, encoding='ascii')] for path in paths)
    assert train == [['00000_00.jpg'] * 2, ['00001_00.jpg'] * 2]
    assert [person for person, _ in test] == ['50000_00.jpg', '50001_00.jpg', '50002_00.jpg']
    assert sorted(garment for _, garment in test) == [person for person, _ in test]
    assert all(garment != person for person, garment in test)
    for split, pairs in ('train', train), ('test', test):
        for name in [person[:-len('.jpg')] for person, _ in pairs]:
            path = {kind: tmp_path / 'new' / split / kind / f'{name}{end}' for kind, end in (
                ('image', '.jpg'), ('cloth', '.jpg'), ('cloth-mask', '.jpg'), ('image-parse', '.png'),
                ('openpose-json', '_keypoints.json'))}
            person = sample_people.make_person(4, int(name[:5]), (128, 96))
            for kind, truth in ('image', person.image), ('cloth', person.cloth):
                decoded = tf.io.decode_jpeg(path[kind].read_bytes()).numpy().astype(int)
                assert decoded.shape == (128, 96, 3) and np.abs(decoded - truth).mean() < 5
            mask = tf.io.decode_jpeg(path['cloth-mask'].read_bytes()).numpy()[..., 0]
            np.testing.assert_array_equal(np.where(mask > 127, 255, 0), person.cloth_mask)
            assert ((mask < 32) | (mask > 223)).all()  # which JPEG hardly blurs
            with Image.open(path['image-parse']) as parse:
                assert parse.mode == 'P' and parse.getpalette()[3 * 15:3 * 16] == [192, 128, 128]
                np.testing.assert_array_equal(np.array(parse), person.parse)
            written, = json.loads(path['openpose-json'].read_text())['people']
            np.testing.assert_allclose(np.reshape(written['pose_keypoints_2d'], (25, 3)), person.points, atol=6e-4)


def test_the_same_bytes_whatever_the_count(tmp_path):
    for name, counts, seed in ('few', (2, 0), 1), ('many', (3, 2), 1), ('other', (2, 0), 2):
        sample_people.write_people(str(tmp_path / name), *counts, (128, 96), seed)
    few = [path for path in (tmp_path / 'few' / 'train').rglob('*') if path.is_file()]
    assert len(few) == 10
    for path in few:
        inside = path.relative_to(tmp_path / 'few')
        assert (tmp_path / 'many' / inside).read_bytes() == path.read_bytes()
        assert (tmp_path / 'other' / inside).read_bytes() != path.read_bytes()


def test_patterns_and_poses_held_out_are_only_in_the_test(tmp_path):
    held_out = ['plain', 'stripes', 'raised']
    for name, own in ('everyone', ()), ('some', held_out):
        sample_people.write_people(str(tmp_path / name), 3, 6, (128, 96), held_out=own)
    everyone, some = (tmp_path / name for name in ('everyone', 'some'))
    trained = [int(path.name[:5]) for path in sorted((some / 'train' / 'image').iterdir())]
    chosen = [number for number in range(20)
              if sample_people.make_person(1, number, (64, 48)).group(held_out) == 'seen']
    assert trained == chosen[:3] != [0, 1, 2]
    for path in (path for path in (everyone / 'test').rglob('*') if path.is_file()):
        assert (some / path.relative_to(everyone)).read_bytes() == path.read_bytes()
    groups = [line.split()[2] for line in (some / 'test_pairs.txt').read_text().splitlines()]
    assert groups == [sample_people.make_person(1, 50_000 + n, (64, 48)).group(held_out) for n in range(6)]
    assert {'pattern', 'pose'} <= {*groups}
    with pytest.raises(UserError, match='samples_held_out: there is no pattern or pose tartan'):
        sample_people.write_people(str(tmp_path), 1, 0, held_out=['tartan'])


def test_a_group_is_one_word_of_what_was_held_out(people):
    one = people[0]._replace(pattern='checks', poses=frozenset({'side', 'raised'}))
    assert [one.group(names) for names in ([], ['dots'], ['checks'], ['raised'], ['raised', 'checks'])] == [
        'seen', 'seen', 'pattern', 'pose', 'pattern+pose']


@pytest.mark.parametrize('counts', [(3, 1), (-1, 0), (50_001, 0)])
def test_counts_that_cannot_be(tmp_path, counts):
    with pytest.raises(UserError, match=f'samples_count: {counts[0]} .* and {counts[1]} '):
        sample_people.write_people(str(tmp_path), *counts)


def test_a_person_looks_alike_at_every_size(people):
    for number in range(4):
        small = sample_people.make_person(7, number, (128, 96))
        assert np.mean(small.parse == people[number].parse[::2, ::2]) > .96
        halved = people[number].image.reshape(128, 2, 96, 2, 3).mean((1, 3))
        assert np.abs(small.image - halved).mean() < 3
    assert sample_people.make_person(7, 0, (96, 160)).image.shape == (96, 160, 3)


def test_labels_and_masks(people):
    assert set().union(*(np.unique(person.parse) for person in people)) == LABELS
    for person in people:
        assert {2, 5, 10, 13} <= set(np.unique(person.parse))
        assert .02 < np.mean(person.parse == UPPER) < .5
        assert set(np.unique(person.cloth_mask)) == {0, 255}
        mask = person.cloth_mask > 0
        assert .1 < mask.mean() < .6
        assert not (mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any())
        assert (person.cloth[~ndimage.binary_dilation(mask, np.ones((3, 3)), 2)] == 255).all()
        assert ndimage.label(mask)[1] == 1


def test_points_lie_on_what_they_name(people):
    found = np.array([person.points[:, 2] > 0 for person in people])
    for person in people:
        for (x, y, confidence), labels in zip(person.points, POINTS):
            if confidence:
                assert .5 < confidence < 1 and person.parse[round(y), round(x)] in labels
            else:
                assert x == y == 0
        nose, neck, right, left = person.points[[0, 1, 2, 5], :2]
        assert right[0] < neck[0] < left[0] and nose[1] < neck[1]
    assert found[:, [0, 1, 2, 5, 15, 16]].all()  # nose, neck, shoulders, eyes
    assert (found[:, [3, 4, 6, 7, 8]].mean(0) > .6).all()  # elbows, wrists, hips
    assert found[:, 11].any() and not found[:, 11].all()  # feet are mostly cut off


def interior(person):
    """Where the worn top's pixel is of one part, uncovered, and comes from within the flat one."""
    rough = np.zeros(SIZE, bool)
    for axis in range(2):
        bend = np.abs(np.diff(person.flow, 2, axis)).max(-1) > .5  # from torso to sleeve
        rough |= np.pad(bend, [(1 - axis, 1 - axis), (axis, axis)])
    worn = ndimage.binary_erosion((person.parse == UPPER) & ~rough, iterations=2)
    x, y = np.nan_to_num(np.moveaxis(person.flow, -1, 0))
    flat = ndimage.binary_erosion(person.cloth_mask > 0, iterations=2).astype(float)
    return worn & (ndimage.map_coordinates(flat, [y, x], order=1) == 1)


def warped(person):
    x, y = np.nan_to_num(np.moveaxis(person.flow, -1, 0))
    return np.stack([ndimage.map_coordinates(channel.astype(float), [y, x], order=1)
                     for channel in np.moveaxis(person.cloth, -1, 0)], -1)


def test_the_deformation_is_known(people):
    identity, known = [], []
    for person in people:
        assert np.array_equal(np.isfinite(person.flow[..., 0]), person.parse == UPPER)
        where = interior(person)
        assert where.sum() > .6 * (person.parse == UPPER).sum()
        expected = np.clip(warped(person) * person.light[..., None], 0, 255)[where]  # no level is above white
        error = np.abs(expected - person.image[where])
        assert np.mean(error) < .5  # OpenCV rounds places to 1/32 of a pixel
        assert np.mean(error > 4) < .01  # where torso and sleeve share a pixel of the seam
        known.append(np.abs(warped(person)[where] - person.image[where]).mean())
        identity.append(np.abs(person.cloth[where].astype(float) - person.image[where]).mean())
    assert np.mean(known) < .25 * np.mean(identity)  # light and shade are small, the deformation is not


def test_most_of_the_worn_top_comes_from_within_the_flat_one(people):
    for person in people:
        x, y = person.flow[np.isfinite(person.flow[..., 0])].T
        near = ndimage.binary_dilation(person.cloth_mask > 0, iterations=2).astype(float)
        assert np.mean(ndimage.map_coordinates(near, [y, x], order=0) == 1) > .97


def test_splines_agree_with_scipy():
    draw = np.random.default_rng(0)
    source, target, places = draw.uniform(-1, 1, (12, 2)), draw.uniform(-1, 1, (12, 2)), draw.uniform(-1, 1, (50, 2))
    ours = sample_garments.spline(source, target)
    np.testing.assert_allclose(ours(source), target, atol=1e-9)
    np.testing.assert_allclose(ours(places), RBFInterpolator(source, target, kernel='thin_plate_spline')(places),
                               atol=1e-9)
    affine = np.array([[.9, .2], [-.3, 1.1]])
    np.testing.assert_allclose(sample_garments.spline(source, source @ affine + 2)(places), places @ affine + 2,
                               atol=1e-9)


def test_coverage_is_area():
    frame = sample_garments.Frame((120, 90))
    square = frame.units(np.array([(20.25, 30), (50.25, 30), (50.25, 70.5), (20.25, 70.5)]))
    (rows, columns), alpha = frame.cover([square, square])
    assert alpha.sum() == pytest.approx(30 * 40.5, rel=.02)
    assert alpha[50 - rows.start, 30 - columns.start] == 1 and alpha.max() == 1
    np.testing.assert_allclose(frame.pixels(square)[2], (50.25, 70.5))


def test_people_differ(people):
    """Sleeves, occlusion and place differ, so neither warping nor composing is trivial."""
    centres = np.array([np.mean(np.nonzero(person.parse == UPPER), 1) for person in people])
    assert (centres.std(0) > 4).all()
    areas = np.array([np.mean(person.parse == UPPER) for person in people])
    assert areas.max() > 2.5 * areas.min()
    arms = np.array([np.isin(person.parse, (14, 15)).mean() / np.mean(person.parse == UPPER) for person in people])
    assert np.mean(arms < .15) > .15 and np.mean(arms > .35) > .15  # long sleeves, bare arms

    def crossed(person):  # an arm or hand with the top on both its sides
        top, arm = person.parse == UPPER, np.isin(person.parse, (14, 15))
        return (arm & np.maximum.accumulate(top, 1) & np.maximum.accumulate(top[:, ::-1], 1)[:, ::-1]).mean() > .003
    assert .1 < np.mean([crossed(person) for person in people]) < .9
    assert 10 < len({person.cloth.tobytes() for person in people}) == len(people)
