"""Labelled images: their files, tf.Examples and batches (Krizhevsky et al. 2).

The Beam job is in `image/job.py`, the only part that needs Beam.
"""
import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Callable
from typing import Literal

import numpy as np
import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from data_prep.core.input_pipeline import InputConfig
from data_prep.image import augmentation, mixing
from data_prep.image.schema import LABELS, PIXELS, SIDES, SPLITS, Config  # noqa: F401 (the names of a data module)

UNIT = 'images'
TASK = 'image'
JOB = 'data_prep.image.job'


@dataclasses.dataclass
class Input(InputConfig):
    """Settings that turn images into batches.

    An image is rescaled until its shorter side is S, and a square of side `crop` is cut from it: at random in training,
    otherwise from the middle. `scales` is S, or the least and largest S, between which it is drawn (Simonyan &
    Zisserman 3.1); validation uses their mean. `square` first crops the image to its central S x S (Krizhevsky et al.
    2). Training mirrors half of the squares if `flip`, and shifts the colours of a square along the principal
    components of the training set's colours, with `colour` as the standard deviation of alpha (4.1; 0 disables it).
    `mean` is subtracted: the mean image (`pixel`), scaled to the area crops are taken from, or the mean colour (`rgb`).
    The papers use levels of 0 to 255; `standardise` divides them by the standard deviation of each colour, so that
    small nets can train at larger rates.

    With `dct_scaling` JPEG files are decoded at a half, a quarter or an eighth of their size if that is still as large
    as the rescaled image, for large files that `data.resize` did not reduce; served ones too. Levels differ by 1.2 on
    average (photographs of ILSVRC). A PReLU net of five convolutions on twenty classes of Tiny ImageNet at half
    their size, 1,500 steps, has 45.7 and 45.3% error instead of 48.5 and 50.7% (two seeds): a half is sharper than a
    triangle makes it.

    With `boxes` a batch also has a bounding box for each square: the one of which the square shows most, in the
    square's coordinates (Simonyan & Zisserman A.1). A box counts if at least `box_inside` of it is in the square: nets
    that slide over whole images see other boxes better from elsewhere (Sermanet et al. 2014, who train on boxes at
    least half inside). An image without boxes stays in its batch; losses of boxes ignore it.

    With `mixup` or `cutmix`, which are not the papers', training images are mixed in pairs (`image/mixing.py`); with
    both, each takes half of the images. Partners are rows of one replica, so losses depend on the number of replicas.
    """
    rows: int | None = 128  # images per batch
    crop: int = 224
    scales: list[int] = dataclasses.field(default_factory=lambda: [256])
    square: bool = False
    flip: bool = True
    colour: float = 0.1
    mean: Literal['pixel', 'rgb', 'none'] = 'pixel'
    standardise: bool = False
    dct_scaling: bool = False
    boxes: bool = False
    box_inside: float = 0.5
    mixup: float = 0.0  # alpha of mixup (Zhang et al. 2018): shares of two images are Beta(alpha, alpha); 0: none
    cutmix: float = 0.0  # alpha of CutMix (Yun et al. 2019), whose shares are areas; 0: none

    def __post_init__(self):
        if self.boxes and (self.mixup or self.cutmix):
            raise ValueError('boxes cannot be learned from mixed images; leave out mixup and cutmix')
        if not 0 <= self.box_inside <= 1:
            raise ValueError(f'box_inside is a fraction of a box, 0 to 1; it is {self.box_inside}')
        if len(self.scales) not in (1, 2) or self.scales != sorted(self.scales):
            raise ValueError(f'scales must be one side or the least and the largest; it is {self.scales}')
        if self.scales[0] < self.crop:
            raise ValueError(f'scales: an image of {self.scales[0]} pixels is smaller than crop {self.crop}')
        if self.buckets or self.tokens:
            raise ValueError('images have no length; give rows, and neither buckets nor tokens')


