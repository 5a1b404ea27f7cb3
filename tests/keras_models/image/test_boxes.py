"""Boxes: closed forms, and greedy merging against a direct implementation of the algorithm."""
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_models.image import boxes

UNIT = [0., 0., 1., 1.]


def drawn(*shape, seed=0):
    """Random corners."""
    draw = np.random.default_rng(seed)
    start, size = draw.uniform(0, 0.6, (*shape, 2)), draw.uniform(0.1, 0.5, (*shape, 2))
    return np.concatenate([start, start + size], -1).astype(np.float32)


@pytest.mark.parametrize('other, expected', [
    (UNIT, 1), ([0, 0, .5, 1], 1 / 2),
    ([.25, .25, .75, .75], 1 / 4), ([.5, 0, 1.5, 1], 1 / 3), ([.5, .5, 1.5, 1.5], 1 / 7),
    ([1, 0, 2, 1], 0), ([3, 3, 4, 4], 0), ([.6, .2, .4, .8], 0), ([.5, .5, .5, .5], 0)])
def test_intersection_over_union(other, expected):
    assert float(boxes.iou(tf.constant(UNIT), tf.constant(other, tf.float32))) == pytest.approx(expected)
    assert float(boxes.iou(tf.constant(other, tf.float32), tf.constant(UNIT))) == pytest.approx(expected)


def test_every_box_with_every_other_in_one_call():
    a, b = drawn(5), drawn(3, seed=1)
    together = boxes.iou(a[:, np.newaxis], b).numpy()
    np.testing.assert_array_equal(together, [[boxes.iou(one, other) for other in b] for one in a])
    assert 0 < together.max() < 1


def test_a_vector_is_its_corners_and_a_part_of_a_picture_keeps_its_place():
    np.testing.assert_allclose(boxes.corners(tf.constant([.5, .25, .2, .1])), [.4, .2, .6, .3])
    part = tf.constant([.5, 0., 1., .5])  # the upper right quarter
    np.testing.assert_allclose(boxes.within(tf.constant([0., .5, 1., 1.]), part), [.5, .25, 1, .5])
    np.testing.assert_array_equal(boxes.within(drawn(4), tf.constant(UNIT)), drawn(4))


def test_equal_boxes_match_best_and_units_are_no_matter():
    a, b = drawn(20), drawn(20, seed=1)
    np.testing.assert_allclose(boxes.match_score(a, a), np.zeros(20), atol=1e-6)
    score = boxes.match_score(a, b)
    np.testing.assert_allclose(boxes.match_score(b, a), score, rtol=1e-6)
    stretched = np.float32([300, 200, 300, 200])
    np.testing.assert_allclose(boxes.match_score(a * stretched + 7, b * stretched + 7), score, rtol=1e-4)
    # Half a width to the right: a third is shared.
    assert float(boxes.match_score(tf.constant(UNIT), tf.constant([.5, 0., 1.5, 1.]))) == pytest.approx(.5 + 2 / 3)


SIXTEENTHS = st.tuples(*[st.integers(0, 16)] * 4)


@given(st.lists(st.tuples(SIXTEENTHS, SIXTEENTHS), min_size=1, max_size=20))
def test_what_boxes_share_is_what_counting_squares_says(pairs):
    """Of a picture of 16 x 16 squares; a box that ends before it begins has none."""
    def squares(box):
        left, upper, right, lower = box
        y, x = np.mgrid[:16, :16]
        return (x >= left) & (x < right) & (y >= upper) & (y < lower)
    expected = [(squares(a) & squares(b)).sum() / max(1, (squares(a) | squares(b)).sum()) for a, b in pairs]
    first, second = (np.float32([pair[n] for pair in pairs]) / 16 for n in (0, 1))
    # a sum, a difference and a quotient
    np.testing.assert_allclose(boxes.iou(first, second), expected, rtol=4e-7)


@given(SIXTEENTHS, SIXTEENTHS, SIXTEENTHS)
def test_a_part_of_a_part_is_a_part(box, part, whole):
    box, part, whole = (tf.constant(each, tf.float32) / 16 for each in (box, part, whole))
    np.testing.assert_allclose(boxes.within(boxes.within(box, part), whole),
                               boxes.within(box, boxes.within(part, whole)), atol=1e-6)


