"""Try-on: people, garments and pairs of them, as files, as a tf.Example and as a batch (Choi et al. 2021).

The Beam job is in `people/job.py`, which alone needs Beam.
"""
import dataclasses
import json
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from data_prep.core import records
from data_prep.core.input_pipeline import InputConfig
from data_prep.image import augmentation
from data_prep.people import person, person_official
from data_prep.people.schema import SPLITS, Config  # noqa: F401 (the names of a data module)

UNIT = 'images'
TASK = 'try_on'
JOB = 'data_prep.people.job'


@dataclasses.dataclass
class Input(InputConfig):
    """How samples become batches of images of `size`, height and width.

    `flip` mirrors half of the training samples, and exchanges left and right in labels and pose.
    """
    rows: int | None = 4  # pairs a batch
    size: list[int] = dataclasses.field(default_factory=lambda: [1024, 768])
    flip: bool = False

    def __post_init__(self):
        if len(self.size) != 2:
            raise ValueError(f'size must be a height and a width; it is {self.size}')
        if self.buckets or self.tokens:
            raise ValueError('pictures have no length: give rows, and neither buckets nor tokens')


# In [-1, 1].
GREY = {'paper': 0.0, 'official': person_official.GREY / 127.5 - 1}
_STORED = ('image', 'cloth', 'cloth_mask', 'parse', 'agnostic_parse', 'removed', 'pose')


def decoder(folder: str, config: Input, training: bool) -> Callable:
    """Return the function that makes a batch of records.

    Returns:
      (serialized tf.Examples [n], length, seeds int32 [n, 2]) -> float32 `image`, `agnostic` (I_a), `cloth` and `pose`
      [n, h, w, 3] with levels in [-1, 1], `cloth_mask` [n, h, w, 1] and `removed` [n, h, w], where I_a is grey, of 0
      and 1; int32 `parse` and `agnostic_parse` (S and S_a) [n, h, w], numbers in `person.CLASSES`; and `real` [n], 1.
      An empty record becomes zeros, `real` too. In training every draw follows from the row's seed; otherwise nothing
      is drawn.
    """
    grey = GREY[records.read_manifest(folder).properties.get('agnostic', 'paper')]
    features = {name: tf.io.FixedLenFeature([], tf.string, '') for name in _STORED}
    features['keypoints'] = tf.io.FixedLenFeature([18, 3], tf.float32, np.zeros([18, 3], np.float32))
    height, width = config.size
    shapes = {name: tf.TensorSpec([height, width, 3]) for name in ('image', 'agnostic', 'cloth', 'pose')}
    shapes |= {'cloth_mask': tf.TensorSpec([height, width, 1]), 'real': tf.TensorSpec([])}
    shapes['removed'] = tf.TensorSpec([height, width])
    shapes |= {name: tf.TensorSpec([height, width], tf.int32) for name in ('parse', 'agnostic_parse')}

    def one(row):
        stored, seed = row
        flip = tf.constant(training and config.flip) & (tf.random.stateless_uniform([], seed, alg='philox') < 0.5)
        return tf.cond(stored['image'] != '',
                       lambda: {**_shown(stored, config.size, flip, grey), 'real': tf.constant(1.0)},
                       lambda: {name: tf.zeros(spec.shape, spec.dtype) for name, spec in shapes.items()})

    def decode(serialized: tf.Tensor, length: tf.Tensor, seeds: tf.Tensor) -> dict[str, tf.Tensor]:
        del length
        return tf.map_fn(one, (tf.io.parse_example(serialized, features), seeds), fn_output_signature=shapes)
    return decode


def _shown(stored: dict[str, tf.Tensor], size: list[int], flip: tf.Tensor, grey: float) -> dict[str, tf.Tensor]:
    """Return a record's images as the networks' inputs."""
    image, cloth = (augmentation.decoded(stored[name]) for name in ('image', 'cloth'))
    parse, agnostic_parse, removed, mask = (tf.io.decode_png(stored[name], 1)[..., 0] for name in (
        'parse', 'agnostic_parse', 'removed', 'cloth_mask'))
    # A pose map's colours tell left from right, so for a mirror it is drawn anew.
    pose = tf.cond(flip, lambda: person.pose_map(person.exchanged(stored['keypoints']), tf.shape(image)[:2]),
                   lambda: augmentation.decoded(stored['pose']))
    shown = _sample(image, parse, removed > 0, agnostic_parse, pose, cloth, mask, size, grey)

    def mirror():
        turned = {name: tf.reverse(value, [1]) for name, value in shown.items()}
        return turned | {name: tf.gather(person.MIRRORED_CLASS, turned[name]) for name in ('parse', 'agnostic_parse')}
    return tf.cond(flip, mirror, lambda: shown)


