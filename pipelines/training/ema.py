"""Exponential moving averages of the weights, which are validated and exported in the weights' place."""
import contextlib

from tensorflow import keras

from data_prep import UserError
from pipelines.core.sections import TrainConfig
from pipelines.training.checkpoints import AVERAGE


def check(settings: TrainConfig) -> None:
    """Check `train.ema`.

    Raises:
      UserError: it is no share, or checkpoints would be averaged, too.
    """
    if not 0 <= settings.ema < 1:
        raise UserError(f'train.ema is the share of the average that an update keeps, from 0 to below 1; it is '
                        f'{settings.ema}.')
    if settings.ema and settings.average_checkpoints > 1 and not settings.monitor:
        raise UserError('train.ema and train.average_checkpoints both average the weights. Set '
                        'train.average_checkpoints=1, or leave train.ema out.')


class Averages:
    """The averages that Keras's optimizers keep: after every update, average := momentum average + (1 - momentum) w.

    They are variables of the optimizers, so checkpoints hold them. (The averages of tf-models-official and TensorFlow
    Addons wrap Keras's legacy optimizers only.)

    Args:
      nets: the networks, by the names of `optimizers`.
      optimizers: not built yet.
      momentum: `train.ema`; 0 keeps no averages.
    """

    def __init__(self, nets: dict[str, keras.Model], optimizers: dict[str, keras.optimizers.Optimizer],
                 momentum: float):
        self._nets, self._optimizers = nets, optimizers if momentum else {}
        for optimizer in self._optimizers.values():
            optimizer.use_ema, optimizer.ema_momentum = True, momentum

    def begin(self) -> None:
        """Set the averages to the weights."""
        for name, optimizer in self._optimizers.items():
            averages = [variable for variable in optimizer.variables if variable.name.startswith(AVERAGE)]
            for average, weight in zip(averages, self._nets[name].trainable_variables, strict=True):
                average.assign(weight)

    @contextlib.contextmanager
    def in_place(self):
        """Set the weights to the averages in this context."""
        trained = [weight for name in self._optimizers for weight in self._nets[name].trainable_variables]
        before = [weight.numpy() for weight in trained]
        for name, optimizer in self._optimizers.items():
            optimizer.finalize_variable_values(self._nets[name].trainable_variables)
        try:
            yield
        finally:
            for weight, value in zip(trained, before):
                weight.assign(value)
