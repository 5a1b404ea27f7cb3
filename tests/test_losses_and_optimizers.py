"""Closed forms: label smoothing and its gradient, the learning rate, one Adam update."""
import numpy as np
import pytest
import tensorflow as tf

from keras_models import losses, optimizers, transformer


@pytest.mark.parametrize('epsilon_ls', [0.0, 0.1])
def test_smoothed_cross_entropy_is_the_one_with_the_smoothed_distribution(epsilon_ls):
    draw = np.random.default_rng(0)
    z = tf.Variable(draw.normal(0, 3, (2, 5, 7)), dtype=tf.float32)
    y = tf.constant(draw.integers(0, 7, (2, 5)))
    weights = tf.constant(draw.random((2, 5)), tf.float32)
    q = (1 - epsilon_ls) * tf.one_hot(y, 7) + epsilon_ls / 7
    with tf.GradientTape(persistent=True) as tape:
        ours, nll = losses.cross_entropy(z, y, epsilon_ls)
        dense = tf.nn.softmax_cross_entropy_with_logits(q, z)
        plain = tf.nn.sparse_softmax_cross_entropy_with_logits(y, z)
        ours_both, dense_both = (tf.reduce_sum(a * weights + 2 * b) for a, b in ((ours, nll), (dense, plain)))
    np.testing.assert_allclose(ours, dense, rtol=1e-5)
    np.testing.assert_allclose(nll, plain, rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(ours_both, z), tape.gradient(dense_both, z), atol=1e-5)
    far = tf.constant([[1e4, -1e4, 0.0]] * 3)  # where e^z and most of softmax leave float32
    np.testing.assert_allclose(losses.cross_entropy(far, tf.range(3))[0], [0, 2e4, 1e4])


@pytest.mark.parametrize('step, rate', [
    (1, 512 ** -0.5 * 4000 ** -1.5), (4000, 512 ** -0.5 * 4000 ** -0.5), (100_000, 512 ** -0.5 * 100_000 ** -0.5)])
def test_learning_rate_of_equation_3(step, rate):
    schedule = optimizers.InverseSquareRoot(512, 4000)
    # The optimizer counts finished updates, so the paper's step 1 is its 0.
    np.testing.assert_allclose(schedule(tf.constant(step - 1)), rate, rtol=1e-6)
    doubled = optimizers.InverseSquareRoot(512, 8000, factor=2.0)
    assert float(doubled(tf.constant(7999))) == pytest.approx(2 * (512 * 8000) ** -0.5)


def test_one_update_is_adams():
    config = transformer.Config(vocab_size=8, d_model=4, h=2, warmup_steps=2)
    optimizer = transformer.optimizers(config)['transformer']
    x = tf.Variable([1.0, -2.0])
    m, v, expected = np.zeros(2), np.zeros(2), np.array([1.0, -2.0])
    for step in (1, 2, 3):
        g = np.array([0.5, -0.1]) * step
        optimizer.apply_gradients([(tf.constant(g, tf.float32), x)])
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g ** 2
        rate = 4 ** -0.5 * min(step ** -0.5, step * 2 ** -1.5)
        expected -= rate * (m / (1 - 0.9 ** step)) / (np.sqrt(v / (1 - 0.98 ** step)) + 1e-9)
    np.testing.assert_allclose(x, expected, rtol=1e-5)
