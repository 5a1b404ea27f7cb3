"""Write a shard of labelled images: its records, dead letters, counts and sums of pixels."""
import os
from collections.abc import Iterator
from typing import NamedTuple

import apache_beam as beam
import cv2
import numpy as np
import tensorflow as tf

from data_prep.core import files, threads
from data_prep.image import annotations, codec, resampling
from data_prep.image.resampling import SIDE
from data_prep.image.schema import SIDES, SPLITS, Config

COUNTS = ('read', 'written', 'filtered_duplicate', 'dead_letters', 'converted', 'with_boxes', 'unread_boxes')


class Item(NamedTuple):
    """An image: location of its bytes, its name below `data.folder`, and the id of its class."""
    file: str
    offset: int
    length: int
    name: str
    label: str


def identity(label: str, name: str) -> str:
    """Return an image's class and its name in the class's folder, whose hash decides its split and place.

    So they do not depend on where the data set is. A folder `images` in the class's (Tiny ImageNet) does not count. Of
    an image in no class folder the whole name counts.
    """
    _, found, below = f'/{name}'.rpartition(f'/{label}/')
    return f'{label}/{below.removeprefix("images/") if found else name}'


def new_counts(split: str) -> dict[str, int]:
    """Return zero counts; `in_<other>` counts images that are also in a split further from training."""
    return dict.fromkeys([*COUNTS, *(f'in_{other}' for other in SPLITS[SPLITS.index(split) + 1:])], 0)


def letter(config: Config, name: str, offset: int, reason: str) -> dict:
    """Return a line of the dead letters. The offset is in the tar, for a compressed one in the unpacked tar."""
    return {'file': config.path(name), 'offset': offset, 'reason': reason}


class _Made(NamedTuple):
    """Result of an item: its record, the middle of a training image, and a message about its boxes."""
    record: bytes
    square: np.ndarray | None
    converted: bool
    boxes: int
    unread: list[dict]


class PixelSums(beam.CombineFn):
    """Add up the middles of images, uint8 [s, s, 3], in whole numbers, so that the order does not matter.

    An accumulator is s -> the number of images, the sum at every pixel and the sums of products of two colours.
    """

    def create_accumulator(self):
        return {}

    def add_input(self, sums, square):
        side = len(square)
        count, total, products = sums.get(side) or (0, np.zeros([side, side, 3]), np.zeros([3, 3], np.int64))
        cv2.accumulate(square, total)  # whole numbers, exact below 2^53
        products += _products(square)
        sums[side] = count + 1, total, products
        return sums

    def merge_accumulators(self, parts):
        parts = list(parts)
        return {side: tuple(sum(column) for column in zip(*(part[side] for part in parts if side in part)))
                for side in set().union(*parts)}

    def extract_output(self, sums):
        """Return the arrays of `augmentation.Pixels`, and their number of images."""
        count = sum(number for number, _, _ in sums.values())
        image, rgb, products = np.zeros([SIDE, SIDE, 3]), np.zeros(3), np.zeros([3, 3])
        for side, (number, total, product) in sorted(sums.items()):
            mean = total / number
            image += number / count * (mean if side == SIDE else resampling.central_square(mean))
            rgb += total.sum((0, 1)) / side ** 2 / count
            products += product / side ** 2 / count
        return {'mean_image': image.astype(np.float32), 'mean_rgb': rgb, 'covariance': products - np.outer(rgb, rgb),
                'count': np.int64(count)}


def _products(square: np.ndarray) -> np.ndarray:
    """Return the sums of products of two colours over the pixels of uint8 [s, s, 3]: int64 [3, 3].

    From sums of squares, because 2ab = a^2 + b^2 - (a - b)^2: 0.06 ms of a core for 256 x 256 pixels and for adding
    them up, by a product of matrices 0.39 ms.
    """
    colours = cv2.split(square)
    own = np.array([cv2.norm(colour, cv2.NORM_L2SQR) for colour in colours])
    apart = np.array([[cv2.norm(one, other, cv2.NORM_L2SQR) for one in colours] for other in colours])
    # A norm may be the square of a rounded root, so the nearest whole number is taken.
    return np.rint((own[:, np.newaxis] + own - apart) / 2).astype(np.int64)


