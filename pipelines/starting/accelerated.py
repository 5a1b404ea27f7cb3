"""Plan for accelerators that are not present: the cost model's step replaces a measured one."""
import difflib
import math
import re
from typing import Any

from data_prep import UserError
from pipelines.starting import cost_model, planning, recipes
from pipelines.starting.findings import Candidate, Findings, Sections, merged, resolved, say, values

LENGTH = 64  # longest padded sentence in tokens, which gives the rows of a batch
_FASTEST = 5e-3  # seconds; launching a step's operations takes this long on any device
_STATE = 16  # bytes per parameter: itself, its gradient, and two optimizer slots
_GIGABYTE = 1 << 30


def choose(found: Findings, wanted: str, minutes: float) -> planning.Plan:
    """Return the largest net that sees the data often enough in the minutes of training, according to the cost model.

    Args:
      wanted: number and name of accelerators, such as 8xA100.

    Raises:
      UserError: there is no such accelerator in `accelerators.yaml`, or the cost model lacks the kind of model.
    """
    n, name, on = _read(wanted)
    if found.kind == 'tryon':
        raise UserError('--accelerators: the cost model lacks try-on networks. Leave it out to plan for this machine.')
    least, most = recipes.passes(found.kind, found.examples['train'])
    kept: tuple[Candidate, cost_model.Work, float] | None = None
    for candidate in recipes.candidates(found):
        candidate = _widened(candidate, n)
        work, examples = _work(found, candidate)
        step = max(_FASTEST, cost_model.seconds(work, on, n))
        passes = minutes * 60 / step * examples / found.examples['train']
        say(f'{candidate.words}: {1000 * step:.3g} ms a step, {passes:,.0f} passes')
        if kept and passes < least:
            break
        kept = candidate, work, examples
    assert kept is not None
    candidate, work, examples = kept
    step = max(_FASTEST, cost_model.seconds(work, on, n))
    steps = max(planning.FEWEST_STEPS, min(int(60 * minutes / step),
                                           math.ceil(most * found.examples['train'] / examples)))
    steps = planning.in_parts(steps)
    said = [f'Planned for {n} x {name} by the cost model at {cost_model.ASSUMED:.0%} of the published peak, without '
            'any measurement; nets this small reach less, and reading the data may take longest.']
    sections = merged(found.sections, candidate.sections, planning.training(
        found, steps, steps * examples / found.examples['train']))
    sections['train']['precision'] = on.precision, ''
    sections['train']['strategy'] = _strategy(name, n), f'{n} x {name}'
    time = steps * step / 60
    return planning.Plan(candidate, sections, steps, time, time, 0.0, work.parameters * _STATE / _GIGABYTE,
                         steps * examples / found.examples['train'], said, f'on {n} x {name}')


def _read(wanted: str) -> tuple[int, str, cost_model.Accelerator]:
    known = cost_model.accelerators()
    match = re.fullmatch(r'(\d+)\s*x\s*(.+)', wanted.strip())
    name = match[2].replace('_', ' ') if match else wanted
    if not match or name not in known or int(match[1]) < 1:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        raise UserError(f'--accelerators {wanted}: give a number and one of {", ".join(known)}, such as '
                        f'8x{near[0] if near else "A100"}.')
    return int(match[1]), name, known[name]


def _strategy(name: str, n: int) -> str:
    return 'tpu' if name.startswith('TPU') else 'mirrored' if n > 1 else 'one_device'


def _widened(candidate: Candidate, n: int) -> Candidate:
    """Return the candidate with a batch for n replicas: each has as many rows as one machine would."""
    sections: Sections = {name: dict(keys) for name, keys in candidate.sections.items()}
    for key in ('rows', 'tokens'):
        if key in sections['input']:
            sections['input'][key] = sections['input'][key][0] * n, f'{candidate.rows:,} a replica'
    if 'tokens' in sections['input']:
        sections['input']['rows_multiple_of'] = math.lcm(8, n), 'so that replicas share batches evenly'
    return Candidate(candidate.words, sections, candidate.rows * n)


def _work(found: Findings, candidate: Candidate) -> tuple[cost_model.Work, float]:
    """Return a step's work, and how many examples it sees."""
    config = _config(values(merged(found.sections, candidate.sections)), found)
    model, module = config.model, config.model_spec
    flops, parameters = module.flops_per_unit(model) * candidate.rows, module.parameters(model)
    if config.input.tokens:
        length = min(LENGTH, sum(config.input.buckets) / len(config.input.buckets))
        return cost_model.Work(flops, parameters, candidate.rows, cost_model.ASSUMED), candidate.rows / length
    return cost_model.Work(flops, parameters, candidate.rows, cost_model.ASSUMED), candidate.rows


def _config(sections: dict[str, dict[str, Any]], found: Findings):
    if 'classes' in found.facts:
        sections = {**sections, 'model': {**sections['model'], 'classes': found.facts['classes']}}
    return resolved(sections)
