"""Learning rate schedules and update rules of the papers."""
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError

UNDECAYED = ('bias', 'a')


class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Schedule of Vaswani et al. eq. (3): `factor * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)`.

    `step` counts the optimizer's finished updates, so the paper's step_num is `step + 1`.
    """

    def __init__(self, d_model: int, warmup_steps: int, factor: float = 1.0):
        self.d_model, self.warmup_steps, self.factor = d_model, warmup_steps, factor

    def __call__(self, step):
        step_num = tf.cast(step, tf.float32) + 1.0
        return self.factor * self.d_model ** -0.5 * tf.minimum(step_num ** -0.5, step_num * self.warmup_steps ** -1.5)

    def get_config(self):
        return {'d_model': self.d_model, 'warmup_steps': self.warmup_steps, 'factor': self.factor}


class Cosine(keras.optimizers.schedules.LearningRateSchedule):
    """A linear rise to `rate` over the share `warmup` of `steps`, then half a cosine to zero.

    It reaches zero after the last step (Loshchilov & Hutter 2017, without restarts), however short the run is.
    """

    def __init__(self, rate: float, steps: int, warmup: float = 0.0):
        self.rate, self.steps, self.warmup = rate, steps, warmup

    def __call__(self, step):
        step_num, rise = tf.cast(step, tf.float32) + 1.0, max(1, round(self.warmup * self.steps))
        done = (step_num - rise) / max(1, self.steps + 1 - rise)
        return self.rate * tf.where(step_num < rise, step_num / rise,
                                    0.5 + 0.5 * tf.cos(math.pi * tf.clip_by_value(done, 0.0, 1.0)))

    def get_config(self):
        return {'rate': self.rate, 'steps': self.steps, 'warmup': self.warmup}


def check(config: Any) -> None:
    """Check the keys of `Cosine` and of clipping.

    Raises:
      ValueError: a value is out of range.
    """
    if not 0 <= config.warmup < 1:
        raise ValueError(f'warmup must be a share of the steps, from 0 to below 1; it is {config.warmup}')


@dataclasses.dataclass
class Descent:
    """Keys shared by the image papers: gradient descent with momentum, weight decay and a rate that drops on plateaus.

    The rate is divided by `factor` on a plateau, at most `max_drops` times. A plateau is `patience` validations in
    which `monitor` does not fall by `min_delta`; the papers judged plateaus by eye, so these three are ours. The six
    keys after those are not the papers' and change nothing by default; `preset: own_data` sets them for small data
    sets, except `class_counts`.
    """
    learning_rate: float = 0.01  # initial learning rate
    momentum: float = 0.9  # momentum of gradient descent
    weight_decay: float = 5e-4  # weight decay, within the velocity
    factor: float = 10.0
    max_drops: int = 3
    monitor: Literal['top1_error', 'top5_error', 'loss'] = 'top1_error'
    patience: int = 5
    min_delta: float = 1e-3
    schedule: Literal['plateau', 'cosine'] = 'plateau'  # cosine: rises, then falls to zero at the end of the run
    warmup: float = 0.0  # share of the steps in which the rate of `cosine` rises
    steps: int | None = None  # updates that `cosine` spans; empty: train.steps
    clip_norm: float = 0.0  # largest global norm of the gradients; 0 disables clipping
    label_smoothing: float = 0.0  # share of the target spread over all classes (Szegedy et al. 2015, 7)
    # training images of each class, in the order of labels; then the loss adds their logarithms to the scores, so that
    # rare classes count as much as common ones (Menon et al. 2021)
    class_counts: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        check(self)
        if min(self.class_counts, default=1) < 1:
            raise ValueError(f'class_counts must be at least 1 each; they are {self.class_counts}')


# Changes of `preset: own_data` to the image papers' rules. With levels up to 255 and the papers' rates, 200 photographs
# of two classes made the loss NaN within ten steps, and a few hundred steps are too short for a plateau.
OWN_DATA = {'schedule': 'cosine', 'warmup': 0.1, 'clip_norm': 1.0, 'label_smoothing': 0.1}


def descent(config: Descent, spared: Sequence[str] = ()) -> 'Momentum':
    """Return the optimizer for these keys; `spared` names further layers without weight decay."""
    c = config
    if c.schedule == 'cosine':
        assert c.steps is not None
        rate: Any = Cosine(c.learning_rate, c.steps, c.warmup)
    else:
        rate = Plateau(c.learning_rate, c.monitor, c.factor, c.max_drops, c.patience, c.min_delta)
    return Momentum(rate, c.momentum, c.weight_decay, UNDECAYED + tuple(spared), c.clip_norm)


class Plateau(keras.optimizers.schedules.LearningRateSchedule):
    """Krizhevsky et al. 2012, section 5: divide the rate by `factor` when validation stops improving.

    Attributes:
      state: a tf.Module that holds its state as variables (`rate`, the `best` value, the validations `waited` since
        then, the number of times it has `dropped`), for checkpoints.

    Args:
      monitor: name of a validation result that is better when lower.
      patience: drop after this many consecutive validations without a value below the best one less `min_delta`.
      max_drops: most drops.
    """

    def __init__(self, rate: float, monitor: str, factor: float = 10.0, max_drops: int = 3, patience: int = 1,
                 min_delta: float = 0.0):
        self.rate, self.monitor, self.factor = rate, monitor, factor
        self.max_drops, self.patience, self.min_delta = max_drops, patience, min_delta
        self.state = tf.Module(name='plateau')
        self.state.rate = tf.Variable(rate, trainable=False, dtype=tf.float32)
        self.state.best = tf.Variable(float('inf'), trainable=False, dtype=tf.float64)
        self.state.waited = tf.Variable(0, trainable=False)
        self.state.dropped = tf.Variable(0, trainable=False)

    def __call__(self, step):
        del step
        return tf.identity(self.state.rate)

    def after_validation(self, results: dict[str, float]) -> None:
        """Update the schedule with the results of a validation, name -> value.

        Raises:
          ModelError: the monitored one is missing.
        """
        if self.monitor not in results:
            raise ModelError(f'model.monitor is {self.monitor!r}; choose one of {", ".join(sorted(results))}')
        state, value = self.state, results[self.monitor]
        if value < state.best.numpy() - self.min_delta:
            state.best.assign(value)
            state.waited.assign(0)
            return
        state.waited.assign_add(1)
        if state.waited.numpy() >= self.patience and state.dropped.numpy() < self.max_drops:
            state.dropped.assign_add(1)
            state.waited.assign(0)
            state.rate.assign(self.rate / self.factor ** int(state.dropped.numpy()))

    def get_config(self):
        return {'rate': self.rate, 'monitor': self.monitor, 'factor': self.factor, 'max_drops': self.max_drops,
                'patience': self.patience, 'min_delta': self.min_delta}


class Adam(keras.optimizers.Adam):
    """Keras's Adam with each variable updated by one kernel instead of a dozen."""

    def update_step(self, gradient, variable):
        index, step = self._index_dict[self._var_key(variable)], tf.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=self._momentums[index].handle, v=self._velocities[index].handle,
            beta1_power=tf.pow(self.beta_1, step), beta2_power=tf.pow(self.beta_2, step),
            lr=tf.cast(self.learning_rate, variable.dtype), beta1=self.beta_1, beta2=self.beta_2, epsilon=self.epsilon,
            grad=gradient)


