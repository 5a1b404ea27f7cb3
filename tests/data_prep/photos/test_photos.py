"""Try-on samples from photographs: orientation, windows, masks against drawn ones, and findings."""
import io

import cv2
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from data_prep.image import codec
from data_prep.people import sample_people
from data_prep.photos import garment, grading, making, photograph, pose
from data_prep.photos.photograph import Window
from support.photographs import jpeg, overlap

# BODY_25 of a standing person, in torsos from the neck, without small toes.
STANDING = np.array([(0, -0.5), (0, 0), (-0.35, 0), (-0.45, 0.6), (-0.45, 1.1), (0.35, 0), (0.45, 0.6), (0.45, 1.1),
                     (0, 1), (-0.2, 1), (-0.2, 1.8), (-0.2, 2.5), (0.2, 1), (0.2, 1.8), (0.2, 2.5), (-0.06, -0.55),
                     (0.06, -0.55), (-0.15, -0.5), (0.15, -0.5), (0.2, 2.6), (0, 0), (0.2, 2.55), (-0.2, 2.6), (0, 0),
                     (-0.2, 2.55)])


def stands(scale=200.0, x=300.0, y=250.0, **moved):
    """Return a standing pose; `moved` places points elsewhere by number, as p9=(x, y) in torsos."""
    places = STANDING.copy()
    for name, place in moved.items():
        places[int(name[1:])] = place
    points = np.column_stack([places * scale + [x, y], np.full(25, 0.9)])
    points[[20, 23]] = 0
    return pose.Pose(points, points[0, :2] + [0, 0.15 * scale], 0.0, 0.9)


def sentences(findings):
    return ' '.join(finding.sentence for finding in findings)


@pytest.mark.parametrize('format', ['JPEG', 'PNG'])
@pytest.mark.parametrize('orientation', range(1, 9))
def test_a_photograph_is_turned_upright(orientation, format):
    """Every stored orientation is read as Pillow reads it, to within JPEG's error."""
    pixels = cv2.resize(np.random.default_rng(1).integers(0, 256, (4, 3, 3), np.uint8), (48, 64))
    back = {2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}.get(orientation)
    exif = Image.Exif()
    exif[0x0112] = back or 1
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format, exif=exif, **({'quality': 95} if format == 'JPEG' else {}))
    with Image.open(out) as image:
        stored = photograph._UPRIGHT[back](np.asarray(image)) if back else np.asarray(image)
    again = io.BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(again, format, exif=exif,
                                                       **({'quality': 95} if format == 'JPEG' else {}))
    found = photograph.read(again.getvalue())
    with Image.open(again) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    assert found.shape == expected.shape and np.abs(found.astype(int) - expected).mean() < 1
    assert photograph.orientation(again.getvalue()) == orientation


def test_damaged_exif_is_ignored():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = jpeg(np.zeros((64, 48, 3), np.uint8), exif=exif)
    at = content.index(b'Exif')
    for end in range(at + 6, at + 30):
        damaged = content[:end] + b'\xff\x9f\x00' + content[end + 3:]
        assert photograph.read(damaged).shape in ((64, 48, 3), (48, 64, 3))


@pytest.mark.parametrize('content, said', [
    (b'', 'empty'), (b'\0\0\0\x18ftypheic', 'HEIC, AVIF'), (jpeg(np.zeros((99, 99, 3), np.uint8))[:300], 'damaged')])
def test_unreadable_photographs_are_refused(content, said):
    with pytest.raises(codec.Unreadable, match=said):
        photograph.read(content)
    [finding] = making.of_garment(content).findings
    assert finding.wrong and said in finding.sentence


@pytest.mark.parametrize('height, width, points, window', [
    (1024, 768, stands(240), Window(0, 0, 1024, 768)),  # the person fills it, as in VITON-HD
    (1000, 2000, stands(230, 900, 250), Window(525, 0, 1000, 750)),  # wide: the whole height
    (2000, 750, stands(250, 300, 700), Window(0, 462, 1000, 750)),  # tall: the whole width, from above the head
    (3000, 4000, stands(100, 3000, 900), Window(2832, 805, 448, 336)),  # far away: 4.5 torsos
    (400, 300, stands(500, 150, 200), Window(0, 0, 400, 300))])
