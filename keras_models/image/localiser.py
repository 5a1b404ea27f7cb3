"""How a trained localisation net is asked, and how it is served (Simonyan & Zisserman 2015, A.1)."""
import dataclasses

import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.image import boxes, views
from keras_models.image import serving as classifiers
from keras_models.image.classification import TOP
from keras_models.image.serving import predict  # noqa: F401 (of a serving module)
from keras_models.localisation import STRIDE, Config, of_classes
from keras_models.vgg import convolutions, dense, score_map

EXPORTED_MODELS = ('classifier', 'fuse')  # keys of `inference` that name exported models


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

    def __post_init__(self):
        if self.top < TOP:
            raise ValueError(f'top must be {TOP} or more, as localisation_error needs; it is {self.top}')

    def describe(self) -> list[str]:
        found = [f'dense at shorter side {", ".join(map(str, self.scales))}' if self.scales else 'dense',
                 f'classes by {self.classifier}', f'boxes merged up to {self.merge:g}']
        return [*found, f'united with {", ".join(self.fuse)}'] if self.fuse else found


def check(config: Config, inference: Inference) -> None:
    """Refuses a model without a classifier, or with scales too small for its net.

    Raises:
      ModelError
    """
    classifiers.check(config, inference)
    if not inference.classifier:
        raise ModelError('inference.classifier is empty: boxes are predicted for the classes a classifier finds; give '
                         'the folder of one that was exported or pushed.')


class Localiser(classifiers.Served):
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
        self.classifier = classifiers.exported('classifier', inference.classifier, assets.names, asked='score_map')
        self.fused = [classifiers.exported('fuse', folder, assets.names, 'localiser', 'predictions')
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
