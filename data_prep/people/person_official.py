"""The clothing-agnostic person as VITON-HD's authors prepare it, which their weights need.

The rules are those of their preprocessing (https://github.com/shadow2496/VITON-HD), in our own words and code; where
the paper says otherwise, `person.py` follows the paper. They are stated once, as shapes. Preparation draws them with
Pillow, as the authors do (`person_drawn.py`). A served model needs TensorFlow's operations, which fill Pillow's rows in
closed form.

Of S_a: garment and torso skin become background, and of each arm the pixels under a line from the other shoulder by
shoulder and elbow to the wrist, with discs at the joints. A joint that was not found is passed over. What lies beyond
the disc of the wrist stays, as do arms under no line. Of I_a: lines and discs along shoulders and arms, the torso
between shoulders and hips, the latter as far apart as the former, and a square at the neck are grey of level 128; face,
sunglasses and the lower body but for socks show through; hair and hands do not. Of several people the first is taken.
"""
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import tensorflow as tf

from data_prep.people.person import HEIGHT, POINTS

GREY = 128  # the level in I_a
KEPT = (4, 13, 9, 12, 16, 17, 18, 19)  # labels that show through in I_a
GONE = (5, 6, 7, 10)  # labels that are background in S_a
ARMS = ((14, (2, 5, 6, 7)), (15, (5, 2, 3, 4)))  # label; other shoulder, shoulder, elbow, wrist
BONES = ((2, 3), (3, 4), (5, 6), (6, 7))
NECK, RIGHT_SHOULDER, LEFT_SHOULDER = 1, 2, 5
HIPS = RIGHT_HIP, LEFT_HIP = POINTS.index('right hip'), POINTS.index('left hip')
NOWHERE = 1e9  # beyond every pixel; ONNX sorts no infinities

# In pixels of a picture that is `HEIGHT` high: widths of lines, and radii.
PARSE_LINE, PARSE_JOINT, PARSE_WRIST = 100, 150, 40
LINE, JOINT = 200, 100
SIDE_LINE, HIP_LINE, HIP_ACROSS, HIP_DOWN, COLLAR = 120, 240, 60, 120, 140


class Shape(NamedTuple):
    """A shape, drawn if `there`: a `line` or `polygon` through points (x, y), an `ellipse` or `box` around one.

    `size`: a line's width; half the width and height of the others.
    """
    kind: Literal['line', 'polygon', 'ellipse', 'box']
    points: list
    size: tuple[Any, ...] = ()
    there: Any = True


def hips_apart(points: Any) -> Any:
    """Return whether the hips, of points [18, 2 or more], differ; otherwise their rule divides by zero."""
    return (points[RIGHT_HIP][0] != points[LEFT_HIP][0]) | (points[RIGHT_HIP][1] != points[LEFT_HIP][1])


def arm_shapes(points: Any, joints: tuple[int, ...], pixel: Any, where: Any) -> Iterator[Shape]:
    """Yield the shapes over an arm's pixels in S_a; `where` chooses between two values, like tf.where."""
    seen = _seen(points)
    before, has_before = points[joints[0]], seen[joints[0]]
    for joint in joints[1:]:
        at, there = points[joint], seen[joint] & has_before
        radius = (PARSE_WRIST if joint == joints[-1] else PARSE_JOINT) * pixel
        yield Shape('line', [before, at], (PARSE_LINE * pixel,), there)
        yield Shape('ellipse', [at], (radius, radius), there)
        before = where(there, at, before)


def figure(points: Any, pixel: Any) -> Iterator[Shape]:
    """Yield the shapes of the grey part of I_a."""
    seen = _seen(points)
    right, left = points[RIGHT_SHOULDER], points[LEFT_SHOULDER]
    middle = (points[RIGHT_HIP] + points[LEFT_HIP]) / 2
    across, shoulders = points[LEFT_HIP] - points[RIGHT_HIP], left - right
    apart, wanted = ((each[0] * each[0] + each[1] * each[1]) ** 0.5 for each in (across, shoulders))
    right_hip, left_hip = (middle + (points[hip] - middle) / apart * wanted for hip in HIPS)

    joint = JOINT * pixel, JOINT * pixel
    yield Shape('line', [right, left], (LINE * pixel,))
    yield from (Shape('ellipse', [at], joint) for at in (right, left))
    for a, b in BONES:
        yield Shape('line', [points[a], points[b]], (LINE * pixel,), seen[a] & seen[b])
        yield Shape('ellipse', [points[b]], joint, seen[a] & seen[b])
    yield from (Shape('ellipse', [at], (HIP_ACROSS * pixel, HIP_DOWN * pixel)) for at in (right_hip, left_hip))
    for a, b, width in ((right, right_hip, SIDE_LINE), (left, left_hip, SIDE_LINE), (right_hip, left_hip, HIP_LINE)):
        yield Shape('line', [a, b], (width * pixel,))
    yield Shape('polygon', [right, left, left_hip, right_hip])
    yield Shape('box', [points[NECK]], (COLLAR * pixel, COLLAR * pixel))


