"""Losses more than one paper uses. Each is an element's own; callers sum, and divide by all replicas' normaliser."""
import tensorflow as tf


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor, epsilon_ls: float = 0.0) -> tuple[tf.Tensor, tf.Tensor]:
    """Cross-entropy with label smoothing (Szegedy et al. 2015, section 7; Vaswani et al. 5.4).

    The target distribution is q = (1 - epsilon_ls) one_hot(labels) + epsilon_ls / V, and the gradient softmax(z) - q.
    Both are written out: with TensorFlow's own gradients of the same terms the pair took 4 times as long on a CPU
    (32 against 8 ms for 2,048 x 4,000 logits).

    Args:
      logits: z, [..., V].
      labels: [...], integers.

    Returns:
      The smoothed cross-entropy and the plain negative log likelihood, [...] each, float32, in nats.
    """
    @tf.custom_gradient
    def both(z):
        V = tf.cast(tf.shape(z)[-1], tf.float32)
        log_p = tf.nn.log_softmax(z)
        nll = -tf.gather(log_p, labels, batch_dims=labels.shape.rank)
        loss = (1 - epsilon_ls) * nll - epsilon_ls * tf.reduce_mean(log_p, -1)

        def gradient(d_loss, d_nll):
            d_loss, d_nll = d_loss[..., None], d_nll[..., None]
            one_hot = tf.one_hot(labels, tf.shape(z)[-1])
            return (tf.nn.softmax(z) * (d_loss + d_nll) - one_hot * ((1 - epsilon_ls) * d_loss + d_nll)
                    - epsilon_ls / V * d_loss)
        return (loss, nll), gradient
    return both(tf.cast(logits, tf.float32))