class Momentum(keras.optimizers.SGD):
    """Krizhevsky et al. 2012, section 5: v := momentum v - decay * rate * w - rate * gradient; w := w + v.

    Keras's SGD has the same rule without decay; Keras's own `weight_decay` would stay outside the velocity.

    Attributes:
      schedule: the `Plateau`, if the rate follows one.

    Args:
      undecayed: names of variables without decay: biases, and PReLU's slopes `a` (He et al. 2015, 2.1).
      clip_norm: largest global norm of the gradients, without decay; 0 disables clipping.
    """

    def __init__(self, learning_rate, momentum: float = 0.9, decay: float = 0.0,
                 undecayed: Sequence[str] = UNDECAYED, clip_norm: float = 0.0):
        super().__init__(learning_rate, momentum, global_clipnorm=clip_norm or None)
        self.decay, self.undecayed = decay, frozenset(undecayed)
        if isinstance(learning_rate, Plateau):
            self.schedule = learning_rate

    def update_step(self, gradient, variable):
        # A replica's variable is named conv1/bias/replica_1:0.
        if not self.undecayed.intersection(variable.name.split(':')[0].split('/')):
            gradient = gradient + tf.cast(self.decay, gradient.dtype) * variable
        # One kernel instead of Keras's six.
        velocity = self.momentums[self._index_dict[self._var_key(variable)]]
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle, accum=velocity.handle, lr=tf.cast(self.learning_rate, variable.dtype), grad=gradient,
            momentum=tf.cast(self.momentum, variable.dtype))

    def get_config(self):
        return {**super().get_config(), 'decay': self.decay, 'undecayed': sorted(self.undecayed)}
