"""The image input of a net: against decoding whole images, the papers' formulas, and eager execution."""
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep.image import augmentation, resampling
from data_prep.image.augmentation import Pixels, View

FILES = {'photograph': (375, 500, {'quality': 90}), 'tall': (301, 187, {'quality': 75, 'subsampling': 2}),
         'small': (32, 32, {'quality': 95, 'subsampling': 0}), 'narrow': (20, 333, {}), 'tiny': (9, 7, {}),
         'progressive': (260, 390, {'progressive': True}), 'large': (1200, 1601, {'subsampling': 1})}


def jpeg(height, width, mode='RGB', seed=0, **options):
    """Smooth noise of every colour with fine noise over it."""
    draw = np.random.default_rng(seed)
    coarse = draw.uniform(0, 255, (height // 16 + 2, width // 16 + 2, 3)).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), np.float32)
    pixels = np.clip(smooth + draw.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, 'JPEG', **options)
    return file.getvalue()


def size_of(encoded):
    return tf.io.extract_jpeg_shape(encoded)[:2]


def levels(encoded):
    """Decode with Pillow, which shares no code with TensorFlow."""
    return tf.constant(np.asarray(Image.open(io.BytesIO(encoded.numpy())).convert('RGB')))


def flat_pixels(mean=0.0, covariance=None):
    return Pixels(np.full((256, 256, 3), mean), np.full(3, mean), np.eye(3) if covariance is None else covariance)


def view(pixels=None, crop=24, scales=(32, 40), square=False, flip=False, colour=0.0, mean='none', dct_scaling=False):
    return View(pixels or flat_pixels(), crop, scales, square, flip, colour, mean, dct_scaling=dct_scaling)


def triangle(pixels, whole):
    """[h, w, 3] -> [*whole, 3] from the definition: weights by the distance of pixel centres, in units of the wider."""
    for axis, target in enumerate(whole):
        source = pixels.shape[axis]
        width = max(1, source / target)
        distance = np.abs((np.arange(target)[:, None] + 0.5) * source / target - (np.arange(source) + 0.5))
        weights = np.maximum(0, 1 - distance / width)
        pixels = np.moveaxis(np.tensordot(weights / weights.sum(1, keepdims=True), pixels, (1, axis)), 0, axis)
    return pixels


@pytest.mark.parametrize('name', FILES)
@pytest.mark.parametrize('mode', ['RGB', 'L'])
def test_a_crop_is_what_rescaling_all_of_the_picture_and_cropping_gives(name, mode):
    """To 0.05 of a level, wherever the crop lies; and eagerly bit for bit what it is in a graph."""
    height, width, options = FILES[name]
    encoded = tf.constant(jpeg(height, width, mode, **options))
    size, full = size_of(encoded), levels(encoded).numpy().astype(np.float64)
    crop = tf.function(augmentation.crop_jpeg, autograph=False)
    for scale in (64, 91, 150):
        whole = augmentation.rescaled(size, scale)
        expected = triangle(full, whole.numpy())
        room = whole.numpy() - 64
        for offset in ([0, 0], room, room // 2, [room[0] // 3, room[1] // 5]):
            what = encoded, size, whole, tf.constant(offset, tf.int32), 64
            got, (y, x) = crop(*what), offset
            np.testing.assert_allclose(got, expected[y:y + 64, x:x + 64], atol=0.05)
            np.testing.assert_array_equal(got, augmentation.crop_jpeg(*what))


@pytest.mark.parametrize('size, whole, times', [
    ((375, 500), (256, 341), 0), ((512, 682), (256, 341), 1), ((511, 682), (256, 341), 0), ((30, 30), (60, 60), 0),
    ((1024, 1366), (256, 341), 2), ((4000, 3000), (300, 225), 3), ((90, 90), (1, 1), 3)])
def test_a_file_is_halved_while_enough_is_left(size, whole, times):
    assert augmentation.halvings(tf.constant(size), tf.constant(whole)) == times


@pytest.mark.parametrize('name', ['photograph', 'tall', 'progressive', 'large'])
def test_scaled_decoding_shows_the_same_crop_from_pixels_pillow_decodes_alike(name):
    """Pillow's draft mode is the same transform; where nothing can be halved, not a bit differs."""
    height, width, options = FILES[name]
    encoded = tf.constant(jpeg(height, width, **options))
    size, crop = size_of(encoded), tf.function(augmentation.crop_jpeg, autograph=False)
    for scale in (20, 100, 300):
        whole = augmentation.rescaled(size, scale)
        times = int(augmentation.halvings(size, whole))
        image = Image.open(io.BytesIO(encoded.numpy()))
        image.draft('RGB', [side // 2 ** times for side in (width, height)])  # the least it may be
        expected = triangle(np.asarray(image.convert('RGB'), np.float64), whole.numpy())
        y, x = (whole.numpy() - 16) // 2
        found = crop(encoded, size, whole, tf.constant([y, x]), 16, True)
        np.testing.assert_allclose(found, expected[y:y + 16, x:x + 16], atol=0.05)
        if not times:
            np.testing.assert_array_equal(found, crop(encoded, size, whole, tf.constant([y, x]), 16))


@pytest.mark.parametrize('size, scale, expected', [
    ((375, 500), 256, (256, 341)), ((500, 375), 256, (341, 256)), ((256, 256), 256, (256, 256)),
    ((32, 32), 44, (44, 44)), ((3, 4), 6, (6, 8)), ((2, 3), 3, (3, 5)), ((1, 60000), 512, (512, 512 * 60000))])
def test_the_shorter_side_becomes_the_scale_and_the_other_follows(size, scale, expected):
    assert tuple(augmentation.rescaled(tf.constant(size), scale).numpy()) == expected


def training(shown, encoded, seeds):
    show = tf.function(shown.training, autograph=False, reduce_retracing=True)
    return np.stack([show(encoded, size_of(encoded), tf.constant(seed, tf.int32)) for seed in seeds])


def test_draws_follow_from_the_seed_alone_and_are_the_same_without_a_graph():
    encoded = tf.constant(jpeg(50, 70))
    shown = view(flat_pixels(100, np.diag([4000.0, 900, 100])), flip=True, colour=0.1, mean='pixel')
    seeds = [[seed, place] for seed in (0, 7) for place in range(6)]
    once, again = training(shown, encoded, seeds), training(shown, encoded, seeds[::-1])[::-1]
    np.testing.assert_array_equal(once, again)
    assert len({each.tobytes() for each in once}) == len(seeds)
    for each, seed in zip(once, seeds):
        np.testing.assert_array_equal(each, shown.training(encoded, size_of(encoded), tf.constant(seed)))


@pytest.fixture(scope='module')
def ramp():
    """A picture of 40 x 60 whose red is 6 times the row and whose green 4 times the column, to a level or two."""
    rows, columns = np.mgrid[:40, :60]
    file = io.BytesIO()
    Image.fromarray(np.stack([rows * 6, columns * 4, np.full_like(rows, 128)], -1).astype(np.uint8)).save(
        file, 'JPEG', quality=100, subsampling=0)
    return tf.constant(file.getvalue()), tf.constant([40, 60])


def draws(shown, ramp, number):
    """Training views of `number` seeds, [number, crop, crop, 3]."""
    show = tf.function(lambda seed: shown.training(*ramp, seed), autograph=False)
    return np.stack([show(tf.constant([3, i])) for i in range(number)])


def corners(images):
    """Where crops of the ramp at its own scale begin, by the means of their colours: rows and columns."""
    found = images.mean((1, 2))[:, :2] / [6, 4] - (images.shape[1] - 1) / 2
    np.testing.assert_allclose(found, np.round(found), atol=0.4)
    return np.round(found).astype(int).T


def test_every_place_is_drawn_and_about_as_often(ramp):
    """17 x 37 places, chi-square of each side within four deviations; half of the squares are mirrored."""
    images = draws(view(scales=(40, 40), flip=True), ramp, 1500)
    for found, places in zip(corners(images), (17, 37)):
        counts, expected = np.bincount(found, minlength=places), 1500 / places
        assert len(counts) == places
        assert ((counts - expected) ** 2 / expected).sum() < places - 1 + 4 * np.sqrt(2 * (places - 1))
    assert abs((images[:, :, 0, 1] > images[:, :, -1, 1]).all(1).sum() - 750) < 4 * np.sqrt(375)


def test_scales_are_drawn_between_the_two_and_both_occur(ramp):
    """From row to row red rises by 6 times 40 / S."""
    images = draws(view(scales=(40, 45)), ramp, 600)
    rise, _ = np.polyfit(np.arange(22), images[:, 1:-1, :, 0].mean(2).T, 1)
    counts = np.bincount(np.round(6 * 40 / rise).astype(int), minlength=46)
    assert counts[:40].sum() == 0 and len(counts) == 46
    assert abs(counts[40:] - 100).max() < 4 * 10


def test_squares_are_taken_from_the_centre(ramp):
    """Krizhevsky et al. 2: of 40 x 60 only columns 10 to 49 are ever seen."""
    rows, columns = corners(draws(view(scales=(40, 40), square=True), ramp, 300))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (0, 16, 10, 26)


@pytest.mark.parametrize('square', [False, True])
def test_the_central_view_is_the_middle_of_the_mean_scale(ramp, square):
    image = view(scales=(30, 50), square=square).central(*ramp).numpy()  # at 40, the picture's own
    assert corners(image[None]).ravel().tolist() == [8, 18]
    np.testing.assert_array_equal(image, levels(ramp[0])[8:32, 18:42])


def test_mean_image_is_alexnets_at_its_scale(ramp):
    """At S = 256 it is subtracted pixel by pixel, and before a square is mirrored (Krizhevsky et al. 2, 4.1)."""
    draw = np.random.default_rng(0)
    pixels = Pixels(draw.uniform(0, 255, (256, 256, 3)), np.zeros(3), np.eye(3))
    with_mean, without = (view(pixels, 224, (256, 256), True, True, 0.0, mean) for mean in ('pixel', 'none'))
    for i in range(6):
        seed = tf.constant([1, i])
        one, other = (each.training(*ramp, seed).numpy() for each in (with_mean, without))
        u = tf.random.stateless_uniform([4], seed, alg='philox').numpy()
        top, left = (u[1:3] * 33).astype(int)
        mean = pixels.mean_image[top:top + 224, left:left + 224]
        np.testing.assert_allclose(other - one, mean[:, ::-1] if u[3] < 0.5 else mean, atol=1e-3)


@pytest.mark.parametrize('square', [False, True])
@pytest.mark.parametrize('scale', [200, 384])
def test_mean_image_fills_what_crops_are_taken_from(ramp, square, scale):
    """A mean image that is its place is, resized, the place; clamped half a pixel from the border."""
    place = (np.arange(256) + 0.5) / 256
    mean = np.stack([*np.meshgrid(place, place, indexing='ij'), np.zeros((256, 256))], -1)
    shown, without = (view(Pixels(mean, np.zeros(3), np.eye(3)), scale, (scale, scale), square, mean=kind)
                      for kind in ('pixel', 'none'))
    found = without.central(*ramp).numpy() - shown.central(*ramp).numpy()
    wide = scale if square else scale * 3 // 2
    rows, columns = ((np.arange(scale) + (side - scale) // 2 + 0.5) / side for side in (scale, wide))
    expected = np.stack(np.meshgrid(rows, columns, indexing='ij'), -1)
    np.testing.assert_allclose(found[..., :2], np.clip(expected, place[0], place[-1]), atol=2e-4)
    assert not found[..., 2].any()


def test_mean_rgb_is_subtracted_from_every_pixel(ramp):
    pixels = Pixels(np.zeros((256, 256, 3)), np.array([123.0, 117, 104]), np.eye(3))
    shown, without = (view(pixels, mean=kind).central(*ramp).numpy() for kind in ('rgb', 'none'))
    np.testing.assert_allclose(without - shown, np.broadcast_to([123.0, 117, 104], shown.shape), atol=1e-4)


def test_deviations_divide_what_is_left_of_every_colour(ramp):
    pixels = flat_pixels(100.0, np.diag([4000.0, 900, 100]))
    options = {'scales': (40, 40), 'colour': 0.1, 'mean': 'rgb'}
    levels = view(pixels, **options)
    divided = View(pixels, 24, square=False, flip=False, standardise=True, **options)
    seed, unit = tf.constant([1, 2]), np.sqrt([4000.0, 900, 100])
    for shown in (lambda v: v.central(*ramp), lambda v: v.picture(ramp[0], 40), lambda v: v.training(*ramp, seed)):
        np.testing.assert_allclose(shown(divided), shown(levels) / unit, rtol=1e-5, atol=1e-6)


def test_colours_move_by_the_papers_formula(ramp):
    """[p1, p2, p3] [a1 l1, a2 l2, a3 l3]^T on intensities of 0 to 1: the same for every pixel, along the covariance's
    axes, with deviations of 0.1 times the eigenvalues (Krizhevsky et al. 4.1)."""
    axes, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    eigenvalues = np.array([0.22, 0.02, 0.005])
    covariance = axes @ np.diag(eigenvalues * 255 ** 2) @ axes.T
    shown, without = (draws(view(flat_pixels(0, covariance), 4, (40, 40), colour=colour), ramp, 1000)
                      for colour in (0.1, 0.0))
    moved = shown - without
    np.testing.assert_allclose(moved, np.broadcast_to(moved[:, :1, :1], moved.shape), atol=1e-4)
    alphas = moved[:, 0, 0] / 255 @ axes / eigenvalues
    np.testing.assert_allclose(alphas.mean(0), 0, atol=4 * 0.1 / np.sqrt(1000))
    np.testing.assert_allclose(np.cov(alphas.T), 0.01 * np.eye(3), atol=4 * 0.01 * np.sqrt(2 / 1000))


def test_axes_do_not_depend_on_the_sign_they_come_out_with():
    matrix = augmentation.principal_colours(np.array([[5.0, 4, 3], [4, 6, 4], [3, 4, 7]]))
    np.testing.assert_allclose(matrix @ matrix.T * 255 ** 2,
                               np.linalg.matrix_power([[5.0, 4, 3], [4, 6, 4], [3, 4, 7]], 2), rtol=1e-9)
    assert (np.take_along_axis(matrix, np.abs(matrix).argmax(0)[None], 0) > 0).all()


@pytest.mark.parametrize('square', [False, True])
@pytest.mark.parametrize('dct_scaling', [False, True])
@pytest.mark.parametrize('name', ['photograph', 'small', 'tiny'])
def test_a_served_picture_is_what_crops_were_taken_from(name, dct_scaling, square):
    height, width, options = FILES[name]
    encoded = tf.constant(jpeg(height, width, **options))
    draw = np.random.default_rng(0)
    pixels = Pixels(np.asarray(triangle(draw.uniform(0, 255, (4, 4, 3)), (256, 256))), np.zeros(3), np.eye(3))
    shown = view(pixels, 40, (64, 64), square, mean='pixel', dct_scaling=dct_scaling)
    whole = tf.function(shown.picture, autograph=False)(encoded, 64).numpy()
    assert whole.shape[:2] == ((64, 64) if square else tuple(augmentation.rescaled(size_of(encoded), 64).numpy()))
    y, x = (np.array(whole.shape[:2]) - 40) // 2
    np.testing.assert_allclose(shown.central(encoded, size_of(encoded)), whole[y:y + 40, x:x + 40], atol=0.05)
    np.testing.assert_array_equal(whole, shown.picture(encoded, 64))


@pytest.mark.parametrize('dct_scaling', [False, True])
def test_pictures_of_every_kind_are_served(dct_scaling):
    pixels = (np.arange(48 * 64 * 3).reshape(48, 64, 3) % 251).astype(np.uint8)
    for mode in ('L', 'LA', 'RGB', 'RGBA', 'P', 'I;16'):
        image = Image.fromarray(pixels).convert('L' if mode == 'I;16' else mode)
        image = Image.fromarray(np.asarray(image).astype(np.uint16) * 257) if mode == 'I;16' else image
        file = io.BytesIO()
        image.save(file, 'PNG')
        expected = triangle(np.asarray(image.convert('RGB') if mode != 'I;16' else Image.fromarray(pixels).convert(
            'L').convert('RGB'), np.float64), (30, 40))
        np.testing.assert_allclose(view(dct_scaling=dct_scaling).picture(tf.constant(file.getvalue()), 30), expected,
                                   atol=0.05)


RESAMPLED = {'enlarged': ((13, 20), (40, 61)), 'reduced': ((375, 500), (256, 341)),
             'much reduced': ((301, 990), (9, 30)), 'as it is': ((37, 41), (37, 41)),
             'one side only': ((50, 20), (20, 47)), 'a line': ((1, 300), (8, 2400))}


@pytest.mark.parametrize('name', RESAMPLED)
@pytest.mark.parametrize('dtype', [tf.uint8, tf.float32])
def test_two_products_resample_to_the_bit_as_tensorflow_does(name, dtype):
    """All of a picture, parts of it, a part of what it is made of, and beyond its border, in a graph and without."""
    size, whole = map(np.array, RESAMPLED[name])
    pixels = tf.cast(np.random.default_rng(0).integers(0, 256, (*size, 3)), dtype) * tf.cast(1 / 3 + 1, dtype)
    graph = tf.function(augmentation.resampled, autograph=False)
    for offset, stop, start in ((0 * whole, whole, 0 * size), (whole // 3, whole - whole // 4, size // 5),
                                (whole // 2, whole // 2 + 1, 0 * size), (whole // 2, whole + 7, size // 3)):
        what = [pixels[start[0]:, start[1]:], *(tf.constant(each, tf.int32) for each in (
            size, whole, offset, stop - offset, start))]
        ratio = whole / size
        expected = tf.raw_ops.ScaleAndTranslate(
            images=what[0][tf.newaxis], size=what[4], scale=tf.cast(ratio, tf.float32), kernel_type='triangle',
            translation=tf.cast(start * ratio - offset, tf.float32), antialias=True)[0]
        for found in (graph(*what), augmentation.resampled(*what)):
            np.testing.assert_array_equal(found, expected)
        if not start.any():
            np.testing.assert_array_equal(
                resampling.resampled(pixels.numpy(), tuple(whole), tuple(offset), tuple(stop - offset)), expected)


def test_the_middle_of_a_picture_is_that_of_the_picture_rescaled():
    pixels = levels(tf.constant(jpeg(301, 187))).numpy()
    middle = resampling.central_square(pixels, 100)
    whole = triangle(pixels.astype(np.float64), (161, 100))
    np.testing.assert_allclose(middle, whole[30:130], atol=0.05)


def test_a_line_of_pixels_is_shown_by_its_middle():
    """Rescaled whole, 1 x 20,000 pixels would be 256 x 5,120,000."""
    line = np.arange(20_000 * 3, dtype=np.uint32).reshape(1, 20_000, 3) // 300 % 256
    shown = view(crop=24).picture(tf.io.encode_png(line.astype(np.uint8)), 256)
    assert shown.shape == (256, augmentation.LONGEST * 256, 3)
    np.testing.assert_allclose(shown[0, 1024], line[0, 10_000], atol=1)


@pytest.mark.parametrize('mode, options', [('RGB', {}), ('RGB', {'subsampling': 0}), ('L', {}),
                                           ('RGB', {'progressive': True})])
def test_files_are_decoded_as_by_others(mode, options):
    """TensorFlow's default transform would be off by 1.2 levels on average, to one side."""
    encoded = tf.constant(jpeg(90, 130, mode, **options))
    np.testing.assert_array_equal(view().picture(encoded, 90), levels(encoded))


def placed(whole, offset, mirrored=False):
    return augmentation.Place(tf.constant(whole), tf.constant(offset), tf.constant(mirrored))


def test_a_box_in_a_square_of_the_rescaled_picture():
    """400 x 200 pixels rescaled to 200 x 100, of which 50 are shown from 100 down and 25 to the right."""
    box, place = tf.constant([[.25, .5, .75, .75]]), ([200, 100], [100, 25])  # 25 to 75 across, 100 to 150 down
    np.testing.assert_allclose(augmentation.in_square(box, placed(*place), 50, 0.5), [.5, .5, 1, 1])
    box = tf.constant([[.35, .5, .75, .75]])  # begins 10 pixels further right
    np.testing.assert_allclose(augmentation.in_square(box, placed(*place), 50, 0.5), [.6, .5, .8, 1], rtol=1e-6)
    np.testing.assert_allclose(augmentation.in_square(box, placed(*place, True), 50, 0.5), [.4, .5, .8, 1], rtol=1e-6)


def test_a_box_half_outside_keeps_its_size_and_the_one_most_shown_counts():
    place = placed([100, 100], [0, 50])
    half = tf.constant([[.4, 0., .6, .5]])  # 40 to 60 across, of which the square shows what is right of 50
    np.testing.assert_allclose(augmentation.in_square(half, place, 50, 0.49), [0, .5, .4, 1], atol=1e-6)
    assert np.isnan(augmentation.in_square(half, place, 50, 0.51)).all()
    boxes = tf.constant([[.4, 0., .6, .5], [.7, .1, .9, .2], [.5, 0., .9, .4], [np.nan] * 4])
    np.testing.assert_allclose(augmentation.in_square(boxes, place, 50, 0), [.4, .4, .8, .8], rtol=1e-6)
    for nothing in ([[0., 0., .4, .4]], [[np.nan] * 4], [[0., .5, .5, 1.]]):  # outside, none, beside
        assert np.isnan(augmentation.in_square(tf.constant(nothing), place, 50, 0)).all()


@pytest.mark.parametrize('square', [False, True])
def test_a_box_stays_around_its_thing_in_every_crop(square):
    """A white rectangle is found where its box says, whatever was drawn: scale, place and mirror."""
    pixels = np.zeros((100, 140, 3), np.uint8)
    pixels[30:80, 50:100] = 255
    encoded = tf.io.encode_jpeg(pixels, quality=100)
    box = tf.constant([[50 / 140, 30 / 100, 100 / 140, 80 / 100]])
    shown = view(crop=48, scales=(60, 90), square=square, flip=True)
    mirrored = 0

    def compare(image, place):
        x, y, w, h = 48 * augmentation.in_square(box, place, 48, 0).numpy()
        rows, columns = (np.flatnonzero(image.numpy()[..., 0].max(axis) > 127) for axis in (1, 0))
        expected = np.clip([x - w / 2, x + w / 2, y - h / 2, y + h / 2], 0, 48)
        np.testing.assert_allclose([columns[0], columns[-1] + 1, rows[0], rows[-1] + 1], expected, atol=1)
    for number in range(25):
        seed = tf.constant([3, number])
        place = shown.drawn(size_of(encoded), seed)
        compare(shown.training(encoded, size_of(encoded), seed), place)
        mirrored += int(place.mirrored)
    compare(shown.central(encoded, size_of(encoded)), shown.middle(size_of(encoded)))
    assert 5 < mirrored < 20


@pytest.mark.parametrize('square, size, expected', [
    (False, (100, 140), [0, 0, 1, 1]), (True, (100, 140), [20 / 140, 0, 120 / 140, 1]),
    (True, (140, 100), [0, 20 / 140, 1, 120 / 140]), (False, (10, 160), [.25, 0, .75, 1])])
def test_which_part_of_a_picture_is_shown(square, size, expected):
    encoded = tf.io.encode_jpeg(np.zeros((*size, 3), np.uint8))
    image, part = view(square=square).located(encoded, min(size))
    np.testing.assert_allclose(part, expected, atol=1e-6)
    np.testing.assert_array_equal(image.shape[1::-1], np.round((part[2:] - part[:2]) * np.float32(size[::-1])))
    np.testing.assert_array_equal(image, view(square=square).picture(encoded, min(size)))


def test_a_colour_that_is_the_same_everywhere_is_not_divided_by_nothing():
    """Take fluorescence in blue alone; rounding may make the variance of a constant slightly negative."""
    np.testing.assert_allclose(augmentation.deviations(np.diag([0.0, -1e-9, 400.0])), [1, 1, 20])
