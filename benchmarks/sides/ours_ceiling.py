"""Our sides, and the machine's ceiling."""
import inputs
import side
import tensorflow as tf

from keras_models import classification, vgg

SQUARE = 2048


def gemm() -> side.Work:
    """The product of two square matrices; a unit is a floating-point operation."""
    a, b = (tf.random.stateless_normal([SQUARE, SQUARE], [0, seed]) for seed in (1, 2))
    product = tf.function(tf.matmul)

    def once():
        product(a, b).numpy()
        return 2 * SQUARE ** 3
    return side.Work({'product': product(a, b).numpy()[:4]}, once)


def forward(config, batch: int, size: int) -> side.Work:
    """Scores of pictures, in the graph."""
    [model] = classification.build(config).values()
    model.set_weights(inputs.weights([weight.shape for weight in model.weights]))
    images = tf.constant(inputs.pictures(batch, size))
    scores = tf.function(lambda images: model([images, tf.constant([0, 0])], training=False))

    def once():
        scores(images).numpy()
        return batch
    return side.Work({'scores': scores(images).numpy()}, once)


def vgg16_forward(batch: int) -> side.Work:
    return forward(vgg.Config(variant='D', classes=1000, crop=224), batch, 224)


if __name__ == '__main__':
    side.serve({'gemm': gemm, 'vgg16_forward': vgg16_forward})