def _seen(points: Any) -> list:
    return [(points[n][0] != 0) | (points[n][1] != 0) for n in range(len(POINTS))]


def agnostic_in_graph(parse: tf.Tensor, points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute `person_drawn.agnostic` with TensorFlow's operations, except for single pixels at corners.

    points: [18, 3].
    """
    size = tf.shape(parse)
    pixel = tf.cast(size[0], tf.float64) / HEIGHT
    at = list(tf.unstack(tf.cast(points[:, :2], tf.float64)))
    gone = _is(parse, GONE)
    for label, joints in ARMS:
        gone |= _filled(arm_shapes(at, joints, pixel, tf.where), size) & (parse == label)
    removed = _filled(figure(at, pixel), size) & ~_is(parse, KEPT)
    return removed, tf.where(gone, tf.zeros_like(parse), parse)


def _is(parse: tf.Tensor, labels: tuple[int, ...]) -> tf.Tensor:
    return tf.gather(np.isin(np.arange(256), labels), tf.cast(parse, tf.int32))


def _filled(shapes: Iterator[Shape], size: tf.Tensor) -> tf.Tensor:
    """Return the pixels of all shapes, bool [h, w]; a shape fills each row between a first and a last pixel."""
    by_kind: dict[str, list[Shape]] = {kind: [] for kind in ('line', 'polygon', 'ellipse', 'box')}
    for shape in shapes:
        by_kind[shape.kind].append(shape)
    y = tf.range(tf.cast(size[0], tf.float64))
    rows = [_rows(kind, found, y) for kind, found in by_kind.items() if found]
    first, last = (tf.concat(each, 0) for each in zip(*rows))  # [n, h]
    edge = tf.cast(size[1], tf.float64)
    begin, end = tf.clip_by_value(first, 0, edge), tf.clip_by_value(last + 1, 0, edge)
    # A shape begins here: +1; it has ended there: -1. The sum along a row is how many cover a pixel.
    row = tf.broadcast_to(tf.range(size[0]), tf.shape(begin))
    there = tf.cast(begin < end, tf.int32)
    at = tf.stack([tf.concat([row, row], 0), tf.cast(tf.concat([begin, end], 0), tf.int32)], -1)
    # Not tf.scatter_nd: in ONNX, of changes at one place, it keeps the last.
    counts = tf.tensor_scatter_nd_add(tf.zeros([size[0], size[1] + 1], tf.int32), at, tf.concat([there, -there], 0))
    return tf.cumsum(counts, 1)[:, :-1] > 0


def _rows(kind: str, shapes: list[Shape], y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first and last pixels [n, h] of shapes of one kind in rows y [h], rounded as Pillow does.

    Where a shape has none, first > last.
    """
    points = tf.stack([tf.stack(shape.points) for shape in shapes])  # [n, points, 2]
    if kind in ('line', 'polygon'):
        corners = _whole(points)
        if kind == 'line':
            corners = _thick(corners[:, 0], corners[:, 1], tf.round(tf.stack([shape.size for shape in shapes])))
        first, last = _polygons(corners, y)  # [n, intervals, h]
    else:
        reach = tf.stack([tf.stack(shape.size) for shape in shapes])
        low, high = (_whole(points[:, 0] + sign * reach)[..., tf.newaxis] for sign in (-1.0, 1.0))
        first, last = _ellipses(low, high, y) if kind == 'ellipse' else _boxes(low, high, y)
        first, last = first[:, tf.newaxis], last[:, tf.newaxis]
    there = tf.stack([tf.convert_to_tensor(shape.there) for shape in shapes])[:, tf.newaxis, tf.newaxis]
    first = tf.where(there, first, NOWHERE)
    return tuple(tf.reshape(each, [-1, tf.size(y)]) for each in (first, last))


def _whole(at: tf.Tensor) -> tf.Tensor:
    """Truncate coordinates to whole numbers."""
    return tf.cast(tf.cast(at, tf.int32), tf.float64)


def _thick(a: tf.Tensor, b: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Return the corners [n, 4, 2] of lines from a to b [n, 2], each side rounded as Pillow rounds it."""
    d, half = b - a, (width - 1) / 2
    length = tf.norm(d, axis=1, keepdims=True)
    less, more = (tf.math.divide_no_nan(each, length) * d for each in (_halves_down(half), _halves_up(half)))
    one = tf.stack([-_halves_down(less[:, 1]), _halves_up(more[:, 0])], 1)
    other = tf.stack([_halves_down(more[:, 1]), -_halves_up(less[:, 0])], 1)
    return tf.stack([a + one, b + one, b + other, a + other], 1)


def _halves_up(x: tf.Tensor) -> tf.Tensor:
    """Round to the nearest whole number, halves away from zero."""
    return tf.sign(x) * tf.floor(tf.abs(x) + 0.5)


def _halves_down(x: tf.Tensor) -> tf.Tensor:
    """Round to the nearest whole number, halves towards zero."""
    return tf.sign(x) * tf.math.ceil(tf.abs(x) - 0.5)


def _polygons(corners: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Fill polygons of whole corners [n, 4, 2], in each row from crossing to crossing: [n, intervals, h].

    At its last row an edge counts twice, so that the next one's crossing is not missed. A level edge is drawn itself.
    """
    a, b = corners[..., tf.newaxis], tf.roll(corners, -1, 1)[..., tf.newaxis]
    (ax, ay), (bx, by) = (tf.unstack(each, axis=2) for each in (a, b))  # [n, 4, 1]
    top, bottom, level = tf.minimum(ay, by), tf.maximum(ay, by), ay == by
    x = ax + (y - ay) * tf.math.divide_no_nan(bx - ax, by - ay)  # [n, 4, h]
    once = (y >= top) & (y <= bottom) & ~level
    twice = once & (y == bottom) & (y < tf.reduce_max(bottom, 1, keepdims=True))
    crossings = tf.sort(tf.concat([tf.where(once, x, NOWHERE), tf.where(twice, x, NOWHERE)], 1), 1)
    left, right = crossings[:, ::2], crossings[:, 1::2]
    between = right < NOWHERE
    first = tf.where(between, _halves_up(left), NOWHERE)
    last = _halves_down(tf.where(between, right, 0))
    along = tf.where(level & (y == ay), tf.minimum(ax, bx), NOWHERE)
    return tf.concat([first, along], 1), tf.concat([last, tf.maximum(ax, bx) + tf.zeros_like(x)], 1)


def _boxes(low: tf.Tensor, high: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Fill rectangles from corner to corner, [n, 2, 1] each."""
    inside = (y >= low[:, 1]) & (y <= high[:, 1])
    return tf.where(inside, low[:, 0], NOWHERE), tf.where(inside, high[:, 0], 0)


def _ellipses(low: tf.Tensor, high: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Fill ellipses in boxes of whole corners, in half pixels from their centres, by Bresenham's choice.

    A row ends at the largest x that is nearer to the curve than x - 2, or for which this row is nearer than the row
    before.
    """
    a, b = tf.unstack(high - low, axis=1)
    v = tf.abs(2 * (y - low[:, 1]) - b)
    inward, odd = tf.maximum(v - 2, 0), tf.math.floormod(a, 2)

    def squared(square):
        """Return x^2 of the curve at v^2."""
        return tf.math.divide_no_nan(a * a * (b * b - square), b * b)
    near = 1 + tf.sqrt(tf.maximum(tf.floor(squared(v * v) - 1), 0))
    below = tf.sqrt(tf.maximum(tf.math.ceil(squared((v * v + inward * inward) / 2)) - 1, 0))
    x = tf.maximum(*(tf.floor((reach - odd) / 2) for reach in (near, below))) * 2 + odd
    x = tf.clip_by_value(x, odd, a)
    return tf.where(v <= b, low[:, 0] + (a - x) / 2, NOWHERE), low[:, 0] + (a + x) / 2