def decoder(folder: str, config: Input, training: bool) -> Callable:
    """Return the function that decodes a batch of records.

    Returns:
      (serialized tf.Examples [n], length, seeds int32 [n, 2]) -> `image` float32 [n, crop, crop, 3], less the mean, and
      `label` int32 [n]; with `config.boxes` also `box` float32 [n, 4], its centre, width and height as in
      `augmentation.in_square`, NaN if there is none; for mixed images also the `other` label int32 [n], and the share
      of the first that was `kept`, float32 [n]. An empty record becomes zeros, label -1 and NaN. In training every
      random draw follows from the row's seed; otherwise nothing is drawn.
    """
    view = _view(folder, config)
    features = {'image': tf.io.FixedLenFeature([], tf.string, ''), 'label': tf.io.FixedLenFeature([], tf.int64, -1),
                'height': tf.io.FixedLenFeature([], tf.int64, 0), 'width': tf.io.FixedLenFeature([], tf.int64, 0)}
    if config.boxes:
        features |= {side: tf.io.FixedLenSequenceFeature([], tf.float32, True, np.nan) for side in SIDES}
    shape = [config.crop, config.crop, 3]

    def show(encoded, size, seed):
        return tf.cond(size[0] > 0, lambda: view.training(encoded, size, seed) if training else
                       view.central(encoded, size), lambda: tf.zeros(shape))

    def locate(size, seed, boxes):
        place = view.drawn(size, seed) if training else view.middle(size)
        return augmentation.in_square(boxes, place, config.crop, config.box_inside)

    def decode(serialized: tf.Tensor, length: tf.Tensor, seeds: tf.Tensor) -> dict[str, tf.Tensor]:
        del length
        parsed = tf.io.parse_example(serialized, features)
        sizes = tf.cast(tf.stack([parsed['height'], parsed['width']], 1), tf.int32)
        image = tf.map_fn(lambda row: show(*row), (parsed['image'], sizes, seeds),
                          fn_output_signature=tf.TensorSpec(shape))
        batch = {'image': image, 'label': tf.cast(parsed['label'], tf.int32)}
        if training and (config.mixup or config.cutmix):
            batch['image'], batch['other'], batch['kept'] = mixing.mixed(image, batch['label'], seeds, config.mixup,
                                                                         config.cutmix)
        if config.boxes:
            boxes = tf.stack([parsed[side] for side in SIDES], -1)  # [n, k, 4]
            boxes = tf.pad(boxes, [[0, 0], [0, 1], [0, 0]], constant_values=np.nan)  # at least one row
            batch['box'] = tf.map_fn(lambda row: locate(*row), (tf.maximum(sizes, 1), seeds, boxes),
                                     fn_output_signature=tf.TensorSpec([4]))
        return batch
    return decode


class Assets:
    """Parts of the data set a served model needs: its classes, and how images are preprocessed.

    Attributes:
      names: class ids, in the order of labels.
      descriptions: descriptions of the classes, or the ids.
      scale: shorter side of images in validation.
    """

    def __init__(self, folder: str, config: Input):
        pairs = json.loads(_content(folder, LABELS))
        self.names, self.descriptions = [name for name, _ in pairs], [called for _, called in pairs]
        self._view = _view(folder, config)
        self.scale = self._view.scale

    def picture(self, encoded: tf.Tensor, size: tf.Tensor | int) -> tf.Tensor:
        """Preprocess a JPEG or PNG file like training images before cropping: float32 [h, w, 3], less the mean.

        Args:
          encoded: a scalar string.
          size: the shorter side.
        """
        return self._view.picture(encoded, size)

    def located(self, encoded: tf.Tensor, size: tf.Tensor | int) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the result of `picture`, and the part of the image it shows.

        The part is float32 [4]: its left, upper, right and lower end in fractions of width and height.
        """
        return self._view.located(encoded, size)


def assets(folder: str, config: Input | None = None) -> Assets:
    """Return the parts of the data set a served model needs.

    Raises:
      UserError: its files are missing or altered.
    """
    return Assets(folder, config or Input())


def examples(serialized: list[bytes]) -> tuple[list[bytes], dict[str, list]]:
    """Convert serialized tf.Examples to model inputs and columns for people.

    Returns:
      Inputs of a model, encoded images; and by column text, `target`, the class id, `file` and `kind`, and numbers,
      `boxes`: the `SIDES` of every box, one after another.
    """
    texts = {name: tf.io.FixedLenFeature([], tf.string, '') for name in ('image', 'class', 'file', 'kind')}
    sides = {side: tf.io.RaggedFeature(tf.float32) for side in SIDES}
    parsed = tf.io.parse_example(serialized, texts | sides)
    text = {name: [value.decode() for value in parsed[name].numpy()] for name in texts if name != 'image'}
    boxes = [[end for box in zip(*ends) for end in box] for ends in zip(*(parsed[side].to_list() for side in SIDES))]
    return parsed['image'].numpy().tolist(), {
        'target': text['class'], 'file': text['file'], 'kind': text['kind'], 'boxes': boxes}


def _view(folder: str, config: Input) -> augmentation.View:
    arrays = np.load(io.BytesIO(_content(folder, PIXELS)), allow_pickle=False)
    pixels = augmentation.Pixels(arrays['mean_image'], arrays['mean_rgb'], arrays['covariance'])
    return augmentation.View(pixels, config.crop, (config.scales[0], config.scales[-1]), config.square, config.flip,
                            config.colour, config.mean, config.standardise, config.dct_scaling)


def _content(folder: str, name: str) -> bytes:
    """Return a file of the data set after checking its hash."""
    path = os.path.join(folder, name)
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path, 'rb') as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() == records.read_manifest(folder).sha256[name]:
            return content
    raise UserError(f'{path} is missing or was changed. Run `python -m pipelines.prepare` again.')
