"""Inference and serving of a trained VITON-HD: files of a person and a garment in, the image out."""
import dataclasses
from collections.abc import Iterable

import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError, reason
from keras_models.core import layers
from keras_models.viton.chain import CLASSES, COLOURS, PARTS, Config, pixels, segment, try_on
from keras_models.viton.portable import networks  # noqa: F401 (part of a serving module)
from keras_models.viton.try_on import built

FILES = ('image', 'parse', 'pose_json', 'pose_image', 'cloth', 'cloth_mask')
PICTURES = ('image', 'parse', 'warped')  # encoded outputs of `look`


@dataclasses.dataclass
class Inference:
    """Inference settings; `seed` fixes the noise and thus the image."""
    seed: int = 1

    def describe(self) -> list[str]:
        return [f'noise of seed {self.seed}']


def check(config: Config, inference: Inference) -> None:
    """Refuse to export an incomplete chain.

    Raises:
      ModelError: a network is missing.
    """
    del inference
    if lost := [name for name in PARTS if name not in built(config)]:
        trained = ' and '.join(config.trainable_networks)
        raise ModelError(f'model.trainable_networks: a run that only trains {trained} holds no '
                         f'{" and no ".join(lost)}, so it cannot be exported. Run only `python -m pipelines.train` for '
                         'it, and give it to a run that trains alias with train.init_from.')


class TryOn(tf.Module):
    """The exported model: files of a person and of a garment in, the image as PNG out.

    Signatures, [n] strings each; pairs are processed serially, so memory does not depend on n:
      serving_default: `image`, the person; `parse`, its parse map; `pose_json`, OpenPose's; `pose_image`, the pose map,
        or '' to draw it from pose_json; `cloth` and `cloth_mask` -> `image_bytes`, PNG files. (TensorFlow Serving's
        REST API treats names that end so as bytes.)
      tf_examples: `examples`, serialized tf.Examples with features of these names -> the same.

    `look` takes the same inputs for one pair and returns `PICTURES`, which add the parse in colours and the warped
    garment; `judged` returns everything a scorer compares.

    Args:
      nets, config: as in `build`.
      assets: the data set's preprocessing: `sample(**files)`.
      jit: whether XLA compiles the networks.
    """

    def __init__(self, nets: dict[str, keras.Model], config: Config, inference: Inference, assets, jit: bool = False):
        super().__init__()
        self.nets, self._assets, self._levels = layers.by_name(nets), assets, config.levels

        def one(given, reconstruct):
            batch = {name: value[tf.newaxis] for name, value in given.items()}
            seed = tf.constant([inference.seed, 0])
            parse = tf.cond(reconstruct, lambda: tf.one_hot(batch['parse'], CLASSES),
                            lambda: segment(nets['segmentation'], config, batch, seed))
            return {name: value[0] for name, value in try_on(nets, config, batch, seed, parse).items()}
        self._try_on = layers.shared(one, jit_compile=jit or None)
        self._given = layers.shared(self._sample)

    def signatures(self) -> dict:
        return {'serving_default': self.serve, 'tf_examples': self.serve_examples}

    def _sample(self, files: dict) -> dict:
        """Return a sample of the fixed size of the networks."""
        height, width = self._assets.size
        return {name: tf.ensure_shape(value, [height, width, *value.shape[2:]])
                for name, value in self._assets.sample(**files).items()}

    def _made(self, files: dict) -> dict:
        return self._try_on(self._given(files), tf.constant(False))

    def _png(self, picture) -> tf.Tensor:
        """Encode [h, w, 3] in [-1, 1] as PNG."""
        return tf.io.encode_png(pixels(picture, self._levels))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name) for name in FILES], autograph=False)
    def serve(self, image, parse, pose_json, pose_image, cloth, cloth_mask):
        files = dict(zip(FILES, (image, parse, pose_json, pose_image, cloth, cloth_mask)))
        made = tf.map_fn(lambda row: self._png(self._made(row)['image']), files, parallel_iterations=1,
                         fn_output_signature=tf.string)
        return {'image_bytes': made}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'examples')], autograph=False)
    def serve_examples(self, examples):
        features = {name: tf.io.FixedLenFeature([], tf.string, '') for name in FILES}
        parsed = tf.io.parse_example(examples, features)
        return self.serve(*(parsed[name] for name in FILES))

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, name) for name in FILES], autograph=False)
    def look(self, image, parse, pose_json, pose_image, cloth, cloth_mask):
        found = self._made(dict(zip(FILES, (image, parse, pose_json, pose_image, cloth, cloth_mask))))
        colours = tf.gather(COLOURS, tf.argmax(found['parse'], -1))
        return {'image': self._png(found['image']), 'parse': tf.io.encode_png(colours),
                'warped': self._png(found['warped'])}

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, name) for name in FILES], autograph=False)
    def judged(self, image, parse, pose_json, pose_image, cloth, cloth_mask):
        """Return everything to compare for one pair, at one size.

        Returns:
          `image`, the output, and `parse` [H, W], the predicted classes; `reconstructed`, `warped` and `warped_mask`,
          made with the person's own parse; and, from the files, `true_image`, `true_parse`, `agnostic_parse`, `removed`
          and `cloth`. Images are [H, W, 3] with levels 0 to 1.
        """
        given = self._given(dict(zip(FILES, (image, parse, pose_json, pose_image, cloth, cloth_mask))))

        def one(reconstruct):
            found = self._try_on(given, reconstruct)
            return found['image'], found['warped'], found['warped_mask'], tf.argmax(found['parse'], -1, tf.int32)
        # A loop's body is optimised once; of two calls the first pair took 5.6 CPU seconds instead of 3.0.
        image, warped, warped_mask, parse = tf.map_fn(
            one, tf.constant([False, True]), parallel_iterations=1,
            fn_output_signature=(tf.float32, tf.float32, tf.float32, tf.int32))
        pictures = {'image': image[0], 'reconstructed': image[1], 'warped': warped[1],
                    'true_image': given['image'], 'cloth': given['cloth']}
        levels = {name: tf.clip_by_value(picture / 2 + 0.5, 0, 1) for name, picture in pictures.items()}
        return levels | {'parse': parse[0], 'warped_mask': warped_mask[1], 'true_parse': given['parse'],
                         'agnostic_parse': given['agnostic_parse'], 'removed': given['removed']}


def serving(nets: dict[str, keras.Model], config: Config, inference: Inference, assets, jit: bool = False) -> TryOn:
    """Return the module to export; see `TryOn`."""
    return TryOn(nets, config, inference, assets, jit)


def predict(model, inputs: Iterable[dict[str, bytes]], batch_size: int = 64, jit: bool = False) -> list[dict]:
    """Run a loaded SavedModel, pair by pair.

    Args:
      model: as loaded by `tf.saved_model.load` from an exported `TryOn`.
      inputs: files by the names of `FILES`.

    Returns:
      A dict per pair: `PICTURES`, encoded, and `error`. For files that cannot be used only `error`, which says why;
      other pairs are not affected.
    """
    del batch_size, jit  # memory is for one pair; the export decides what XLA compiles
    results: list[dict] = []
    for files in inputs:
        try:
            found = model.look(**{name: tf.constant(files.get(name, b'')) for name in FILES})
            results.append({name: found[name].numpy() for name in PICTURES} | {'error': ''})
        except tf.errors.InvalidArgumentError as error:
            results.append({'error': reason(error)})
    return results
