"""Boxes around things: what two have in common, and how many predictions become few (Sermanet et al. 2014, 'OverFeat').

A box is its corners, [..., 4]: left, upper, right and lower end, in fractions of a picture or of a part of one. What a
net predicts is a vector, [..., 4]: centre from the left and from above, width and height (Simonyan & Zisserman A.1).
"""
import tensorflow as tf

_FAR = float('inf')


def corners(vector: tf.Tensor) -> tf.Tensor:
    """Centre, width and height -> corners."""
    centre, half = vector[..., :2], vector[..., 2:] / 2
    return tf.concat([centre - half, centre + half], -1)


def within(box: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    """A box in fractions of a part of a picture -> in those of the picture, of which `part` [..., 4] is that part."""
    start, size = part[..., :2], part[..., 2:] - part[..., :2]
    return tf.concat([start + box[..., :2] * size, start + box[..., 2:] * size], -1)


def iou(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Intersection over union, [...]; one of the boxes may lack axes of the other's. What ends before it begins is
    empty, and has nothing in common with anything."""
    both = _area(tf.concat([tf.maximum(a[..., :2], b[..., :2]), tf.minimum(a[..., 2:], b[..., 2:])], -1))
    return tf.math.divide_no_nan(both, _area(a) + _area(b) - both)


def _area(box: tf.Tensor) -> tf.Tensor:
    return tf.reduce_prod(tf.nn.relu(box[..., 2:] - box[..., :2]), -1)


def match_score(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """How far two boxes are from being one, [...]: 0 if they are equal.

    'The sum of the distance between centers of the two bounding boxes and the intersection area of the boxes' (Sermanet
    et al.), the least of which is merged first. As it stands, boxes with nothing in common would be the better match,
    and lengths would be added to areas. So here it is the part of their union that they do not share, and the distance
    in widths and heights, each the mean of both boxes': neither depends on the size of things.
    """
    size = tf.abs(a[..., 2:] - a[..., :2] + b[..., 2:] - b[..., :2]) / 2
    apart = tf.math.divide_no_nan((a[..., 2:] + a[..., :2] - b[..., 2:] - b[..., :2]) / 2, size)
    return tf.norm(apart, axis=-1) + 1 - iou(a, b)


def merge(box: tf.Tensor, score: tf.Tensor, t: float) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Greedy merging (Sermanet et al., 'Combining predictions'), of the predictions for each of k classes by itself.

    While any two are closer than `t`, the closest become their mean, each counted as often as predictions were merged
    into it; and class scores add up.

    Args:
      box: [k, N, 4].
      score: [k, N], the class's where each was predicted.
      t: of `match_score`.

    Returns:
      Boxes [k, N, 4], their scores [k, N], and how many predictions each is of [k, N]: 0 where it went into another.
    """
    N = tf.shape(box)[1]
    apart = tf.where(tf.eye(N, dtype=tf.bool), _FAR, match_score(box[:, :, tf.newaxis], box[:, tf.newaxis]))

    def closer(apart, *_):
        return tf.reduce_any(apart <= t)

    def step(apart, box, score, count):
        flat = tf.reshape(apart, [-1, N * N])
        nearest = tf.argmin(flat, 1, tf.int32)
        due = tf.cast(tf.reduce_min(flat, 1) <= t, tf.float32)[:, tf.newaxis]  # of some classes no more is merged
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
    """The merged box of each class with the largest score: [k, 4], and that score, the mean over all predictions, [k].

    Args: as `merge`.
    """
    box, total, count = merge(box, score, t)
    first = tf.argmax(tf.where(count > 0, total, -1.), 1)
    return (tf.gather(box, first, batch_dims=1),
            tf.gather(total, first, batch_dims=1) / tf.cast(tf.shape(score)[1], tf.float32))
