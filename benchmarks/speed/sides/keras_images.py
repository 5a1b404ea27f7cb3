"""VGG-16 of Keras Applications, in graph mode."""
import functools

import inputs
import keras
import numpy as np
import side
import tensorflow as tf


def vgg16() -> keras.Model:
    model = keras.applications.VGG16(weights=None, classifier_activation=None)
    model.set_weights(inputs.weights([weight.shape for weight in model.weights]))
    return model


def forward(batch: int, file: str = '') -> side.Work:
    """Scores of images; or by the `file`, tflite."""
    model = vgg16()
    if file == 'tflite':
        return of_tflite(model, inputs.pictures(batch, 224))
    images = tf.constant(inputs.pictures(batch, 224))
    scores = tf.function(functools.partial(model, training=False))

    def once():
        scores(images).numpy()
        return batch
    return side.Work({'scores': scores(images).numpy()}, once)


def of_tflite(model: keras.Model, pictures: np.ndarray) -> side.Work:
    interpreter = tf.lite.Interpreter(model_content=tf.lite.TFLiteConverter.from_keras_model(model).convert())
    scores = interpreter.get_signature_runner()
    [image], [found] = scores.get_input_details(), scores.get_output_details()

    def once():
        scores(**{image: pictures})
        return len(pictures)
    return side.Work({'scores': scores(**{image: pictures})[found]}, once)


def step(batch: int) -> side.Work:
    model = vgg16()
    images, labels = tf.constant(inputs.pictures(batch, 224)), tf.constant(inputs.labels(batch))
    optimizer = keras.optimizers.SGD(inputs.RATE, inputs.MOMENTUM)
    optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_fn(labels, model(images, training=True))
        weights = model.trainable_variables
        optimizer.apply_gradients([(gradient + inputs.DECAY * weight if weight.shape.rank > 1 else gradient, weight)
                                   for gradient, weight in zip(tape.gradient(loss, weights), weights)])
        return loss

    def once():
        train(images, labels).numpy()
        return batch
    return side.Work({'losses': np.array([float(train(images, labels)) for _ in range(2)])}, once)


if __name__ == '__main__':
    side.serve({'forward': forward, 'step': step})
