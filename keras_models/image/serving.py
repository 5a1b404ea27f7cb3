"""What the image classifiers share once they are trained: how one is asked, and how it is served."""
import dataclasses
import itertools
import os
from collections.abc import Iterable, Sequence

import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError, reason
from keras_models.core.layers import by_name
from keras_models.image import classification, views
from keras_models.image.classification import TOP

EXPORTED_MODELS = ('fuse',)  # keys of `inference` that name exported models


@dataclasses.dataclass
class Inference:
    """How a trained net is asked about a picture (`keras_models/image/views.py`).

    `views`: what it is shown; the posteriors of several are averaged. `single` is the centre crop, `ten_crop` AlexNet's
    test, `multi_crop` VGG's 50 crops a scale, `dense` the whole picture, which for PReLU nets is their multi-view
    testing on feature maps. `scales`: Q, the shorter sides a picture is rescaled to, averaged too; none given, it is
    the one of validation. `flips: false` leaves out the mirror images. `top`: how many answers. `fuse`: folders of
    exported SavedModels, each asked in its own way, whose posteriors are averaged with this net's; what is exported
    then holds them all.
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
            raise ValueError(f'top must be {TOP} or more, as top{TOP}_error needs; it is {self.top}')
        if any(scale < 1 for scale in self.scales):
            raise ValueError(f'scales are sides of pictures, in pixels; they are {self.scales}')

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
    """Refuses scales at which a picture would be smaller than what the net takes.

    Raises:
      ModelError
    """
    small = [scale for scale in inference.scales if scale < config.crop]
    if small:
        raise ModelError(f'inference.scales: a picture of {small[0]} pixels has no room for a crop of '
                         f'{config.crop} (input.crop); give scales of at least {config.crop}.')


class Served(tf.Module):
    """What exported models of encoded pictures share: a `serve` they have, in two signatures, and what the classes are.

    Args:
      nets, config: as the paper's `build` makes and takes them.
      assets: what the data set knows: `names` and `descriptions` in label order, `picture(encoded, size)`, and `scale`,
        the size pictures have in validation.

    Raises:
      ModelError: the data set has another number of classes, or a scale is too small.
    """

    def __init__(self, nets: dict[str, keras.Model], config, inference, assets):
        super().__init__()
        check(config, inference)
        if len(assets.names) != config.classes:
            raise ModelError(f'model.classes is {config.classes}, and the data set has {len(assets.names)} '
                             'classes; leave model.classes out to take those.')
        self.nets = by_name(nets)
        self._assets, self._inference, self._scales = assets, inference, inference.scales or [assets.scale]

    def signatures(self) -> dict:
        return {'serving_default': self.serve, 'tf_examples': self.serve_examples}

    @tf.function(input_signature=[], autograph=False)
    def classes(self):
        """The classes' names, [classes] strings, in the order of labels."""
        return tf.constant(self._assets.names)

    @tf.function(input_signature=[], autograph=False)
    def descriptions(self):
        """What they are called, likewise."""
        return tf.constant(self._assets.descriptions)

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, 'image')], autograph=False)
    def picture(self, image):
        """One encoded picture -> [h, w, 3], as the net sees it at the first scale."""
        return self._assets.picture(image, self._scales[0])

    def serve(self, image):
        """Encoded pictures [n] -> answers by name, [n, …] each."""
        raise NotImplementedError

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'examples')], autograph=False)
    def serve_examples(self, examples):
        return self.serve(tf.io.parse_example(examples, {'image': tf.io.FixedLenFeature([], tf.string)})['image'])


