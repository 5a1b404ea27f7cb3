"""Variances of a signal and its gradient through random layers (He et al. 2015, section 2.2)."""
import functools
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_models import prelu_net
from keras_models.core import initializers
from pipelines.reporting import figures
from pipelines.reproduction.experiments import Exhibit, Figure, Study


def draw(study: Study, width: int = 512, layers: int = 30, seeds: int = 20) -> Exhibit:
    """Compute Var[y_l] / Var[y_1] forward and Var[dx_l] / Var[dx_(L+1)] backward by depth, geometric means over seeds.

    Each setting has `layers` dense layers of `width` rectifiers, equal to 1 x 1 convolutions, drawn by its model's
    rule.
    """
    values, forward, backward = {}, {}, {}
    for setting, config in {run.setting: run.pipeline.config.model for run in study.runs}.items():
        y, dx = ratios(_rule(config), 0.0 if config.activation == 'relu' else config.a, [width] * (layers + 1), seeds)
        forward[setting, ''] = list(enumerate(y.tolist(), 1))
        backward[setting, ''] = list(enumerate(dx.tolist(), 2))
        for run in study.runs:
            if run.setting == setting:
                values[setting, run.seed] = {'Var[y_L] / Var[y_1]': float(y[-1]),
                                             'Var[dx_2] / Var[dx_(L+1)]': float(dx[0])}
    shown = []
    for title, series, name in ((f'Var[y_l] / Var[y_1], {layers} layers of {width}', forward, 'forward'),
                                (f'Var[dx_l] / Var[dx_(L+1)], {layers} layers of {width}', backward, 'backward')):
        png = os.path.join(study.out, f'variances_{name}.png')
        shown.append(Figure(title, figures.lines(title, series, x='layer', log=True, png=png)))
    return Exhibit(values, shown)


def _rule(config: prelu_net.Config) -> Callable:
    """Return the function that makes the configuration's initializer for convolutions."""
    if config.weights == 'xavier':
        return initializers.xavier
    return functools.partial(initializers.he, config.weights, 0.0 if config.activation == 'relu' else config.a)


def ratios(rule: Callable, a: float, widths: list[int], seeds: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Compute geometric means over seeds.

    Args:
      rule: makes an initializer.
      a: the rectifiers' slope below zero.
      widths: widths of the input and each layer, L + 1 numbers.

    Returns:
      Var[y_l] / Var[y_1] for l of 1 to L (9), and Var[dx_l] / Var[dx_(L+1)] for l of 2 to L + 1 (13); L values each.
    """
    forward: list[np.ndarray] = []
    backward: list[np.ndarray] = []
    for seed in range(seeds):
        tf.keras.utils.set_random_seed(seed)
        x = tf.random.normal([32, widths[0]])
        weights, responses, slopes = [rule()([n, d]) for n, d in zip(widths, widths[1:])], [], []
        for w in weights:
            responses.append(x @ w)
            slopes.append(tf.where(responses[-1] > 0, 1.0, a))
            x = responses[-1] * slopes[-1]
        gradients = [tf.random.normal(x.shape)]
        for slope, w in list(zip(slopes, weights))[:0:-1]:
            gradients.append((gradients[-1] * slope) @ tf.transpose(w))
        for found, signals in ((forward, responses), (backward, gradients)):
            found.append(np.log([np.var(signal) for signal in signals]) - np.log(np.var(signals[0])))
    return np.exp(np.mean(forward, 0)), np.exp(np.mean(backward, 0))[::-1]
