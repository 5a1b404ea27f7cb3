"""Deep features: 'Very Deep Convolutional Networks …' (Simonyan & Zisserman 2015, arXiv v6), appendix B.

The last hidden layer of a trained classifier describes an image as a vector of unit length; a linear support vector
machine learns new classes from such vectors. It works for every net exported by `image.serving.Classifier`.
"""
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from sklearn.metrics import average_precision_score, recall_score
from sklearn.svm import LinearSVC

from keras_models import ModelError, reason

COSTS = tuple(10.0 ** i for i in range(-2, 3))  # values of C, chosen on validation images; the paper names none
IMAGES_PER_BATCH = 64  # images in memory at a time


def describe(models: Sequence[Any], pictures: Iterable[bytes], scales: Sequence[int],
             stack: bool = False) -> np.ndarray:
    """Compute descriptors of images.

    Each net slides over the whole image at every scale; activations are averaged over all positions and the mirror
    image. Those of several scales are averaged too, or stacked, so that a classifier can weight them separately.
    Descriptors of several nets are stacked (late fusion); each is first scaled to unit length so that all count
    equally, which the paper leaves open.

    Args:
      models: exported classifiers, as loaded by `tf.saved_model.load`.
      pictures: encoded images, JPEG or PNG.
      scales: Q, the shorter sides to which images are rescaled.

    Returns:
      float32 [n, D], rows of unit length; for one net with averaging, D is the width of its last hidden layer.

    Raises:
      ModelError: a model has no features, a scale is smaller than its net's crop, or an image cannot be decoded.
    """
    source, found = iter(pictures), []
    while batch := list(itertools.islice(source, IMAGES_PER_BATCH)):
        found.append(joined([combined([features(model, batch, scale) for scale in scales], stack) for model in models]))
    return np.concatenate(found) if found else np.zeros([0, 0], np.float32)


def features(model, pictures: Sequence[bytes], scale: int) -> np.ndarray:
    """Return one net's features of images at one scale, before they are combined: float32 [n, D].

    Raises:
      ModelError: as `describe`.
    """
    if not hasattr(model, 'features'):
        raise ModelError('a model has no features. Export an image classifier with `python -m pipelines.export`')
    try:
        batches = [tf.constant(pictures[start:start + IMAGES_PER_BATCH])
                   for start in range(0, len(pictures), IMAGES_PER_BATCH)]
        return np.concatenate([model.features(batch, tf.constant(scale)).numpy() for batch in batches])
    except tf.errors.InvalidArgumentError as error:
        raise ModelError(f'features at {scale} pixels: {reason(error)}') from error


def combined(features: Sequence[np.ndarray], stack: bool) -> np.ndarray:
    """Combine one net's features of every scale, [n, D] each, to unit length: [n, D], or stacked [n, scales * D]."""
    return unit(np.concatenate(features, 1) if stack else np.mean(features, 0))


def joined(descriptors: Sequence[np.ndarray]) -> np.ndarray:
    """Join several nets' descriptors of the same images, [n, D_i] each, to [n, sum of D_i], of unit length."""
    return unit(np.concatenate(descriptors, 1))


def unit(x: np.ndarray) -> np.ndarray:
    """Divide rows by their Euclidean lengths; a row of zeros stays."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return (x / np.where(length > 0, length, 1)).astype(np.float32)


class Known(NamedTuple):
    """Descriptors [n, D] and their classes [n], counted from 0."""
    x: np.ndarray
    label: np.ndarray


def judged(train: Known, validation: Known, test: Known) -> dict[str, float]:
    """Train and evaluate a linear SVM on fixed features, one class against the rest.

    C is the value of `COSTS` with the best mean class recall on `validation`; then training and validation images train
    it together.

    Returns:
      For the test images: `mean class recall`, in percent, as for Caltech; `mAP`, the mean over classes of the average
      precision, in percent, as for VOC 2012 (without interpolation); and `C`.
    """
    taught = np.concatenate([train.x, validation.x])
    if taught.shape[1] > len(taught):  # weights lie in the span of the training vectors: 300 numbers may replace 6,144
        axes = np.linalg.svd(taught, full_matrices=False)[2].T
        train, validation, test = (Known(x @ axes, label) for x, label in (train, validation, test))

    def fitted(c: float, x, label):
        return LinearSVC(C=c, dual='auto', random_state=0).fit(x, label)

    def recall(machine, known: Known) -> float:
        return float(recall_score(known.label, machine.predict(known.x), average='macro'))
    best = max(COSTS, key=lambda c: recall(fitted(c, *train), validation))  # of ties the least
    machine = fitted(best, *(np.concatenate(pair) for pair in zip(train, validation)))
    scores = machine.decision_function(test.x).reshape(len(test.x), -1)
    if scores.shape[1] == 1:  # two classes have one score
        scores = np.concatenate([-scores, scores], 1)
    true = test.label[:, np.newaxis] == machine.classes_
    return {'mean class recall': 100 * recall(machine, test), 'mAP': 100 * float(average_precision_score(true, scores)),
            'C': best}


def splits(label: np.ndarray, train: int, test: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a random split as the paper does for Caltech-101 (appendix B).

    Args:
      label: [n], classes.
      train: training images per class, of which a fifth chooses C.
      test: most test images per class.

    Returns:
      Rows to train on, to choose C with, and to test on, without overlap.

    Raises:
      ModelError: a class has too few images.
    """
    draw, parts = np.random.default_rng(seed), []
    held = max(1, train // 5)
    for each in np.unique(label):
        rows = draw.permutation(np.flatnonzero(label == each))
        if len(rows) <= train or train < 2:
            raise ModelError(f'class {each} has {len(rows)} images, too few for {train} (2 or more) to train on and '
                             'others to test on')
        parts.append((rows[held:train], rows[:held], rows[train:train + test]))
    fitted, chosen, judged_by = (np.concatenate(part) for part in zip(*parts))
    return fitted, chosen, judged_by
