"""Deep features: 'Very Deep Convolutional Networks …' (Simonyan & Zisserman 2015, arXiv v6), appendix B.

What the last hidden layer of a trained classifier says of a picture, as a vector of unit length, and a linear support
vector machine that learns from such vectors what the net was not taught. It works for every net that
`image.serving.Classifier` exports.
"""
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_models import ModelError, reason

COSTS = tuple(10.0 ** i for i in range(-2, 3))  # C, of which the validation pictures choose; the paper names none
IMAGES_PER_BATCH = 64  # pictures held in memory


def describe(models: Sequence[Any], pictures: Iterable[bytes], scales: Sequence[int],
             stack: bool = False) -> np.ndarray:
    """Descriptors of pictures.

    Each net slides over the whole picture at every scale; the activations of all places and of the mirror image are
    averaged. Those of several scales are averaged too, or stacked, so that a classifier can weigh them one by one. The
    descriptors of several nets are stacked (late fusion); each has unit length before, so that none outweighs the
    others, which the paper leaves open.

    Args:
      models: exported classifiers, as `tf.saved_model.load` gives them.
      pictures: encoded, JPEG or PNG.
      scales: Q, the shorter sides pictures are rescaled to.

    Returns:
      float32 [n, D], every row of unit length; of one net and averaged, D is the width of its last hidden layer.

    Raises:
      ModelError: a model gives no features, a scale has no room for what its net was trained on, or a picture cannot
        be decoded.
    """
    source, found = iter(pictures), []
    while batch := list(itertools.islice(source, IMAGES_PER_BATCH)):
        found.append(joined([combined([features(model, batch, scale) for scale in scales], stack) for model in models]))
    return np.concatenate(found) if found else np.zeros([0, 0], np.float32)


def features(model, pictures: Sequence[bytes], scale: int) -> np.ndarray:
    """What one net says of pictures at one scale, before anything is combined: float32 [n, D].

    Raises:
      ModelError: as `describe`.
    """
    if not hasattr(model, 'features'):
        raise ModelError('a model gives no features; export a classifier of pictures with `python -m pipelines.export`')
    try:
        return np.concatenate([model.features(tf.constant(pictures[start:start + IMAGES_PER_BATCH]), tf.constant(scale)).numpy()
                               for start in range(0, len(pictures), IMAGES_PER_BATCH)])
    except tf.errors.InvalidArgumentError as error:
        raise ModelError(f'features at {scale} pixels: {reason(error)}') from error


def combined(features: Sequence[np.ndarray], stack: bool) -> np.ndarray:
    """One net's features, [n, D] of every scale -> descriptors of unit length, [n, D], or stacked [n, scales * D]."""
    return unit(np.concatenate(features, 1) if stack else np.mean(features, 0))


def joined(descriptors: Sequence[np.ndarray]) -> np.ndarray:
    """Several nets' descriptors of the same pictures, [n, D_i] each -> [n, sum of D_i], of unit length."""
    return unit(np.concatenate(descriptors, 1))


def unit(x: np.ndarray) -> np.ndarray:
    """Rows over their Euclidean lengths; a row of zeros stays."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return (x / np.where(length > 0, length, 1)).astype(np.float32)


class Known(NamedTuple):
    """Descriptors [n, D] and their classes [n], counted from 0."""
    x: np.ndarray
    label: np.ndarray


def judged(train: Known, validation: Known, test: Known) -> dict[str, float]:
    """A linear SVM on fixed features, one class against the rest.

    C is the one of `COSTS` with the best mean class recall on `validation`; then training and validation pictures teach
    it together.

    Returns:
      Of the test pictures: `mean class recall`, in percent, as for Caltech; `mAP`, the mean over classes of the average
      precision, in percent, as for VOC 2012 (with no interpolation); and `C`.
    """
    from sklearn.metrics import average_precision_score, recall_score
    from sklearn.svm import LinearSVC

    taught = np.concatenate([train.x, validation.x])
    if taught.shape[1] > len(taught):  # the weights lie in the span of what teaches them: 300 numbers may do for 6,144
        axes = np.linalg.svd(taught, full_matrices=False)[2].T
        train, validation, test = (Known(x @ axes, label) for x, label in (train, validation, test))

    def fitted(c: float, x, label):
        return LinearSVC(C=c, dual='auto', random_state=0).fit(x, label)

    def recall(machine, known: Known) -> float:
        return float(recall_score(known.label, machine.predict(known.x), average='macro'))
    best = max(COSTS, key=lambda c: recall(fitted(c, *train), validation))  # of equals the least
    machine = fitted(best, *(np.concatenate(pair) for pair in zip(train, validation)))
    scores = machine.decision_function(test.x).reshape(len(test.x), -1)
    if scores.shape[1] == 1:  # of two classes there is one
        scores = np.concatenate([-scores, scores], 1)
    true = test.label[:, np.newaxis] == machine.classes_
    return {'mean class recall': 100 * recall(machine, test), 'mAP': 100 * float(average_precision_score(true, scores)),
            'C': best}


def splits(label: np.ndarray, train: int, test: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A random split as the paper draws them on Caltech-101 (appendix B).

    Args:
      label: [n], classes.
      train: pictures a class to learn from, of which a fifth chooses C.
      test: pictures a class to judge by, at most.

    Returns:
      Rows to train on, to choose C by, and to test on; no row is in two of them.

    Raises:
      ModelError: a class has too few pictures.
    """
    draw, parts = np.random.default_rng(seed), []
    held = max(1, train // 5)
    for each in np.unique(label):
        rows = draw.permutation(np.flatnonzero(label == each))
        if len(rows) <= train or train < 2:
            raise ModelError(f'class {each} has {len(rows)} pictures, too few for {train} (2 or more) to train on and '
                             'others to test on')
        parts.append((rows[held:train], rows[:held], rows[train:train + test]))
    fitted, chosen, judged_by = (np.concatenate(part) for part in zip(*parts))
    return fitted, chosen, judged_by
