"""Encoded images: what is kept, what is converted, and what is refused before decoding."""
import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from data_prep.image import codec, resampling

LIMIT = 10_000


def pixels(height=60, width=90):
    """Smooth colours."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 4, 255 - x * 2, (x + y)], -1).astype(np.uint8)


def encoded(kind='JPEG', mode='RGB', height=60, width=90, **options):
    file = io.BytesIO()
    Image.fromarray(pixels(height, width)).convert(mode).save(file, kind, **options)
    return file.getvalue()


def load(data, limit=LIMIT, **options):
    return codec.load(data, codec.header(data, limit), **options)


@pytest.mark.parametrize('mode, options', [('RGB', {}), ('L', {}), ('RGB', {'progressive': True}),
                                           ('RGB', {'subsampling': 0, 'quality': 20})])
def test_good_jpeg_is_kept_byte_by_byte(mode, options):
    data = encoded('JPEG', mode, **options)
    picture = load(data)
    assert picture.encoded is data and (picture.height, picture.width, picture.square) == (60, 90, None)


@pytest.mark.parametrize('kind, mode', [('PNG', mode) for mode in ('RGB', 'RGBA', 'P', 'L', 'LA', '1')] + [
    ('JPEG', 'CMYK')])
def test_others_become_rgb_jpeg_that_looks_the_same(kind, mode):
    picture = load(encoded(kind, mode, **({'quality': 95} if kind == 'JPEG' else {})))
    again = Image.open(io.BytesIO(picture.encoded))
    expected = np.asarray(Image.fromarray(pixels()).convert(mode).convert('RGB'), float)
    assert (again.format, again.mode, again.size) == ('JPEG', 'RGB', (90, 60))
    assert np.abs(np.asarray(again, float) - expected).mean() < (16 if mode in '1P' else 2)


def test_sixteen_bits_become_eight():
    file = io.BytesIO()
    grey = pixels()[..., 0].astype(np.uint16)
    Image.fromarray(grey * 256 + 200).save(file, 'PNG')
    again = np.asarray(Image.open(io.BytesIO(load(file.getvalue()).encoded)), float)
    assert np.abs(again - grey[..., None]).mean() < 2


def adobe_ycck():
    """A JPEG file whose four colours are YCCK: CMYK's with the transform that Adobe's marker names."""
    data = bytearray(encoded('JPEG', 'CMYK', quality=95, subsampling=0))
    marker = data.index(b'Adobe')
    assert data[marker + 11] == 0  # transform: none
    data[marker + 11] = 2
    return bytes(data)


def test_ycck_is_read_by_its_transform():
    again = np.asarray(Image.open(io.BytesIO(load(adobe_ycck()).encoded)), float)
    expected = np.asarray(Image.open(io.BytesIO(adobe_ycck())).convert('RGB'), float)
    assert np.abs(again - expected).mean() < 3


@pytest.mark.parametrize('shape, side, expected', [((60, 90), 30, (30, 45)), ((90, 61), 30, (44, 30)),
                                                   ((60, 90), 60, (60, 90)), ((60, 90), 100, (60, 90))])
def test_resizing_shrinks_only_and_leaves_the_rest_alone(shape, side, expected):
    data = encoded(height=shape[0], width=shape[1], quality=95)
    picture = load(data, resize=side)
    assert (picture.height, picture.width) == expected == tf.io.decode_jpeg(picture.encoded).shape[:2]
    assert (picture.encoded is data) == (expected == shape)
    if expected == (30, 45):
        small = np.asarray(Image.fromarray(pixels()).resize((45, 30), Image.Resampling.BILINEAR), float)
        assert np.abs(tf.io.decode_jpeg(picture.encoded).numpy() - small).mean() < 3


def test_the_middle_is_of_the_picture_as_it_is_stored():
    for data, options in ((encoded(quality=95), {}), (encoded('PNG'), {}), (encoded(quality=95), {'resize': 30})):
        square = load(data, square=True, **options).square
        middle = Image.fromarray(pixels()).crop((15, 0, 75, 60)).resize((256, 256), Image.Resampling.BILINEAR)
        assert square.dtype == np.uint8 and square.shape == (256, 256, 3)
        assert np.abs(square - np.asarray(middle, float)).mean() < 3


@pytest.mark.parametrize('height, width', [(256, 256), (256, 411), (300, 256)])
def test_a_middle_that_is_cut_out_is_the_one_that_would_be_resampled(height, width):
    levels = np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8)
    np.testing.assert_array_equal(codec._middle(levels), resampling.central_square(levels))


def in_a_graph(levels: tf.Tensor, side: int, square: bool = False) -> tf.Tensor:
    """What training's operations make of a picture: rescaled to a shorter side, or the middle of that."""
    size = tf.shape(levels)[:2]
    whole = codec.augmentation.rescaled(size, side)
    shape = tf.constant([side, side]) if square else whole
    return codec.augmentation.resampled(levels, size, whole, (whole - shape) // 2, shape)


@pytest.mark.parametrize('shape, options', [((90, 61), {'resize': 30}), ((300, 411), {'resize': 256}),
                                            ((40, 70), {}), ((300, 411), {})])
def test_what_is_stored_is_what_a_graph_makes(shape, options):
    data = encoded(height=shape[0], width=shape[1], quality=95)
    picture = load(data, 1_000_000, square=True, **options)
    levels = codec.augmentation.decoded(data)
    if options:
        levels = tf.cast(tf.round(in_a_graph(levels, options['resize'])), tf.uint8)
        assert picture.encoded == tf.io.encode_jpeg(levels, quality=95)
    assert (picture.height, picture.width) == levels.shape[:2]
    np.testing.assert_array_equal(picture.square, tf.round(in_a_graph(levels, 256, square=True)))


def test_a_small_square_is_its_own_middle():
    """So that data sets of them take a third of the time; enlarged, the mean is that of the enlarged."""
    levels = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3)).astype(np.uint8)
    for picture in levels:
        assert codec._middle(picture) is picture
    large = np.mean([resampling.central_square(picture) for picture in levels], 0)
    np.testing.assert_allclose(resampling.central_square(levels.mean(0)), large, atol=1e-3)
    assert codec._middle(np.zeros([65, 65, 3], np.uint8)).shape == (256, 256, 3)


