"""The clothing-agnostic person: what parse maps and poses contribute, and what is removed, pixel by pixel."""
import io
import itertools
import json
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep.people import person

HEIGHT, WIDTH = 256, 192
NAMES = {name: number for number, name in enumerate(person.POINTS)}


def labels_picture():
    """Every label there is, more of some than of others."""
    return np.repeat(np.repeat(np.arange(20, dtype=np.uint8).reshape(4, 5), 6, 0), 9, 1)


def png(levels, depth=8, kind=0, chunks=()):
    """A PNG file as the format says, of indices or grey levels of any depth."""
    def chunk(name, data):
        return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
    height, width = levels.shape
    bits = np.unpackbits(levels.astype(np.uint8)[..., None], axis=2)[..., 8 - depth:]
    rows = np.packbits(bits.reshape(height, -1), axis=1)
    return b''.join([person.PNG, chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, depth, kind, 0, 0, 0)),
                     *(chunk(*each) for each in chunks),
                     chunk(b'IDAT', zlib.compress(b''.join(b'\0' + row.tobytes() for row in rows))),
                     chunk(b'IEND', b'')])


def saved(image, **options):
    file = io.BytesIO()
    image.save(file, 'PNG', **options)
    return file.getvalue()


def palette_png(labels, colours, **options):
    image = Image.fromarray(labels)
    image = image.convert('P') if image.mode != 'P' else image
    image.putdata(labels.ravel().tolist())
    image.putpalette(np.asarray(colours, np.uint8).ravel().tolist())
    return saved(image, **options)


LIP = np.array([[0, 0, 0], [128, 0, 0], [255, 0, 0], [0, 85, 0], [170, 0, 51], [255, 85, 0], [0, 0, 85], [0, 119, 221],
                [85, 85, 0], [0, 85, 85], [85, 51, 0], [52, 86, 128], [0, 128, 0], [0, 0, 255], [51, 170, 221],
                [0, 255, 255], [85, 255, 170], [170, 255, 85], [255, 255, 0], [255, 170, 0]], np.uint8)
WRITTEN = np.where(LIP == 255, 254, np.where(LIP == 170, 169, np.where(LIP == 221, 220, LIP))).astype(np.uint8)
VOC = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128], [128, 0, 128], [0, 128, 128],
                [128, 128, 128], [64, 0, 0], [192, 0, 0], [64, 128, 0], [192, 128, 0], [64, 0, 128], [192, 0, 128],
                [64, 128, 128], [192, 128, 128], [0, 64, 0], [128, 64, 0], [0, 192, 0], [128, 192, 0]], np.uint8)
RANDOM = np.random.default_rng(0).integers(0, 256, (256, 3))
FORMS = {
    'grey': lambda labels: saved(Image.fromarray(labels)),
    'grey with alpha': lambda labels: saved(Image.fromarray(labels).convert('LA')),
    'palette of LIP': lambda labels: palette_png(labels, LIP),
    'palette of VOC': lambda labels: palette_png(labels, VOC),
    'palette of anything': lambda labels: palette_png(labels, RANDOM),
    'palette of one colour': lambda labels: palette_png(labels, np.zeros((20, 3))),
    'transparent palette': lambda labels: palette_png(labels, LIP, transparency=0, dpi=(72, 72)),
    'LIP': lambda labels: saved(Image.fromarray(LIP[labels])),
    'LIP as written': lambda labels: saved(Image.fromarray(WRITTEN[labels])),
    'LIP with alpha': lambda labels: saved(Image.fromarray(LIP[labels]).convert('RGBA')),
    'VOC': lambda labels: saved(Image.fromarray(VOC[labels])),
}


READ_MAP = tf.function(person.parse_map, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)


def test_parse_maps_of_every_form_are_the_same():
    labels = labels_picture()
    for form, encode in FORMS.items():
        for read in (person.parse_map, READ_MAP):
            np.testing.assert_array_equal(read(tf.constant(encode(labels))), labels, form)


