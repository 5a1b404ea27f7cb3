"""Poses from photographs: BlazePose's geometry inverted and in closed form, and recorded outputs of its networks."""
import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError
from data_prep.people import person, sample_people
from data_prep.photos import detector, landmarks, pose
from data_prep.photos.detector import Region
from support import record_pose

UPPER_BODY = [0, 1, 2, 3, 4, 5, 6, 7, 15, 16, 17, 18]  # of BODY_25, without hips, which drawn people have higher


def encoded(boxes, points, scale, border, anchor=1000, score=4.0):
    """Encode boxes and points, pixels of a photograph, as the detector's outputs at two neighbouring anchors each."""
    values, logits = np.zeros((2254, 12)), np.full(2254, -20.0)
    for number, (box, at) in enumerate(zip(boxes, points)):
        for index in (anchor + 300 * number, anchor + 300 * number + 1):
            middle = detector.anchors()[index] * detector.SIDE
            places = (np.concatenate([np.reshape(box, (2, 2)), at]) + 0.5) * scale + border
            values[index, :2], values[index, 2:4] = places[:2].mean(0) - middle, places[1] - places[0]
            values[index, 4:] = (places[2:] - middle).ravel()
            logits[index] = score - number
    return values, logits


def dot(height, width, x, y):
    """Draw a bright spot on black, wide enough to locate to a hundredth of a pixel."""
    rows, columns = np.mgrid[:height, :width]
    spot = 250 * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * 6 ** 2))
    return np.repeat(spot[..., np.newaxis], 3, 2).round().astype(np.uint8)


def middle_of(image):
    weights = image[..., 0] - image.min()
    rows, columns = np.indices(weights.shape)
    return np.array([np.average(columns, weights=weights), np.average(rows, weights=weights)])


def test_anchors_are_a_grid_for_each_map():
    anchors = detector.anchors()
    assert anchors.shape == (2 * 28 ** 2 + 2 * 14 ** 2 + 6 * 7 ** 2, 2)
    np.testing.assert_allclose(anchors[[0, 1, 2]] * 224, [[4, 4], [4, 4], [12, 4]], rtol=1e-6)
    np.testing.assert_allclose(anchors[[1568, 1960, -1]] * 224, [[8, 8], [16, 16], [208, 208]], rtol=1e-6)


def test_detections_are_decoded_merged_and_sorted():
    _, scale, border = detector.letterbox(np.zeros((600, 400, 3), np.uint8))
    boxes = np.array([[100., 80, 140, 120], [300, 90, 330, 125]])
    points = np.array([[(120., 300), (120, 80), (120, 150), (120, 60)],
                       [(310, 320), (330, 100), (310, 160), (310, 70)]])
    first, second = detector.decode(*encoded(boxes, points, scale, border), scale, border)
    assert first.score == pytest.approx(1 / (1 + np.exp(-4))) and second.score == pytest.approx(1 / (1 + np.exp(-3)))
    for found, box, at in zip((first, second), boxes, points):
        np.testing.assert_allclose(found.box, box, atol=1e-4)
        np.testing.assert_allclose(found.points, at, atol=1e-4)
    assert detector.decode(*encoded(boxes, points, scale, border, score=-0.1), scale, border) == []


def test_overlapping_boxes_are_averaged_by_their_scores():
    boxes = np.array([[0., 0, 10, 10], [1, 0, 11, 10]])
    points = np.zeros((2, 4, 2)) + [[[0]], [[9]]]
    [found] = detector._merged(np.array([0.6, 0.9]), boxes, points)
    np.testing.assert_allclose(found.box, [0.6, 0, 10.6, 10])
    assert found.score == 0.9 and found.points[0, 0] == pytest.approx(0.9 * 9 / 1.5)


@pytest.mark.parametrize('size', [(300, 200), (200, 300), (224, 224), (60, 90)])
def test_the_detector_sees_the_whole_photograph(size):
    square, scale, (left, top) = detector.letterbox(np.full((*size, 3), 255, np.uint8))
    seen = square[..., 0] == 1
    assert seen.sum() == round(size[0] * scale) * round(size[1] * scale) and (square[~seen] == -1).all()
    assert seen[top, left] and max(seen.any(0).sum(), seen.any(1).sum()) == 224


def test_a_region_spans_the_circle_and_turns_with_the_body():
    def region(dx, dy):
        points = np.array([(50., 60), (50 + dx, 60 + dy), (0, 0), (0, 0)])
        return detector.Detection(1, np.zeros(4), points).region()
    assert region(0, -40) == (50, 60, 100, 0)
    assert region(40, 0).rotation == pytest.approx(np.pi / 2) and region(-30, -40).side == pytest.approx(125)
    assert abs(region(0, 40).rotation) == pytest.approx(np.pi)


@pytest.mark.parametrize('region', [Region(150, 120, 200, 0), Region(140, 130, 500, 0.7), Region(160, 110, 256, -2.5)])
def test_a_spot_in_a_region_is_located_on_the_photograph(region):
    place = np.array([165.3, 118.7])
    seen = middle_of(landmarks.crop(dot(256, 320, *place), region)) + 0.5
    values = np.zeros((39, 5))
    values[:, :2] = seen
    found = landmarks.decode(values.ravel(), 1, np.full((64, 64, 39), -9.0), region)
    np.testing.assert_allclose(found.positions, np.tile(place, (39, 1)), atol=0.25)
    np.testing.assert_allclose(found.confidence, 0.25)


