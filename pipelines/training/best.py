"""The best validation of a run: its checkpoint is kept and exported, and training ends once no better one follows."""
import math

import tensorflow as tf

from data_prep import UserError
from pipelines.core.sections import TrainConfig


class Best:
    """The best value of `train.monitor` so far.

    Its variables belong into checkpoints, so that a resumed run ends where an undisturbed one does. Create it in the
    strategy's scope.

    Args:
      decoded: further metrics that validation could compute, for the message about a wrong name.
      since: the step at which the curriculum's last phase begins. Validations up to there do not use up
        `train.patience`: a first phase may not even train the network whose metric it is.

    Attributes:
      value, step: the best value, and the step it was validated at; step is -1 before the first.
      worse: number of validations since, of the last phase.
    """

    def __init__(self, settings: TrainConfig, decoded: tuple[str, ...] = (), since: int = 0):
        self._since = since
        self._settings, self._sign, self._decoded = settings, 1 if settings.monitor_mode == 'min' else -1, decoded
        self.value, self.step, self.worse = (
            tf.Variable(start, trainable=False, dtype=dtype, name=name,
                        aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
            for name, start, dtype in (('best_value', self._sign * math.inf, tf.float64), ('best_step', -1, tf.int64),
                                       ('worse', 0, tf.int64)))

    @property
    def state(self) -> dict[str, tf.Variable]:
        """Return what checkpoints hold."""
        return {'value': self.value, 'step': self.step, 'worse': self.worse} if self._settings.monitor else {}

    @property
    def stopped(self) -> bool:
        """Return whether `train.patience` validations in a row were not better."""
        return 0 < self._settings.patience <= int(self.worse.numpy())

    def update(self, validation: dict[str, float], step: int) -> bool:
        """Take in a validation, and return whether it is the best; equal is not better, and NaN is worse.

        Raises:
          UserError: it has no metric of the name `train.monitor`.
        """
        name = self._settings.monitor
        if not name:
            return False
        if name not in validation:
            raise UserError(f'train.monitor: validation computes no {name!r}. Give one of '
                            f'{", ".join([*validation, *self._decoded])}.')
        if self._sign * validation[name] < self._sign * float(self.value.numpy()):
            self.value.assign(validation[name])
            self.step.assign(step)
            self.worse.assign(0)
            return True
        if step > self._since:
            self.worse.assign_add(1)
        return False

    def facts(self) -> dict[str, float | int | str]:
        """Return metric, value and step, for the facts of the run; nothing if none was monitored or validated."""
        step = int(self.step.numpy())
        return {'metric': self._settings.monitor, 'value': float(self.value.numpy()), 'step': step} if step >= 0 else {}
