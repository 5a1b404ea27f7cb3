"""The clothing-agnostic person as VITON-HD's authors prepare it, whose published weights saw no other.

The rules are those of their preprocessing (https://github.com/shadow2496/VITON-HD), in our own words and code; where the
paper says otherwise, `person.py` follows the paper. They are stated once, as shapes. Preparation draws the shapes with
Pillow, as the authors do; a served model needs TensorFlow's operations, which fill Pillow's rows in closed form.

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
from PIL import Image, ImageDraw

from data_prep.person import HEIGHT, POINTS

GREY = 128  # the level in I_a
KEPT = (4, 13, 9, 12, 16, 17, 18, 19)  # labels that show through in I_a
GONE = (5, 6, 7, 10)  # labels that are background in S_a
ARMS = ((14, (2, 5, 6, 7)), (15, (5, 2, 3, 4)))  # label; other shoulder, shoulder, elbow, wrist
BONES = ((2, 3), (3, 4), (5, 6), (6, 7))
NECK, RIGHT_SHOULDER, LEFT_SHOULDER = 1, 2, 5
HIPS = RIGHT_HIP, LEFT_HIP = POINTS.index('right hip'), POINTS.index('left hip')

# In pixels of a picture that is `HEIGHT` high: widths of lines, and radii.
PARSE_LINE, PARSE_JOINT, PARSE_WRIST = 100, 150, 40
LINE, JOINT = 200, 100
SIDE_LINE, HIP_LINE, HIP_ACROSS, HIP_DOWN, COLLAR = 120, 240, 60, 120, 140


class Shape(NamedTuple):
    """What is drawn if `there`: a `line` or `polygon` through points [2] (x, y), or an `ellipse` or `box` around one.

    `size`: a line's width; half the width and height of the others.
    """
    kind: Literal['line', 'polygon', 'ellipse', 'box']
    points: list
    size: tuple[Any, ...] = ()
    there: Any = True


def hips_apart(points: Any) -> Any:
    """Whether the hips are two places: else their rule divides by zero. Points [18, 2 or more]."""
    return (points[RIGHT_HIP][0] != points[LEFT_HIP][0]) | (points[RIGHT_HIP][1] != points[LEFT_HIP][1])


def _arm(points: Any, joints: tuple[int, ...], pixel: Any, where: Any) -> Iterator[Shape]:
    """Shapes over an arm's pixels in S_a. where: chooses between two values by a third."""
    seen = _seen(points)
    before, has_before = points[joints[0]], seen[joints[0]]
    for joint in joints[1:]:
        at, there = points[joint], seen[joint] & has_before
        radius = (PARSE_WRIST if joint == joints[-1] else PARSE_JOINT) * pixel
        yield Shape('line', [before, at], (PARSE_LINE * pixel,), there)
        yield Shape('ellipse', [at], (radius, radius), there)
        before = where(there, at, before)


def _figure(points: Any, pixel: Any) -> Iterator[Shape]:
    """Shapes of what is grey in I_a."""
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


