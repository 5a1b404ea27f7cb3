"""Decide whether a model is blessed: its thresholds, as TFMA checked them, and what chance leaves in doubt."""
import math
import typing

from pipelines.evaluation import chance
from pipelines.evaluation.thresholds import CHANGES, Bounds


class Verdict(typing.NamedTuple):
    """Whether a model is blessed, the reasons, and the metrics outside their thresholds, sorted."""
    blessed: bool
    reasons: list[str]
    failed: list[str]


def failures(thresholds: dict[str, Bounds], validation, other: str) -> tuple[dict[str, list[str]], int]:
    """Return metric -> why it is outside its thresholds, and how many of TFMA's failures are none; see `decide`.

    TFMA also divides a change by the baseline: where that is 0 it fails every change, even an improvement.
    """
    failed: dict[str, list[str]] = {}
    pardoned = 0
    for failure in (failure for by_slice in validation.metric_validations_per_slice for failure in by_slice.failures):
        name, value = failure.metric_key.name, failure.metric_value.double_value.value
        bounds = thresholds.get(name, {})
        if not failure.HasField('metric_value'):
            reason = f'TFMA computed no {name} to compare'
        elif not failure.metric_key.is_diff:
            reason = f'{name} is {value:.4g}, outside {_words(bounds, "min", "max")}'
        elif -bounds.get('max_drop', float('inf')) <= value <= bounds.get('max_rise', float('inf')):
            pardoned += 1
            continue
        else:
            reason = (f'{name} changed by {value:+.4g} from {other}, '
                      f'more than {_words(bounds, "max_drop", "max_rise")} allows')
        failed.setdefault(name, []).append(reason)
    return failed, pardoned


def decide(thresholds: dict[str, Bounds], validation, changes: dict[str, chance.Change] | None,
           other: str = 'the blessed model') -> Verdict:
    """Return whether the model is blessed, and why.

    Args:
      validation: TFMA's result.
      changes: each metric's change from the blessed model; None without one.
      other: what reasons call that model.
    """
    if not thresholds:
        return Verdict(False, ['evaluate.thresholds sets no threshold, so no model can be blessed'], [])
    failed, pardoned = failures(thresholds, validation, other)
    for name, bounds in thresholds.items():
        if changes is not None and 'confidence' in bounds and (
                reason := chance.refusal(name, changes[name], bounds, other)):
            failed.setdefault(name, []).append(reason)
    reasons = [reason for found in failed.values() for reason in found]
    by_tfma = any({'min', 'max'} & {*bounds} or (changes is not None and 'confidence' not in bounds)
                  for bounds in thresholds.values())
    if reasons or (not validation.validation_ok and by_tfma and not pardoned):
        return Verdict(False, reasons or ['TFMA found a metric or slice missing'], sorted(failed))
    skipped = [f'{name}.{key}' for name, bounds in thresholds.items() for key in bounds
               if key in CHANGES and changes is None]
    reasons = ['all thresholds are met']
    if skipped:
        reasons.append(f'no blessed model yet, so {", ".join(skipped)} could not be checked')
    return Verdict(True, reasons, sorted(failed))


def holds(bounds: Bounds, value: float, blessed: float | None, change: chance.Change | None) -> bool:
    """Return whether a metric keeps its thresholds: the definition of what `decide` asks TFMA.

    Args:
      value, blessed: the candidate's and the blessed model's; None without one.
      change: what chance leaves in doubt of their difference, for thresholds with a confidence.
    """
    if not bounds.get('min', -math.inf) <= value <= bounds.get('max', math.inf):
        return False
    if blessed is None or not {*CHANGES} & {*bounds}:
        return True
    if 'confidence' in bounds:
        return change is not None and not chance.refusal('', change, bounds)
    return -bounds.get('max_drop', math.inf) <= value - blessed <= bounds.get('max_rise', math.inf)


def _words(bounds: Bounds, *keys: str) -> str:
    return ' and '.join(f'{key} {bounds[key]:g}' for key in keys if key in bounds)
