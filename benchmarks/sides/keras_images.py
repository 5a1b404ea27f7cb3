"""Keras Applications, in graph mode."""
import functools

import inputs
import keras
import numpy as np
import side
import tensorflow as tf

RATE, MOMENTUM, DECAY = 1e-4, 0.9, 5e-4


def vgg16() -> keras.Model:
    model = keras.applications.VGG16(weights=None, classifier_activation=None)
    model.set_weights(inputs.weights([weight.shape for weight in model.weights]))
    return model


def forward(net: str, batch: int) -> side.Work:
    model = {'vgg16': vgg16}[net]()
    images = tf.constant(inputs.pictures(batch, 224))
    scores = tf.function(functools.partial(model, training=False))

    def once():
        scores(images).numpy()
        return batch
    return side.Work({'scores': scores(images).numpy()}, once)


def step(net: str, batch: int) -> side.Work:
    model = {'vgg16': vgg16}[net]()
    images, labels = tf.constant(inputs.pictures(batch, 224)), tf.constant(inputs.labels(batch))
    optimizer = keras.optimizers.SGD(RATE, MOMENTUM)
    optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, model(images, training=True))
        pairs = zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        optimizer.apply_gradients([(gradient + DECAY * variable if variable.shape.rank > 1 else gradient, variable)
                                   for gradient, variable in pairs])
        return loss

    def once():
        train(images, labels).numpy()
        return batch
    return side.Work({'losses': np.array([float(train(images, labels)) for _ in range(2)])}, once)


if __name__ == '__main__':
    side.serve({'forward': forward, 'step': step})
