"""A curriculum: phases of a training that see smaller images, other batches or swapped pairs, or train fewer networks.

The phases of `train.curriculum` come first, in order; the remaining steps follow the configuration itself, and phases
beyond `train.steps` are cut off. Everything a phase changes is a function of the step, so an interrupted run resumes
within it exactly.
"""
import dataclasses
from typing import Any

from data_prep import UserError
from pipelines.core.config import Config

_KEYS = {'steps': int, 'rows': int, 'size': list, 'crop': int, 'scales': list, 'swapped': float, 'networks': list}
_OF_MODELS = {'networks': 'trainable_networks', 'crop': 'crop'}  # keys that change the section `model`, and its names
_KINDS = {int: 'a whole number above 0', float: 'a share, such as 0.5', list: 'a list'}


@dataclasses.dataclass(frozen=True)
class Phase:
    """Steps [start, stop), with the sections `input` and `model` that hold there.

    Attributes:
      graph: number of the first phase with this `model`.
    """
    start: int
    stop: int
    input: Any
    model: Any
    graph: int = 0


def phases(config: Config) -> list[Phase]:
    """Return the phases of a training, which together hold all its steps.

    Raises:
      UserError: a phase has an unknown key, a wrong value, or one that data or model do not support.
    """
    found: list[Phase] = []
    start = 0
    for number, keys in enumerate(config.train.curriculum):
        found.append(_phase(config, f'{config.source}: train.curriculum[{number}]', keys, start))
        start = found[-1].stop
    steps = config.train.steps
    found.append(Phase(start, max(start, steps), config.input, config.model))
    begun = [phase for phase in found if phase.start < steps] or found[-1:]
    models = [phase.model for phase in begun]
    return [dataclasses.replace(phase, stop=min(phase.stop, steps), graph=models.index(phase.model)) for phase in begun]


def at(phases: list[Phase], step: int) -> int:
    """Return the number of the phase that holds a step, the last for steps beyond all."""
    return next((number for number, phase in enumerate(phases) if step < phase.stop), len(phases) - 1)


def graph_at(phases: list[Phase], step: int) -> int:
    """Return the number of the first phase with the section `model` of a step's.

    Phases that differ in their batches alone so share the compiled steps of every shape.
    """
    return phases[at(phases, step)].graph


def _phase(config: Config, where: str, keys: dict, start: int) -> Phase:
    for key, value in keys.items():
        if key not in _KEYS:
            raise UserError(f'{where}: unknown key {key}. Known keys: {", ".join(sorted(_KEYS))}.')
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool) or (isinstance(value, int) and value < 1):
            raise UserError(f'{where}: {key} must be {_KINDS[_KEYS[key]]}; it is {value!r}.')
    if 'steps' not in keys:
        raise UserError(f'{where} needs steps, the number of its weight updates.')
    if keys.get('networks') == []:
        raise UserError(f'{where}: networks is empty, so nothing would be trained. Name some, or leave it out.')
    if 'rows' in keys and config.input.rows is None:
        raise UserError(f'{where}: rows: batches are of input.tokens {config.input.tokens}, not of rows. Leave it out.')
    if not config.model_spec.any_size and (sizes := keys.keys() & {'size', 'crop'}):
        raise UserError(f'{where}: {min(sizes)}: the networks of {config.model_spec.name} take images of one size. '
                        'Leave it out.')
    batches = {key: value for key, value in keys.items() if key not in ('steps', 'networks')}
    if absent := [key for key in batches if not hasattr(config.input, key)]:
        raise UserError(f'{where}: {absent[0]}: the section input has no such key for {config.data_spec.name}. '
                        'Leave it out.')
    if 'networks' in keys and not hasattr(config.model, 'trainable_networks'):
        raise UserError(f'{where}: networks: {config.model_spec.name} trains all its networks together. Leave it out.')
    if other := {*keys.get('networks', [])} - {*getattr(config.model, 'trainable_networks', [])}:
        raise UserError(f'{where}: networks: {min(other)} is not one of model.trainable_networks, '
                        f'{", ".join(config.model.trainable_networks)}.')
    changed = {name: keys[key] for key, name in _OF_MODELS.items() if key in keys}
    try:
        model = dataclasses.replace(config.model, **changed) if changed else config.model
        own = dataclasses.replace(config.input, **batches)
    except (TypeError, ValueError) as error:
        raise UserError(f'{where}: {error}.') from error
    return Phase(start, start + keys['steps'], own, model)
