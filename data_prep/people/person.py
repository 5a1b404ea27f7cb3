"""The clothing-agnostic person of VITON-HD (Choi et al. 2021, 3.1 and A.1), as TensorFlow operations on one sample.

They give the same eagerly, in a graph and in a SavedModel, so a served model sees what training saw. Coordinates are
pixels, x to the right and y down, with pixel centres at whole numbers; a point is (x, y, confidence), all zero if it
was not found.
"""
import zlib

import numpy as np
import tensorflow as tf

# Names of the labels of LIP and CIHP, in their order.
LABELS = ('background', 'hat', 'hair', 'glove', 'sunglasses', 'upper', 'dress', 'coat', 'socks', 'pants', 'torso skin',
          'scarf', 'skirt', 'face', 'left arm', 'right arm', 'left leg', 'right leg', 'left shoe', 'right shoe')
UNKNOWN = 255

# The classes of S, a class for each label, and for each class what it is in a mirror.
CLASSES = ('background', 'hair', 'face', 'upper', 'bottom', 'left arm', 'right arm', 'left leg', 'right leg',
           'left shoe', 'right shoe', 'socks', 'noise')
GROUP = (0, 1, 1, 12, 2, 3, 3, 3, 11, 4, 0, 12, 4, 2, 5, 6, 7, 8, 9, 10)
MIRRORED_CLASS = (0, 1, 2, 3, 4, 6, 5, 8, 7, 10, 9, 11, 12)

POINTS = ('nose', 'neck', 'right shoulder', 'right elbow', 'right wrist', 'left shoulder', 'left elbow', 'left wrist',
          'right hip', 'right knee', 'right ankle', 'left hip', 'left knee', 'left ankle', 'right eye', 'left eye',
          'right ear', 'left ear')
NEEDED = NECK, RIGHT_SHOULDER, LEFT_SHOULDER = 1, 2, 5
_OTHER_SIDE = (0, 1, 5, 6, 7, 2, 3, 4, 11, 12, 13, 8, 9, 10, 15, 14, 17, 16)
_OF_BODY_25 = (*range(8), *range(9, 19))  # which of BODY_25's points these are; 8 is the middle of the hips

# Half as wide as what is taken away around bones, before padding: in pixels of a picture that is 1,024 high. With the
# padding of 40 they come to what the published preprocessing draws.
HEIGHT = 1024
ARM, SIDE, COLLAR = 60, 20, 100
PADDING = 40

_GARMENT = (5, 6, 7)
_SKIN = (10,)
_KEPT = (4, 13, 8, 9, 12, 16, 17, 18, 19)  # face and lower body, whatever bones are near them
_ARMS = ((14, 5, 6, 7), (15, 2, 3, 4))  # label, shoulder, elbow, wrist

PNG = b'\x89PNG\r\n\x1a\n'
_GREY, _RGB, _PALETTE, _RGBA = 0, 2, 3, 6  # a PNG's colour types
_HEADER = 33  # bytes of a PNG: its signature and the chunk IHDR
_CHUNKS = 1000  # that a PNG may have before its pixels
_NUMBER = r'-?\d{1,7}(\.\d{0,17})?([eE][-+]?\d{1,3})?'  # 31 characters, the most that TensorFlow reads


def _lip_colours() -> np.ndarray:
    return np.array([
        (0, 0, 0), (128, 0, 0), (255, 0, 0), (0, 85, 0), (170, 0, 51), (255, 85, 0), (0, 0, 85), (0, 119, 221),
        (85, 85, 0), (0, 85, 85), (85, 51, 0), (52, 86, 128), (0, 128, 0), (0, 0, 255), (51, 170, 221), (0, 255, 255),
        (85, 255, 170), (170, 255, 85), (255, 255, 0), (255, 170, 0)])


def _voc_colours() -> np.ndarray:
    """Pascal VOC's: a label's bits 0 and 3 are red's from the highest down, 1 and 4 are green's and 2 is blue's."""
    labels = np.arange(len(LABELS))
    return np.stack([sum((labels >> 3 * bit + colour & 1) << 7 - bit for bit in range(2)) for colour in range(3)], -1)