@pytest.mark.parametrize('depth', [1, 2, 4, 8])
def test_few_bits_and_whatever_comes_before_the_pixels(depth):
    labels = labels_picture() % (1 << depth)
    palette = (b'PLTE', RANDOM[:1 << depth].astype(np.uint8).tobytes())
    before = (b'tEXt', b'Comment\0IDAT and PLTE')
    for kind, chunks in ((0, []), (0, [before]), (3, [palette]), (3, [before, palette, (b'tRNS', b'\0\x80')])):
        encoded = png(labels, depth, kind, chunks)
        assert Image.open(io.BytesIO(encoded)).size == (45, 24)
        np.testing.assert_array_equal(person.parse_map(tf.constant(encoded)), labels)


@pytest.mark.parametrize('length', [0, 1, 255, 256, 70_000, (1 << 24) + 7])
def test_chunks_of_any_length_before_the_pixels_are_skipped(length):
    """To the byte: what a wrong step would land on says that pixels follow."""
    labels = labels_picture()
    palette = (b'PLTE', RANDOM.astype(np.uint8).tobytes())
    encoded = png(labels, kind=3, chunks=[palette, (b'abCd', (b'IDAT' * (length // 4 + 1))[:length])])
    np.testing.assert_array_equal(person.parse_map(tf.constant(encoded)), labels)


def test_as_many_chunks_as_allowed_may_come_before_the_pixels():
    labels = labels_picture()
    encoded = png(labels, kind=3, chunks=[(b'PLTE', RANDOM.astype(np.uint8).tobytes()),
                                          *[(b'abCd', b'')] * 999])
    np.testing.assert_array_equal(person.parse_map(tf.constant(encoded)), labels)


def test_colours_are_read_by_the_map_that_knows_more_of_them():
    """Colours of the other map are unknown; where both know as many, LIP's counts."""
    only_lip, only_voc = 13, 7  # (0, 0, 255) and (128, 128, 128)
    for lip, voc in ((3, 2), (2, 2), (2, 3)):
        colours = np.array([[LIP[only_lip]] * lip + [VOC[only_voc]] * voc])
        expected = [only_lip] * lip + [person.UNKNOWN] * voc if lip >= voc else [person.UNKNOWN] * lip + [
            only_voc] * voc
        found = person.parse_map(tf.constant(saved(Image.fromarray(colours))))
        assert found.numpy().tolist() == [expected] and found.dtype == tf.uint8


def test_levels_and_colours_that_stand_for_nothing_are_unknown():
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for form in ('grey', 'palette of anything'):
        found = person.parse_map(tf.constant(FORMS[form](levels)))
        np.testing.assert_array_equal(found, np.where(levels < 20, levels, person.UNKNOWN))
    labels = labels_picture()
    colours = LIP[labels]
    colours[0, 0], colours[5, 7] = (1, 2, 3), (255, 84, 0)
    labels[0, 0] = labels[5, 7] = person.UNKNOWN
    np.testing.assert_array_equal(person.parse_map(tf.constant(saved(Image.fromarray(colours)))), labels)


@pytest.mark.parametrize('cut', [0, 4, 20, 30, 40, 60, -20])
@pytest.mark.parametrize('form', ['grey', 'palette of LIP', 'LIP'])
def test_what_is_no_whole_png_is_an_error(form, cut):
    for read in (person.parse_map, READ_MAP):
        with pytest.raises(tf.errors.InvalidArgumentError):
            read(tf.constant(FORMS[form](labels_picture())[:cut]))


def test_chunks_without_end_before_the_pixels_are_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match='a parse map has no pixels'):
        person.parse_map(png(np.zeros((4, 4), np.uint8), kind=3, chunks=[(b'abCd', b'')] * 1001))


def test_jpeg_is_no_parse_map():
    file = io.BytesIO()
    Image.fromarray(labels_picture()).save(file, 'JPEG')
    with pytest.raises(tf.errors.InvalidArgumentError, match='must be a PNG'):
        person.parse_map(tf.constant(file.getvalue()))


def test_twenty_labels_are_thirteen_classes():
    groups = {'background': ['background', 'torso skin'], 'hair': ['hat', 'hair'], 'face': ['sunglasses', 'face'],
              'upper': ['upper', 'dress', 'coat'], 'bottom': ['pants', 'skirt'], 'socks': ['socks'],
              'noise': ['glove', 'scarf'], **{f'{side} {part}': [f'{side} {part}'] for side in ('left', 'right')
                                              for part in ('arm', 'leg', 'shoe')}}
    expected = [next(name for name, labels in groups.items() if label in labels) for label in person.LABELS]
    assert [person.CLASSES[group] for group in person.GROUP] == expected
    found = person.classes(tf.constant([*range(20), 20, person.UNKNOWN], tf.uint8)).numpy()
    assert found.tolist() == [*person.GROUP, 12, 12]
    for name, other in zip(person.CLASSES, person.MIRRORED_CLASS):
        assert person.CLASSES[other] == other_side(name)


def other_side(name):
    return name.replace('left', 'R').replace('right', 'left').replace('R', 'right')


def body(**changes):
    """A standing person's points [18, 3]; arms hang straight, left and right of x 96."""
    places = {'nose': (96, 40), 'neck': (96, 80), 'right shoulder': (66, 80), 'right elbow': (56, 120),
              'right wrist': (56, 160), 'left shoulder': (126, 80), 'left elbow': (136, 120), 'left wrist': (136, 160),
              'right hip': (80, 170), 'left hip': (112, 170), 'right knee': (80, 230), 'left knee': (112, 230)}
    places |= {name.replace('_', ' '): place for name, place in changes.items()}
    points = np.zeros((18, 3), np.float32)
    for name, place in places.items():
        if place:
            points[NAMES[name]] = (*place, 0.75)
    return points


def openpose(points, key='pose_keypoints', people=1, **more):
    """JSON as OpenPose writes it, with COCO's points or, of the same person, BODY_25's."""
    if key == 'pose_keypoints_2d':
        every = np.full((25, 3), 7.0)
        every[[*range(8), *range(9, 19)]] = points
        points = every
    one = {'person_id': [-1], 'face_keypoints_2d': [1, 2, 3], key: [float(x) for x in points.ravel()],
           'pose_keypoints_3d': [], 'hand_left_keypoints_2d': [4.5, 6, 1]}
    return json.dumps({'version': 1.3, 'people': [one] * people, **more})


READ = tf.function(person.keypoints, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)


@pytest.mark.parametrize('read', [person.keypoints, READ], ids=['eager', 'graph'])
@pytest.mark.parametrize('key', ['pose_keypoints', 'pose_keypoints_2d'])
def test_points_of_both_forms_are_the_same(read, key):
    points = body()
    points[3] = 100 / 3, 1e-5, 0.25559
    for text in (openpose(points, key), json.dumps(json.loads(openpose(points, key)), indent=2)):
        found, people = read(tf.constant(text))
        np.testing.assert_array_equal(found, points)
        assert people == 1


@pytest.mark.parametrize('number, value', [
    ('33.3333333333333333333333333333', 100 / 3), ('-0.' + '1' * 60, -1 / 9), ('12e1', 120), ('2.5E-1', .25),
    ('1e+2', 100), ('-1234567', -1234567), ('7.', 7), ('12345678', 0), ('1e1000', 0), ('1.5.5', 0), ('.5', 0),
    ('+1', 0), ('0x10', 0), ('null', 0), ('', 0)])
def test_numbers_are_read_as_json_writes_them_and_no_others(number, value):
    """However many digits they have; with one that is none the whole pose is not found."""
    numbers = f'5, {number}, 1{", 2" * 51}'
    found, people = READ(tf.constant('{"people": [{"pose_keypoints": [' + numbers + ']}]}'))
    np.testing.assert_array_equal(found[0], np.float32([5, value, 1] if value else [0, 0, 0]))
    assert people == 1 and (found[1:].numpy() == (2 if value else 0)).all()


@pytest.mark.parametrize('point, there', [
    ((0, 0, 1), False), ((0, 0, 0), False), ((3, 0, 0), True), ((0, 3, 1), True), ((-2, -1, 0.5), True),
    ((np.nan, 3, 1), False), ((3, np.inf, 1), False), ((3, 3, np.nan), False)], ids=str)
def test_a_point_is_found_if_it_is_anywhere(point, there):
    assert person.found(tf.constant([point, (1, 1, 1)], tf.float32)).numpy().tolist() == [there, True]


@pytest.mark.parametrize('key', ['pose_keypoints', 'pose_keypoints_2d'])
def test_people_are_counted_and_the_first_is_taken(key):
    points = body()
    for people in (0, 1, 2, 5):
        found, number = READ(tf.constant(openpose(points, key, people)))
        assert number == people
        np.testing.assert_array_equal(found, points if people else 0 * points)


@pytest.mark.parametrize('text, people', [
    ('', 0), ('no JSON', 0), ('{}', 0), ('[1, 2]', 0), (b'\xff\xfe{', 0), ('{"people": [{"pose_keypoints": 5}]}', 0),
    ('{"people": [{"pose_keypoints": []}]}', 1), ('{"people": [{"pose_keypoints": [1, 2, 3]}]}', 1),
    ('{"people": [{"pose_keypoints": ["a"' + ', 1' * 53 + ']}]}', 1),
    ('{"people": [{"pose_keypoints": [NaN' + ', 1' * 53 + ']}]}', 1)])
def test_without_a_pose_no_point_is_found(text, people):
    found, number = READ(tf.constant(text))
    assert number == people and not found.numpy().any()


def test_a_point_beyond_all_bounds_is_none():
    points, _ = READ(tf.constant('{"people": [{"pose_keypoints": [1e60, 1, 1' + ', 2' * 51 + ']}]}'))
    assert not points[0].numpy().any() and (points[1:].numpy() == 2).all()


def test_left_is_right_in_a_mirror():
    points = np.arange(54, dtype=np.float32).reshape(18, 3)
    other = person.exchanged(points).numpy()
    for name, number in NAMES.items():
        assert other[number].tolist() == points[NAMES[other_side(name)]].tolist()


def figure():
    """Labels of the person of `body`: a shirt with short sleeves, bare arms, hair, face, neck and trousers."""
    labels = np.zeros((HEIGHT, WIDTH), np.uint8)
    for label, (top, bottom, left, right) in (
            (2, (10, 120, 76, 117)), (13, (20, 60, 84, 109)), (10, (60, 76, 90, 103)), (9, (165, 256, 74, 119)),
            (15, (78, 178, 50, 63)), (14, (78, 178, 130, 143)), (5, (76, 165, 66, 127)), (5, (76, 110, 46, 147))):
        labels[top:bottom, left:right] = label
    labels[70:100, 76:80] = 2  # hair over the shirt
    return labels


def segment(a, b, height=HEIGHT, width=WIDTH):
    """Distances of all pixels to a line between two points."""
    y, x = np.mgrid[:height, :width].astype(float)
    a, b = np.array(a, float), np.array(b, float)
    u = np.clip(((x - a[0]) * (b - a)[0] + (y - a[1]) * (b - a)[1]) / max(1e-9, ((b - a) ** 2).sum()), 0, 1)
    return np.hypot(x - a[0] - u * (b - a)[0], y - a[1] - u * (b - a)[1])


def near(mask, by):
    """Pixels at most `by` rows and columns from the mask, one shift after the other."""
    padded = np.pad(mask, by)
    return np.any([padded[i:i + mask.shape[0], j:j + mask.shape[1]] for i in range(2 * by + 1)
                   for j in range(2 * by + 1)], 0)


def polygon(*corners):
    """A convex polygon, clockwise on the screen, as the pixels to the right of all its sides."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return np.all([(b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0]) >= 0
                   for a, b in zip(corners, [*corners[1:], corners[0]])], 0)


@pytest.mark.parametrize('padding', [0, 40, 64])
def test_what_is_removed_is_what_geometry_says(padding):
    labels, points, wide = figure(), body(), padding / 4  # of 1,024 rows, here 256
    rows = np.arange(HEIGHT)[:, None]
    hand = np.isin(labels, (14, 15)) & (rows > 160)  # past the wrist of arms that hang straight down, to their end
    arms = np.isin(labels, (14, 15)) & ~hand
    shirt, skin = labels == 5, labels == 10
    drawn = polygon((66, 80), (126, 80), (126, 170), (66, 170))  # hips as far apart as shoulders
    for a, b in (((66, 80), (126, 80)), ((66, 80), (56, 120)), ((56, 120), (56, 160)), ((126, 80), (136, 120)),
                 ((136, 120), (136, 160))):
        drawn |= segment(a, b) <= 15 + wide
    for a, b in (((66, 80), (66, 170)), ((126, 80), (126, 170)), ((66, 170), (126, 170))):
        drawn |= segment(a, b) <= 5 + wide
    drawn[max(0, int(80 - 25 - wide)):int(80 + 25 + wide) + 1, int(96 - 25 - wide):int(96 + 25 + wide) + 1] = True
    stays = hand | np.isin(labels, (13, 9)) & ~near(shirt | arms, round(wide / 5))
    expected = shirt | arms | skin | (drawn | near(shirt | arms | skin, int(wide))) & ~stays
    removed, parse = person.agnostic(tf.constant(labels), tf.constant(points), padding)
    np.testing.assert_array_equal(removed, expected)
    np.testing.assert_array_equal(parse, np.where(shirt | skin | arms, 0, labels))


def test_no_garment_and_no_arm_survives_but_face_hands_and_trousers_do():
    labels, points = figure(), body()
    removed = person.agnostic(tf.constant(labels), tf.constant(points), 40)[0].numpy()
    assert removed[np.isin(labels, (5, 6, 7, 10))].all()
    arms = np.isin(labels, (14, 15))
    assert removed[:161][arms[:161]].all()  # the wrists are at 160
    assert arms[161:].sum() == 2 * 13 * 17 and not removed[161:][arms[161:]].any()
    assert not removed[labels == 13].any() and removed[165:167, 74:119].all() and not removed[167:, 74:119].any()
    assert removed[70:100, 76:80].all() and not removed[10:40, 76:117].any()  # hair over the shirt, and away from it
    assert not removed[:30].any() and not removed[:, :20].any() and not removed[:, 172:].any()


def bent(labels, wrist):
    """The right forearm from the elbow up to `wrist`, with a hand of 12 pixels past it, bare as the upper arm."""
    labels = labels.copy()
    labels[:, :66] = 0
    elbow, shoulder = np.array([30.0, 150.0]), np.array([66.0, 80.0])
    forearm = np.array(wrist) - elbow
    hand = np.array(wrist) + 12 * forearm / np.linalg.norm(forearm)
    arm = (segment(shoulder, elbow) <= 7) | (segment(elbow, hand) <= 5)
    labels[arm & (labels != 5)] = 15
    return labels, body(right_elbow=tuple(elbow), right_wrist=wrist), elbow, shoulder, forearm


@pytest.mark.parametrize('wrist', [(20.0, 100.0), (50.0, 120.0), (14.0, 170.0), (40.0, 170.0)])
def test_a_hand_is_what_is_past_the_wrist_and_away_from_the_upper_arm(wrist):
    labels, points, elbow, shoulder, forearm = bent(figure(), wrist)
    removed, parse = (value.numpy() for value in person.agnostic(tf.constant(labels), tf.constant(points), 40))
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    past = (x - wrist[0]) * forearm[0] + (y - wrist[1]) * forearm[1] > 0
    upper = segment(shoulder, elbow)
    right = labels == 15
    assert removed[right & ~past].all() and removed[right & (upper <= 25)].all()
    np.testing.assert_array_equal((parse == 15) & (upper > 25.01), right & past & (upper > 25.01) &
                                  (np.hypot(x - wrist[0], y - wrist[1]) <= np.linalg.norm(forearm)))


def test_a_hand_ends_as_far_from_the_wrist_as_the_elbow_is():
    """40 pixels, of which the last one counts; it begins one past the wrist."""
    labels = np.zeros((HEIGHT, WIDTH), np.uint8)
    labels[100:220, 56] = 15
    _, parse = person.agnostic(tf.constant(labels), tf.constant(body()), 0)
    assert np.flatnonzero(parse.numpy()[:, 56] == 15).tolist() == [*range(161, 201)]


def test_an_upper_arm_ends_where_its_width_does():
    """Half of it is 60 of 1,024 rows and the padding: 15 pixels here, and the last one counts."""
    # the forearm points up
    points = body(right_shoulder=(66, 80), right_elbow=(66, 120), right_wrist=(66, 100))
    labels = np.zeros((HEIGHT, WIDTH), np.uint8)
    labels[90, :] = 15
    _, parse = person.agnostic(tf.constant(labels), tf.constant(points), 0)
    hand = np.flatnonzero(parse.numpy()[90] == 15)
    assert hand.tolist() == [x for x in range(WIDTH) if 15 < abs(x - 66)
                             and (x - 66) ** 2 + 10 ** 2 <= 20 ** 2]


@pytest.mark.parametrize('missing', ['right_wrist', 'right_elbow'])
def test_without_wrist_or_elbow_the_whole_arm_goes(missing):
    labels = figure()
    removed, parse = (value.numpy() for value in person.agnostic(
        tf.constant(labels), tf.constant(body(**{missing: None})), 40))
    assert removed[labels == 15].all() and not (parse == 15).any()
    assert (parse == 14).sum() == 13 * 17 and not removed[161:178, 130:143].any()  # the other hand stays


@pytest.mark.parametrize('missing, lower', [
    (['right_hip'], 170), (['left_hip'], 170), (['right_hip', 'left_hip'], 255)])
def test_missing_hips_are_straight_below_the_shoulders(missing, lower):
    points = body(**{'right_hip': (66, 170), 'left_hip': (126, 170), **dict.fromkeys(missing)})
    removed, _ = person.agnostic(tf.zeros([HEIGHT, WIDTH], tf.uint8), tf.constant(points), 40)
    expected = person.agnostic(tf.zeros([HEIGHT, WIDTH], tf.uint8), tf.constant(
        body(right_hip=(66, lower), left_hip=(126, lower))), 40)[0]
    np.testing.assert_array_equal(removed, expected)
    assert removed[lower].numpy()[66:127].all()
    if lower < 240:
        assert not removed[lower + 16:].numpy().any()


@pytest.mark.parametrize('points', [
    body(right_shoulder=(96, 80), left_shoulder=(96, 80)),
    body(right_shoulder=(96, 70), left_shoulder=(96, 90), right_hip=(96, 170), left_hip=(96, 170)),
    body(right_hip=(112, 170), left_hip=(80, 170))], ids=['from the side', 'all in a line', 'turned'])
def test_of_whoever_stands_otherwise_no_stripe_runs_through_the_picture(points):
    removed = person.agnostic(tf.zeros([HEIGHT, WIDTH], tf.uint8), tf.constant(points), 40)[0].numpy()
    assert not removed[:40].any() and not removed[200:].any() and removed[80:170, 96].all()


def test_padding_grows_with_the_picture():
    labels, points = figure(), body()
    small = person.agnostic(tf.constant(labels), tf.constant(points), 40)[0].numpy()
    large = person.agnostic(tf.constant(np.kron(labels, np.ones((4, 4), np.uint8))),
                            tf.constant(points * [4, 4, 1] + [1.5, 1.5, 0], tf.float32), 40)[0].numpy()
    assert np.mean(large != np.kron(small, np.ones((4, 4), bool))) < 0.01


def test_the_same_eagerly_in_a_graph_and_in_a_saved_model(tmp_path):
    class Served(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.string)])
        def take(self, encoded, text):
            labels = person.parse_map(encoded)
            points, people = person.keypoints(text)
            removed, parse = person.agnostic(labels, points)
            return {'removed': removed, 'parse': parse, 'pose': person.pose_map(points, tf.shape(labels)),
                    'people': people}
    module = Served()
    tf.saved_model.save(module, str(tmp_path / 'saved'), signatures=module.take)
    again = tf.saved_model.load(str(tmp_path / 'saved'))
    rng = np.random.default_rng(1)
    for form, key in (('grey', 'pose_keypoints'), ('palette of LIP', 'pose_keypoints_2d'), ('LIP', 'pose_keypoints')):
        points = body()
        points[points[:, 2] > 0, :2] += rng.normal(0, 3, (12, 2))
        encoded, text = tf.constant(FORMS[form](figure())), tf.constant(openpose(points, key))
        removed, parse = person.agnostic(person.parse_map(encoded), points)
        eager = {'removed': removed, 'parse': parse, 'pose': person.pose_map(points, (HEIGHT, WIDTH)), 'people': 1}
        for found in (module.take(encoded, text), again.take(encoded, text)):
            for name, value in eager.items():
                np.testing.assert_array_equal(found[name], value)


COLOURS = {'nose': (255, 0, 85), 'neck': (255, 0, 0), 'right shoulder': (255, 85, 0), 'right elbow': (255, 170, 0),
           'right wrist': (255, 255, 0), 'left shoulder': (170, 255, 0), 'left elbow': (85, 255, 0),
           'left wrist': (0, 255, 0), 'right hip': (0, 255, 85), 'right knee': (0, 255, 170),
           'right ankle': (0, 255, 255), 'left hip': (0, 170, 255), 'left knee': (0, 85, 255),
           'left ankle': (0, 0, 255), 'right eye': (255, 0, 170), 'left eye': (170, 0, 255),
           'right ear': (255, 0, 255), 'left ear': (85, 0, 255)}


@pytest.mark.parametrize('name', COLOURS)
def test_a_joint_is_a_disc_of_its_colour(name):
    points = np.zeros((18, 3), np.float32)
    points[NAMES[name]] = 30, 40, 1
    picture = person.pose_map(points, (300, 200)).numpy()
    y, x = np.mgrid[:300, :200]
    expected = (np.hypot(x - 30, y - 40) <= 2)[..., None] * np.round(0.6 * np.array(COLOURS[name]))
    np.testing.assert_array_equal(picture, expected)


def test_limbs_are_ellipses_in_the_colour_of_their_far_end_under_the_discs():
    points = np.zeros((18, 3), np.float32)
    points[[2, 3]] = [[200, 300, 1], [200, 500, 1]]
    picture = person.pose_map(points, (1024, 768)).numpy()
    elbow, shoulder = (np.array(COLOURS[f'right {name}']) for name in ('elbow', 'shoulder'))
    y, x = np.mgrid[:1024, :768]
    limb = ((y - 400) / 100) ** 2 + ((x - 200) / 6.4) ** 2 <= 1
    expected = limb[..., None] * 0.6 * elbow
    for colour, at in ((shoulder, 300), (elbow, 500)):
        expected = np.where((np.hypot(x - 200, y - at) <= 7.68)[..., None], 0.4 * expected + 0.6 * colour, expected)
    np.testing.assert_allclose(picture, expected, atol=0.51)
    assert picture[400, 200].tolist() == [153, 102, 0]


SIDES = [('neck', '{} shoulder'), ('{} shoulder', '{} elbow'), ('{} elbow', '{} wrist'), ('neck', '{} hip'),
         ('{} hip', '{} knee'), ('{} knee', '{} ankle'), ('nose', '{} eye'), ('{} eye', '{} ear')]
LIMBS = [('neck', 'nose'), *(tuple(end.format(side) for end in limb) for limb in SIDES
                             for side in ('left', 'right'))]


def test_limbs_are_between_the_joints_that_openpose_joins_and_no_others():
    """Of any two joints alone: halfway is the colour of the second, or nothing."""
    joined, drawn = set(), tf.function(lambda points: person.pose_map(points, (16, 32)))
    for first, second in itertools.combinations(NAMES, 2):
        points = np.zeros((18, 3), np.float32)
        points[[NAMES[first], NAMES[second]]] = [[4, 8, 1], [24, 8, 1]]
        halfway = drawn(tf.constant(points)).numpy()[8, 14].tolist()
        ends = [ends for ends in LIMBS if {*ends} == {first, second}]
        assert halfway == [round(0.6 * level) for level in COLOURS[ends[0][1]]] if ends else halfway == [0, 0, 0]
        joined.update(ends)
    assert joined == {*LIMBS} and len(LIMBS) == 17


def test_a_pose_in_a_mirror_is_the_pose_of_mirrored_points():
    rng = np.random.default_rng(2)
    for _ in range(5):
        points = body(right_ear=(80, 38), left_ankle=(110, 252))
        points[points[:, 2] > 0, :2] += rng.integers(-60, 60, (14, 2)) / 4
        turned = points * [-1, 1, 1] + (points[:, 2:] > 0) * [WIDTH - 1, 0, 0]
        picture = person.pose_map(points, (HEIGHT, WIDTH)).numpy()
        np.testing.assert_array_equal(person.pose_map(turned.astype(np.float32), (HEIGHT, WIDTH)), picture[:, ::-1])
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 14


def test_what_is_not_in_the_picture_is_not_drawn():
    assert not person.pose_map(np.zeros((18, 3), np.float32), (64, 48)).numpy().any()
    outside = body(right_wrist=(-400, 900), left_wrist=(1000, -50), nose=(96, -3))
    assert person.pose_map(outside, (HEIGHT, WIDTH)).shape == (HEIGHT, WIDTH, 3)
    alone = np.zeros((18, 3), np.float32)
    alone[0] = 5, 500, 1
    assert not person.pose_map(alone, (64, 48)).numpy().any()