def test_the_window_shows_the_person(height, width, points, window):
    found = making.framing(points.points, height, width)
    assert found == window and found.height * 3 == found.width * 4
    assert 0 <= found.left <= width - found.width and 0 <= found.top <= height - found.height


@pytest.mark.parametrize('window, size', [
    (Window(20, 10, 160, 120), (80, 60)), (Window(-20, -10, 160, 120), (240, 180))])
def test_points_move_with_the_window(window, size):
    rows, columns = np.mgrid[:200, :240]
    spot = (250 * np.exp(-((columns - 71.3) ** 2 + (rows - 88.6) ** 2) / 50))[..., np.newaxis].repeat(3, 2)
    part = photograph.cut(spot.round().astype(np.uint8), window, size)[..., 0].astype(float)
    assert part.shape == size
    place = stands(1, 71.3, 88.6).moved(size[0] / window.height, window.left, window.top).points[1, :2]
    found = [np.average(np.indices(part.shape)[axis], weights=part) for axis in (1, 0)]
    np.testing.assert_allclose(found, place, atol=0.15)


def drawn(number, size=(512, 384)):
    made = sample_people.make_person(1, number, size)
    return made.cloth, made.cloth_mask > 0


@pytest.mark.parametrize('number', [50_000, 50_001, 50_003, 50_005])
@pytest.mark.parametrize('quality', [92, 60])
def test_garment_masks_match_the_drawn_ones(number, quality):
    cloth, truth = drawn(number)
    found = garment.mask(photograph.read(tf.io.encode_jpeg(cloth, quality=quality).numpy()))
    assert overlap(found.garment, truth) > 0.96
    assert not [*grading.garment(found, found.garment, Window(0, 0, 512, 384), 512)] or found.contrast < 8


def test_a_white_garment_on_white_is_segmented():
    """All of it is within 18 levels of the background, half of it within 8."""
    cloth, truth = drawn(50_005)
    white = np.where(truth[..., None], 255 - 5 - (255 - cloth.mean(-1, keepdims=True)) * 0.07, 255).round()
    assert (255 - white).max() < 18
    found = garment.mask(photograph.read(jpeg(white.astype(np.uint8).repeat(3, 2))))
    assert overlap(found.garment, truth) > 0.96
    assert 'hardly differs' in sentences(grading.garment(found, truth, Window(0, 0, 512, 384), 512))


def test_uneven_light_counts_as_background():
    cloth, truth = drawn(50_003)
    light = np.linspace(1, 0.75, 512)[:, None, None] * np.linspace(0.9, 1, 384)[None, :, None]
    noise = np.random.default_rng(0).normal(0, 3, cloth.shape)
    found = garment.mask(photograph.read(jpeg((cloth * light + noise).clip(0, 255).astype(np.uint8))))
    assert overlap(found.garment, truth) > 0.96 and found.noise < 4


def test_bad_photographs_of_garments_are_reported():
    cloth, truth = drawn(50_003)

    def said(pixels):
        return sentences(making.of_garment(jpeg(pixels), (512, 384)).findings)
    assert 'cut off at the lower edge' in said(cloth[:260])
    cut_off = making.of_garment(jpeg(cloth[:260]), (512, 384)).files['cloth_mask']
    assert not tf.io.decode_png(cut_off)[-20:].numpy().any()  # nothing is repeated below the photograph
    two = np.concatenate([cloth, drawn(50_004)[0]], 1)
    assert 'something beside the garment' in said(two)
    tiles = np.kron(np.indices((64, 48)).sum(0) % 2, np.ones((8, 8)))[..., None] * 120 + 100
    assert 'background is not plain' in said(np.where(truth[..., None], cloth, tiles).astype(np.uint8))
    assert '90 x 120 pixels' in said(cv2.resize(cloth, (90, 120), interpolation=cv2.INTER_AREA))
    assert 'No garment was found' in said(np.full((200, 150, 3), 255, np.uint8))