@pytest.mark.parametrize('data', [b'', b'\xff', b'\xff\xda', b'\xff\xff\xda\xda\xff\xda\xff',
                                  encoded(progressive=True)])
def test_scans_are_counted_wherever_they_seem_to_begin(data):
    assert codec._scans(data) == data.count(b'\xff\xda')


def png_of(width, height):
    """A PNG file that says so, and no more."""
    head = b'IHDR' + struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + struct.pack('>I', 13) + head + struct.pack('>I', zlib.crc32(head))


def jpeg_of(width, height):
    """A JPEG file whose header says so; what follows is of a smaller one."""
    data = bytearray(encoded())
    frame = data.index(b'\xff\xc0')
    data[frame + 5:frame + 9] = struct.pack('>HH', height, width)
    return bytes(data)


@pytest.mark.parametrize('data, reason', [
    (b'', 'empty, 0 bytes'),
    (b'<html>404 Not Found</html>', "neither JPEG nor PNG: it begins with '<html>404 Not Fo'"),
    (b'\x93NUMPY\x01\x00v\x00{', 'neither JPEG nor PNG: it begins with 0x934e554d505901007600'),
    (encoded('GIF', 'P'), 'GIF; only JPEG and PNG are read'), (encoded('BMP'), 'BMP; only'),
    (encoded('TIFF'), 'TIFF; only'), (encoded('WEBP'), 'WebP; only'), (b'\0\0\0\x18ftypheic', 'HEIC, AVIF or a video'),
    (encoded()[:100], 'its JPEG header cannot be read'), (b'\xff\xd8', 'its JPEG header cannot be read'),
    (png_of(60_000, 60_000), '60,000 x 60,000 pixels are more than data.max_pixels 10,000'),
    (jpeg_of(60_000, 50_000), '60,000 x 50,000 pixels are more than data.max_pixels 10,000'),
    (jpeg_of(101, 100), '101 x 100 pixels are more'),
    (png_of(65_501, 0), "65,501 x 0 pixels: a side longer than JPEG's 65,500"),
    (encoded() + 501 * b'\xff\xda', 'over 500 scans'),
])
def test_what_is_no_picture_or_too_large_is_refused_by_its_first_bytes(data, reason, monkeypatch):
    monkeypatch.delattr(codec.augmentation, 'decoded')
    with pytest.raises(codec.Unreadable, match=reason):
        load(data)


@pytest.mark.parametrize('data', [encoded()[:-2], encoded()[:-200], encoded('PNG')[:-40], png_of(90, 60),
                                  encoded('JPEG', 'CMYK')[:-300]],
                         ids=['JPEG by its end', 'JPEG', 'PNG', 'PNG by all but its header', 'JPEG of CMYK'])
def test_what_was_cut_short_is_refused(data):
    with pytest.raises(codec.Unreadable, match='damaged or truncated: it cannot be decoded'):
        load(data)
