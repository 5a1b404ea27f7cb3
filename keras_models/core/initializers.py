"""Initial weights of the image papers.

Every call makes a new initializer, because a shared one would draw the same weights for every layer.
"""
from typing import Literal

from tensorflow import keras


def fixed(stddev: float) -> keras.initializers.Initializer:
    """Return N(0, stddev^2) for any layer size (Krizhevsky et al. 2012, section 5)."""
    return keras.initializers.RandomNormal(0.0, stddev)


def glorot() -> keras.initializers.Initializer:
    """Return Glorot & Bengio 2010, eq. (16): uniform, of variance 2 / (n + n^)."""
    return keras.initializers.GlorotUniform()


def xavier() -> keras.initializers.Initializer:
    """Return the initializer He et al. 2015 compare with (2.2): N(0, 1 / n), derived for linear units, forward."""
    return keras.initializers.VarianceScaling(1.0, 'fan_in', 'untruncated_normal')


def he(case: Literal['forward', 'backward'], a: float = 0.0) -> keras.initializers.Initializer:
    """Return the initializer of He et al. 2015: (1 + a^2) / 2 * n * Var[w] = 1.

    n is k^2 c, the inputs of a response, in the forward case (10), and k^2 d in the backward case (14).

    Args:
      a: initial slope of the rectifiers (15); 0 is ReLU, 1 a linear layer.
    """
    fan = {'forward': 'fan_in', 'backward': 'fan_out'}[case]
    return keras.initializers.VarianceScaling(2 / (1 + a ** 2), fan, 'untruncated_normal')
