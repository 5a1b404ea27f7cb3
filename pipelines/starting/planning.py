"""Choose net, batch and steps that fit the minutes and memory, from measurements of the candidates."""
import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from pipelines.core import machine
from pipelines.starting import calibration, recipes
from pipelines.starting.calibration import Measured
from pipelines.starting.findings import Candidate, Findings, Keys, Sections, merged, say, values

VALIDATIONS, CHECKPOINTS, AVERAGED = 10, 20, 3
FEWEST_STEPS = 30


class Rest(NamedTuple):
    """Cost of a run besides the training steps, measured on two cores of a Zen 4 with other work running.

    Attributes:
      fixed: seconds of all stages without the steps: imports, Beam's start, export, TFMA, the fresh process, the push.
      prepare: processor seconds that preparing the calibration's small data took there, without those of reading its
        examples; `fixed` is scaled to this machine by it.
      answer: time to predict a test example, over that of a training step for one example.
      memory: gigabytes that evaluation needs beyond the calibration's peak.
    """
    fixed: float
    prepare: float
    answer: float
    memory: float


REST = {'images': Rest(50, 4.8, 6.0, 0.15), 'pairs': Rest(60, 5.0, 8.0, 0.3),
        'trees': Rest(60, 4.0, 20.0, 3.2), 'tryon': Rest(60, 18.8, 2.0, 0.5)}


@dataclasses.dataclass(frozen=True)
class Plan:
    """The chosen plan and its expected cost.

    Attributes:
      minutes, training: of the whole run, and of the steps alone, on this machine when idle.
      cpu_minutes: processor minutes.
      memory: gigabytes.
      passes: how often each training example is seen.
      said: reasons, one sentence each.
    """
    candidate: Candidate
    sections: Sections
    steps: int
    minutes: float
    training: float
    cpu_minutes: float
    memory: float
    passes: float
    said: list[str]
    where: str = 'on this machine when nothing else runs'

    @property
    def expected(self) -> str:
        """Expected time and memory, as text."""
        if not self.cpu_minutes:  # nothing was measured
            return f'{self.minutes:.1f} minutes of training {self.where}, and {self.memory:.1f} GB'
        return (f'{self.minutes:.1f} minutes {self.where}, {self.training:.1f} of them training; '
                f'{self.cpu_minutes:.1f} minutes of processor time, and {self.memory:.1f} GB')


def choose(found: Findings, measure: Callable[[dict[str, dict[str, Any]]], Measured], minutes: float,
           memory: float) -> Plan:
    """Choose the largest net that fits the memory and sees the data often enough in the minutes; else the smallest.

    Args:
      measure: measures the cost of a configuration's sections here, at the precision of the run.
    """
    kept: tuple[Candidate, Measured] | None = None
    said, ratio = list[str](), 1.0
    least, most = recipes.passes(found.kind, found.examples['train'])
    for candidate in recipes.candidates(found):
        if kept and not _worth_trying(found, kept, ratio, minutes, least):
            break
        # In float32 a step of five convolutions took 121 ms here; the run's, in bfloat16, took 82.
        cost = measure(values(merged(found.sections, candidate.sections, {'train': {'precision': (precision(), '')}})))
        seen = _steps(found, cost, minutes) * cost.per_step / found.examples['train']
        fits = cost.memory + REST[found.kind].memory <= memory
        say(f'{candidate.words}: {cost.step.idle * 1000:,.0f} ms a step, {max(0, seen):,.0f} passes over the data in '
            f'{minutes:g} minutes, {cost.memory:.1f} GB')
        if kept is not None:
            ratio = cost.step.idle / cost.per_step / (kept[1].step.idle / kept[1].per_step)
        if kept is None or (fits and seen >= least):
            kept = candidate, cost
        if not fits or seen < least:
            said.append(f'Larger: {candidate.words} would see each example only {max(0, seen):.1f} times, but needs '
                        f'{least:.0f}.' if fits else
                        f'Larger: {candidate.words} needs {cost.memory:.1f} of {memory:g} GB.')
            break
    assert kept is not None
    return _planned(found, *kept, minutes, memory, most, said if kept[0].words not in ' '.join(said) else [])


