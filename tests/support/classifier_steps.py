"""Training steps of a paper's classifier without the trainer: its loss, net and update rule together."""
import numpy as np
import tensorflow as tf
from tensorflow import keras

SEED = np.array([1, 2], np.int32)
EPS = 2 ** -23


def train(paper, config, image, steps):
    """Steps on pictures of as many classes. Returns (loss, wrong ones) before the first and before the last."""
    keras.utils.set_random_seed(0)
    nets, [optimizer] = paper.build(config), paper.optimizers(config).values()
    batch = {'image': image, 'label': tf.range(len(image))}
    variables = nets['classifier'].trainable_variables

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            losses, metrics = paper.loss_fn(nets, batch, SEED, True, config)
            loss = losses['classifier'][0] / losses['classifier'][1]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss, metrics['top1_error'][0]
    found = [[float(x) for x in step()] for _ in range(steps)]
    return found[0], found[-1]


def assert_xla_computes_the_same(paper, config, model, image):
    """Gradients of a batch whose second row is padding, to 64 steps of float32 at a variable's largest.

    Sums of some hundred numbers, in another order, layer upon layer: 3 to 10 steps with oneDNN and without.
    """
    batch = {'image': image, 'label': tf.constant([1, -1])}

    def gradients():
        with tf.GradientTape() as tape:
            losses, _ = paper.loss_fn({'classifier': model}, batch, SEED, True, config)
        return tape.gradient(losses['classifier'][0], model.trainable_variables)
    plain, compiled = (tf.function(gradients, autograph=False, jit_compile=jit)() for jit in (None, True))
    for one, other in zip(plain, compiled):
        assert float(tf.reduce_max(tf.abs(one))) > 0
        np.testing.assert_allclose(one, other, rtol=0, atol=64 * EPS * float(tf.reduce_max(tf.abs(one))))


def randomised(model, seed=0):
    """A net whose every weight is random and large enough for nothing to vanish, and its layers by name."""
    draw = np.random.default_rng(seed)
    for weight in model.weights:
        n = np.prod(weight.shape[:-1])
        weight.assign(draw.normal(0, (2 / n) ** 0.5 if n > 1 else 0.3, weight.shape))
    return model, {layer.name: layer for layer in model.layers}