class Classifier(Served):
    """The exported model: encoded pictures in, the most probable classes out, with decoding and all views inside.

    Signatures:
      serving_default: `image` [n] strings, JPEG or PNG of any size -> `labels`, `descriptions` and `probabilities`,
        [n, top], best first; `top` is the number of classes where there are fewer.
      tf_examples: `examples` [n] serialized tf.Examples with a feature `image` -> the same.

    Functions besides: `posteriors`, `score_map`, `features` (see `deep_features.py`), `classes` and `descriptions`, and
    `picture`, what the net sees. If `jit`, XLA compiles the net over crops; the dense view it does not, as almost every
    picture has a shape of its own.

    Raises:
      ModelError: as `Served`, or a folder to fuse does not fit.
    """

    def __init__(self, nets: dict[str, keras.Model], config, inference: Inference, assets, jit: bool = False):
        super().__init__(nets, config, inference, assets)
        self.fused = [exported('fuse', folder, assets.names) for folder in inference.fuse]
        net = classification.paper(config)
        layers = {layer.name: layer for layer in nets['classifier'].layers}

        def over_maps(function):
            return lambda image: function(layers, config, net.convolutions(layers, config, image))
        self._net = views.Net(config.crop, config.classes,
                              tf.function(over_maps(net.dense), autograph=False, jit_compile=jit or None),
                              over_maps(net.score_map), over_maps(net.activations))

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, 'image'), tf.TensorSpec([], tf.int32, 'scale')],
                 autograph=False)
    def score_map(self, image, scale):
        """One encoded picture, its shorter side `scale` -> posteriors at every place of the dense view,
        [h, w, classes]; of this net, none fused."""
        return tf.nn.softmax(self._net.score_map(self._assets.picture(image, scale)[tf.newaxis])[0])

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'image'), tf.TensorSpec([], tf.int32, 'scale')],
                 autograph=False)
    def features(self, image, scale):
        """Encoded pictures [n], their shorter sides `scale` -> the last hidden layer's activations, averaged over all
        places and over mirror images unless `inference.flips` is false, [n, D]; of this net, none fused."""
        crop = self._net.crop
        roomy = tf.debugging.assert_greater_equal(scale, crop,
                                                  f'a picture so small has no room for a crop of {crop}')
        with tf.control_dependencies([roomy]):  # else a kernel may be the first to complain, of its shapes
            scale = tf.identity(scale)
        return views.features(self._net, image, lambda each: self._assets.picture(each, scale), self._inference.flips)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'image')], autograph=False)
    def posteriors(self, image):
        """Encoded pictures [n] -> [n, classes], the mean over this net and those fused (Simonyan & Zisserman 4.4)."""
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
    """What is exported: pictures in, classes out. See `Classifier`."""
    return Classifier(nets, config, inference, assets, jit)


def exported(key: str, folder: str, names: Sequence[str], kind: str = 'classifier', asked: str = 'posteriors'):
    """An exported model that `inference.<key>` names, of the same classes, and with the function that is asked.

    Raises:
      ModelError: there is none, or it is of another kind or of other classes.
    """
    if not tf.io.gfile.exists(os.path.join(folder, 'saved_model.pb')):
        raise ModelError(f'inference.{key}: {folder} holds no saved_model.pb; give the folder of an exported model '
                         'or of one pushed version.')
    try:
        model = tf.saved_model.load(folder)  # noqa: TID251 (its hashes are checked by whoever exports)
        getattr(model, asked)
        theirs = [name.decode() for name in model.classes().numpy()]
    except (OSError, ValueError, AttributeError, tf.errors.OpError) as error:
        raise ModelError(f'inference.{key}: {folder} cannot be loaded as a {kind} '
                         f'({str(error).splitlines()[0]}); export it again.') from error
    if theirs != list(names):
        raise ModelError(f'inference.{key}: {folder} answers {_other(theirs, names)}; give models of one data set.')
    return model


def _other(theirs: Sequence[str], ours: Sequence[str]) -> str:
    if len(theirs) != len(ours):
        return f'{len(theirs)} classes, and this data set has {len(ours)}'
    return next(f'{one!r} where this data set has {other!r}' for one, other in zip(theirs, ours) if one != other)


def predict(model, inputs: Iterable[bytes], batch_size: int = 64, jit: bool = False) -> list[dict]:
    """Classifies encoded pictures with a loaded SavedModel, in order.

    Args:
      model: what `tf.saved_model.load` gives for an exported `Classifier`.
      inputs: JPEG or PNG bytes; read a batch at a time.
      jit: a new shape costs compiling or tuning: fill up the last batch to 1, 8 or `batch_size` pictures. (What XLA
        compiles is settled at export.)

    Returns:
      A dict a picture: `answers` (class names), `descriptions` and `probabilities`, best first, whatever else the model
      serves, and `error`. Of a picture that cannot be decoded they are empty and `error` says why; it costs the others
      nothing.
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
    """Why a picture cannot be decoded, or nothing."""
    try:
        model.picture(tf.constant(image))
    except tf.errors.InvalidArgumentError as error:
        return reason(error)
    return ''