class MergedSums(PixelSums):
    """Add up accumulators: a shard passes on its sums, never its images."""

    def add_input(self, sums, more):
        return self.merge_accumulators([sums, more])


class Shard:
    """Make a shard's records and account for every item.

    Args:
      config: settings of the data.
      split: the shard's.
      labels: class id -> label.
      boxes: as returned by `annotations.merge`.
      repeats: (split, name) of a file that occurs more than once -> other splits that hold it, and another class of
        its split that holds it, or nothing.
      unpacked: folder of a compressed archive's plain tar -> the archive.

    Attributes:
      counts, letters: of all items so far; `letters` for `job.write_letters`.
      sums: an accumulator of `PixelSums` for training images.
    """

    def __init__(self, config: Config, split: str, labels: dict[str, int], boxes: tuple[list[str], bytes],
                 repeats: dict[tuple[str, str], tuple[tuple[str, ...], str]], unpacked: dict[str, str]):
        self._config, self._split, self._labels, self._repeats = config, split, labels, repeats
        self._boxes, self._pixels, self._unpacked = annotations.Boxes(boxes), PixelSums(), unpacked
        self.counts, self.sums = new_counts(split), self._pixels.create_accumulator()
        self.letters: list[dict] = []

    def records(self, items: list[Item]) -> Iterator[bytes]:
        """Yield serialized tf.Examples of the usable items, in their order."""
        for item, made in threads.in_order(self._make, filter(self._wanted, items)):
            if isinstance(made, str):
                self._bury(item, made)
                continue
            self._count(made)
            if made.square is not None:
                self.sums = self._pixels.add_input(self.sums, made.square)
            yield made.record

    def _wanted(self, item: Item) -> bool:
        """Count an item, and return whether its file should be read."""
        self.counts['read'] += 1
        also, other = self._repeats.get((self._split, item.name), ((), ''))
        if item.label not in self._labels:
            self._bury(item, f'class {item.label} is not one of the {len(self._labels)} classes')
        elif other:
            self._bury(item, f'in two classes, {item.label} and {other}')
        else:
            for split in also:
                self.counts[f'in_{split}'] += 1
            if not (also and self._split == 'train' and self._config.remove_duplicates):
                return True
            self.counts['filtered_duplicate'] += 1
        return False

    def _bury(self, item: Item, reason: str) -> None:
        self.counts['dead_letters'] += 1
        self.letters.append(letter(self._config, item.name, item.offset, reason))

    def _count(self, made: _Made) -> None:
        for key, value in (('written', 1), ('converted', made.converted), ('with_boxes', made.boxes > 0),
                           ('unread_boxes', len(made.unread))):
            self.counts[key] += int(value)
        self.letters += made.unread

    def _make(self, item: Item) -> _Made | str:
        """Return an item's result, or the reason why it has none."""
        try:
            data = files.read(*item[:3])
            head = codec.header(data, self._config.max_pixels)
            picture = codec.load(data, head, self._config.resize, square=self._split == 'train')
        except codec.Unreadable as error:
            return str(error)
        except OSError as error:
            return f'it cannot be read ({error.strerror})'
        boxes, unread = [], []
        for file, offset, length in self._boxes.find(item.name, item.label):
            try:
                boxes += annotations.fractions(files.read(file, offset, length), head.height, head.width)
            except (ValueError, OSError) as error:
                unread.append({'file': self._unpacked.get(os.path.dirname(file), file), 'offset': offset,
                               'reason': f'no boxes for {item.name}: {error}; the image is kept'})
        boxes = list(dict.fromkeys(boxes))  # test may list the validation data
        return _Made(example(picture, self._labels[item.label], item, boxes), picture.square,
                     picture.encoded is not data, len(boxes), unread)


def example(picture: codec.Picture, label: int, item: Item, boxes: list[tuple[float, float, float, float]]) -> bytes:
    """Return an image as a serialized tf.Example."""
    texts = {'image': picture.encoded, 'class': item.label.encode(), 'file': item.name.encode(), 'kind': b''}
    feature = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text])) for name, text in texts.items()}
    feature |= {name: tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
                for name, number in (('label', label), ('height', picture.height), ('width', picture.width))}
    feature |= {name: tf.train.Feature(float_list=tf.train.FloatList(value=[box[side] for box in boxes]))
                for side, name in enumerate(SIDES)}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)
