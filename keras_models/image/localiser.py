"""Inference and serving of trained localisation nets (Simonyan & Zisserman 2015, A.1)."""
import dataclasses

import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.core import layers
from keras_models.image import boxes, portable, views
from keras_models.image import serving as classifiers
from keras_models.image.classification import TOP
from keras_models.image.serving import predict  # noqa: F401 (part of a serving module)
from keras_models.localisation import STRIDE, Config, of_classes
from keras_models.protocol import Part
from keras_models.vgg import convolutions, dense, score_map

EXPORTED_MODELS = ('classifier', 'fuse')  # keys of `inference` that name exported models
ANSWERS = 'boxes'


@dataclasses.dataclass
class Inference:
    """Inference settings of localisation (A.1, 'Testing', the second procedure).

    The net slides over the image at every one of `scales`, Q (if empty, the scale of validation), for the classes most
    probable by `classifier`, an exported SavedModel or a folder of pushed versions. Predictions of a class closer than
    `merge` (`boxes.match_score`) are merged and scored by the classifier's score map; the paper gives no number, and of
    0.5, 1 and 2 our default was best on Tiny ImageNet (error 68.6, 60.9 and 63.5%). `fuse`: exported localisation nets
    whose predictions are added to this one's. `top`: number of predictions.
    """
    classifier: str = ''
    scales: list[int] = dataclasses.field(default_factory=list)
    merge: float = 1.0
    top: int = TOP
    fuse: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        if self.top < TOP:
            raise ValueError(f'top must be {TOP} or more for localisation_error; it is {self.top}')

    def describe(self) -> list[str]:
        found = [f'dense at shorter side {", ".join(map(str, self.scales))}' if self.scales else 'dense',
                 f'classes by {self.classifier}', f'boxes merged up to {self.merge:g}']
        return [*found, f'united with {", ".join(self.fuse)}'] if self.fuse else found


def check(config: Config, inference: Inference) -> None:
    """Refuse a model without a classifier, or with scales too small for its net.

    Raises:
      ModelError: the model or inference settings are unusable.
    """
    classifiers.check(config, inference)
    if not inference.classifier:
        raise ModelError('inference.classifier is empty, but boxes are predicted for the classes of a classifier. Give '
                         'the folder of an exported or pushed one.')


class Localiser(classifiers.Served):
    """The exported model: encoded images in; the most probable classes, with a box for each, out.

    Signatures:
      serving_default: `image` [n] strings, JPEG or PNG of any size -> `labels`, `descriptions` and `probabilities`
        [n, top], the most probable class first; `boxes` [n, top, 4], left, upper, right and lower end in fractions of
        the image's width and height; `scores` [n, top], the class's posterior summed over the windows merged into the
        box, divided by the number of all windows.
      tf_examples: `examples` [n] serialized tf.Examples with a feature `image` -> the same.

    Further functions: `predictions` before merging, `judged`, the box of the central crop for a known class, and those
    of `Served`.

    Raises:
      ModelError: as `Served`; or there is no classifier, or a model named in `inference` does not fit.
    """

    def __init__(self, nets: dict[str, keras.Model], config: Config, inference: Inference, assets, jit: bool = False):
        check(config, inference)
        super().__init__(nets, config, inference, assets)
        self.classifier = classifiers.exported('classifier', inference.classifier, assets.names, asked='score_map')
        self.fused = [classifiers.exported('fuse', folder, assets.names, 'localiser', 'predictions')
                      for folder in inference.fuse]
        made = {layer.name: layer for layer in nets['localiser'].layers}
        self._config = config
        self._crops = layers.shared(lambda image: dense(made, config, convolutions(made, config, image)),
                                    jit_compile=jit or None)
        self._places = lambda image: score_map(made, config, convolutions(made, config, image))

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
        """Return all predictions for one encoded image and the classes `labels` [k], before merging.

        For N windows, of every scale and every fused net: boxes [N, k, 4] in fractions of the image, and the classes'
        posteriors there [N, k].
        """
        found = [*(self._dense(image, labels, scale) for scale in self._scales),
                 *(each.predictions(image, labels) for each in self.fused)]
        return tuple(tf.concat(part, 0) for part in zip(*found))

    def _dense(self, image, labels, scale: int):
        """Return this net's predictions at a scale; the classifier's scores are interpolated at their positions."""
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
        """Run the first procedure: the central crop's box for the class `label` [n] of each image, [n, 4]."""
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
    """Return the exported module: images in, classes and boxes out; see `Localiser`."""
    return Localiser(nets, config, inference, assets, jit)


def networks(nets: dict[str, keras.Model], config: Config, inference: Inference, assets) -> dict[str, Part]:
    """Return the networks that give the vectors of every class at every position; see `portable.over_maps`."""
    return portable.over_maps(nets, config, assets)
