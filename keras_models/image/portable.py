"""Networks of an image classifier for other formats, which hold neither the reading of images nor their views."""
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from tensorflow import keras

from keras_models.core.layers import by_name
from keras_models.image import views
from keras_models.protocol import Part


def networks(nets: dict[str, keras.Model], config, inference, assets) -> dict[str, Part]:
    """Return the networks that give an image's class scores.

    `classifier` maps `image`, crops [k, crop, crop, 3], to `logits` [k, classes]; for the dense view, whose images have
    any size, there are the two of `over_maps`. They are of this net, without fused ones.
    """
    if 'dense' in inference.views:
        return over_maps(nets, config, assets)
    layers, paper = _layers(nets), config.paper

    def classifier(image):
        return {'logits': paper.dense(layers, config, paper.convolutions(layers, config, image))}
    return {'classifier': _part(classifier, 'image', [None, config.crop, config.crop, 3], nets,
                                _sampled(assets, config.crop))}


def over_maps(nets: dict[str, keras.Model], config, assets) -> dict[str, Part]:
    """Return the networks that give a score map for an image of any size, for the one net of `nets`.

    `convolutions` maps `image` [k, h, w, 3] to `maps`, and `dense` maps a crop's `maps` to `logits`, the last layer's
    outputs; what a net gives at a position of the dense view is what `dense` gives for the maps from there.
    """
    layers, paper, crops = _layers(nets), config.paper, _sampled(assets, config.crop)

    def convolutions(image):
        return {'maps': paper.convolutions(layers, config, image)}

    def dense(maps):
        return {'logits': paper.dense(layers, config, maps)}

    def maps(images: Sequence[bytes]) -> Iterator[dict]:
        yield from (convolutions(**each) for each in crops(images))
    shape = tf.function(convolutions, autograph=False).get_concrete_function(
        tf.TensorSpec([None, config.crop, config.crop, 3])).outputs[0].shape
    return {'convolutions': _part(convolutions, 'image', [None, None, None, 3], nets, crops),
            'dense': _part(dense, 'maps', shape, nets, maps)}


def _layers(nets: dict[str, keras.Model]) -> dict[str, keras.layers.Layer]:
    [net] = nets.values()
    return {layer.name: layer for layer in net.layers}


def _sampled(assets, crop: int) -> Callable[[Sequence[bytes]], Iterator[dict]]:
    """Return the function of encoded images -> `image`, the central crop of each [1, crop, crop, 3]."""
    def crops(images: Sequence[bytes]) -> Iterator[dict]:
        for image in images:
            yield {'image': views.crops(assets.picture(tf.constant(image), assets.scale), crop, 'single')}
    return crops


def _part(function, name: str, shape: list, nets: dict[str, keras.Model], samples) -> Part:
    variables = tf.Module()
    variables.nets = by_name(nets)  # a module that tracks them
    return Part(tf.function(function, [tf.TensorSpec(shape, tf.float32, name)], autograph=False), variables, samples)
