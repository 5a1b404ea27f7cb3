"""The perceptual loss of VITON-HD, eq. (16): the distance of two images in the features of VGG-19.

The V = 5 layers F^(i) are relu1_1, relu2_1, relu3_1, relu4_1 and relu5_1, as in pix2pixHD (Wang et al. 2018) and SPADE
(Park et al. 2019), whose losses A.3 follows. VGG-19 is column E of table 1 of Simonyan & Zisserman 2015.
"""
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow import keras
from tensorflow.core.protobuf import trackable_object_graph_pb2

from keras_models import ModelError, vgg
from keras_models.weights import checkpoint_file, published

SPADE = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1.0)  # the layers' weights in the code of pix2pixHD and SPADE; eq. (16) has none
SOURCE = ('torchvision\'s vgg19-dcbb9e9d.pth (download.pytorch.org/models), Keras Applications\' '
          'vgg19_weights_tf_dim_ordering_tf_kernels.h5 or weights of a run of keras_models.vgg with variant E')
STEPS = list(vgg.steps(vgg.Config(variant='E')))
STEPS = STEPS[:1 + [name for name, *_ in STEPS].index('conv5_1')]
CHANNELS = {name: channels for name, _, channels in STEPS if channels}


def build(channels: dict[str, int]) -> keras.Model:
    """Return column E up to conv5_1, frozen: RGB levels 0..255 less ImageNet's mean [B, H, W, 3] -> five features.

    Sides are 16 or more; features are [B, H, W, 64] to [B, H/16, W/16, 512], rounded down. `channels`: of every
    convolution; CHANNELS, or those of a narrower net.
    """
    x = image = keras.Input([None, None, 3], name='image')
    features = []
    for name, size, is_convolution in STEPS:
        if not is_convolution:
            x = keras.layers.MaxPool2D()(x)
            continue
        x = keras.layers.Conv2D(channels[name], size, padding='same', activation='relu', name=name)(x)
        if name.endswith('_1'):
            features.append(x)
    return keras.Model(image, features, name='perceptual', trainable=False)


def load(path: str) -> keras.Model:
    """Return the network of `build` with trained weights.

    Args:
      path: torchvision's VGG-19 (.pth), Keras Applications' (.h5), or the weights of a run of `keras_models.vgg`,
        variant E and of any width: a checkpoint's prefix, or that of a SavedModel's variables.

    Raises:
      ModelError: the file cannot be read, or a weight is missing or has another shape: the message names it and the
        right file.
    """
    if tf.io.gfile.exists(f'{path}.index'):
        return _of_ours(path, _checkpoint(path))
    if path.endswith('.h5'):
        return _of_ours(path, vgg.keras_weights(path, vgg.Config(variant='E', classes=1000, crop=224))['classifier'])
    return _of_torchvision(path)


def _of_ours(path: str, found: dict[str, np.ndarray]) -> keras.Model:
    net = build({name: found[f'{name}/bias'].size if f'{name}/bias' in found else channels
                 for name, channels in CHANNELS.items()})
    published.assign({variable.name.split(':')[0]: variable for variable in net.variables}, found, path, SOURCE)
    return net


def _of_torchvision(path: str) -> keras.Model:
    net, number = build(CHANNELS), 0
    variables: dict[str, tf.Variable] = {}
    for name, _, is_convolution in STEPS:  # their numbers count ReLUs and poolings too
        if is_convolution:
            variables |= published.convolution(net.get_layer(name), f'features.{number}')
        number += 2 if is_convolution else 1
    published.assign(variables, published.read(path), path, SOURCE)
    first = net.get_layer('conv1_1').kernel
    first.assign(first / (255 * published.DEVIATION[:, None]))  # instead of dividing the images
    return net


def _checkpoint(path: str) -> dict[str, np.ndarray]:
    """Return variable's name, such as conv1_1/kernel -> value, for the convolutions in the checkpoint."""
    try:
        reader = checkpoint_file.Reader(path)
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
            reader.get_tensor('_CHECKPOINTABLE_OBJECT_GRAPH'))
        keys = {attribute.full_name: attribute.checkpoint_key for node in graph.nodes for attribute in node.attributes
                if attribute.checkpoint_key.startswith('nets/classifier/')}
        return {name: reader.get_tensor(key) for name, key in keys.items() if name.split('/')[0] in CHANNELS}
    except (ValueError, message.DecodeError) as error:
        raise ModelError(f'{path} cannot be read as a checkpoint ({str(error).splitlines()[0]}); give {SOURCE}'
                         ) from error


def features(net: keras.Model, picture) -> list[tf.Tensor]:
    """Return F^(i) of an image [B, H, W, 3] in [-1, 1], as in `build`, float32."""
    levels = (tf.cast(picture, tf.float32) + 1) * 127.5
    return [tf.cast(maps, tf.float32) for maps in net(levels - 255 * published.MEAN, training=False)]


def loss(net: keras.Model, made, true, weights: Sequence[float]):
    """Return eq. (16): the mean absolute difference of features, weighted and summed over layers.

    Args:
      net: as returned by `load`.
      made, true: I^ and I [B, H, W, 3] in [-1, 1]. The true image's features have no gradient.
      weights: one per layer, five; all 1 is eq. (16) as printed, `SPADE` those of the code it follows.

    Returns:
      [B], float32.
    """
    pairs = zip(weights, features(net, made), features(net, true), strict=True)
    return tf.add_n([weight * tf.reduce_mean(tf.abs(ours - tf.stop_gradient(theirs)), [1, 2, 3])
                     for weight, ours, theirs in pairs])
