"""Report a loss that is not finite: the step, the layer whose weights grew, and which key to change."""
import math
from collections.abc import Iterable

import tensorflow as tf

from data_prep import UserError
from pipelines.core.config import Config

GROWN = 1.5  # growth factor from which a layer is reported
_CALMER = 3  # divisor of the learning rate in the suggested remedy


def sizes(nets: dict) -> dict[str, float]:
    """Return the root mean square of every trainable matrix or kernel, by network and layer."""
    found = {}
    for net in nets.values():
        for variable in net.trainable_variables:
            if variable.shape.rank > 1:
                name = variable.name.split(':')[0].removesuffix('/kernel').removesuffix('/embeddings')
                # The square of weights this large overflows float32.
                found[f'{net.name}: {name}' if len(nets) > 1 else name] = float(
                    tf.sqrt(tf.reduce_mean(tf.square(tf.cast(variable, tf.float64)))))
    return found


def check(totals: Iterable[dict], last: int, nets: dict, began: dict[str, float],
          config: Config) -> None:
    """Raise `UserError` if a loss of these steps is not finite.

    The trainer applies no gradient of such a loss, so the weights are still those that produced it.

    Args:
      totals: losses and metrics of each step, name -> (sum, normaliser).
      last: number of the last step.
      began: `sizes` at the start of training.
    """
    totals = list(totals)
    for number, total in enumerate(totals):
        for name, (value, _) in total.items():
            if name.startswith('loss/') and not math.isfinite(float(value)):
                step, part = last - len(totals) + number + 1, name.removeprefix('loss/')
                said = f'loss of {part}' if len(nets) > 1 else 'loss'
                raise UserError(f'train: at step {step:,} the {said} is {float(value)}. {_where(sizes(nets), began)} '
                                f'{remedy(config, part)}')


def _where(now: dict[str, float], began: dict[str, float]) -> str:
    broken = [name for name, size in now.items() if not math.isfinite(size)]
    if broken:
        return f'The weights of {broken[0]} are not finite either.'
    growth = {name: now[name] / size for name, size in began.items() if size}
    layer = max(growth, key=growth.__getitem__, default='')
    if not layer or growth[layer] < GROWN:
        return 'No layer\'s weights had grown by then, so the outputs were too large from the start.'
    return f'It grew in {layer}, whose weights are {growth[layer]:.3g} times as large as at the start.'


def remedy(config: Config, part: str) -> str:
    """Suggest a key to change and its new value: the first that the configuration has not changed yet."""
    if getattr(config.input, 'standardise', True) is False:
        return 'The net\'s inputs reach 255. Standardise them, with --set input.standardise=true.'
    if getattr(config.model, 'clip_norm', 1) == 0:
        return 'Clip the gradients, with --set model.clip_norm=1.'
    for net in (name for name in vars(config.model) if part.startswith(name)):
        own = getattr(config.model, net)
        if isinstance(own, dict) and 'learning_rate' in own:
            return _lower(f'{net}.learning_rate', own['learning_rate'])
    follows_cosine = getattr(config.model, 'schedule', '') != 'inverse_square_root'
    for key in ('learning_rate', 'learning_rate_factor')[0 if follows_cosine else 1:]:
        if getattr(config.model, key, None):
            return _lower(key, getattr(config.model, key))
    return 'Lower the learning rate.'


def _lower(key: str, value: float) -> str:
    return f'Lower the learning rate, with --set model.{key}={value / _CALMER:.2g}.'
