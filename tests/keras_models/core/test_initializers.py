"""Initial weights: the papers' deviations, and a signal's variance through thirty layers."""
import numpy as np
import pytest
import tensorflow as tf

from keras_models.core import initializers
from pipelines.reproduction.plots import variances


@pytest.mark.parametrize('filters, deviation', [(64, 0.059), (128, 0.042), (256, 0.029), (512, 0.021)])
def test_backward_deviations_are_those_of_section_2_2(filters, deviation):
    kernel = initializers.he('backward')([3, 3, 32, filters]).numpy()
    assert np.std(kernel) == pytest.approx((2 / (9 * filters)) ** 0.5, rel=0.02)
    assert round((2 / (9 * filters)) ** 0.5, 3) == deviation


@pytest.mark.parametrize('initializer, deviation', [
    (lambda: initializers.he('forward'), (2 / (9 * 32)) ** 0.5),
    (lambda: initializers.he('forward', 0.25), (2 / (1.0625 * 9 * 32)) ** 0.5),
    (lambda: initializers.he('backward', 0.25), (2 / (1.0625 * 9 * 128)) ** 0.5),
    (lambda: initializers.he('forward', 1.0), (9 * 32) ** -0.5),
    (initializers.xavier, (9 * 32) ** -0.5),
    (initializers.glorot, (2 / (9 * (32 + 128))) ** 0.5),
    (lambda: initializers.fixed(0.01), 0.01)],
    ids=['forward', 'forward, a=0.25', 'backward, a=0.25', 'forward, a=1', 'xavier', 'glorot', 'fixed'])
def test_deviations_and_shapes_of_the_others(initializer, deviation):
    kernel = initializer()([3, 3, 32, 128]).numpy()
    assert np.std(kernel) == pytest.approx(deviation, rel=0.02)
    assert abs(np.mean(kernel)) < deviation / 30
    beyond = np.mean(np.abs(kernel) > 2 * deviation)  # 4.6% of a normal distribution, none of a uniform one
    assert beyond == (0 if initializer is initializers.glorot else pytest.approx(0.0455, abs=0.005))


def test_draws_follow_the_global_seed_and_differ_between_layers():
    def two(seed):
        tf.keras.utils.set_random_seed(seed)
        return [initializers.he('backward')([4, 4]).numpy() for _ in range(2)]
    first, again, other = two(1), two(1), two(2)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(*first) and not np.array_equal(first, other)


def ratios(draw, a: float, widths: list[int], seeds: int = 20) -> tuple[float, float]:
    """Var[y_L] / Var[y_1] and Var[dx_2] / Var[dx_(L+1)] in dense layers (1 x 1 convolutions), geometric means."""
    forward, backward = variances.ratios(draw, a, widths, seeds)
    assert len(forward) == len(backward) == len(widths) - 1 and forward[0] == backward[-1] == 1
    return forward[-1], backward[0]


@pytest.mark.parametrize('case, a', [('forward', 0.0), ('backward', 0.25)])  # of equal widths both are one
def test_thirty_layers_keep_the_variance(case, a):
    """P2; and Xavier's rule does not, as it is made for linear layers."""
    forward, backward = ratios(lambda: initializers.he(case, a), a, [512] * 31)
    assert 0.5 < forward < 2
    assert 0.5 < backward < 2


def test_thirty_layers_of_xavier_lose_it():
    forward, backward = ratios(initializers.xavier, 0.0, [512] * 31)
    assert forward < 1e-4 and backward < 1e-4
    assert np.log2(forward) == pytest.approx(-29, abs=1.5)  # a half in every layer after the first


def test_the_slope_counts():
    """Without the factor of (15) the same net grows by 1 + a^2 a layer."""
    forward, _ = ratios(lambda: initializers.he('forward'), 0.5, [256] * 31)
    assert np.log(forward) / 29 == pytest.approx(np.log(1.25), abs=0.05)


def test_either_form_alone_is_off_by_the_ratio_of_the_ends_only():
    """2.2: with (14) the product of (9) is c_2 / d_L, and with (10) that of (13) is d_L / c_2."""
    widths = [64, 128, 256, 128, 512, 512]
    forward, backward = ratios(lambda: initializers.he('backward'), 0.0, widths, seeds=40)
    assert forward == pytest.approx(128 / 512, rel=0.25) and backward == pytest.approx(1, rel=0.25)
    forward, backward = ratios(lambda: initializers.he('forward'), 0.0, widths, seeds=40)
    assert forward == pytest.approx(1, rel=0.25) and backward == pytest.approx(512 / 128, rel=0.25)
