"""Schedules and update rules the papers use."""
import tensorflow as tf
from tensorflow import keras


class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Vaswani et al. eq. (3): `factor * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)`.

    `step` is the optimizer's count of finished updates, so the paper's step_num is `step + 1`.
    """

    def __init__(self, d_model: int, warmup_steps: int, factor: float = 1.0):
        self.d_model, self.warmup_steps, self.factor = d_model, warmup_steps, factor

    def __call__(self, step):
        step_num = tf.cast(step, tf.float32) + 1.0
        return self.factor * self.d_model ** -0.5 * tf.minimum(step_num ** -0.5, step_num * self.warmup_steps ** -1.5)

    def get_config(self):
        return {'d_model': self.d_model, 'warmup_steps': self.warmup_steps, 'factor': self.factor}