def score_as_written(a, b):
    """The part of their union that two boxes do not share, and their distance in mean widths and heights."""
    def area(box):
        return np.prod(np.maximum(box[2:] - box[:2], 0))
    both = area(np.concatenate([np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])]))
    apart = ((a[:2] + a[2:]) / 2 - (b[:2] + b[2:]) / 2) / ((a[2:] - a[:2] + b[2:] - b[:2]) / 2)
    return np.hypot(*apart) + 1 - both / (area(a) + area(b) - both)


def as_written(box, score, t):
    """(d) to (g) of the algorithm, one pair after another."""
    left = [(np.float64(b), float(s), 1) for b, s in zip(box, score)]
    while len(left) > 1:
        pairs = itertools.combinations(range(len(left)), 2)
        nearest, i, j = min((score_as_written(left[i][0], left[j][0]), i, j) for i, j in pairs)
        if nearest > t:
            break
        (a, s, n), (b, r, m) = left[i], left[j]
        left[i] = (n * a + m * b) / (n + m), s + r, n + m
        del left[j]
    return left


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 9),
       st.sampled_from([0., .8, 1., 1.2, 1.5, 100.]))
def test_merging_is_the_algorithm_as_it_is_written(seed, classes, n, t):
    box = drawn(classes, n, seed=seed)
    score = np.random.default_rng(seed).uniform(size=(classes, n)).astype(np.float32)
    found = [each.numpy() for each in boxes.merge(box, score, t)]
    best, rating = boxes.best(box, score, t)
    for k in range(classes):
        expected = as_written(box[k], score[k], t)
        assert t or len(expected) == n
        assert t < 100 or len(expected) == 1
        there = found[2][k] > 0
        rows = [[*b, s, n] for b, s, n in zip(*(each[k][there] for each in found))]
        np.testing.assert_allclose(sorted(rows), sorted([*b, s, n] for b, s, n in expected), atol=1e-5)
        highest, total, _ = max(expected, key=lambda row: row[1])
        np.testing.assert_allclose(best[k], highest, atol=1e-5)
        np.testing.assert_allclose(rating[k], total / n, atol=1e-5)


@pytest.mark.parametrize('t', [.8, 1.2])
def test_merging_is_the_same_in_a_graph_and_ends_between_all_and_one(t):
    box, score = drawn(3, 12, seed=4), np.random.default_rng(5).uniform(size=(3, 12)).astype(np.float32)
    found, compiled = boxes.merge(box, score, t), tf.function(boxes.merge)(box, score, t)
    for one, other in zip(found, compiled):
        np.testing.assert_allclose(one, other, atol=1e-6)
    left = np.count_nonzero(found[2], 1)
    assert 1 < min(left) <= max(left) < 12 and len({*left}) > 1 and np.all(tf.reduce_sum(found[2], 1) == 12)


def test_close_predictions_become_their_mean_and_their_scores_add_up():
    box = tf.constant([[[.1, .1, .3, .3], [.6, .6, .9, .9], [.12, .1, .32, .3], [.62, .6, .92, .9],
                        [.61, .6, .91, .9]]])
    merged, score, count = boxes.merge(box, tf.constant([[.5, .1, .3, .2, .15]]), 0.5)
    np.testing.assert_array_equal(count, [[2, 3, 0, 0, 0]])
    np.testing.assert_allclose(merged[0, :2], [[.11, .1, .31, .3], [.61, .6, .91, .9]], rtol=1e-6)
    np.testing.assert_allclose(score[0, :2], [.8, .45], rtol=1e-6)
    best, rating = boxes.best(box, tf.constant([[.5, .1, .3, .2, .15]]), 0.5)
    np.testing.assert_allclose(best, [[.11, .1, .31, .3]], rtol=1e-6)
    assert float(rating[0]) == pytest.approx(.8 / 5)


def test_a_class_has_the_box_its_own_scores_rate_highest():
    """Two things far apart; one class is likely at the one, the other at the other."""
    there = np.float32([[.1, .1, .3, .3], [.7, .7, .9, .9]])
    best, rating = boxes.best(tf.constant([there, there]), tf.constant([[.9, .2], [.1, .4]]), 0.5)
    np.testing.assert_array_equal(best, there)
    np.testing.assert_allclose(rating, [.45, .2])


def test_one_prediction_alone_is_the_answer():
    best, rating = boxes.best(tf.constant([[UNIT]]), tf.constant([[.25]]), 0.5)
    assert best.numpy().tolist() == [UNIT] and float(rating[0]) == .25 and math.isfinite(float(rating[0]))