def agnostic(parse: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is grey in I_a, bool [h, w], and S_a, uint8 [h, w], to the pixel as the authors' code makes them.

    Args:
      parse: uint8 [h, w], labels.
      points: float64 [18, 2]; neck, shoulders and two hips are needed, and missing points are zero.
    """
    pixel = len(parse) / HEIGHT
    gone = np.isin(parse, GONE)
    for label, joints in ARMS:
        arm = _drawn(_arm(points, joints, pixel, lambda there, a, b: a if there else b), parse.shape)
        gone |= arm & (parse == label)
    removed = _drawn(_figure(points, pixel), parse.shape) & ~np.isin(parse, KEPT)
    return removed, np.where(gone, np.uint8(0), parse)


def _drawn(shapes: Iterator[Shape], size: tuple[int, ...]) -> np.ndarray:
    picture = Image.new('L', size[::-1])
    draw = ImageDraw.Draw(picture)
    for shape in shapes:
        if not shape.there:
            continue
        points = [(float(x), float(y)) for x, y in shape.points]
        if shape.kind == 'line':
            draw.line(points, 255, round(shape.size[0]))
        elif shape.kind == 'polygon':
            draw.polygon(points, 255)
        else:
            [(x, y)], (across, down) = points, shape.size
            around = (x - across, y - down, x + across, y + down)
            (draw.ellipse if shape.kind == 'ellipse' else draw.rectangle)(around, 255)
    return np.asarray(picture) > 0


def agnostic_in_graph(parse: tf.Tensor, points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """As `agnostic`, in TensorFlow's operations, but for single pixels at corners. points: float32 [18, 3]."""
    size = tf.shape(parse)
    pixel = tf.cast(size[0], tf.float64) / HEIGHT
    at = list(tf.unstack(tf.cast(points[:, :2], tf.float64)))
    gone = _is(parse, GONE)
    for label, joints in ARMS:
        gone |= _filled(_arm(at, joints, pixel, tf.where), size) & (parse == label)
    removed = _filled(_figure(at, pixel), size) & ~_is(parse, KEPT)
    return removed, tf.where(gone, tf.zeros_like(parse), parse)


def _is(parse: tf.Tensor, labels: tuple[int, ...]) -> tf.Tensor:
    return tf.gather(np.isin(np.arange(256), labels), tf.cast(parse, tf.int32))


def _filled(shapes: Iterator[Shape], size: tf.Tensor) -> tf.Tensor:
    """bool [h, w]: the pixels of any shape. Each fills of a row what lies between a first and a last one."""
    height, width = size[0], size[1]
    y = tf.range(tf.cast(height, tf.float64))
    firsts, lasts = zip(*(rows for shape in shapes for rows in _rows(shape, y)))
    edge = tf.cast(width, tf.float64)
    first, last = (tf.clip_by_value(tf.stack(each), -1, edge) for each in (firsts, lasts))  # [n, h]
    empty = first > last
    begin = tf.where(empty, edge, tf.maximum(first, 0))
    end = tf.where(empty, edge, tf.minimum(last, edge - 1) + 1)
    # A shape begins here: +1; it has ended there: -1. The sum along a row is how many cover a pixel.
    row = tf.broadcast_to(tf.range(height), tf.shape(begin))
    at = tf.stack([tf.concat([row, row], 0), tf.cast(tf.concat([begin, end], 0), tf.int32)], -1)
    steps = tf.concat([tf.ones_like(row), -tf.ones_like(row)], 0)
    counts = tf.scatter_nd(at, steps, [height, width + 1])
    return tf.cumsum(counts, 1)[:, :-1] > 0


def _rows(shape: Shape, y: tf.Tensor) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """A shape's first and last pixel in each row y [h], rounded as Pillow does; first > last where it has none."""
    if shape.kind in ('line', 'polygon'):
        corners = [_whole(at) for at in shape.points]
        intervals = _polygon(_thick(*corners, tf.round(shape.size[0])) if shape.kind == 'line' else corners, y)
    else:
        low, high = (_whole(shape.points[0] + sign * tf.stack(shape.size)) for sign in (-1.0, 1.0))
        intervals = [_ellipse(low, high, y) if shape.kind == 'ellipse' else (
            tf.where((y >= low[1]) & (y <= high[1]), low[0], np.inf), tf.zeros_like(y) + high[0])]
    yield from ((tf.where(shape.there, first, np.inf), last) for first, last in intervals)


def _whole(at: tf.Tensor) -> tf.Tensor:
    """Coordinates cut off to whole numbers."""
    return tf.cast(tf.cast(at, tf.int32), tf.float64)


def _thick(a: tf.Tensor, b: tf.Tensor, width: tf.Tensor) -> list[tf.Tensor]:
    """The corners of a line, its two sides rounded apart as Pillow rounds them."""
    d, half = b - a, (width - 1) / 2
    length = tf.norm(d)
    less, more = (tf.math.divide_no_nan(each, length) for each in (_halves_down(half), _halves_up(half)))
    one = tf.stack([-_halves_down(less * d[1]), _halves_up(more * d[0])])
    other = tf.stack([_halves_down(more * d[1]), -_halves_up(less * d[0])])
    return [a + one, b + one, b + other, a + other]


def _halves_up(x: tf.Tensor) -> tf.Tensor:
    """To the nearest whole number, halves away from zero."""
    return tf.sign(x) * tf.floor(tf.abs(x) + 0.5)


def _halves_down(x: tf.Tensor) -> tf.Tensor:
    """To the nearest whole number, halves towards zero."""
    return tf.sign(x) * tf.math.ceil(tf.abs(x) - 0.5)


def _polygon(corners: list[tf.Tensor], y: tf.Tensor) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """A polygon of whole corners: in each row from crossing to crossing. At an edge's last row it counts twice, so that
    the next one's is not missed."""
    bottom = tf.reduce_max(tf.stack(corners)[:, 1])
    crossings = []
    for a, b in zip(corners, corners[1:] + corners[:1]):
        first, last = tf.minimum(a[1], b[1]), tf.maximum(a[1], b[1])
        x = a[0] + (y - a[1]) * tf.math.divide_no_nan(b[0] - a[0], b[1] - a[1])
        level = first == last
        crossings.append(tf.where((y >= first) & (y <= last) & ~level, x, np.inf))
        crossings.append(tf.where((y == last) & (y < bottom) & ~level, x, np.inf))
        yield tf.where(level & (y == first), tf.minimum(a[0], b[0]), np.inf), tf.zeros_like(y) + tf.maximum(a[0], b[0])
    crossings = tf.unstack(tf.sort(tf.stack(crossings), 0))
    for left, right in zip(crossings[::2], crossings[1::2]):
        there = tf.math.is_finite(right)
        yield tf.where(there, _halves_up(left), np.inf), _halves_down(tf.where(there, right, 0))


def _ellipse(low: tf.Tensor, high: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The ellipse in a box of whole corners, in half pixels from its centre, by Bresenham's choice: a row ends
    at the largest x that is nearer to the curve than x - 2, or for which this row is nearer than the row before."""
    a, b = tf.unstack(high - low)
    v = tf.abs(2 * (y - low[1]) - b)
    odd = tf.math.floormod(a, 2)
    inward = tf.maximum(v - 2, 0)

    def squared(square):
        """x^2 of the curve at v^2."""
        return tf.math.divide_no_nan(a * a * (b * b - square), b * b)
    near = 1 + tf.sqrt(tf.maximum(tf.floor(squared(v * v) - 1), 0))
    below = tf.sqrt(tf.maximum(tf.math.ceil(squared((v * v + inward * inward) / 2)) - 1, 0))
    x = tf.maximum(*(tf.floor((reach - odd) / 2) for reach in (near, below))) * 2 + odd
    x = tf.clip_by_value(x, odd, a)
    return tf.where(v <= b, low[0] + (a - x) / 2, np.inf), low[0] + (a + x) / 2
