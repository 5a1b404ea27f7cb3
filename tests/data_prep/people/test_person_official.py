"""The clothing-agnostic person by the authors' rules: against a reimplementation on images, and case by case."""
import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep import tryon
from data_prep.core import records
from data_prep.people import pairs_files, person_drawn, person_official, sample_people, sample_reader
from support import authors_person

SIZE = 1024, 768
HAIR, BOTTOM, LEFT_ARM = 2, 9, 14
GREY = np.float32(128 / 127.5 - 1)
GRAPH = tf.function(person_official.agnostic_in_graph, autograph=False, input_signature=[
    tf.TensorSpec([None, None], tf.uint8), tf.TensorSpec([18, 2], tf.float64)])
EDGES = 1e-3  # of a picture: pixels at the rasteriser's edges


def moved(changes):
    """A person's points, with those of BODY_25 in `changes` elsewhere."""
    def change(labels, points):
        for joint, place in changes.items():
            points[joint] = place
        return labels, points
    return change


def painted(label, *where):
    def change(labels, points):
        labels[where] = label
        return labels, points
    return change


def long_hair(labels, points):
    """Down to the right shoulder and beyond."""
    x, y = points[2].astype(int)
    labels[y - 150:y + 120, x - 30:x + 90] = HAIR
    return labels, points


CASES = {
    'as made': moved({}), 'no right wrist': moved({4: (0, 0)}), 'no left elbow': moved({6: (0, 0)}),
    'no arms': moved({joint: (0, 0) for joint in (3, 4, 6, 7)}), 'one hip': moved({12: (0, 0)}),
    'hair over the shoulder': long_hair, 'a hand beyond the frame': moved({4: (-60.5, 500.25)}),
    'socks and hat': painted(8, slice(900, 1000), slice(300, 400)), 'turned': moved({2: (520, 300), 5: (260.75, 310)}),
}


@pytest.fixture(scope='module')
def people():
    return [sample_people.make_person(1, number, SIZE) for number in (0, 3)]


def case(people, name, number=0):
    """Photograph, labels and points [25, 2] of a made person, changed."""
    person = people[number]
    labels, points = CASES[name](person.parse.copy(), person.points[:, :2].round(3))
    return person.image, labels, points


def eighteen(points):
    return points[[*range(8), *range(9, 19)]]


@pytest.mark.parametrize('name, number', [*((name, 0) for name in CASES), ('as made', 1)])
def test_preparation_is_the_authors_to_the_pixel_and_the_graph_but_for_edges(people, name, number):
    image, labels, points = case(people, name, number)
    removed, agnostic_parse = person_drawn.agnostic(labels, eighteen(points))
    assert 0.1 < removed.mean() < 0.8
    expected = authors_person.agnostic(image, labels, points)
    np.testing.assert_array_equal(np.where(removed[..., np.newaxis], np.uint8(128), image), expected)
    np.testing.assert_array_equal(agnostic_parse, authors_person.agnostic_parse(labels, points))
    served = GRAPH(labels, eighteen(points))
    assert (served[0] != removed).numpy().mean() <= EDGES and (served[1] != agnostic_parse).numpy().mean() <= EDGES


def test_the_graph_fills_what_pillow_fills_at_any_size_and_place():
    """Bow ties, points outside and lines of no length too."""
    draw = np.random.default_rng(0)
    for size in ((1024, 768), (256, 192), (192, 128), (100, 90)):
        for _ in range(3):
            labels = draw.integers(0, 20, size, np.uint8)
            points = draw.uniform(-0.2, 1.2, (18, 2)) * size[::-1]
            points[4] = points[3]
            for found, exact in zip(GRAPH(labels, points), person_drawn.agnostic(labels, points)):
                assert (found != exact).numpy().mean() <= EDGES


