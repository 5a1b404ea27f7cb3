"""Generate images for demonstrations without downloads, in ImageNet's layout.

scikit-learn ships 1,797 handwritten digits of 8 x 8 pixels and 17 grey levels, by 13 writers (Alpaydin & Kaynak,
"Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998).
"""
import io
import os
import tarfile
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from data_prep import UserError

SIDE = 32
WORDS = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')
FILES: dict[str, Any] = {  # keys of `imagenet.Config`
    'train': ['train.tar'], 'validation': ['validation.tar'], 'test': ['test.tar'], 'words': 'words.txt',
    'validation_labels': 'validation_labels.txt', 'test_labels': 'test_labels.txt'}


def write_digits(folder: str) -> list[str]:
    """Write the digits in ILSVRC's layout; the same bytes every time.

    `train.tar` holds one tar per class, `d0.tar` to `d9.tar`; `validation.tar` and `test.tar`, a tenth of the images
    each, are flat, with a class per line in `validation_labels.txt` and `test_labels.txt`. `words.txt` describes the
    classes. The images are grey JPEG files.

    Args:
      folder: an existing folder.

    Returns:
      The files' paths.

    Raises:
      UserError: scikit-learn is not installed.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise UserError('data.samples: digits come with scikit-learn, which is not installed. Run '
                        '`pip install scikit-learn`.') from error
    digits = datasets.load_digits()
    grey = tf.image.resize(digits.images[..., np.newaxis] * 255 / 16, [SIDE, SIDE])  # [1797, 32, 32, 1]
    pictures = [tf.io.encode_jpeg(each, quality=95).numpy() for each in tf.cast(tf.round(grey), tf.uint8)]
    held = {'validation': range(4, len(pictures), 10), 'test': range(9, len(pictures), 10)}
    train = [i for i in range(len(pictures)) if i % 10 not in (4, 9)]
    files = {'words.txt': ''.join(f'd{i}\t{word}\n' for i, word in enumerate(WORDS)).encode()}
    files['train.tar'] = _tar((f'd{digit}.tar', _tar((f'd{digit}_{i}.JPEG', pictures[i]) for i in train
                                                     if digits.target[i] == digit)) for digit in range(10))
    for split, numbers in held.items():
        files[f'{split}.tar'] = _tar((f'digits_{split}_{i:08d}.JPEG', pictures[i]) for i in numbers)
        files[f'{split}_labels.txt'] = ''.join(f'd{digits.target[i]}\n' for i in numbers).encode()
    for name, content in files.items():
        with open(os.path.join(folder, name), 'wb') as file:
            file.write(content)
    return [os.path.join(folder, name) for name in files]


def _tar(files: Iterable[tuple[str, bytes]]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode='w') as tar:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()