def _sample(image: tf.Tensor, parse: tf.Tensor, removed: tf.Tensor, agnostic_parse: tf.Tensor, pose: tf.Tensor,
            cloth: tf.Tensor, cloth_mask: tf.Tensor, size: list[int], grey: float) -> dict[str, tf.Tensor]:
    """Return a sample of any size as the networks' inputs; arguments are uint8, and `removed` bool."""
    # Before it is made smaller, or garment would get into the pixels beside it.
    agnostic = _picture(_agnostic(image, removed, grey), size)
    return {'image': _picture(_unit(image), size), 'parse': person.classes(_nearest(parse, size)),
            'agnostic': agnostic, 'agnostic_parse': person.classes(_nearest(agnostic_parse, size)),
            'removed': _nearest(tf.cast(removed, tf.float32), size), 'pose': _picture(_unit(pose), size),
            'cloth': _picture(_unit(cloth), size),
            'cloth_mask': tf.cast(_nearest(cloth_mask, size) >= 128, tf.float32)[..., tf.newaxis]}


def _agnostic(pixels: tf.Tensor, removed: tf.Tensor, grey: float) -> tf.Tensor:
    return tf.where(tf.expand_dims(removed, -1), grey, _unit(pixels))


def _unit(pixels: tf.Tensor) -> tf.Tensor:
    """Scale levels from 0 to 255 to -1 to 1."""
    return tf.cast(pixels, tf.float32) / 127.5 - 1


def _picture(pixels: tf.Tensor, size: list[int]) -> tf.Tensor:
    whole = tf.shape(pixels)[:2]
    shown = tf.cond(tf.reduce_all(whole == size), lambda: pixels, lambda: augmentation.resampled(
        pixels, whole, tf.constant(size), tf.zeros_like(whole), tf.constant(size)))
    return tf.ensure_shape(shown, [*size, 3])


def _nearest(labels: tf.Tensor, size: list[int]) -> tf.Tensor:
    return tf.image.resize(labels[..., tf.newaxis], size, 'nearest')[..., 0]


