"""Networks of an image classifier for other formats, which hold neither the reading of images nor their views."""
from collections.abc import Iterator

import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.core.layers import by_name
from keras_models.image import views
from keras_models.protocol import Part


def networks(nets: dict[str, keras.Model], config, inference, assets) -> dict[str, Part]:
    """Return the networks that give an image's class scores.

    `classifier` maps `image`, crops [k, crop, crop, 3], to `logits` [k, classes]. For the dense view, whose images have
    any size, there are two: `convolutions` maps `image` [k, h, w, 3] to `maps`, and `dense` maps a crop's `maps` to
    `logits`; what a net gives at a position of the dense view is what `dense` gives for the maps from there.

    Raises:
      ModelError: the exported model holds other models.
    """
    if inference.fuse:
        raise ModelError('inference.fuse: a file of another format holds one net. Leave it out, or export the nets one '
                         'by one.')
    paper, variables = config.paper, tf.Module()
    variables.nets = by_name(nets)  # a module that tracks them
    layers = {layer.name: layer for layer in nets['classifier'].layers}

    def convolutions(image):
        return {'maps': paper.convolutions(layers, config, image)}

    def dense(maps):
        return {'logits': paper.dense(layers, config, maps)}

    def crops(images: list[bytes]) -> Iterator[dict]:
        for image in images:
            yield {'image': views.crops(assets.picture(tf.constant(image), assets.scale), config.crop, 'single')}

    def maps(images: list[bytes]) -> Iterator[dict]:
        yield from (convolutions(**each) for each in crops(images))
    crop = [None, config.crop, config.crop, 3]
    if 'dense' not in inference.views:
        return {'classifier': _part(lambda image: dense(**convolutions(image)), 'image', crop, variables, crops)}
    outer = _part(convolutions, 'image', [None, None, None, 3], variables, crops)
    shape = tf.function(convolutions, autograph=False).get_concrete_function(tf.TensorSpec(crop)).outputs[0].shape
    return {'convolutions': outer, 'dense': _part(dense, 'maps', shape, variables, maps)}


def _part(function, name: str, shape: list, variables: tf.Module, samples) -> Part:
    return Part(tf.function(function, [tf.TensorSpec(shape, tf.float32, name)], autograph=False), variables, samples)
