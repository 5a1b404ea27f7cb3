"""Bounding boxes: overlap, and merging of predictions (Sermanet et al. 2014, 'OverFeat').

A box is its corners, [..., 4]: left, upper, right and lower end, in fractions of an image or a part of it. A net
predicts a vector, [..., 4]: centre from the left and from above, width and height (Simonyan & Zisserman A.1).
"""
import tensorflow as tf

_FAR = float('inf')


def corners(vector: tf.Tensor) -> tf.Tensor:
    """Convert centre, width and height to corners."""
    centre, half = vector[..., :2], vector[..., 2:] / 2
    return tf.concat([centre - half, centre + half], -1)


def within(box: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    """Convert a box from fractions of a part, `part` [..., 4], of an image to fractions of the image."""
    start, size = part[..., :2], part[..., 2:] - part[..., :2]
    return tf.concat([start + box[..., :2] * size, start + box[..., 2:] * size], -1)


def iou(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return intersection over union, [...]; boxes are broadcast.

    A box that ends before it begins is empty and overlaps nothing.
    """
    both = _area(tf.concat([tf.maximum(a[..., :2], b[..., :2]), tf.minimum(a[..., 2:], b[..., 2:])], -1))
    return tf.math.divide_no_nan(both, _area(a) + _area(b) - both)


def _area(box: tf.Tensor) -> tf.Tensor:
    return tf.reduce_prod(tf.nn.relu(box[..., 2:] - box[..., :2]), -1)


def match_score(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return the mismatch of two boxes, [...]: 0 if they are equal.

    Sermanet et al. merge the pair with the least 'sum of the distance between centers of the two bounding boxes and the
    intersection area of the boxes'. Taken literally, disjoint boxes would match better, and lengths would be added to
    areas. So this adds the share of their union that they do not have in common to their distance in widths and
    heights, each the mean of both boxes'; neither term depends on the boxes' size.
    """
    size = tf.abs(a[..., 2:] - a[..., :2] + b[..., 2:] - b[..., :2]) / 2
    apart = tf.math.divide_no_nan((a[..., 2:] + a[..., :2] - b[..., 2:] - b[..., :2]) / 2, size)
    return tf.norm(apart, axis=-1) + 1 - iou(a, b)


def merge(box: tf.Tensor, score: tf.Tensor, t: float) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Merge predictions greedily (Sermanet et al., 'Combining predictions'), separately for each of k classes.

    While any two boxes are closer than `t`, the closest two become their mean, weighted by the numbers of predictions
    they combine; class scores are added.

    Args:
      box: [k, N, 4].
      score: [k, N], the class's score at each prediction.
      t: threshold of `match_score`.

    Returns:
      Boxes [k, N, 4], their scores [k, N], and the number of predictions in each [k, N]: 0 if it was merged into
      another.
    """
    N = tf.shape(box)[1]
    apart = tf.where(tf.eye(N, dtype=tf.bool), _FAR, match_score(box[:, :, tf.newaxis], box[:, tf.newaxis]))

    def closer(apart, *_):
        return tf.reduce_any(apart <= t)

    def step(apart, box, score, count):
        flat = tf.reshape(apart, [-1, N * N])
        nearest = tf.argmin(flat, 1, tf.int32)
        due = tf.cast(tf.reduce_min(flat, 1) <= t, tf.float32)[:, tf.newaxis]  # some classes are finished
        one, other = (tf.one_hot(at, N) * due for at in (nearest // N, nearest % N))  # [k, N]
        weight = (one + other) * count
        mean = tf.math.divide_no_nan(tf.einsum('kn,knc->kc', weight, box),
                                     tf.reduce_sum(weight, 1)[:, tf.newaxis])[:, tf.newaxis]
        box = tf.where(one[..., tf.newaxis] > 0, mean, box)
        score, count = (x + one * tf.reduce_sum(other * x, 1, keepdims=True) - other * x for x in (score, count))
        row = tf.where((count == 0) | (one > 0), _FAR, match_score(mean, box))  # [k, N]
        apart = tf.where(one[:, :, tf.newaxis] > 0, row[:, tf.newaxis], apart)
        apart = tf.where(one[:, tf.newaxis] > 0, row[:, :, tf.newaxis], apart)
        gone = other > 0
        return tf.where(gone[:, :, tf.newaxis] | gone[:, tf.newaxis], _FAR, apart), box, score, count
    return tf.while_loop(closer, step, (apart, box, score, tf.ones_like(score)), parallel_iterations=1)[1:]


def best(box: tf.Tensor, score: tf.Tensor, t: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Return each class's merged box with the largest score, [k, 4], and that score averaged over all predictions, [k].

    Args: as `merge`.
    """
    box, total, count = merge(box, score, t)
    first = tf.argmax(tf.where(count > 0, total, -1.), 1)
    return (tf.gather(box, first, batch_dims=1),
            tf.gather(total, first, batch_dims=1) / tf.cast(tf.shape(score)[1], tf.float32))
