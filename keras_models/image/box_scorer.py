"""How good a localisation model is: ILSVRC's measures, beside what constant boxes would have got."""
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from keras_models import ModelError
from keras_models.image import boxes
from keras_models.image.classification import TOP
from keras_models.image.serving import predict
from keras_models.localisation import CORRECT, Config

PROTOCOLS = {
    'box_error_constant': 'box_error of the one centred box, of {sizes} sizes, that does best on these very pictures',
    'mean_iou_constant': 'mean_iou of the one that does best in that',
    'class_error': 'fraction of pictures whose class is not among the five most probable',
    'mean_iou': 'intersection over union of the box of the central crop for the right class and the nearest true one',
    'box_error': 'fraction of pictures where that is not above 0.5: Simonyan & Zisserman\'s first procedure, table 8',
    'localisation_error': 'fraction of pictures that no answer of five has the class of, with a box that has more than '
                          '0.5 in common with a true one: ILSVRC\'s, by the second procedure, table 9'}
SIZES = np.linspace(0.05, 1, 20)  # of constant boxes


class Scorer:
    """Compares boxes. See `keras_models.viton.judge.Scorer` for what a judge is.

    Args:
      networks: none is asked.
      config: the model's.

    Raises:
      ModelError: a network is given.
    """
    CORPUS = ('box_error_constant', 'mean_iou_constant')
    BATCH = 32

    def __init__(self, networks: dict[str, str], config: Config | None = None):
        del config
        if networks:
            raise ModelError(f'evaluate.networks.{min(networks)}: no metric of boxes asks networks; leave it out.')
        self.names, self.missing = tuple(PROTOCOLS), dict[str, str]()
        self.pictures: list[dict[str, bytes]] = []  # none: those of others are not for a report
        self._true: list[np.ndarray] = []
        self._seen = 0

    def __call__(self, model, inputs: list[bytes], rows: list[dict]) -> list[dict]:
        """Asks a model about pictures and compares.

        Args:
          model: what `tf.saved_model.load` gives for an exported `Localiser`.
          inputs: encoded pictures.
          rows: of each its class id, `target`, and its true `boxes`, four numbers each, one after another.

        Returns:
          A dict a picture: the metrics but `CORPUS`, not a number each without a true box; or an `error`, saying why a
          picture cannot be decoded.
        """
        answers = predict(model, inputs, self.BATCH)
        if any(answer['error'] for answer in answers):
            return answers
        labels = {name.decode(): label for label, name in enumerate(model.classes().numpy())}
        central: list[np.ndarray] = []
        for start in range(0, len(inputs), self.BATCH):
            label = [labels[row['target']] for row in rows[start:start + self.BATCH]]
            central += [*model.judged(tf.constant(inputs[start:start + self.BATCH]), tf.constant(label)).numpy()]
        return [self._compared(*each) for each in zip(answers, central, rows)]

    def _compared(self, answer: dict, central: np.ndarray, row: dict) -> dict[str, float]:
        self._seen += 1
        true = np.array(row['boxes'], np.float32).reshape(-1, 4)
        if not len(true):
            return {name: float('nan') for name in self.names if name not in self.CORPUS}
        self._true.append(true)
        found = np.array([central, *answer['boxes'][:TOP]], np.float32)[:, np.newaxis]
        common, *others = np.nan_to_num(boxes.iou(found, true).numpy()).max(1).tolist()
        known = [name == row['target'] for name in answer['answers'][:TOP]]
        right = [name and other > CORRECT for name, other in zip(known, others)]
        return {'class_error': float(not any(known)), 'mean_iou': common, 'box_error': float(not common > CORRECT),
                'localisation_error': float(not any(right))}

    def corpus(self) -> dict[str, float]:
        """What constant boxes would have got; not a number without true ones."""
        if not self._true:
            return dict.fromkeys(self.CORPUS, float('nan'))
        true, starts = np.concatenate(self._true), np.cumsum([0, *map(len, self._true)])[:-1]
        common = np.array([np.maximum.reduceat(boxes.iou(box, true).numpy(), starts)
                           for box in centred(SIZES)])  # [sizes, pictures]
        return {'box_error_constant': float((common <= CORRECT).mean(1).min()),
                'mean_iou_constant': float(common.mean(1).max())}

    def slices(self) -> list[dict]:
        """None: pictures are sliced by what the data set says of them."""
        return []

    def protocol(self) -> dict[str, str]:
        """How each metric was computed, in words."""
        count = f'{len(self._true)} of {self._seen} pictures have boxes'
        return {name: f'{PROTOCOLS[name].format(sizes=len(SIZES) ** 2)}; {count}' for name in self.names}


def centred(sides: Iterable[float]) -> np.ndarray:
    """Boxes in the middle of a picture, of every width and height."""
    half = np.stack(np.meshgrid(sides, sides), -1).reshape(-1, 2) / 2
    return np.concatenate([0.5 - half, 0.5 + half], 1).astype(np.float32)
