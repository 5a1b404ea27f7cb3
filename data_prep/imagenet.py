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
from data_prep.core import archives, records, splits
from data_prep.core.input_pipeline import InputConfig
from data_prep.image import augmentation, codec

SPLITS = splits.SPLITS
UNIT = 'images'
TASK = 'image'
JOB = 'data_prep.image.job'
LABELS = 'labels.json'
PIXELS = 'pixels.npz'
SIDES = ('xmin', 'ymin', 'xmax', 'ymax')  # ends of a box, in fractions of width and height


@dataclasses.dataclass
class Config:
    """Location of the images.

    A split is a list of folders and tar archives (.tar, .tar.gz, .tgz) of class folders; a path may continue inside an
    archive, to the folder that holds them: `cifar10_train.tar.gz/train`. A tar counts as a folder of its name. So
    `ILSVRC2012_img_train.tar`, a tar with one tar per class, is listed as it is, and so is Tiny ImageNet's folder, or
    its `val` with `val_annotations.txt` in it. For images without class folders, as in `ILSVRC2012_img_val.tar`,
    `validation_labels` (or `test_labels`) is a text with one class per line in the order of their names: its id or,
    with `synsets` (`ILSVRC2012_devkit_t12.tar.gz/ILSVRC2012_devkit_t12/data/meta.mat`, or a text with a WordNet id and
    a number per line), ILSVRC's number; or it is Kaggle's LOC_val_solution.csv.

    For a split without a list, `validation_fraction` or `test_fraction` of the training images are split off by a hash
    of class and file name. Classes are the training folders in alphabetical order, or the lines of `labels`; `words`
    gives their descriptions (words.txt, LOC_synset_mapping.txt). `boxes` lists folders and archives of Pascal VOC XML,
    such as `ILSVRC2012_bbox_train_v2.tar.gz`. `samples: digits` replaces all of these by scikit-learn's digits.

    A JPEG is kept unchanged if it is RGB or grey, unless `resize` reduces images to a shorter side of at most that; PNG
    and CMYK become JPEG of quality 95. An image larger than `max_pixels` by its header is not decoded. Training images
    that are also in validation or test, byte for byte, are counted, and filtered if `remove_duplicates`. A file that is
    in two classes of a split is a dead letter in both.
    """
    samples: str = ''
    folder: str = ''  # base of relative paths in the lists below
    train: list[str] = dataclasses.field(default_factory=list)  # folders and archives of class folders
    validation: list[str] = dataclasses.field(default_factory=list)  # as train; empty: validation_fraction of train
    test: list[str] = dataclasses.field(default_factory=list)  # as train; empty: test_fraction of train
    validation_fraction: float = 0.0
    test_fraction: float = 0.0
    validation_labels: str = ''
    test_labels: str = ''
    synsets: str = ''
    labels: str = ''
    words: str = ''
    boxes: list[str] = dataclasses.field(default_factory=list)
    resize: int | None = None
    max_pixels: int = codec.MAX_PIXELS
    remove_duplicates: bool = False
    max_dead_letters: float = 0.01  # fraction of unreadable images above which preparation stops
    images_per_block: int = 10000  # images read by one Beam element
    images_per_shard: int = 1000  # images in one TFRecord file

    def __post_init__(self):
        if not 0 <= self.max_dead_letters <= 1:
            raise ValueError(f'max_dead_letters is a fraction of the images, 0 to 1; it is {self.max_dead_letters}')
        if self.samples not in ('', 'digits'):
            raise ValueError(f'samples must be digits or empty; it is {self.samples!r}')
        if self.samples:
            if self.train or self.validation_fraction or self.test_fraction:
                raise ValueError('samples come with their own validation and test images; leave out train, '
                                 'validation_fraction and test_fraction')
            return
        if not self.train:
            raise ValueError('train must list folders or archives of class folders, for example --set '
                             'data.train=[photos]')
        splits.check(self, 'folders or archives', 'images')

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name) if name else ''

    def files(self, split: str) -> list[str]:
        """Return a split's files, below `folder` if it is given: archives, and class folders.

        The times of class folders reveal added and removed files.
        """
        listed = getattr(self, split)
        if split == 'train':
            listed = [*listed, *self.boxes, *filter(None, (self.labels, self.words, self.synsets))]
        elif (labels := getattr(self, f'{split}_labels')):
            listed = [*listed, labels]
        paths = [archives.split(self.path(file))[0] for file in listed]
        below = [os.path.join(path, name) for path in paths if '://' not in path and os.path.isdir(path)
                 for name in sorted(os.listdir(path))]
        return list(dict.fromkeys([*paths, *filter(os.path.isdir, below)]))


@dataclasses.dataclass
class Input(InputConfig):
    """How images become batches.

    An image is rescaled until its shorter side is S, and a square of side `crop` is cut from it: at random in training,
    otherwise from the middle. `scales` is S, or the least and largest S, between which it is drawn (Simonyan &
    Zisserman 3.1); validation uses their mean. `square` first crops the image to its central S x S (Krizhevsky et al.
    2). Training mirrors half of the squares if `flip`, and shifts the colours of a square along the principal
    components of the training set's colours, with `colour` as the standard deviation of alpha (4.1; 0 disables it).
    `mean` is subtracted: the mean image (`pixel`), scaled to the area crops are taken from, or the mean colour (`rgb`).
    The papers use levels of 0 to 255; `standardise` divides them by the standard deviation of each colour, so that
    small nets can train at larger rates.

    With `boxes` a batch also has a bounding box for each square: the one of which the square shows most, in the
    square's coordinates (Simonyan & Zisserman A.1). A box counts if at least `box_inside` of it is in the square: nets
    that slide over whole images see other boxes better from elsewhere (Sermanet et al. 2014, who train on boxes at
    least half inside). An image without boxes stays in its batch; losses of boxes ignore it.
    """
    rows: int | None = 128  # images per batch
    crop: int = 224
    scales: list[int] = dataclasses.field(default_factory=lambda: [256])
    square: bool = False
    flip: bool = True
    colour: float = 0.1
    mean: Literal['pixel', 'rgb', 'none'] = 'pixel'
    standardise: bool = False
    boxes: bool = False
    box_inside: float = 0.5

    def __post_init__(self):
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
      `augmentation.in_square`, NaN if there is none. An empty record becomes zeros, label -1 and NaN. In training every
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
                            config.colour, config.mean, config.standardise)


def _content(folder: str, name: str) -> bytes:
    """Return a file of the data set after checking its hash."""
    path = os.path.join(folder, name)
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path, 'rb') as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() == records.read_manifest(folder).sha256[name]:
            return content
    raise UserError(f'{path} is missing or was changed. Run `python -m pipelines.prepare` again.')