def test_rules_one_by_one(people):
    """Where they differ from the paper's: hands, a missing wrist, hair and the lower body."""
    _, labels, points = case(people, 'as made')
    removed, agnostic_parse = person_drawn.agnostic(labels, eighteen(points))
    for label, wrist in ((14, points[7]), (15, points[4])):
        y, x = np.nonzero(labels == label)
        hand = np.hypot(x - wrist[0], y - wrist[1]) < 35
        assert (agnostic_parse[labels == label][hand] == 0).all()
        assert removed[labels == label][hand].all()  # grey, which the paper's rule shows
    assert not removed[labels == BOTTOM].any()  # no seam is taken away
    _, long, _ = case(people, 'hair over the shoulder')
    assert person_drawn.agnostic(long, eighteen(points))[0][long == HAIR].any()
    no_wrist = points.copy()
    no_wrist[7] = 0
    kept = person_drawn.agnostic(labels, eighteen(no_wrist))[1] == LEFT_ARM
    assert kept.sum() > 1000 + (agnostic_parse == LEFT_ARM).sum()  # the forearm stays in S_a


def encoded(pixels, kind):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def files_of(person, points=None, more=()):
    """A person's files; `more`: further people before or after it in the JSON."""
    points = person.points.round(3) if points is None else points
    everyone = [{'pose_keypoints_2d': each.ravel().tolist()} for each in (points, *more)]
    contents = {'image': encoded(person.image, 'PNG'), 'cloth': encoded(person.cloth, 'PNG'),
                'cloth_mask': encoded(person.cloth_mask, 'PNG'), 'parse': encoded(person.parse, 'PNG'),
                'keypoints': json.dumps({'people': everyone}).encode()}
    return {key: pairs_files.File(key, content) for key, content in contents.items()}


def assets(folder, rules, size=SIZE):
    records.write_manifest(str(folder), [], (), {}, {'padding': 40, 'agnostic': rules})
    return tryon.assets(str(folder), tryon.Input(size=list(size)))


def served(assets, files):
    return assets.sample(pose_image=tf.constant(b''), **{name: tf.constant(files[key].content) for name, key in (
        ('image', 'image'), ('parse', 'parse'), ('pose_json', 'keypoints'), ('cloth', 'cloth'),
        ('cloth_mask', 'cloth_mask'))})


def test_files_become_the_authors_person_whose_first_counts(people, tmp_path):
    """As stored, as a batch shows it, and as a server does; grey is level 128."""
    first, other = people
    files = files_of(first, more=[other.points])
    sample = sample_reader.sample(files, 40, 10 ** 7, 'official')
    removed, agnostic_parse = (np.asarray(Image.open(io.BytesIO(each))) for each in (
        sample.removed, sample.agnostic_parse))
    points = first.points[:, :2].round(3)
    expected = authors_person.agnostic(first.image, first.parse, points)
    np.testing.assert_array_equal(np.where(removed[..., np.newaxis] > 0, np.uint8(128), first.image), expected)
    np.testing.assert_array_equal(agnostic_parse, authors_person.agnostic_parse(first.parse, points))

    found = served(assets(tmp_path, 'official'), files)
    assert (found['removed'] != removed / 255).numpy().mean() <= EDGES
    same = (found['removed'].numpy() > 0) == (removed > 0)
    np.testing.assert_allclose(found['agnostic'][same], (expected / np.float32(127.5) - 1)[same], atol=1e-6)
    assert (found['agnostic'].numpy()[found['removed'].numpy() > 0] == GREY).all()

    batch = tryon.decoder(str(tmp_path), tryon.Input(size=list(SIZE)), False)(
        tf.constant([sample_reader.example(sample, 'person', 'garment', True)]), tf.constant(0, tf.int64),
        tf.constant([[0, 0]]))
    np.testing.assert_allclose(batch['agnostic'][0], expected / np.float32(127.5) - 1, atol=1e-6)


def test_what_the_rules_cannot_do_without_is_refused_by_name(people, tmp_path):
    person, *_ = people
    points = person.points.copy()
    points[[9, 12]] = 0
    with pytest.raises(pairs_files.Refused, match='no two hips in it, and data.agnostic: official needs them'):
        sample_reader.sample(files_of(person, points), 40, 10 ** 7, 'official')
    with pytest.raises(tf.errors.InvalidArgumentError, match='pose_json must hold two hips'):
        served(assets(tmp_path, 'official', (256, 192)), files_of(person, points))
    with pytest.raises(pairs_files.Refused, match='2 persons, and not one'):
        sample_reader.sample(files_of(person, more=[points]), 40, 10 ** 7, 'paper')
