"""Losses used by several papers, per element; callers sum them and divide by the normaliser of all replicas."""
import tensorflow as tf


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor, epsilon_ls: float = 0.0) -> tuple[tf.Tensor, tf.Tensor]:
    """Return cross-entropy with label smoothing (Szegedy et al. 2015, section 7; Vaswani et al. 5.4).

    The target distribution is q = (1 - epsilon_ls) one_hot(labels) + epsilon_ls / V, and the gradient p - q for
    p = softmax(z). Both are computed around a single softmax, because passes over [..., V] dominate the cost: with
    TensorFlow's log-softmax and its gradients this took 3.4 times as long (158 instead of 47 ms of a CPU core for
    3,500 x 8,000 logits).

    Args:
      logits: z, [..., V].
      labels: [...], integers.

    Returns:
      The smoothed cross-entropy and the plain negative log likelihood, [...] each, float32, in nats.
    """
    @tf.custom_gradient
    def both(z):
        V = tf.cast(tf.shape(z)[-1], tf.float32)
        p = tf.nn.softmax(z)
        # log sum exp z from the largest z, whose p is at least 1 / V.
        lse = tf.reduce_max(z, -1) - tf.math.log(tf.reduce_max(p, -1))
        nll = lse - tf.gather(z, labels, batch_dims=labels.shape.rank)
        loss = (1 - epsilon_ls) * nll + epsilon_ls * (lse - tf.reduce_mean(z, -1))

        def gradient(d_loss, d_nll):
            d_z = p * (d_loss + d_nll)[..., None] - (epsilon_ls / V * d_loss)[..., None]
            rows = tf.reshape(d_z, [-1, tf.shape(z)[-1]])
            at = tf.stack([tf.range(tf.shape(rows)[0]), tf.reshape(tf.cast(labels, tf.int32), [-1])], 1)
            here = tf.reshape((1 - epsilon_ls) * d_loss + d_nll, [-1])
            return tf.reshape(tf.tensor_scatter_nd_sub(rows, at, here), tf.shape(z))
        return (loss, nll), gradient
    return both(tf.cast(logits, tf.float32))


def row_means(x: tf.Tensor) -> tf.Tensor:
    """Return the mean of each row, [B, …] -> [B], in float32."""
    return tf.reduce_mean(tf.cast(x, tf.float32), [*range(1, x.shape.rank)])
