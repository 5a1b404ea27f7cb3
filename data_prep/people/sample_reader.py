"""Make a try-on sample from its files: check each, and compute once what does not depend on training."""
import json
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data_prep.image import augmentation, codec
from data_prep.people import person, person_drawn, person_official
from data_prep.people.pairs_files import File, Refused

# A mask's levels are near black or white, but for this part of them, and it is no less or more than these of a picture.
_BLACK, _WHITE, _BETWEEN = 32, 224, 0.05
_LEAST, _MOST = 0.01, 0.99

# What differs by more levels than this from the ground is garment; if more of it than the first of these parts, and of
# the picture than the second, lies outside a mask widened by this part of the height, the mask is another's. Of four
# garments of VITON, true masks leave out 1% to 3%, and those of others 4% to 28%, so that 11 of 12 are told.
_STANDS_OUT, _OUTSIDE, _OUTSIDE_OF_PICTURE, _EDGE = 16, 0.05, 0.02, 1 / 256

_LEAST_PERSON = 0.01  # of a picture


class Sample(NamedTuple):
    """A sample as it is stored: encoded images; PNG of grey levels for labels, of 0 and 255 for masks.

    Attributes:
      image, cloth: as they came.
      pose: the pose map as it came, or `drawn`, as PNG.
      keypoints: float32 [18, 3].
    """
    image: bytes
    cloth: bytes
    cloth_mask: bytes
    parse: bytes
    agnostic_parse: bytes
    removed: bytes
    pose: bytes
    keypoints: np.ndarray
    height: int
    width: int
    drawn: bool


def sample(files: dict[str, File], padding: float, max_pixels: int, rules: str = 'paper') -> Sample:
    """Make a sample of files that fit together.

    Args:
      files: as `pairs_files.read` gives them.
      padding: see `person.agnostic`.
      max_pixels: no picture may have more.
      rules: those of the `paper` or the authors' own, `official`; see `tryon.Config`.

    Raises:
      Refused
    """
    height, width = _size(files, max_pixels)
    _decoded(files['image'])
    mask = _cloth_mask(files)
    text = _of_a_person(files['keypoints'], alone=rules == 'paper')
    labels, points, exact = _decoded(files['parse'], lambda encoded: _labels_and_points(encoded, text))
    _check_person(files, labels.numpy(), points.numpy(), padding)
    if rules == 'official':
        if not person_official.hips_apart(points.numpy()):
            raise Refused(files['keypoints'].path, 'no two hips in it, and data.agnostic: official needs them')
        removed, agnostic_parse = person_drawn.agnostic(labels.numpy(), exact.numpy()[:, :2])
    else:
        removed, agnostic_parse = _agnostic(labels, points, padding)
    if 'pose' in files:
        _decoded(files['pose'])
        pose = files['pose'].content
    else:
        pose = _drawn(points, [height, width]).numpy()
    parse, agnostic_parse, removed = (tf.io.encode_png(picture[..., tf.newaxis]).numpy() for picture in (
        labels, agnostic_parse, tf.cast(removed, tf.uint8) * 255))
    return Sample(files['image'].content, files['cloth'].content, mask, parse, agnostic_parse, removed, pose,
                  points.numpy(), height, width, 'pose' not in files)


def example(sample: Sample, person: str, garment: str, worn: bool, group: str = '') -> bytes:
    """Serialize a sample as a tf.Example."""
    values = sample._asdict()
    texts = {name: value for name, value in values.items() if isinstance(value, bytes)}
    texts |= {'person': person.encode(), 'garment': garment.encode(), 'kind': b'paired' if worn else b'unpaired',
              'group': group.encode()}
    feature = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text])) for name, text in texts.items()}
    feature |= {name: tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
                for name, number in (('height', sample.height), ('width', sample.width), ('worn', int(worn)))}
    feature['keypoints'] = tf.train.Feature(float_list=tf.train.FloatList(value=sample.keypoints.ravel()))
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)


def _size(files: dict[str, File], max_pixels: int) -> tuple[int, int]:
    """Return the height and width of all images, without decoding them."""
    sizes = {}
    for key, file in files.items():
        if key == 'keypoints':
            continue
        try:
            height, width, _ = codec.header(file.content, max_pixels)
        except codec.Unreadable as error:
            raise Refused(file.path, str(error)) from error
        if key == 'parse' and not file.content.startswith(person.PNG):
            raise Refused(file.path, 'JPEG, which alters labels; save it as PNG')
        sizes[key] = height, width
        if sizes[key] != sizes['image']:
            raise Refused(file.path, f'{width} x {height} pixels, and its person\'s picture has {sizes["image"][1]} x '
                                f'{sizes["image"][0]}')
    return sizes['image']


def _decoded(file: File, how=augmentation.decoded) -> Any:
    try:
        return how(file.content)
    except (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError) as error:
        raise Refused(file.path, 'damaged or cut short: it cannot be decoded') from error


