"""Inference and serving of trained image classifiers, shared by the papers."""
import dataclasses
import itertools
import os
from collections.abc import Iterable, Sequence

import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError, reason
from keras_models.core.layers import by_name
from keras_models.image import views
from keras_models.image.classification import TOP
from keras_models.image.portable import networks  # noqa: F401 (part of a serving module)

EXPORTED_MODELS = ('fuse',)  # keys of `inference` that name exported models


@dataclasses.dataclass
class Inference:
    """Inference settings of an image classifier (`keras_models/image/views.py`).

    `views`: views of the image, whose posteriors are averaged. `single` is the centre crop, `ten_crop` AlexNet's test,
    `multi_crop` VGG's 50 crops per scale, `dense` the whole image, which for PReLU nets is their multi-view testing on
    feature maps. `scales`: Q, the shorter sides to which an image is rescaled, averaged too; if empty, the scale of
    validation. `flips: false` leaves out the mirror images. `top`: number of predictions. `fuse`: folders of exported
    SavedModels, each with its own inference settings, whose posteriors are averaged with this net's; the export then
    contains them all.
    """
    views: list[str] = dataclasses.field(default_factory=lambda: ['single'])
    scales: list[int] = dataclasses.field(default_factory=list)
    flips: bool = True
    top: int = TOP
    fuse: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        known = [*views.PLACES, 'dense']
        if not self.views or len({*self.views}) < len(self.views) or not {*self.views} <= {*known}:
            raise ValueError(f'views must name one or more of {", ".join(known)}, each once; it is {self.views}')
        if self.top < TOP:
            raise ValueError(f'top must be {TOP} or more for top{TOP}_error; it is {self.top}')
        if any(scale < 1 for scale in self.scales):
            raise ValueError(f'scales must be sides of images in pixels; they are {self.scales}')

    def describe(self) -> list[str]:
        found = [' and '.join(view.replace('_', '-') for view in self.views)]
        if self.scales:
            found.append(f'shorter side {", ".join(map(str, self.scales))}')
        if not self.flips:
            found.append('no mirror images')
        if self.fuse:
            found.append(f'averaged with {", ".join(self.fuse)}')
        return found


def check(config, inference) -> None:
    """Refuse scales at which an image would be smaller than the net's crop.

    Raises:
      ModelError: a scale is too small.
    """
    small = [scale for scale in inference.scales if scale < config.crop]
    if small:
        raise ModelError(f'inference.scales: an image of {small[0]} pixels is smaller than a crop of '
                         f'{config.crop} (input.crop). Give scales of at least {config.crop}.')


class Served(tf.Module):
    """Base of exported image models: two signatures for a `serve` function, and the classes.

    Args:
      nets, config: as in the paper's `build`.
      assets: the data set's `names` and `descriptions` in label order, `picture(encoded, size)`, and `scale`, the size
        of images in validation.

    Raises:
      ModelError: the data set has another number of classes, or a scale is too small.
    """

    def __init__(self, nets: dict[str, keras.Model], config, inference, assets):
        super().__init__()
        check(config, inference)
        if len(assets.names) != config.classes:
            raise ModelError(f'model.classes is {config.classes}, but the data set has {len(assets.names)} '
                             'classes. Leave model.classes out to use those.')
        self.nets = by_name(nets)
        self._assets, self._inference, self._scales = assets, inference, inference.scales or [assets.scale]

    def signatures(self) -> dict:
        return {'serving_default': self.serve, 'tf_examples': self.serve_examples}

    @tf.function(input_signature=[], autograph=False)
    def classes(self):
        """Return the classes' names, [classes] strings, in the order of labels."""
        return tf.constant(self._assets.names)

    @tf.function(input_signature=[], autograph=False)
    def descriptions(self):
        """Return the classes' descriptions, [classes] strings, in the order of labels."""
        return tf.constant(self._assets.descriptions)

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, 'image')], autograph=False)
    def picture(self, image):
        """Preprocess one encoded image for the net at the first scale: [h, w, 3]."""
        return self._assets.picture(image, self._scales[0])

    def serve(self, image):
        """Map encoded images [n] to outputs by name, [n, …] each."""
        raise NotImplementedError

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'examples')], autograph=False)
    def serve_examples(self, examples):
        return self.serve(tf.io.parse_example(examples, {'image': tf.io.FixedLenFeature([], tf.string)})['image'])


