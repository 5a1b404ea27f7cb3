"""Keys of a metric's thresholds; apart from `gate.py`, which needs SciPy, since every run checks them."""
import typing

from data_prep import UserError

CHANGES = ('max_drop', 'max_rise')  # bounds of the change from the blessed model
Bounds = dict[str, typing.Any]  # a metric's thresholds: numbers, and the word of `in_doubt`
# Metrics computed only if a threshold names them -> the metric whose models have them. With as many test images of each
# class, as in ILSVRC, `mean_class_error` is `top1_error`.
OPTIONAL = {'mean_class_error': 'top1_error'}


def check(key: str, bounds: Bounds, by_example: bool, only_changes: bool = False) -> None:
    """Refuse thresholds that bound nothing or contradict each other.

    Args:
      key: where they stand in the configuration.
      by_example: whether the metric is computed from numbers of each example, as a confidence needs.
      only_changes: whether they bound changes alone, not the value.
    """
    bounding = [*CHANGES] if only_changes else ['min', 'max', *CHANGES]
    unknown = {*bounds} - {*bounding, 'confidence', 'in_doubt'}
    if unknown or not bounds:
        raise UserError(f'{key} holds {sorted(unknown) or "nothing"}. Give {" or ".join(bounding)}.')
    if {*CHANGES} <= {*bounds}:
        raise UserError(f'{key}: max_drop and max_rise exclude each other. Give one of them.')
    for each, value in bounds.items():
        if each != 'in_doubt' and isinstance(value, str):
            raise UserError(f'{key}.{each} must be a number; it is {value!r}.')
    if not {'confidence', 'in_doubt'} & {*bounds}:
        return
    if 'confidence' not in bounds or not {*CHANGES} & {*bounds}:
        raise UserError(f'{key}: confidence and in_doubt say how sure max_drop or max_rise must be. Give max_drop or '
                        'max_rise, and a confidence, such as {max_drop: 0.5, confidence: 0.95}.')
    if not 0.5 < bounds['confidence'] < 1:
        raise UserError(f'{key}.confidence must be between 0.5 and 1; it is {bounds["confidence"]:g}.')
    if bounds.get('in_doubt', 'block') not in ('block', 'pass'):
        raise UserError(f'{key}.in_doubt must be block or pass; it is {bounds["in_doubt"]!r}.')
    if not by_example:
        raise UserError(f'{key}.confidence: this metric is computed over all examples together, which cannot be drawn '
                        'again one by one. Leave confidence out.')
