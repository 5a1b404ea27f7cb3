"""Mixed images: shares, rectangles and partners, from images that are told apart by their level."""
import numpy as np
import pytest
import tensorflow as tf

from data_prep import imagenet
from data_prep.image import mixing

ROWS, HEIGHT, WIDTH = 400, 10, 16


def seeds(rows):
    return tf.stack([tf.fill([rows], 5), tf.range(rows)], 1)


def mixed(mixup, cutmix, label=None, rows=ROWS):
    """Images of level 1, 2, …; returns what each pixel kept of its own, other labels and shares."""
    level = np.arange(1, rows + 1, dtype=np.float32)
    image = np.broadcast_to(level[:, None, None, None], [rows, HEIGHT, WIDTH, 3])
    label = tf.range(rows) if label is None else tf.constant(label)
    found, other, kept = mixing.mixed(tf.constant(image), label, seeds(rows), mixup, cutmix)
    partner = np.roll(level, 1)[:, None, None, None]
    own = (found.numpy() - partner) / (level[:, None, None, None] - partner)
    return own, other.numpy(), kept.numpy()


@pytest.mark.parametrize('alpha', [0.2, 1.0, 4.0])
def test_mixup_keeps_a_share_of_every_level(alpha):
    """Shares are Beta(alpha, alpha): mean 1/2, variance 1 / (4 (2 alpha + 1)), within four standard errors."""
    own, other, kept = mixed(alpha, 0)
    np.testing.assert_allclose(own, np.broadcast_to(kept[:, None, None, None], own.shape), atol=1e-3)
    assert other.tolist() == [ROWS - 1, *range(ROWS - 1)]
    variance = 1 / (4 * (2 * alpha + 1))
    assert kept.mean() == pytest.approx(0.5, abs=4 * (variance / ROWS) ** 0.5)
    assert ((kept - 0.5) ** 2).mean() == pytest.approx(variance, abs=4 * (variance / 4 / ROWS) ** 0.5)


def test_cutmix_shows_a_rectangle_of_the_other_image():
    """The share is what is left of the area; a rectangle's sides are one share of the image's, unless it is cut off."""
    own, _, kept = mixed(0, 1)
    np.testing.assert_allclose(own, np.round(own), atol=1e-3)
    whole = 0
    for image, share in zip(np.round(own[..., 0]).astype(bool), kept):
        rows, columns = (~image).any(1), (~image).any(0)
        assert not image[np.ix_(rows, columns)].any()
        for places in map(np.flatnonzero, (rows, columns)):
            assert not places.size or np.ptp(places) + 1 == places.size
        assert share == pytest.approx(image.mean(), abs=1e-6)
        if not (rows[[0, -1]].any() or columns[[0, -1]].any()):
            whole += 1
            assert abs(rows.sum() / HEIGHT - columns.sum() / WIDTH) <= 1 / HEIGHT + 1 / WIDTH
    assert whole > ROWS / 20 and len(np.unique(kept)) > ROWS / 10


def test_both_take_half_of_the_rows():
    own, _, _ = mixed(1, 1)
    cut = sum(bool((np.abs(image - np.round(image)) < 1e-3).all()) for image in own)
    assert abs(cut - ROWS / 2) < 4 * ROWS ** 0.5 / 2


def test_a_row_s_draw_follows_from_its_seed_and_empty_rows_are_not_mixed():
    _, _, shares = mixed(1, 1)
    label = np.arange(20)
    label[[4, 19]] = -1
    own, _, kept = mixed(1, 1, label, 20)
    untouched = [0, 4, 5, 19]  # the empty ones, and those whose partner is empty
    assert (kept[untouched] == 1).all() and (own[untouched] == 1).all()
    rest = np.setdiff1d(label[label >= 0], untouched)
    np.testing.assert_array_equal(kept[rest], shares[rest])


def test_boxes_are_not_mixed():
    with pytest.raises(ValueError, match='boxes cannot be learned from mixed images; leave out mixup and cutmix'):
        imagenet.Input(boxes=True, cutmix=1.0)
