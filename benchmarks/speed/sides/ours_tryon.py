"""VITON-HD, ours."""
import functools
import pathlib
import sys
import tempfile
import types

import inputs_tryon
import numpy as np
import side
import tensorflow as tf
import trained
from tensorflow import keras

from keras_models.viton import chain, official_weights, portable, serving, try_on
from pipelines.formats import networks
from pipelines.formats.table import FORMATS
from pipelines.serving.kit import networks as kit


def names(net: keras.Model) -> dict[str, tf.Variable]:
    """Return the peers' name of every variable."""
    if net.name in official_weights.NETS:
        return official_weights.names(net.name, net)
    return {variable.name.split(':')[0].removeprefix('scale').replace('/', '.').replace('kernel', 'weight'): variable
            for variable in net.variables}


def fill(net: keras.Model) -> None:
    """Give a network the weights shared by all sides."""
    variables = names(net)
    weights = inputs_tryon.weights({  # [height, width, maps, kernels] is [kernels, maps, height, width] there
        name: (*variable.shape[:-3:-1], *variable.shape[:-2]) for name, variable in variables.items()})
    if net.name in official_weights.NETS:
        official_weights.assign(net.name, net, weights)
    else:
        for name, variable in variables.items():
            value = weights[name]
            variable.assign(value.transpose(2, 3, 1, 0) if value.ndim > 1 else value)


def pairs(batch: int, size: list[int]) -> dict[str, tf.Tensor]:
    """Persons and garments; also replaces the segmentation generator's noise by the one shared by all sides."""
    noise = tf.constant(inputs_tryon.noise(batch))
    chain.noise = lambda seed, shape: noise
    return {name: tf.constant(value) for name, value in inputs_tryon.pairs(batch, size).items()}


def viton_hd_forward(size: list[int], file: str = '') -> side.Work:
    """Figure 3, as served; or by the `file`s that `export --to` writes, tflite or onnx."""
    config = try_on.Config(preset='official', size=size)
    nets, given = try_on.build(config), pairs(1, size)
    for net in nets.values():
        fill(net)
    if file:
        return of_files(nets, config, file, {name: value.numpy() for name, value in given.items()})
    made = tf.function(lambda given: chain.try_on(nets, config, given, tf.constant([1, 0])), autograph=False)

    def once():
        made(given)['image'].numpy()
        return 1
    found = {name: value.numpy() for name, value in made(given).items()}
    return side.Work(inputs_tryon.answer(found), once)


def of_files(nets: dict[str, keras.Model], config: try_on.Config, kind: str, given: dict) -> side.Work:
    """Figure 3 by the networks' files, opened as their folder's program opens them."""
    assets = types.SimpleNamespace(size=config.size, precision=tf.float32, person=None, pose=None)
    parts = portable.networks(nets, config, serving.Inference(), assets)
    with tempfile.TemporaryDirectory() as folder:
        networks.write_parts(FORMATS[kind], {name: parts[name] for name in ('segmentation', 'try_on')}, folder)
        opened = kit.load(folder)
        for path in pathlib.Path(folder).glob(f'*.{kind}'):
            print(f'{path.name}: {path.stat().st_size / 1e6:.0f} MB', file=sys.stderr)

    def made():
        found = opened['segmentation'](**given)
        return found | opened['try_on'](**given | {'parse': found['parse']})

    def once():
        made()
        return 1
    found = made()
    classes = np.eye(chain.CLASSES, dtype=np.float32)[found['parse']]
    return side.Work(inputs_tryon.answer({**found, 'parse': classes}), once)


def step(generator: str, batch: int, jit: bool = False) -> side.Work:
    """Return a training step; the answer is without dropout."""
    trainer = trained.Trained(f'viton_hd_{generator}', 'model.preset=official', f'input.size={[*inputs_tryon.LOW]}',
                              f'train.jit={str(jit).lower()}')
    nets, config = trainer.nets, trainer.config.model
    given = pairs(batch, config.size) | {'real': tf.ones([batch])}
    for net in nets.values():
        fill(net)

    @functools.partial(tf.function, autograph=False, jit_compile=trainer.devices.jit)
    def learn(given):
        """Return losses and gradients by network.

        Without `training` there is no dropout; the geometric matching module has none, but batch statistics.
        """
        with tf.GradientTape(persistent=True) as tape:
            losses = trainer.model.loss_fn(nets, given, tf.constant(trained.SEED), generator == 'geometric_matching',
                                           config)[0]
            means = {name: total / rows for name, (total, rows) in losses.items()}
        return means, {name: tape.gradient(means[name], net.trainable_variables) for name, net in nets.items()}
    losses, gradients = learn(given)

    def once():
        trainer.step(given)
        return batch
    found = {id(variable): gradient for name, net in nets.items()
             for variable, gradient in zip(net.trainable_variables, gradients[name])}
    kernels = names(nets[generator])
    return side.Work({f'loss of {name}': loss.numpy() for name, loss in losses.items()} |
                     {name: tf.norm(found[id(kernels[name])]).numpy() for name in inputs_tryon.WATCHED[generator]},
                     once)


if __name__ == '__main__':
    side.serve({'viton_hd_forward': viton_hd_forward,
                'geometric_step': functools.partial(step, 'geometric_matching'),
                'segmentation_step': functools.partial(step, 'segmentation')})
