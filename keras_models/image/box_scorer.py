"""Score localisation models with ILSVRC's measures, beside a baseline of constant boxes."""
import numpy as np
import tensorflow as tf

from keras_models import ModelError
from keras_models.image import boxes
from keras_models.image.classification import TOP
from keras_models.image.serving import predict
from keras_models.localisation import CORRECT, Config

PROTOCOLS = {
    'box_error_constant': 'box_error of the best centred box of {sizes} sizes, chosen on these images',
    'mean_iou_constant': 'mean_iou of the centred box that is best in it',
    'class_error': 'fraction of images whose class is not among the five most probable',
    'mean_iou': 'intersection over union of the box of the central crop for the right class and the nearest true one',
    'box_error': 'fraction of images where that is not above 0.5: Simonyan & Zisserman\'s first procedure, table 8',
    'localisation_error': 'fraction of images for which no prediction of five has the class and a box with more than '
                          '0.5 in common with a true one: ILSVRC\'s, by the second procedure, table 9'}
SIZES = np.linspace(0.05, 1, 20)  # sides of constant boxes


class Scorer:
    """Scorer of bounding boxes; see `keras_models.protocol.Scorer`.

    Args:
      networks: must be empty.
      config: the model's.

    Raises:
      ModelError: a network is given.
    """
    CORPUS = ('box_error_constant', 'mean_iou_constant')
    BATCH = 32

    def __init__(self, networks: dict[str, str], config: Config | None = None):
        del config
        if networks:
            raise ModelError(f'evaluate.networks.{min(networks)}: no metric of boxes uses networks. Leave it out.')
        self.names, self.missing = tuple(PROTOCOLS), dict[str, str]()
        self.pictures: list[dict[str, bytes]] = []  # none: other people's photographs do not belong in a report
        self._true: list[np.ndarray] = []
        self._seen = 0

    def __call__(self, model, inputs: list[bytes], rows: list[dict]) -> list[dict]:
        """Run a model on images and compare its boxes.

        Args:
          model: as loaded by `tf.saved_model.load` from an exported `Localiser`, or another format's program.
          inputs: encoded images.
          rows: for each, its class id, `target`, and its true `boxes`, four numbers each, concatenated.

        Returns:
          A dict per image: the metrics except `CORPUS`, NaN without a true box; or an `error` that says why an image
          cannot be decoded.
        """
        other_format = hasattr(model, 'predict')
        answers = model.predict(inputs) if other_format else predict(model, inputs, self.BATCH)
        if any(answer['error'] for answer in answers):
            return answers
        names = [row['target'] for row in rows]
        central = model.judged(inputs, names) if other_format else self._central(model, inputs, names)
        return [self._compared(*each) for each in zip(answers, central, rows)]

    def _central(self, model, inputs: list[bytes], names: list[str]) -> list[np.ndarray]:
        """Return a SavedModel's box of the central crop for the named class of each image."""
        labels = {name.decode(): label for label, name in enumerate(model.classes().numpy())}
        found: list[np.ndarray] = []
        for start in range(0, len(inputs), self.BATCH):
            here = slice(start, start + self.BATCH)
            label = tf.constant([labels[name] for name in names[here]])
            found += [*model.judged(tf.constant(inputs[here]), label).numpy()]
        return found

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
        """Return the score of the best constant box, a baseline; NaN without ground truth."""
        if not self._true:
            return dict.fromkeys(self.CORPUS, float('nan'))
        true, starts = np.concatenate(self._true), np.cumsum([0, *map(len, self._true)])[:-1]
        common = np.array([np.maximum.reduceat(boxes.iou(box, true).numpy(), starts)
                           for box in centred(SIZES)])  # [sizes, pictures]
        return {'box_error_constant': float((common <= CORRECT).mean(1).min()),
                'mean_iou_constant': float(common.mean(1).max())}

    def slices(self) -> list[dict]:
        """Return no slices: images are sliced by features of the data set."""
        return []

    def protocol(self) -> dict[str, str]:
        """Describe how each metric was computed."""
        count = f'{len(self._true)} of {self._seen} images have boxes'
        return {name: f'{PROTOCOLS[name].format(sizes=len(SIZES) ** 2)}; {count}' for name in self.names}


def centred(sides: np.ndarray) -> np.ndarray:
    """Return boxes in the middle of an image, of every width and height."""
    half = np.stack(np.meshgrid(sides, sides), -1).reshape(-1, 2) / 2
    return np.concatenate([0.5 - half, 0.5 + half], 1).astype(np.float32)
