"""What the serving kit reads with Pillow and NumPy is what the pipelines read with TensorFlow."""
import io
import json
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep.people import person
from pipelines.serving.kit import people, resampling

LABELS = np.random.default_rng(0).integers(0, 20, (12, 9)).astype(np.uint8)


def png(image: Image.Image, **options) -> bytes:
    image.save(file := io.BytesIO(), 'PNG', **options)
    return file.getvalue()


def palette() -> Image.Image:
    image = Image.fromarray(LABELS, 'P')
    image.putpalette(np.random.default_rng(1).integers(0, 256, 768).astype(np.uint8).tobytes())
    return image


def grey_of(bits: int) -> bytes:
    """A grey PNG whose levels have few bits, which Pillow reads but does not write."""
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    height, width = LABELS.shape
    each = np.unpackbits((LABELS % (1 << bits))[..., np.newaxis], 2)[..., -bits:].reshape(height, -1)
    rows = b''.join(b'\0' + row.tobytes() for row in np.packbits(each, 1))
    header = struct.pack('>IIBBBBB', width, height, bits, 0, 0, 0, 0)
    return people.PNG + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')


MAPS = {
    'grey': png(Image.fromarray(LABELS)), 'unknown levels': png(Image.fromarray(LABELS * 3)),
    'grey with alpha': png(Image.merge('LA', [Image.fromarray(LABELS)] * 2)),
    '16 bits': png(Image.fromarray(LABELS.astype(np.uint16) * 256)), 'palette': png(palette()),
    'palette of 16': png(palette().point(lambda level: level % 16), bits=4),
    **{f'grey of {bits} bits': grey_of(bits) for bits in (1, 2, 4)},
    'LIP': png(Image.fromarray(people.LIP.astype(np.uint8)[LABELS])),
    'LIP of its parsers': png(Image.fromarray((people.LIP - np.isin(people.LIP, (255, 221, 170))).astype(
        np.uint8)[LABELS])),
    'VOC': png(Image.fromarray(people.VOC.astype(np.uint8)[LABELS])),
    'VOC with alpha': png(Image.fromarray(people.VOC.astype(np.uint8)[LABELS]).convert('RGBA')),
    'unknown colours': png(Image.fromarray(np.stack([LABELS * 12] * 3, -1)))}


@pytest.mark.parametrize('name', MAPS)
def test_labels_of_a_parse_map(name):
    np.testing.assert_array_equal(people.labels(MAPS[name]), person.parse_map(tf.constant(MAPS[name])))


def test_what_is_no_parse_map_is_refused():
    Image.fromarray(LABELS).save(file := io.BytesIO(), 'JPEG')
    with pytest.raises(ValueError, match='must be a PNG'):
        people.labels(file.getvalue())
    with pytest.raises(OSError):
        people.labels(MAPS['grey'][:40])


def pose(*people_of, key='pose_keypoints_2d') -> str:
    return json.dumps({'version': 1.3, 'people': [{key: list(points)} for points in people_of]})


ONE, OTHER = (np.random.default_rng(seed).uniform(1, 500, (25, 3)).round(3) for seed in (1, 2))
POSES = {
    'COCO': pose(ONE[:18].ravel()), 'BODY_25': pose(ONE.ravel()),
    'an older name': pose(ONE.ravel(), key='pose_keypoints'),
    'points not found': pose((ONE * (np.arange(25) % 3 > 0)[:, np.newaxis]).ravel()),
    'two': pose(ONE.ravel(), OTHER.ravel()), 'none': pose(), 'of another number': pose([1, 2, 3]),
    'no JSON': '{"people": ['}


@pytest.mark.parametrize('name', POSES)
def test_points_of_a_pose(name):
    points, count = people.keypoints(POSES[name])
    expected, persons = person.keypoints(tf.constant(POSES[name]), tf.float64)
    np.testing.assert_array_equal(points, expected)
    assert count == persons


@pytest.mark.parametrize('official', [False, True], ids=['paper', 'official'])
def test_what_a_pose_needs(official):
    points = np.ones([18, 3]) * np.arange(1, 19)[:, np.newaxis]
    people.check(points, 1, official)
    for lost, said in (([1], 'neck'), ([5], 'shoulders')):
        without = points.copy()
        without[lost] = 0
        with pytest.raises(ValueError, match=said):
            people.check(without, 1, official)
    with pytest.raises(ValueError, match='must hold a person' if official else 'one person'):
        people.check(points, 0, official)
    if official:
        people.check(points, 2, official)
        points[8] = points[11]
        with pytest.raises(ValueError, match='hips'):
            people.check(points, 1, official)
    else:
        with pytest.raises(ValueError, match='one person'):
            people.check(points, 2, official)


@pytest.mark.parametrize('shape', [(12, 9), (5, 4), (24, 18), (7, 31)], ids=str)
def test_the_nearest_label(shape):
    np.testing.assert_array_equal(resampling.nearest(LABELS, shape),
                                  tf.image.resize(LABELS[..., np.newaxis], shape, 'nearest')[..., 0])