class Classifier(Served):
    """The exported model: encoded images in, the most probable classes out, with decoding and all views inside.

    Signatures:
      serving_default: `image` [n] strings, JPEG or PNG of any size -> `labels`, `descriptions` and `probabilities`,
        [n, top], best first; `top` is at most the number of classes.
      tf_examples: `examples` [n] serialized tf.Examples with a feature `image` -> the same.

    Further functions: `posteriors`, `score_map`, `features` (see `deep_features.py`), `classes` and `descriptions`, and
    `picture`, the preprocessing. If `jit`, XLA compiles the net over crops, but not the dense view, because almost
    every image has a shape of its own.

    Raises:
      ModelError: as `Served`, or a folder to fuse does not fit.
    """

    def __init__(self, nets: dict[str, keras.Model], config, inference: Inference, assets, jit: bool = False):
        super().__init__(nets, config, inference, assets)
        self.fused = [exported('fuse', folder, assets.names) for folder in inference.fuse]
        paper = config.paper
        layers = {layer.name: layer for layer in nets['classifier'].layers}

        def over_maps(function):
            return lambda image: function(layers, config, paper.convolutions(layers, config, image))
        self._net = views.Net(config.crop, config.classes,
                              tf.function(over_maps(paper.dense), autograph=False, jit_compile=jit or None),
                              over_maps(paper.score_map), over_maps(paper.activations))

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, 'image'), tf.TensorSpec([], tf.int32, 'scale')],
                 autograph=False)
    def score_map(self, image, scale):
        """Return posteriors at every position of the dense view, [h, w, classes], of an image at shorter side `scale`.

        They are of this net, without fused ones.
        """
        return tf.nn.softmax(self._net.score_map(self._assets.picture(image, scale)[tf.newaxis])[0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'image'), tf.TensorSpec([], tf.int32, 'scale')],
                 autograph=False)
    def features(self, image, scale):
        """Return features [n, D] of encoded images [n] at shorter side `scale`: the last hidden layer, averaged.

        The average is over all positions and, unless `inference.flips` is false, mirror images; of this net, without
        fused ones.
        """
        crop = self._net.crop
        roomy = tf.debugging.assert_greater_equal(scale, crop,
                                                  f'the image is smaller than a crop of {crop}')
        with tf.control_dependencies([roomy]):  # otherwise a kernel may fail first, about its shapes
            scale = tf.identity(scale)
        return views.features(self._net, image, lambda each: self._assets.picture(each, scale), self._inference.flips)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'image')], autograph=False)
    def posteriors(self, image):
        """Map encoded images [n] to posteriors [n, classes], averaged over fused nets (Simonyan & Zisserman 4.4)."""
        asked = self._inference
        found = [views.posteriors(self._net, image, self._assets.picture, asked.views, self._scales, asked.flips),
                 *(each.posteriors(image) for each in self.fused)]
        return tf.add_n(found) / len(found)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'image')], autograph=False)
    def serve(self, image):
        best = tf.math.top_k(self.posteriors(image), min(self._inference.top, len(self._assets.names)))
        return {'labels': tf.gather(self.classes(), best.indices),
                'descriptions': tf.gather(self.descriptions(), best.indices), 'probabilities': best.values}


def serving(nets: dict[str, keras.Model], config, inference: Inference, assets, jit: bool) -> tf.Module:
    """Return the exported module: images in, classes out; see `Classifier`."""
    return Classifier(nets, config, inference, assets, jit)


def exported(key: str, folder: str, names: Sequence[str], kind: str = 'classifier', asked: str = 'posteriors'):
    """Load an exported model that `inference.<key>` names, with the same classes and the required function.

    Raises:
      ModelError: there is none, or it is of another kind or has other classes.
    """
    if not tf.io.gfile.exists(os.path.join(folder, 'saved_model.pb')):
        raise ModelError(f'inference.{key}: {folder} has no saved_model.pb. Give the folder of an exported model '
                         'or of one pushed version.')
    try:
        model = tf.saved_model.load(folder)  # noqa: TID251 (the export checks its hashes)
        getattr(model, asked)
        theirs = [name.decode() for name in model.classes().numpy()]
    except (OSError, ValueError, AttributeError, tf.errors.OpError) as error:
        raise ModelError(f'inference.{key}: {folder} cannot be loaded as a {kind} '
                         f'({str(error).splitlines()[0]}). Export it again.') from error
    if theirs != list(names):
        raise ModelError(f'inference.{key}: {folder} has {_other(theirs, names)}. Give models of one data set.')
    return model


def _other(theirs: Sequence[str], ours: Sequence[str]) -> str:
    if len(theirs) != len(ours):
        return f'{len(theirs)} classes, but this data set has {len(ours)}'
    return next(f'{one!r} where this data set has {other!r}' for one, other in zip(theirs, ours) if one != other)


def predict(model, inputs: Iterable[bytes], batch_size: int = 64, jit: bool = False) -> list[dict]:
    """Classify encoded images with a loaded SavedModel, in order.

    Args:
      model: as loaded by `tf.saved_model.load` from an exported `Classifier`.
      inputs: JPEG or PNG bytes; read a batch at a time.
      jit: pad the last batch to 1, 8 or `batch_size` images, because a new shape costs compilation or tuning. (The
        export decides what XLA compiles.)

    Returns:
      A dict per image: `answers` (class names), `descriptions` and `probabilities`, best first, the model's other
      outputs, and `error`. For an image that cannot be decoded they are empty and `error` says why; others are not
      affected.
    """
    results: list[dict] = []
    source = iter(inputs)
    while batch := list(itertools.islice(source, batch_size)):
        rows = min(size for size in (1, 8, batch_size) if len(batch) <= size <= batch_size) if jit else len(batch)
        results += _answers(model, batch, rows)
    return results


def _answers(model, batch: list[bytes], rows: int) -> list[dict]:
    try:
        found = model.serve(tf.constant(batch + batch[:1] * (rows - len(batch))))
    except tf.errors.InvalidArgumentError:
        errors = [undecodable(model, image) for image in batch]
        if not any(errors):
            raise
        good = [image for image, error in zip(batch, errors) if not error]
        answers = iter(_answers(model, good, rows) if good else [])
        return [{'answers': [], 'descriptions': [], 'probabilities': [], 'error': error} if error else next(answers)
                for error in errors]
    columns = {name: values.numpy()[:len(batch)].tolist() for name, values in found.items()}
    texts = {name: [[text.decode() for text in row] for row in columns.pop(column)]
             for name, column in (('answers', 'labels'), ('descriptions', 'descriptions'))}
    return [{**dict(zip([*texts, *columns], row)), 'error': ''} for row in zip(*texts.values(), *columns.values())]


def undecodable(model, image: bytes) -> str:
    """Return why an image cannot be decoded, or nothing."""
    try:
        model.picture(tf.constant(image))
    except tf.errors.InvalidArgumentError as error:
        return reason(error)
    return ''