def _worth_trying(found: Findings, kept: tuple[Candidate, Measured], ratio: float, minutes: float,
                  least: float) -> bool:
    """Return whether a larger net may still see the data often enough; it rarely costs less than a fifth more."""
    _, cost = kept
    dearer = cost._replace(step=calibration.Seconds(*(part * max(1.2, 0.6 * ratio) for part in cost.step)))
    return _steps(found, dearer, minutes) * cost.per_step / found.examples['train'] >= least


def overhead(found: Findings, cost: Measured) -> calibration.Seconds:
    """Return the time of a run without its steps and validations."""
    rest, each, total = REST[found.kind], found.facts.get('seconds', 0), sum(found.examples.values())
    machine = max(0.1, cost.prepare.cpu - min(found.small, total) * each) / rest.prepare
    alone = rest.fixed * machine + total * each
    return calibration.Seconds(*(
        alone + begin + found.examples['test'] * rest.answer * step / cost.per_step
        for step, begin in zip(cost.step, cost.begin)))


def _validation(found: Findings, cost: Measured) -> calibration.Seconds:
    """Return the time of all validations, including the last one with the averaged weights."""
    batches = (VALIDATIONS + 1) * math.ceil(found.examples['validation'] / cost.per_step)
    return calibration.Seconds(*(batches * part for part in cost.evaluation))


def _steps(found: Findings, cost: Measured, minutes: float) -> int:
    """Return the number of steps that fit the minutes; not positive if none do."""
    return int((60 * minutes - overhead(found, cost).idle - _validation(found, cost).idle) / cost.step.idle)


def _planned(found: Findings, candidate: Candidate, cost: Measured, minutes: float, memory: float, most: float,
             said: list[str]) -> Plan:
    possible = _steps(found, cost, minutes)
    enough = math.ceil(most * found.examples['train'] / cost.per_step)
    steps = max(FEWEST_STEPS, min(possible, enough))
    if enough < possible:
        said = [*said, f'Training ends before the {minutes:g} minutes, because more than {most:.0f} passes over the '
                'data gain little.']
    if possible < FEWEST_STEPS:
        said = [*said, f'{minutes:g} minutes leave no time to train; {FEWEST_STEPS} steps only show that everything '
                'works. Give more --minutes.']
    if cost.memory + REST[found.kind].memory > memory:
        said = [*said, f'The smallest net needs more than --memory {memory:g} GB; expect it to be slow or to be '
                'stopped.']
    steps = in_parts(steps)
    time, cpu = (steps * step + rest for step, rest in zip(cost.step, _validation(found, cost)))
    alone = overhead(found, cost)
    passes = steps * cost.per_step / found.examples['train']
    return Plan(candidate, merged(found.sections, candidate.sections, training(found, steps, passes)), steps,
                (alone.idle + time) / 60, time / 60, (alone.cpu + cpu) / 60,
                cost.memory + REST[found.kind].memory, passes, said)


def in_parts(steps: int) -> int:
    """Round steps down to a multiple that checkpoints and validations divide evenly."""
    return max(CHECKPOINTS, steps // CHECKPOINTS * CHECKPOINTS)


def training(found: Findings, steps: int, passes: float) -> Sections:
    """Return the section `train`."""
    least, share = recipes.BOTH_WAYS
    first: Keys = {'curriculum': ([{'steps': round(share * steps), 'swapped': 0.5}],
                                  'first a net learns both directions, because these pairs are few')
                   } if found.facts.get('two_languages') and passes >= least else {}
    return {'train': {
        'steps': (steps, f'{passes:.0f} passes over the training data'), **first, 'precision': (precision(), ''),
        'log_every': (steps // CHECKPOINTS, ''), 'checkpoint_every': (steps // CHECKPOINTS, ''),
        'validate_every': (steps // VALIDATIONS, ''),
        'average_checkpoints': (AVERAGED, 'the mean of the last checkpoints is exported')}}


def precision() -> str:
    """Return bfloat16 if the processor has its matrix products, which halve a step's time; else float32."""
    return 'bfloat16' if 'avx512_bf16' in machine.cpu()[1] else 'float32'
