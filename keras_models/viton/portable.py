"""Networks of VITON-HD for other formats, which hold neither the reading of files nor the resizing of pictures."""
from collections.abc import Callable, Mapping
from types import MappingProxyType

import tensorflow as tf
from tensorflow import keras

from keras_models.core.layers import by_name
from keras_models.protocol import Part
from keras_models.viton import alias, chain
from keras_models.viton.layers import Convolution

PRECISION = tf.float32  # of the spline's sums; TensorFlow Lite multiplies no float64


def networks(nets: dict[str, keras.Model], config: chain.Config, inference, assets) -> dict[str, Part]:
    """Return the networks that dress one person, H x W of `assets.size`.

    `person` maps `image` uint8 [h, w, 3], `labels` uint8 [h, w] and `points` [18, 3] to `agnostic` I_a [h, w, 3],
    `removed` [h, w], and the classes `parse` S and `agnostic_parse` S_a, int32 [h, w]. `pose` maps `points` and `size`
    int32 [2] to `pose` P, uint8 [h, w, 3]. Whoever calls them resizes both to H x W.

    `segmentation` maps `agnostic_parse` int32 [1, H, W], `pose` and `cloth` [1, H, W, 3] and `cloth_mask` [1, H, W, 1]
    to S^, `parse` int32 [1, H, W], and `colours`, its picture, uint8 [1, H, W, 3].

    `try_on` maps `parse` and `agnostic` besides to `image` and `warped` [1, H, W, 3], `warped_mask` [1, H, W, 1], and
    `image_levels` and `warped_levels`, their pictures, uint8.

    Noise is an input of the last two with the values of `inference.seed` in `fixed`, because random numbers differ from
    engine to engine.
    """
    height, width = assets.size
    arrays = {'agnostic_parse': [tf.int32], 'parse': [tf.int32], 'cloth_mask': [tf.float32, 1],
              **{name: [tf.float32, 3] for name in ('agnostic', 'pose', 'cloth')}}
    specs = {name: tf.TensorSpec([1, height, width, *channels], dtype, name)
             for name, (dtype, *channels) in arrays.items()}
    variables = tf.Module()
    own, alias_config = (chain.part(config, name) for name in ('segmentation', 'alias'))
    # The same weights in a network whose noise is an input.
    generator = alias.build(alias_config, noise_given=True)['alias']
    for layer in generator.layers:
        layer.set_weights(nets['alias'].get_layer(layer.name).get_weights() if layer.weights else [])
    for layer in generator.submodules:
        if isinstance(layer, Convolution):
            layer.fold()  # ONNX held every kernel twice, whole and as a matrix: 283 MB at 1024 x 768
    variables.nets = by_name({**nets, 'alias': generator})  # a module that tracks them

    def seed():
        return tf.constant([inference.seed, 0])

    def segmentation(given):
        parse = tf.argmax(chain.segment(nets['segmentation'], config, given, seed()), -1, tf.int32)
        return {'parse': parse, 'colours': tf.gather(chain.COLOURS, parse)}

    def try_on(given):
        parse = tf.one_hot(given['parse'], chain.CLASSES)
        warped, mask = chain.warp(nets['geometric_matching'], config, given, parse[..., chain.UPPER:chain.UPPER + 1],
                                  PRECISION)
        noise = {site: given[_named(site)] for site in alias.noise_sizes(alias_config)}
        image = generator({**chain.alias_inputs(given, parse, warped, mask), **noise, 'seed': seed()}, training=False)
        image = tf.cast(image, tf.float32)
        levels = {f'{name}_levels': chain.pixels(picture, config.levels)
                  for name, picture in (('image', image), ('warped', warped))}
        return {'image': image, 'warped': warped, 'warped_mask': mask, **levels}
    common = [specs[name] for name in ('pose', 'cloth', 'cloth_mask')]
    noise = {_named(site): each for site, each in alias.noise_maps(alias_config, seed()).items()}
    return preparation(assets) | {
        'segmentation': _part(segmentation, variables, [specs['agnostic_parse'], *common],
                              chain.segmentation_noise(own, 1, seed())),
        'try_on': _part(try_on, variables, [specs['parse'], specs['agnostic'], *common], noise)}


def preparation(assets) -> dict[str, Part]:
    """Return the networks without weights, `person` and `pose`."""
    picture, labels = tf.TensorSpec([None, None, 3], tf.uint8, 'image'), tf.TensorSpec([None, None], tf.uint8, 'labels')
    points, size = tf.TensorSpec([18, 3], assets.precision, 'points'), tf.TensorSpec([2], tf.int32, 'size')
    return {'person': _part(lambda given: assets.person(*given.values()), tf.Module(), [picture, labels, points]),
            'pose': _part(lambda given: {'pose': assets.pose(*given.values())}, tf.Module(), [points, size])}


def _part(function: Callable, variables: tf.Module, signature: list[tf.TensorSpec],
          fixed: Mapping[str, tf.Tensor] = MappingProxyType({})) -> Part:
    """Return a network of a function of arrays by name."""
    signature = [*signature, *(tf.TensorSpec(each.shape, each.dtype, name) for name, each in fixed.items())]

    def of_arrays(*values):
        return function({each.name: value for each, value in zip(signature, values)})
    return Part(tf.function(of_arrays, signature, autograph=False), variables,
                fixed={name: each.numpy() for name, each in fixed.items()})


def _named(site: str) -> str:
    """Return the name of a site's noise as an input."""
    return f'noise_{site.replace("/", "_")}'
