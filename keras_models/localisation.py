"""Localisation by VGG: 'Very Deep Convolutional Networks …' (Simonyan & Zisserman 2015, arXiv v6), appendix A.

The last layer of a configuration of table 1 predicts where a thing is. What the appendix takes over from Sermanet et
al. 2014, 'OverFeat', is taken from there: which boxes a net learns from (`data_prep.imagenet.Input`), and how many
predictions become one (`boxes.py`).
"""
import dataclasses
from collections.abc import Iterable
from typing import Literal

import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError, boxes, classification, vgg, views
from keras_models import optimizers as rules
from keras_models.classification import TOP, flops_per_unit, macs, parameters, predict  # noqa: F401
from keras_models.vgg import PRESETS, convolutions, dense, score_map  # noqa: F401

UNIT = classification.UNIT
STRIDE = 32  # pixels from one place of the dense view to the next: five poolings
CORRECT = 0.5  # a box is right if it has more than this in common with a true one: ILSVRC's criterion
STARTS_AS = {'localiser': 'classifier'}  # a localisation net begins as a classifier did end
LAST = 'fc8'

# Table 8: percent of wrong boxes of the central crop for the right class, by what is fine-tuned and learned; S = 384.
TABLE_8: dict[tuple, float] = {('dense', 'shared'): 36.4, ('dense', 'per_class'): 34.3, ('all', 'per_class'): 33.1}


@dataclasses.dataclass
class Config(vgg.Config):
    """A configuration of VGG whose last layer gives boxes: four numbers a class of which the right class's are taught
    (`per_class`; PCR), or four for all (`shared`; SCR). `fine_tune: dense` leaves the convolutions as they began."""
    boxes: Literal['per_class', 'shared'] = 'per_class'  # a box a class (PCR), or one for all (SCR)
    fine_tune: Literal['all', 'dense'] = 'all'
    learning_rate: float = 1e-3  # at the beginning
    watch: Literal['box_error', 'loss'] = 'box_error'  # type: ignore[assignment]


def _widened(config: Config) -> Config:
    """The net as a classifier with as many outputs."""
    assert config.classes
    return dataclasses.replace(config, classes=4 * (config.classes if config.boxes == 'per_class' else 1))


def layers(config: Config) -> dict[str, keras.layers.Layer]:
    """As `vgg.layers`; those that are not to be fine-tuned are not trainable."""
    made = vgg.layers(_widened(config))
    for layer in made.values():
        layer.trainable = config.fine_tune == 'all' or not isinstance(layer, keras.layers.Conv2D)
    return made


def costs(config: Config):
    """As `vgg.costs`."""
    return vgg.costs(_widened(config))


def table(config: Config) -> tuple[tuple[str, ...], list[tuple[str, ...]]] | None:
    """Table 8, if this net has the size of the paper's."""
    if vgg.table(config) is None:
        return None
    nets = [dataclasses.replace(config, fine_tune=tuned, boxes=kind) for tuned, kind in TABLE_8]
    rows: list[tuple[str, ...]] = [(net.fine_tune, net.boxes, f'{parameters(net) / 1e6:.1f}', f'{error}')
                                   for net, error in zip(nets, TABLE_8.values())]
    return ('model.fine_tune', 'model.boxes', 'million parameters', 'box error, %'), rows


def build(config: Config) -> dict[str, keras.Model]:
    """(image [B, crop, crop, 3], seed [2]) -> vectors [B, 4 * classes] or [B, 4], in sides of the crop."""
    return {'localiser': classification.over_crops(config, 'localiser')}


def optimizers(config: Config) -> dict[str, keras.optimizers.Optimizer]:
    """As the classifiers'."""
    return {'localiser': rules.descent(config)}


