"""Check a configuration's keys and values against the annotations of dataclasses."""
import dataclasses
import difflib
import types
import typing
from typing import Any

import typeguard

from data_prep import UserError

_LARGEST = 2 ** 31 - 1  # of whole numbers: batch sizes and seeds have 32 bits
_MAY_BE_ZERO = ('seed', 'steps', 'patience', 'warmup_requests', 'extra_length', 'max_drops', 'retries',
                'combined', 'substitutions', 'subword_samples')


def check(where: str, raw: dict, template: Any, prefix: str = '') -> None:
    """Refuse unknown keys and values of the wrong type, by name.

    Args:
      where: the file, for messages.
      raw: values by key; those of a section are a dictionary.
      template: a dataclass with all keys; sections are dataclasses too.
      prefix: name of the section, with a dot.
    """
    hints = {key: value for key, value in typing.get_type_hints(type(template)).items()
             if key not in ('default_params', 'restrictions')}
    for key, value in raw.items():
        name = f'{prefix}{key}'
        if key not in hints:
            near = _nearest(str(key), template, prefix)
            hint = f'Did you mean {near}?' if near else f'Known keys: {", ".join(sorted(hints))}.'
            raise UserError(f'{where}: unknown key {name}. {hint}')
        inner = getattr(template, key)
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, dict):
                raise UserError(f'{where}: {name} must be a section of `key: value` lines; it is {value!r}.')
            check(where, value, inner, f'{name}.')
        else:
            _check_value(where, name, value, hints[key])


def check_name(where: str, name: str) -> None:
    if name in ('', '.', '..') or '/' in name:
        raise UserError(f'{where}: name must be usable as a folder name; it is {name!r}.')


def _nearest(key: str, template: Any, prefix: str) -> str:
    """Return the known key most like an unknown one, or nothing; at the top level, keys of all sections count."""
    own = {field.name: getattr(template, field.name) for field in dataclasses.fields(template)}
    if not prefix:
        train_first = sorted(own.items(), key=lambda item: item[0] != 'train')  # some models have a key `steps` too
        inside = {f'{section}.{each.name}': each.name for section, keys in train_first
                  if dataclasses.is_dataclass(keys) for each in dataclasses.fields(keys)}
        for dotted, last in inside.items():  # train:steps, or steps alone
            if key.replace(':', '.') == dotted or key == last:
                return dotted
        own |= inside
    close = difflib.get_close_matches(key.replace(':', '.'), own, n=1)
    return f'{prefix}{close[0]}' if close else ''


def _check_value(where: str, name: str, value, hint) -> None:
    bool_as_number = isinstance(value, bool) and bool not in (hint, *typing.get_args(hint))
    try:
        if bool_as_number:
            raise TypeError
        # This version of typeguard ignores `A | B` and would accept any value.
        union = isinstance(hint, types.UnionType)
        typeguard.check_type(name, value, typing.Union[typing.get_args(hint)] if union else hint)  # noqa: UP007
    except TypeError as error:
        expected = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
        expected = expected.replace('typing.', '')
        raise UserError(f'{where}: {name} must be {expected}; it is {value!r}.') from error
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int | float) and not abs(number) <= (_LARGEST if isinstance(number, int) else 1e38):
            raise UserError(f'{where}: {name} must be a number up to {_LARGEST:,} or 1e38; it is {number}.')
    if isinstance(value, int | float) and not isinstance(value, bool):
        may_be_zero = isinstance(value, float) or hint is float or name.split('.')[-1] in _MAY_BE_ZERO
        if value < 0 or (value == 0 and not may_be_zero):
            raise UserError(f'{where}: {name} must be {"0 or more" if may_be_zero else "more than 0"}; it is {value}.')