def test_a_garment_is_centred_on_white():
    """A garment photographed on a table comes out as in VITON-HD: centred, on white."""
    cloth, truth = drawn(50_009, (480, 360))
    table = np.full((600, 900, 3), (180, 200, 170), np.uint8)
    table[60:540, 300:660][truth] = cloth[truth]
    made = making.of_garment(jpeg(table), (512, 384))
    assert made.findings == [] and {*made.files} == {'cloth', 'cloth_mask'}
    image, mask = (tf.io.decode_image(made.files[key], 3).numpy() for key in ('cloth', 'cloth_mask'))
    assert image.shape == mask.shape == (512, 384, 3)
    outside = cv2.dilate(mask, np.ones((9, 9))) == 0
    assert image[outside].min() > 245  # white, up to JPEG's error
    rows, columns = (np.flatnonzero(mask[..., 0].any(axis)) for axis in (1, 0))
    assert 0.8 < max(np.ptp(rows) / 512, np.ptp(columns) / 384) < 0.95
    np.testing.assert_allclose([rows[[0, -1]].mean() / 512, columns[[0, -1]].mean() / 384], 0.5, atol=0.02)
    wide, tall = (np.ptp(np.flatnonzero(truth.any(axis))) for axis in (0, 1))
    assert np.ptp(columns) / np.ptp(rows) == pytest.approx(wide / tall, rel=0.02)  # the aspect ratio is kept


def test_bad_poses_are_reported():
    def said(whole, size=(1024, 768)):
        return sentences(grading.pose(whole, whole.seen(*size)))
    assert said(stands()) == ''
    assert 'seated' in said(stands(p10=(-0.3, 1.2), p13=(0.3, 1.25)))
    assert said(stands(p10=(-0.3, 1.2))) == ''  # one foot on a step
    assert 'turned to the side' in said(stands(p2=(-0.15, 0), p5=(0.15, 0)))
    assert 'A shoulder is not visible' in said(stands(x=50))
    assert 'A hip is not visible' in said(stands(y=850))
    hidden = stands()
    hidden.points[[6, 7], 2] = 0.02
    assert said(hidden).startswith('Not visible: left elbow and wrist.')


def test_bad_photographs_of_people_are_reported():
    bright, window = np.full((1024, 768, 3), 230, np.uint8), Window(0, 0, 1024, 768)

    def said(pixels, people, window=window):
        return sentences(grading.photograph(pixels, people, window, 1024))
    assert said(bright, [stands()]) == ''
    assert 'too dark' in said(bright // 6, [stands()])
    assert '2 people were found' in said(bright, [stands(), stands(100)])
    assert 'leans by 90 degrees' in said(bright, [stands()._replace(rotation=np.pi / 2)])
    assert '300 x 400 pixels' in said(bright, [stands()], Window(0, 0, 400, 300))
    assert sentences(grading.nobody(bright)).startswith('No person was found')
    assert 'too dark' in sentences(grading.nobody(bright // 6))


def test_bad_parse_maps_are_reported():
    truth = sample_people.make_person(1, 50_005, (512, 384))
    assert sentences(grading.parse(truth.parse, truth.points)) == ''
    swapped = truth.parse.copy()
    swapped[truth.parse == 14], swapped[truth.parse == 15] = 15, 14
    assert 'swaps left and right arm' in sentences(grading.parse(swapped, truth.points))
    for label, said in ((5, 'no top'), (13, 'no face')):
        assert said in sentences(grading.parse(np.where(truth.parse == label, np.uint8(2), truth.parse), truth.points))
    assert 'on the parse map\'s background' in sentences(grading.parse(np.roll(truth.parse, 250, 1), truth.points))


@pytest.mark.slow  # downloads BlazePose from the package index
def test_unusable_photographs_of_people_are_reported(blazepose):
    net = pose.BlazePose(blazepose)
    one, other = (sample_people.make_person(1, number, (512, 384)).image for number in (50_005, 50_012))

    def said(pixels):
        return sentences(making.of_person(jpeg(pixels), net, None, (512, 384)).findings)
    assert said(one) == ''
    for turns in (1, 2, 3):
        assert 'Rotate the photograph upright' in said(np.rot90(one, turns))
    assert 'too dark' in said(one // 6)
    assert '2 people were found' in said(np.concatenate([one, other], 1))
    assert said(np.full_like(one, 200)).startswith('No person was found')
    assert '90 x 120 pixels' in said(cv2.resize(one, (90, 120), interpolation=cv2.INTER_AREA))