def of_classes(found: tf.Tensor, labels: tf.Tensor, config: Config) -> tf.Tensor:
    """What a net gives, [B, …, 4 * classes] or [B, …, 4] -> those of each row's `labels` [B, k]: [B, …, k, 4]."""
    found = tf.reshape(tf.cast(found, tf.float32), tf.concat([tf.shape(found)[:-1], [found.shape[-1] // 4, 4]], 0))
    return tf.gather(found, labels if config.boxes == 'per_class' else tf.zeros_like(labels), axis=-2, batch_dims=1)


def loss_fn(nets: dict, batch: dict, seed: tf.Tensor, training: bool, config: Config):
    """Euclidean loss: half the squared distance of the predicted vector from the true one, in sides of the crop.

    (The paper names no units; half, as in Caffe, which it was made with. In pixels the loss would be 50,000 times as
    large, and the paper's rate of 10^-3 would not do.)

    Args:
      batch: `image` [B, crop, crop, 3], `label` [B] and `box` [B, 4]; a row without a box, NaN, counts nothing.

    Returns:
      Losses and metrics, each name -> (sum, normaliser): beside the loss the fraction of boxes that are wrong, and the
      mean intersection over union, both of the right class's.

    Raises:
      ModelError: the batch has no boxes.
    """
    if 'box' not in batch:
        raise ModelError('keras_models.localisation learns from boxes, and the batches have none; '
                         'set input.boxes: true.')
    true = batch['box']
    there = ~tf.math.is_nan(true[:, 0]) & (batch['label'] >= 0)
    label = tf.maximum(batch['label'], 0)[:, tf.newaxis]
    found = of_classes(nets['localiser']([batch['image'], seed], training=training), label, config)[:, 0]  # [B, 4]
    true = tf.where(there[:, tf.newaxis], true, tf.stop_gradient(found))
    common = boxes.iou(boxes.corners(found), boxes.corners(true))
    n = tf.reduce_sum(tf.cast(there, tf.float32))

    def total(x):
        return tf.reduce_sum(tf.where(there, tf.cast(x, tf.float32), 0.)), n
    return ({'localiser': total(tf.reduce_sum(tf.square(found - true), 1) / 2)},
            {'box_error': total(~(common > CORRECT)), 'mean_iou': total(common)})


def start_from(nets: dict[str, keras.Model], weights: dict[str, dict[str, np.ndarray]]) -> None:
    """Begins with a classification net ('trained on the same scales'; A.1), the last layer as it was drawn.

    Args:
      weights: net -> variable's name, as `conv1_1/kernel` -> value, of the same configuration.

    Raises:
      ModelError: one is missing, or has another shape here.
    """
    vgg.take_over([variable for variable in nets['localiser'].variables if not variable.name.startswith(f'{LAST}/')],
                  weights.get('localiser') or weights.get('classifier', {}),
                  'give those of a classification net of the same variant, width and crop')


def keras_weights(path: str, config: Config) -> dict[str, dict[str, np.ndarray]]:
    """As `vgg.keras_weights`, all but the last layer's."""
    [found] = vgg.keras_weights(path, config).values()
    return {'localiser': {name: value for name, value in found.items() if not name.startswith(f'{LAST}/')}}


foreign_weights = {'.h5': keras_weights}


@dataclasses.dataclass
class Inference:
    """How a trained net is asked (A.1, 'Testing', the second procedure): densely at every one of `scales`, Q (none
    given, the one of validation), for the classes that `classifier` finds most probable, an exported SavedModel or a
    folder of pushed versions. Predictions for a class closer than `merge` (`boxes.match_score`) become one, and the
    classifier's score map rates it; the papers give no number, and of 0.5, 1 and 2 our default was best on Tiny
    ImageNet (error 68.6, 60.9 and 63.5%). `fuse`: exported localisation nets, whose predictions are united with this
    one's. `top`: how many answers."""
    classifier: str = ''
    scales: list[int] = dataclasses.field(default_factory=list)
    merge: float = 1.0
    top: int = TOP
    fuse: list[str] = dataclasses.field(default_factory=list)

    MODELS = ('classifier', 'fuse')

    def __post_init__(self):
        if self.top < TOP:
            raise ValueError(f'top must be {TOP} or more, as localisation_error needs; it is {self.top}')

    def words(self) -> list[str]:
        found = [f'dense at shorter side {", ".join(map(str, self.scales))}' if self.scales else 'dense',
                 f'classes by {self.classifier}', f'boxes merged up to {self.merge:g}']
        return [*found, f'united with {", ".join(self.fuse)}'] if self.fuse else found


def check(config: Config, inference: Inference) -> None:
    """Refuses a model without a classifier, or with scales too small for its net.

    Raises:
      ModelError
    """
    classification.check(config, inference)
    if not inference.classifier:
        raise ModelError('inference.classifier is empty: boxes are predicted for the classes a classifier finds; give '
                         'the folder of one that was exported or pushed.')


class Localiser(classification.Served):
    """The exported model: encoded pictures in; the most probable classes and a box for each out.

    Signatures:
      serving_default: `image` [n] strings, JPEG or PNG of any size -> `labels`, `descriptions` and `probabilities`
        [n, top], the most probable class first; `boxes` [n, top, 4], left, upper, right and lower end in fractions of
        the picture's width and height; `scores` [n, top], of the class the mean posterior over all windows, those alone
        counted whose predictions the box is merged of.
      tf_examples: `examples` [n] serialized tf.Examples with a feature `image` -> the same.

    Functions besides: `predictions` before merging, `judged`, the box of the central crop for a class that is known,
    and those of `Served`.

    Raises:
      ModelError: as `Served`; there is no classifier, or what `inference` names does not fit.
    """

    def __init__(self, nets: dict[str, keras.Model], config: Config, inference: Inference, assets, jit: bool = False):
        check(config, inference)
        super().__init__(nets, config, inference, assets)
        self.classifier = classification.exported('classifier', inference.classifier, assets.names, asked='score_map')
        self.fused = [classification.exported('fuse', folder, assets.names, 'localiser', 'predictions')
                      for folder in inference.fuse]
        layers = {layer.name: layer for layer in nets['localiser'].layers}
        self._config = config
        self._crops = tf.function(lambda image: dense(layers, config, convolutions(layers, config, image)),
                                  autograph=False, jit_compile=jit or None)
        self._places = lambda image: score_map(layers, config, convolutions(layers, config, image))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'image')], autograph=False)
    def serve(self, image):
        best = tf.math.top_k(self.classifier.posteriors(image), min(self._inference.top, len(self._assets.names)))
        k = best.indices.shape[1]
        found, scores = tf.map_fn(lambda row: self._merged(*row), (image, best.indices), parallel_iterations=1,
                                  fn_output_signature=(tf.TensorSpec([k, 4]), tf.TensorSpec([k])))
        return {'labels': tf.gather(self.classes(), best.indices),
                'descriptions': tf.gather(self.descriptions(), best.indices), 'probabilities': best.values,
                'boxes': found, 'scores': scores}

    def _merged(self, image, labels):
        found, scores = self.predictions(image, labels)
        box, score = boxes.best(tf.transpose(found, [1, 0, 2]), tf.transpose(scores), self._inference.merge)
        return tf.clip_by_value(box, 0, 1), score

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, 'image'), tf.TensorSpec([None], tf.int32, 'labels')],
                 autograph=False)
    def predictions(self, image, labels):
        """What is merged, of one encoded picture and the classes `labels` [k]: of N windows, of every scale and every
        fused net, boxes [N, k, 4] in fractions of the picture, and the classes' posteriors there [N, k]."""
        found = [*(self._dense(image, labels, scale) for scale in self._scales),
                 *(each.predictions(image, labels) for each in self.fused)]
        return tuple(tf.concat(part, 0) for part in zip(*found))

    def _dense(self, image, labels, scale: int):
        """The same of this net at a scale. The scores of a classifier that sees other places are interpolated."""
        shown, part = self._assets.located(image, scale)
        vectors = of_classes(self._places(shown[tf.newaxis]), labels[tf.newaxis], self._config)[0]  # [h, w, k, 4]
        h, w, k = (tf.shape(vectors)[axis] for axis in range(3))
        y, x = tf.meshgrid(STRIDE * tf.range(h), STRIDE * tf.range(w), indexing='ij')
        start = tf.stack([x, y], -1)
        windows = tf.concat([start, start + self._config.crop], -1) / tf.tile(tf.shape(shown)[1::-1], [2])  # float64
        inside = boxes.within(boxes.corners(vectors), tf.cast(windows, tf.float32)[:, :, tf.newaxis])
        scores = self.classifier.score_map(image, tf.constant(scale))
        scores = tf.image.resize(tf.ensure_shape(scores, [None, None, self._config.classes]), [h, w])
        return (tf.reshape(boxes.within(inside, part), [h * w, k, 4]),
                tf.reshape(tf.gather(scores, labels, axis=-1), [h * w, k]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'image'), tf.TensorSpec([None], tf.int32, 'label')],
                 autograph=False)
    def judged(self, image, label):
        """The first procedure: the box that the central crop of each picture has for the class `label` [n], [n, 4]."""
        crop = self._config.crop

        def central(each):
            shown, part = self._assets.located(each, self._assets.scale)
            size = tf.shape(shown)[:2]
            start = ((size - crop) // 2)[::-1]
            window = tf.concat([start, start + crop], 0) / tf.tile(size[::-1], [2])
            return views.crops(shown, crop, 'single')[0], boxes.within(tf.cast(window, tf.float32), part)
        windows, parts = tf.map_fn(central, image, fn_output_signature=(
            tf.TensorSpec([crop, crop, 3]), tf.TensorSpec([4])))
        vectors = of_classes(self._crops(windows), label[:, tf.newaxis], self._config)[:, 0]
        return tf.clip_by_value(boxes.within(boxes.corners(vectors), parts), 0, 1)


def serving(nets: dict[str, keras.Model], config: Config, inference: Inference, assets, jit: bool) -> tf.Module:
    """What is exported: pictures in, classes and boxes out. See `Localiser`."""
    return Localiser(nets, config, inference, assets, jit)


PROTOCOLS = {
    'box_error_constant': 'box_error of the one centred box, of {sizes} sizes, that does best on these very pictures',
    'mean_iou_constant': 'mean_iou of the one that does best in that',
    'class_error': 'fraction of pictures whose class is not among the five most probable',
    'mean_iou': 'intersection over union of the box of the central crop for the right class and the nearest true one',
    'box_error': 'fraction of pictures where that is not above 0.5: Simonyan & Zisserman\'s first procedure, table 8',
    'localisation_error': 'fraction of pictures that no answer of five has the class of, with a box that has more than '
                          '0.5 in common with a true one: ILSVRC\'s, by the second procedure, table 9'}
SIZES = np.linspace(0.05, 1, 20)  # of constant boxes


class Judge:
    """Compares boxes. See `keras_models.viton.judge.Judge` for what a judge is.

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

    def protocol(self) -> dict[str, str]:
        """How each metric was computed, in words."""
        count = f'{len(self._true)} of {self._seen} pictures have boxes'
        return {name: f'{PROTOCOLS[name].format(sizes=len(SIZES) ** 2)}; {count}' for name in self.names}


def centred(sides: Iterable[float]) -> np.ndarray:
    """Boxes in the middle of a picture, of every width and height."""
    half = np.stack(np.meshgrid(sides, sides), -1).reshape(-1, 2) / 2
    return np.concatenate([0.5 - half, 0.5 + half], 1).astype(np.float32)
