"""The machine's ceiling."""
import side
import tensorflow as tf

SQUARE = 2048


def gemm() -> side.Work:
    """Return the product of two square matrices; a unit is a floating-point operation."""
    a, b = (tf.random.stateless_normal([SQUARE, SQUARE], [0, seed]) for seed in (1, 2))
    product = tf.function(tf.matmul)

    def once():
        product(a, b).numpy()
        return 2 * SQUARE ** 3
    return side.Work({'product': product(a, b).numpy()[:4]}, once)


if __name__ == '__main__':
    side.serve({'gemm': gemm})