class Assets:
    """The part of a data set that a served model needs: how a request becomes the networks' inputs.

    Attributes:
      size: height and width of pictures.
    """

    def __init__(self, folder: str, config: Input):
        self.size = tuple(config.size)
        facts = records.read_manifest(folder).properties
        self._padding, self._rules = float(facts['padding']), facts.get('agnostic', 'paper')
        self.precision = tf.float64 if self._rules == 'official' else tf.float32

    def person(self, pixels: tf.Tensor, labels: tf.Tensor, points: tf.Tensor) -> dict[str, tf.Tensor]:
        """Take away from a person what it wears, by the data set's rules.

        Args:
          pixels: uint8 [h, w, 3].
          labels: uint8 [h, w].
          points: `precision` [18, 3].

        Returns:
          `agnostic`, I_a [h, w, 3] with levels in [-1, 1]; `removed` [h, w], where it is grey, of 0 and 1; int32
          `parse` and `agnostic_parse` [h, w], S and S_a.
        """
        labels = tf.cast(labels, tf.int32)  # TensorFlow Lite chooses between no others
        removed, agnostic_parse = self._removed(labels, points)
        return {'agnostic': _agnostic(pixels, removed, GREY[self._rules]), 'removed': tf.cast(removed, tf.float32),
                'parse': person.classes(labels), 'agnostic_parse': person.classes(agnostic_parse)}

    def pose(self, points: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        """Draw the pose map, uint8 [h, w, 3], see `person.pose_map`."""
        return person.pose_map(tf.cast(points, tf.float32), size)

    def _removed(self, labels: tf.Tensor, points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if self._rules == 'official':
            return person_official.agnostic_in_graph(labels, points)
        return person.agnostic(labels, points, self._padding)

    def sample(self, image: tf.Tensor, parse: tf.Tensor, pose_json: tf.Tensor, pose_image: tf.Tensor, cloth: tf.Tensor,
               cloth_mask: tf.Tensor) -> dict[str, tf.Tensor]:
        """Make the networks' inputs of files of a person and a garment, as `decoder` does, without the rows.

        Args:
          image, cloth: JPEG or PNG, scalar strings as all of them.
          parse: a parse map, see `person.parse_map`.
          pose_json: see `person.keypoints`.
          pose_image: the pose map; if empty, it is drawn.
          cloth_mask: JPEG or PNG; garment is what is brighter than grey.

        Returns:
          All but `real`.

        Raises:
          InvalidArgumentError: a file cannot be read, sizes differ, or there is not one person with neck and shoulders;
            where the rules are `official`, there are none, or the first has no two hips.
        """
        pixels, labels = augmentation.decoded(image), person.parse_map(parse)
        points, people = person.keypoints(pose_json)
        official = self._rules == 'official'
        checked = [
            tf.debugging.assert_greater(people, 0, 'pose_json must hold a person') if official else
            tf.debugging.assert_equal(people, 1, 'pose_json must hold one person'),
            tf.debugging.assert_equal(tf.reduce_all(tf.gather(person.found(points), person.NEEDED)), True,
                                      'pose_json must hold neck and shoulders'),
            tf.debugging.assert_equal(not official or person_official.hips_apart(points), True,
                                      'pose_json must hold two hips'),
            tf.debugging.assert_equal(tf.shape(labels), tf.shape(pixels)[:2], 'image and parse must be of one size')]
        with tf.control_dependencies([check for check in checked if check is not None]):  # eagerly there are none
            labels = tf.identity(labels)  # without which no net has anything to do
        exact, _ = person.keypoints(pose_json, self.precision)
        removed, agnostic_parse = self._removed(labels, exact)
        pose = tf.cond(pose_image != '', lambda: augmentation.decoded(pose_image),
                       lambda: person.pose_map(points, tf.shape(labels)))
        mask = tf.io.decode_jpeg(cloth_mask, 1)[..., 0]  # reads PNG as well
        return _sample(pixels, labels, removed, agnostic_parse, pose, augmentation.decoded(cloth), mask,
                       list(self.size), GREY[self._rules])


def assets(folder: str, config: Input | None = None) -> Assets:
    """Return the part of the data set that a served model needs."""
    return Assets(folder, config or Input())


def examples(serialized: list[bytes]) -> tuple[list[dict[str, bytes]], dict[str, list[str]]]:
    """Parse serialized tf.Examples for prediction and evaluation.

    Returns:
      A model's inputs, the files of `Assets.sample` by its arguments' names; and columns of text: `person`, `garment`,
      `kind`, `group`, and `target`, the person again if it wears the garment, so that its `image` is the expected
      output, otherwise empty.
    """
    names = ('image', 'parse', 'pose', 'cloth', 'cloth_mask', 'person', 'garment', 'kind')
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    features['group'] = tf.io.FixedLenFeature([], tf.string, '')  # data sets of earlier versions have none
    features |= {'keypoints': tf.io.FixedLenFeature([18, 3], tf.float32), 'worn': tf.io.FixedLenFeature([], tf.int64)}
    parsed = {name: column.numpy() for name, column in tf.io.parse_example(serialized, features).items()}
    inputs = [{'image': image, 'parse': parse, 'pose_json': _openpose(points), 'pose_image': pose, 'cloth': cloth,
               'cloth_mask': mask} for image, parse, points, pose, cloth, mask in
              zip(*(parsed[name] for name in ('image', 'parse', 'keypoints', 'pose', 'cloth', 'cloth_mask')))]
    columns = {name: [value.decode() for value in parsed[name]] for name in ('person', 'garment', 'kind', 'group')}
    columns['target'] = [name if worn else '' for name, worn in zip(columns['person'], parsed['worn'])]
    return inputs, columns


def _openpose(points: np.ndarray) -> bytes:
    """Write points as OpenPose does; reading them gives the same float32."""
    return json.dumps({'people': [{'pose_keypoints': points.ravel().tolist()}]}).encode()