def _lookup(*tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Turn tables of a colour per label into all colours as sorted numbers, and their labels."""
    colours = np.concatenate(tables) @ [1 << 16, 1 << 8, 1]
    numbers, first = np.unique(colours, return_index=True)
    return numbers.astype(np.int32), (first % len(LABELS)).astype(np.uint8)


# The parsers that LIP's maps come from write 254, 220 and 169 as well, where the colour map says 255, 221 and 170.
_LIP = _lookup(_lip_colours(), _lip_colours() - np.isin(_lip_colours(), (255, 221, 170)))
_VOC = _lookup(_voc_colours())
_BYTES = tuple(bytes([value]) for value in range(256))

_LIMBS = ((1, 2), (1, 5), (2, 3), (3, 4), (5, 6), (6, 7), (1, 8), (8, 9), (9, 10), (1, 11), (11, 12), (12, 13), (1, 0),
          (0, 14), (14, 16), (0, 15), (15, 17))
_COLOURS = ((255, 0, 85), (255, 0, 0), (255, 85, 0), (255, 170, 0), (255, 255, 0), (170, 255, 0), (85, 255, 0),
            (0, 255, 0), (0, 255, 85), (0, 255, 170), (0, 255, 255), (0, 170, 255), (0, 85, 255), (0, 0, 255),
            (255, 0, 170), (170, 0, 255), (255, 0, 255), (85, 0, 255))
_OPACITY = 0.6


def keypoints(text: tf.Tensor, dtype: tf.DType = tf.float32) -> tuple[tf.Tensor, tf.Tensor]:
    """Read OpenPose's JSON, with COCO's 18 points or BODY_25's.

    Args:
      text: a scalar string.

    Returns:
      The first person's points, `dtype` [18, 3] in the order of `POINTS`, and how many persons there are, int32.
      Without a person, or if this is no such JSON, no point is found.
    """
    people = tf.strings.split(tf.strings.regex_replace(text, r'\s+', ''), '"pose_keypoints')
    people = tf.boolean_mask(people, tf.strings.regex_full_match(people, r'(?s)(_2d)?":\[.*'))
    first = tf.concat([people, ['']], 0)[0]
    numbers = tf.strings.regex_replace(first, r'(?s)^(_2d)?":\[([^\]]*)\].*$', r'\2')
    numbers = tf.strings.regex_replace(numbers, r'(\.\d{17})\d+', r'\1')
    valid = tf.strings.regex_full_match(numbers, f'{_NUMBER}(,{_NUMBER})*')
    values = tf.cond(valid, lambda: tf.strings.to_number(tf.strings.split(numbers, ','), dtype),
                     lambda: tf.zeros([0], dtype))
    points = tf.case([(tf.equal(tf.size(values), 54), lambda: tf.reshape(values, [18, 3])),
                      (tf.equal(tf.size(values), 75), lambda: tf.gather(tf.reshape(values, [25, 3]), _OF_BODY_25))],
                     lambda: tf.zeros([18, 3], dtype))
    return tf.where(found(points)[:, tf.newaxis], points, tf.zeros_like(points)), tf.size(people)


def found(points: tf.Tensor) -> tf.Tensor:
    """Return which points were found, [n, 3] -> bool [n]."""
    return tf.reduce_any(points[:, :2] != 0, 1) & tf.reduce_all(tf.math.is_finite(points), 1)


def exchanged(points: tf.Tensor) -> tf.Tensor:
    """Exchange left and right points, as a mirror does."""
    return tf.gather(points, _OTHER_SIDE)


def parse_map(encoded: tf.Tensor) -> tf.Tensor:
    """Read a parse map: a PNG of grey levels, palette indices, or LIP's or Pascal VOC's colours.

    Args:
      encoded: the file, a scalar string.

    Returns:
      uint8 [h, w], labels in the order of `LABELS`; `UNKNOWN` for any other level or colour.

    Raises:
      InvalidArgumentError: it is no PNG, or damaged.
    """
    is_png = tf.debugging.assert_equal(tf.strings.substr(encoded, 0, len(PNG)) == PNG, True,
                                       'a parse map must be a PNG file')
    with tf.control_dependencies([is_png]):  # else the header's reader may be the first to complain, of a short file
        encoded = tf.identity(encoded)
    header = tf.io.decode_raw(tf.strings.substr(encoded, 0, _HEADER), tf.uint8)
    depth, kind = tf.cast(header[24], tf.int32), header[25]
    palette = tf.equal(kind, _PALETTE)

    def grey():
        as_grey = tf.cond(palette, lambda: _indices_as_levels(encoded, header), lambda: encoded)
        levels = tf.io.decode_png(as_grey, 1)[..., 0]
        steps = tf.bitwise.left_shift(1, tf.minimum(depth, 8)) - 1  # of fewer than 8 bits, levels come spread to 255
        labels = levels // tf.cast(255 // steps, tf.uint8)
        return tf.where(labels < len(LABELS), labels, UNKNOWN)

    coloured = tf.equal(kind, _RGB) | tf.equal(kind, _RGBA)
    return tf.cond(coloured, lambda: _labels(tf.io.decode_png(encoded, 3)), grey)


def _indices_as_levels(encoded: tf.Tensor, header: tf.Tensor) -> tf.Tensor:
    """Turn a palette PNG into the grey one whose levels are its indices, which decoding would lose.

    The two differ in their header's colour type and checksum, and in the chunks before the pixels, which are left out.
    A CRC is linear: how the checksum changes does not depend on the rest of the header.
    """
    type_at = 9  # in a header's data
    crc = [zlib.crc32(b'IHDR' + bytes(type_at) + bytes([kind]) + bytes(3)) for kind in (_GREY, _PALETTE)]
    change = np.zeros(_HEADER, np.uint8)
    change[16 + type_at] = _PALETTE ^ _GREY
    change[-4:] = list((crc[0] ^ crc[1]).to_bytes(4, 'big'))

    end = tf.cast(tf.strings.length(encoded), tf.int64)

    def four_bytes(at):
        return tf.strings.substr(encoded, tf.minimum(at, end), 4)

    def next_chunk(at):
        length = tf.cast(tf.io.decode_raw(four_bytes(at), tf.uint8), tf.int64) * [1 << 24, 1 << 16, 1 << 8, 1]
        return [at + 12 + tf.reduce_sum(length)]

    pixels, = tf.while_loop(lambda at: (four_bytes(at + 4) != b'IDAT') & (at < end), next_chunk,
                            [tf.constant(_HEADER, tf.int64)], maximum_iterations=_CHUNKS)
    has_pixels = tf.debugging.assert_equal(four_bytes(pixels + 4) == b'IDAT', True, 'a parse map has no pixels')
    with tf.control_dependencies([has_pixels]):  # else the decoder may be
        pixels = tf.identity(pixels)
    grey = tf.gather(_BYTES, tf.cast(tf.bitwise.bitwise_xor(header, change), tf.int32))
    return tf.strings.reduce_join(grey) + tf.strings.substr(encoded, tf.minimum(pixels, end), tf.int64.max)


def _labels(colours: tf.Tensor) -> tf.Tensor:
    """uint8 [h, w, 3] -> uint8 [h, w], by the colour map that knows more of them."""
    red, green, blue = tf.unstack(tf.cast(colours, tf.int32), axis=-1)
    numbers = red * (1 << 16) + green * (1 << 8) + blue

    def by(table):
        known, labels = table
        place = tf.minimum(tf.searchsorted(known, tf.reshape(numbers, [-1])), len(known) - 1)
        place = tf.reshape(place, tf.shape(numbers))
        return tf.where(tf.gather(known, place) == numbers, tf.gather(labels, place), UNKNOWN)

    lip, voc = by(_LIP), by(_VOC)
    fewer = tf.math.count_nonzero(lip != UNKNOWN) < tf.math.count_nonzero(voc != UNKNOWN)
    return tf.where(fewer, voc, lip)


def classes(labels: tf.Tensor) -> tf.Tensor:
    """Map labels, uint8 of any shape, to int32 classes; unknown labels become noise."""
    table = np.full(256, CLASSES.index('noise'), np.int32)
    table[:len(GROUP)] = GROUP
    return tf.gather(table, tf.cast(labels, tf.int32))


def agnostic(parse: tf.Tensor, points: tf.Tensor, padding: tf.Tensor | float = PADDING) -> tuple[tf.Tensor, tf.Tensor]:
    """Return what to remove from a person, so that nothing shows what was worn (3.1, A.1).

    Removed are the garment, the torso's skin and both arms, by their labels, and whatever lies around the bones of
    arms, shoulders, torso and collar, as a sleeve's or a hem's outline would. Face and lower body stay, and so do
    hands: an arm's pixels beyond the wrist, no farther from it than the elbow, and not at the upper arm. Without elbow
    or wrist no hand can be found, and the whole arm is removed. A hip that is missing is taken to be straight below its
    shoulder, as high as the other one or at the lower border.

    Args:
      parse: uint8 [h, w], labels.
      points: float32 [18, 3]; neck and shoulders are needed.
      padding: by how much everything is widened, in pixels of a picture that is `HEIGHT` high. Where a parser draws the
        line between garment or arm and face or lower body, a fifth of it is not trusted and goes, too.

    Returns:
      removed: bool [h, w], what is grey in I_a.
      agnostic_parse: uint8 [h, w], the labels with garment, skin and arms as background.
    """
    shape = tf.shape(parse)
    pixel = tf.cast(shape[0], tf.float32) / HEIGHT  # one of such a picture
    x = tf.range(tf.cast(shape[1], tf.float32))[tf.newaxis]  # [1, w]
    y = tf.range(tf.cast(shape[0], tf.float32))[:, tf.newaxis]  # [h, 1]
    hands = [_hand(x, y, parse, points, arm, (ARM + padding) * pixel) for arm in _ARMS]
    hand = hands[0] | hands[1]
    worn = _is(parse, (*_GARMENT, *(label for label, *_ in _ARMS))) & ~hand
    gone = worn | _is(parse, _SKIN)
    seam, wide = (_widened(mask, tf.cast(tf.round(by * pixel), tf.int32))
                  for mask, by in ((worn, padding / 5), (gone, padding)))
    kept = hand | _is(parse, _KEPT) & ~seam
    removed = gone | (wide | _figure(x, y, points, padding, pixel)) & ~kept
    return removed, tf.where(gone, tf.zeros_like(parse), parse)


def _is(parse: tf.Tensor, labels: tuple[int, ...]) -> tf.Tensor:
    return tf.gather(np.isin(np.arange(256), labels), tf.cast(parse, tf.int32))


def _hand(x: tf.Tensor, y: tf.Tensor, parse: tf.Tensor, points: tf.Tensor, arm: tuple[int, int, int, int],
          radius: tf.Tensor) -> tf.Tensor:
    label, *joints = arm
    shoulder, elbow, wrist = (points[joint, :2] for joint in joints)
    forearm = wrist - elbow
    u, v = x - wrist[0], y - wrist[1]
    beyond = u * forearm[0] + v * forearm[1] > 0
    near = u * u + v * v <= tf.reduce_sum(forearm * forearm)
    at_upper_arm = _distance(x, y, shoulder, elbow) <= radius * radius
    known = tf.reduce_all(tf.gather(found(points), joints))
    return known & (parse == label) & beyond & near & ~at_upper_arm


def _figure(x: tf.Tensor, y: tf.Tensor, points: tf.Tensor, padding: tf.Tensor | float, pixel: tf.Tensor) -> tf.Tensor:
    """Return the pixels around the bones of arms, shoulders, torso and collar, bool [h, w]."""
    seen, at = found(points), points[:, :2]

    def around(a, b, radius, there=True):
        return _distance(x, y, a, b) <= tf.where(there, tf.square((radius + padding) * pixel), -1)

    right, left = at[RIGHT_SHOULDER], at[LEFT_SHOULDER]
    across = left - right
    down = _hips(points, tf.cast(tf.size(y) - 1, tf.float32)) - (right + left) / 2
    # Hips as far apart as shoulders make the torso a parallelogram, whichever way the person is turned.
    area = _cross(across, down)
    u, v = x - right[0], y - right[1]
    figure = area != 0
    for part in (_cross((u, v), down), _cross(across, (u, v))):
        part *= tf.sign(area)
        figure &= (part >= 0) & (part <= tf.abs(area))
    figure |= around(right, left, ARM)
    for a, b in ((right, right + down), (left, left + down), (right + down, left + down)):
        figure |= around(a, b, SIDE)
    for _, shoulder, elbow, wrist in _ARMS:
        for a, b in ((shoulder, elbow), (elbow, wrist)):
            figure |= around(at[a], at[b], ARM, seen[a] & seen[b])
    collar = (COLLAR + padding) * pixel
    return figure | (tf.abs(x - at[NECK, 0]) <= collar) & (tf.abs(y - at[NECK, 1]) <= collar)


def _cross(a, b):
    return a[0] * b[1] - a[1] * b[0]


def _hips(points: tf.Tensor, bottom: tf.Tensor) -> tf.Tensor:
    """Return the middle of the hips, float32 [2]."""
    right, left = POINTS.index('right hip'), POINTS.index('left hip')
    seen = found(points)
    height = {hip: tf.where(seen[hip], points[hip, 1], bottom) for hip in (right, left)}
    middle = []
    for hip, other, shoulder in ((right, left, RIGHT_SHOULDER), (left, right, LEFT_SHOULDER)):
        below = tf.stack([points[shoulder, 0], height[other]])
        middle.append(tf.where(seen[hip], points[hip, :2], below))
    return (middle[0] + middle[1]) / 2


def _distance(x: tf.Tensor, y: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Squared distances of pixels, x [1, w] and y [h, 1], to the line from a [2] to b [2]: float32 [h, w]."""
    d, u, v = b - a, x - a[0], y - a[1]
    length = tf.reduce_sum(d * d)
    along = u * d[0] + v * d[1]
    t = tf.clip_by_value(tf.math.divide_no_nan(along, length), 0, 1)
    return u * u + v * v - t * (2 * along - t * length)


def _widened(mask: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
    """Dilate a mask, bool [h, w], by `by` rows and columns."""
    side = 2 * by + 1
    total = tf.cumsum(tf.pad(tf.cast(mask, tf.int32), [[by + 1, by], [0, 0]]), 0)
    columns = total[side:] > total[:-side]
    total = tf.cumsum(tf.pad(tf.cast(columns, tf.int32), [[0, 0], [by + 1, by]]), 1)
    return total[:, side:] > total[:, :-side]


def pose_map(points: tf.Tensor, size: tf.Tensor | tuple[int, int]) -> tf.Tensor:
    """Draw the pose as OpenPose draws COCO's points on black: limbs as ellipses, over them joints as discs.

    Args:
      points: float32 [18, 3], of a picture of that size.
      size: height and width.

    Returns:
      uint8 [h, w, 3].
    """
    size = tf.convert_to_tensor(size)
    short = tf.cast(tf.reduce_min(size), tf.float32)
    joints, seen = points[:, :2], found(points)
    a, b = (tf.gather(joints, [limb[end] for limb in _LIMBS]) for end in (0, 1))
    length = tf.norm(b - a, axis=1, keepdims=True)
    there = tf.reduce_all(tf.gather(seen, _LIMBS), 1) & (length[:, 0] > 0)
    middle = tf.concat([(a + b) / 2, joints], 0)
    along = tf.concat([tf.math.divide_no_nan(b - a, length), tf.zeros_like(joints) + [1, 0]], 0)
    axes = tf.concat([tf.concat([length / 2, tf.zeros_like(length) + short / 120], 1),
                      tf.zeros_like(joints) + short / 100], 0)
    colours = tf.constant([_COLOURS[b] for _, b in _LIMBS] + list(_COLOURS), tf.float32)
    shapes = tf.boolean_mask(tf.concat([middle, along, axes, colours], 1), tf.concat([there, seen], 0))
    # Not tf.foldl: its lists of tensors are no operations of TensorFlow Lite or ONNX.
    _, picture = tf.while_loop(
        lambda n, picture: n < tf.shape(shapes)[0], lambda n, picture: (n + 1, _paint(picture, shapes[n])),
        (0, tf.zeros(tf.concat([size, [3]], 0))), (tf.TensorShape([]), tf.TensorShape([None, None, 3])), 1)
    return tf.cast(tf.round(picture), tf.uint8)


def _paint(picture: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Blend an ellipse into an image [h, w, 3], only in the rows it covers."""
    x, y, dx, dy, a, b = tf.unstack(shape[:6])
    height, width = tf.shape(picture)[0], tf.shape(picture)[1]
    reach = tf.sqrt(tf.square(a * dy) + tf.square(b * dx))
    first, last = (tf.cast(tf.clip_by_value(edge, 0, tf.cast(height, tf.float32)), tf.int32)
                   for edge in (y - reach, y + reach + 1))
    u = tf.range(tf.cast(width, tf.float32))[tf.newaxis] - x
    v = tf.cast(tf.range(first, last), tf.float32)[:, tf.newaxis] - y
    inside = tf.square((u * dx + v * dy) / a) + tf.square((u * dy - v * dx) / b) <= 1
    rows = picture[first:last]
    rows = tf.where(tf.expand_dims(inside, -1), (1 - _OPACITY) * rows + _OPACITY * shape[6:], rows)
    return tf.tensor_scatter_nd_update(picture, tf.range(first, last)[:, tf.newaxis], rows)