def _cloth_mask(files: dict[str, File]) -> bytes:
    """Return the mask as a PNG, if it is one and this garment's."""
    file, cloth = files['cloth_mask'], _decoded(files['cloth']).numpy()
    levels = _decoded(file, lambda encoded: tf.io.decode_jpeg(encoded, 1)).numpy()  # reads PNG as well
    between = np.mean((levels >= _BLACK) & (levels < _WHITE))
    if between > _BETWEEN:
        raise Refused(file.path, f'no mask: {between:.0%} of its levels are neither black nor white')
    mask = levels[..., 0] >= 128
    if mask.mean() < _LEAST:
        raise Refused(file.path, 'an empty mask')
    if mask.mean() > _MOST:
        raise Refused(file.path, 'a mask of the whole picture')
    if _frame(mask).mean() > 0.5:
        raise Refused(file.path, 'an inverted mask: most of the picture\'s border is garment')
    ground = np.median(_frame(cloth), 0)
    stands_out = (np.abs(cloth - ground.astype(np.int16)) > _STANDS_OUT).any(-1)
    outside = np.mean(stands_out & ~_widened(mask, max(1, round(_EDGE * len(mask)))))
    if outside > max(_OUTSIDE * stands_out.mean(), _OUTSIDE_OF_PICTURE):
        raise Refused(file.path, f'another garment\'s mask: {outside / stands_out.mean():.0%} of what stands out from '
                                 'the ground in the garment\'s picture lies outside of it')
    return tf.io.encode_png(mask[..., np.newaxis] * np.uint8(255)).numpy()


def _widened(mask: np.ndarray, pixels: int) -> np.ndarray:
    whole = tf.cast(mask[np.newaxis, ..., np.newaxis], tf.float32)
    return tf.nn.max_pool2d(whole, 2 * pixels + 1, 1, 'SAME').numpy()[0, ..., 0] > 0


def _frame(pixels: np.ndarray) -> np.ndarray:
    return np.concatenate([pixels[0], pixels[-1], pixels[1:-1, 0], pixels[1:-1, -1]])


def _of_a_person(file: File, alone: bool) -> bytes:
    """Return the text of a file of OpenPose; `alone`: refuse more than one person."""
    try:
        said = json.loads(file.content)
    except (ValueError, RecursionError) as error:
        raise Refused(file.path, f'not JSON ({error})') from error
    people = said.get('people') if isinstance(said, dict) else None
    if not isinstance(people, list):
        raise Refused(file.path, 'not OpenPose\'s: it has no list of people')
    if len(people) != 1 and (alone or not people):
        raise Refused(file.path, f'{len(people)} persons, and not one' if people else 'no person in it')
    first = people[0] if isinstance(people[0], dict) else {}
    lists = [first.get(key) for key in ('pose_keypoints', 'pose_keypoints_2d')]
    if not any(isinstance(numbers, list) and len(numbers) in (54, 75) for numbers in lists):
        raise Refused(file.path, 'neither COCO\'s 18 points (54 numbers) nor BODY_25\'s 25 (75 numbers) are in it')
    return file.content


def _check_person(files: dict[str, File], labels: np.ndarray, points: np.ndarray, padding: float) -> None:
    """Check that a parse map shows the person of the pose."""
    if unknown := np.count_nonzero(labels == person.UNKNOWN):
        raise Refused(files['parse'].path, f'{unknown:,} pixels of no label that LIP has, by level, index or colour')
    if np.mean(labels > 0) < _LEAST_PERSON:
        raise Refused(files['parse'].path, 'no person in it')
    if missing := [person.POINTS[point] for point in person.NEEDED if not points[point, :2].any()]:
        raise Refused(files['keypoints'].path, f'no {" and no ".join(missing)} in it')
    margin = (person.ARM + padding) * len(labels) / person.HEIGHT
    for axis, name in ((0, 'across'), (1, 'down')):
        there = np.flatnonzero((labels > 0).any(axis))
        for point in person.NEEDED:
            if not there[0] - margin <= points[point, axis] <= there[-1] + margin:
                raise Refused(files['keypoints'].path, f'another person\'s or size\'s: its {person.POINTS[point]} is '
                              f'{points[point, axis]:.0f} pixels {name}, and the parse map\'s person is at '
                              f'{there[0]} to {there[-1]}')


@tf.function(input_signature=[tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.string)], autograph=False)
def _labels_and_points(encoded: tf.Tensor, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return labels, uint8 [h, w], and points in float32 and in float64, [18, 3]."""
    return person.parse_map(encoded), person.keypoints(text)[0], person.keypoints(text, tf.float64)[0]


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.uint8), tf.TensorSpec([18, 3]), tf.TensorSpec([])],
             autograph=False)
def _agnostic(labels: tf.Tensor, points: tf.Tensor, padding: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return person.agnostic(labels, points, padding)


@tf.function(input_signature=[tf.TensorSpec([18, 3]), tf.TensorSpec([2], tf.int32)], autograph=False)
def _drawn(points: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.io.encode_png(person.pose_map(points, size))