def test_confident_heatmaps_move_landmarks():
    places, heat = np.full((39, 2), 0.5), np.full((64, 64, 39), -12.0)
    heat[30, 34, 0] = heat[31, 34, 0] = 12  # near, confident
    heat[30, 34, 1] = -0.1  # near, below the threshold
    heat[10, 10, 2] = 12  # far
    places[3] = (1.2, 0.5)
    heat[:, :, 3] = 12
    places[4] = (0.01, 0.99)
    heat[63, 2, 4] = 12
    found = landmarks.refine(places, heat)
    np.testing.assert_allclose(found[[0, 4]] * 64, [[34, 30.5], [2, 63]], atol=0.02)
    np.testing.assert_array_equal(found[[1, 2, 3]], places[[1, 2, 3]])


def marks(**places):
    found = np.zeros((39, 2))
    names = {'nose': 0, 'left_eye': 2, 'right_eye': 5, 'left_ear': 7, 'right_ear': 8, 'left_shoulder': 11,
             'right_shoulder': 12, 'left_hip': 23, 'right_hip': 24, 'left_wrist': 15}
    for name, at in places.items():
        found[names[name]] = at
    return landmarks.Landmarks(found, np.linspace(0.5, 0.9, 39), 1)


def test_landmarks_become_openpose_points():
    found = pose.body_25(marks(left_shoulder=(60, 50), right_shoulder=(20, 54), left_hip=(50, 100), right_hip=(30, 102),
                               left_wrist=(70, 90), left_eye=(44, 20), right_eye=(36, 20), left_ear=(50, 22),
                               right_ear=(35.5, 22)))
    np.testing.assert_allclose(found[[1, 8, 7], :2], [[40, 52], [40, 101], [70, 90]])
    assert found[1, 2] == min(found[2, 2], found[5, 2]) > 0
    assert found[18, 2] > 0 and found[17, 2] == 0  # the right ear is beside its eye
    text = pose.as_openpose(found)
    read, people = person.keypoints(tf.constant(text))
    assert people == 1
    order = list(person._OF_BODY_25)
    expected = np.where(found[order, :2].any(1, keepdims=True), found[order], 0)
    np.testing.assert_allclose(read, expected, atol=1e-3)


def test_invisible_points_are_zero():
    points = np.zeros((25, 3)) + [10, 20, 0.9]
    points[3, 0], points[4, 1], points[6, 2], points[7, :2] = -0.1, 63.1, 0.09, (47, 63)
    seen = pose.Pose(points, np.zeros(2), 0, 1).seen(64, 48)
    assert not seen[[3, 4, 6]].any() and seen[[0, 7], 2].all()


def test_a_recorded_person_is_located_where_drawn():
    """Decodes recorded outputs of BlazePose for a drawn person; needs no networks."""
    outputs = record_pose.recorded()
    truth = sample_people.make_person(record_pose.SEED, record_pose.NUMBER, record_pose.SIZE)
    _, scale, border = detector.letterbox(truth.image)
    [found] = detector.decode(outputs['values'], outputs['logits'], scale, border)
    assert found.score > 0.7 and abs(found.region().rotation) < 0.3
    points = pose.body_25(landmarks.decode(outputs['landmarks'], float(outputs['presence'][0]), outputs['heat'],
                                           found.region()))
    shown = [point for point in UPPER_BODY if truth.points[point, 2]]
    wide = np.linalg.norm(truth.points[2, :2] - truth.points[5, :2])
    away = np.linalg.norm(points[shown, :2] - truth.points[shown, :2], axis=1) / wide
    assert len(shown) >= 9 and np.median(away) < 0.07 and away.max() < 0.15


def test_missing_and_foreign_networks_are_refused(tmp_path):
    with pytest.raises(UserError, match='pose_detection.tflite: not found. Run `python -m pipelines.fetch blazepose`'):
        pose.BlazePose(str(tmp_path))
    for file, _ in pose.FILES.values():
        (tmp_path / file).write_bytes(b'another')
    with pytest.raises(UserError, match='not the file of mediapipe 0.10.21'):
        pose.BlazePose(str(tmp_path))


@pytest.mark.slow  # downloads BlazePose's networks, 9 MB, which are not part of Landmark, from the package index
def test_joints_of_drawn_people_are_located_where_drawn(blazepose):
    net, away = pose.BlazePose(blazepose), []
    for number in range(50_000, 50_012):
        truth = sample_people.make_person(1, number, (512, 384))
        [found] = net.people(truth.image)
        assert abs(found.rotation) < 0.3 and found.score > 0.5
        shown = [point for point in UPPER_BODY if truth.points[point, 2]]
        wide = np.linalg.norm(truth.points[2, :2] - truth.points[5, :2])
        away += (np.linalg.norm(found.points[shown, :2] - truth.points[shown, :2], axis=1) / wide).tolist()
    assert np.median(away) < 0.07 and np.quantile(away, 0.9) < 0.13
    again, recorded = record_pose.record(blazepose), record_pose.recorded()
    np.testing.assert_allclose(again['landmarks'], recorded['landmarks'], atol=0.1)
    assert net.people(np.full((256, 192, 3), 200, np.uint8)) == []
