"""Write a configuration as people do: a descriptive head, and a reason beside each key's value."""
import textwrap

from pipelines.core.flow import flow
from pipelines.starting.findings import Findings, Keys
from pipelines.starting.planning import Plan

WIDTH = 100
COMMENT = 36  # column of comments, if the value is short enough


def text(found: Findings, plan: Plan, command: str, minutes: float, memory: float) -> str:
    """Return the configuration file, ready for `pipelines.run --config`."""
    baseline = f'{found.metric} {found.baseline:.3g} by {found.baseline_words}'
    head = [f'Written by: {command}', '', *(f'Data: {sentence}' if n == 0 else sentence
                                             for n, sentence in enumerate(found.said)), '',
            f'Chosen for {minutes:g} minutes and {memory:g} GB: {plan.candidate.words}, {plan.steps:,} steps, '
            f'{plan.passes:.0f} passes over the training data.', *plan.said,
            f'Expect: {plan.expected}. To beat: {baseline}; the gate requires more than that.', '',
            "Next: python -m pipelines.run --config FILE, which ends in a report with what to do next. "
            '--set model.preset=paper --explain shows the paper\'s rules beside these.']
    lines = []
    for paragraph in head:
        lines += textwrap.wrap(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False) or ['']
    parts = ['\n'.join(f'# {line}'.rstrip() for line in lines)]
    for name, keys in plan.sections.items():
        parts.append(f'{name}:\n' + '\n'.join(_lines(keys)))
    return '\n'.join(parts) + '\n'


def _lines(keys: Keys) -> list[str]:
    found = []
    for key, (value, comment) in keys.items():
        line = f'  {key}: {flow(value, sort_keys=False)}'
        if comment and len(line) + len(comment) > WIDTH + 18:
            found += [f'  # {part}' for part in textwrap.wrap(comment, WIDTH)]
            comment = ''
        found.append(f'{line:<{COMMENT}} # {comment}' if comment else line)
    return found
