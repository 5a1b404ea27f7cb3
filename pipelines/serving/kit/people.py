"""Read a person's parse map and pose as in training, with Pillow and NumPy."""
import io
import json

import numpy as np
from PIL import Image

UNKNOWN = 255  # a label
# LIP's colours of its 20 labels, and Pascal VOC's: a label's bits 0 and 3 are red's from the highest down, 1 and 4 are
# green's, and 2 is blue's. Parsers of LIP write 254, 220 and 169 as well, where the colour map says 255, 221 and 170.
LIP = np.array([
    (0, 0, 0), (128, 0, 0), (255, 0, 0), (0, 85, 0), (170, 0, 51), (255, 85, 0), (0, 0, 85), (0, 119, 221), (85, 85, 0),
    (0, 85, 85), (85, 51, 0), (52, 86, 128), (0, 128, 0), (0, 0, 255), (51, 170, 221), (0, 255, 255), (85, 255, 170),
    (170, 255, 85), (255, 255, 0), (255, 170, 0)])
VOC = np.array([[sum((label >> 3 * bit + colour & 1) << 7 - bit for bit in range(2)) for colour in range(3)]
                for label in range(len(LIP))])
PNG = b'\x89PNG\r\n\x1a\n'
DEPTH = 24  # where a PNG says how many bits a level has
NECK, SHOULDERS, HIPS = 1, (2, 5), (8, 11)
POINTS = 18
OF_BODY_25 = (*range(8), *range(9, 19))  # which of BODY_25's points are COCO's


def labels(encoded):
    """Read a parse map: a PNG of grey levels, palette indices, or LIP's or Pascal VOC's colours.

    Returns:
      uint8 [h, w]; `UNKNOWN` for any other level or colour.

    Raises:
      ValueError: it is no PNG. OSError: it is damaged.
    """
    if not encoded.startswith(PNG):
        raise ValueError('a parse map must be a PNG file')
    image = Image.open(io.BytesIO(encoded))
    if image.mode in ('RGB', 'RGBA'):
        return of_colours(np.asarray(image.convert('RGB')))
    levels = np.asarray(image)
    if image.mode == 'LA':
        levels = levels[..., 0]
    elif image.mode.startswith('I'):
        levels = levels >> 8  # 16 bits
    elif image.mode != 'P':  # Pillow spreads fewer than 8 bits to 255
        levels = levels.astype(np.uint8) * (255 if image.mode == '1' else 1)
        levels = levels // (255 // ((1 << min(encoded[DEPTH], 8)) - 1))
    return np.where(levels < len(LIP), levels, UNKNOWN).astype(np.uint8)


def of_colours(pixels):
    """Return the labels of colours [h, w, 3], by the colour map that knows more of them."""
    def by(*tables):
        known = np.full(1 << 24, UNKNOWN, np.uint8)
        for table in tables:
            known[table @ [1 << 16, 1 << 8, 1]] = np.arange(len(LIP))
        return known[pixels @ np.array([1 << 16, 1 << 8, 1])]
    lip, voc = by(LIP - np.isin(LIP, (255, 221, 170)), LIP), by(VOC)
    return voc if np.count_nonzero(lip != UNKNOWN) < np.count_nonzero(voc != UNKNOWN) else lip


def keypoints(text):
    """Read OpenPose's JSON, with COCO's 18 points or BODY_25's.

    Returns:
      The first person's points (x, y, confidence), float64 [18, 3], all zero where none was found; and how many persons
      there are.
    """
    try:
        given = [person.get('pose_keypoints_2d', person.get('pose_keypoints'))
                 for person in json.loads(text)['people']]
        people = [np.array(values, float) for values in given if isinstance(values, list)]
    except (ValueError, TypeError, KeyError, AttributeError):
        people = []
    points = np.zeros([POINTS, 3])
    if people and people[0].shape == (75,):
        points = people[0].reshape(-1, 3)[list(OF_BODY_25)]
    elif people and people[0].shape == (54,):
        points = people[0].reshape(-1, 3)
    return np.where(found(points)[:, np.newaxis], points, 0), len(people)


def found(points):
    return (points[:, :2] != 0).any(1) & np.isfinite(points).all(1)


def check(points, people, official):
    """Refuse a pose without what the agnostic person needs, by the data set's rules: the paper's, or the authors'.

    Raises:
      ValueError: something is missing.
    """
    if people != 1 and not (official and people):
        raise ValueError('pose_json must hold a person' if official else 'pose_json must hold one person')
    if not found(points)[[NECK, *SHOULDERS]].all():
        raise ValueError('pose_json must hold neck and shoulders')
    if official and (points[HIPS[0], :2] == points[HIPS[1], :2]).all():
        raise ValueError('pose_json must hold two hips')
