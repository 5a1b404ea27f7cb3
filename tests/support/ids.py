"""A pytest plugin that names test parameters: `[rate=0.5-not_jit]` in place of `[0.5-False]`.

A lambda is called as its argument is; where nothing else tells two of them apart, the test gives `ids`.
"""
import dataclasses
import os
import pathlib
import re

LONGEST = 48  # characters of a part


def pytest_make_parametrize_id(val, argname: str) -> str | None:
    """Returns what stands for a value; None for one that pytest is to name."""
    if val is None or isinstance(val, bool):
        return {None: f'no_{argname}', False: f'not_{argname}', True: argname}[val]
    if isinstance(val, int | float):
        return f'{argname}={_words(val)}'
    if getattr(val, '__name__', '') == '<lambda>':
        return argname
    if isinstance(val, str | bytes | dict | list | tuple | set | frozenset) and not val:
        return f'empty_{argname}'
    words = _words(val)
    if words is None or len(words) <= LONGEST:
        return words
    return f'{words[:LONGEST]}...'


def _words(value) -> str | None:
    if isinstance(value, os.PathLike):
        return pathlib.Path(value).name
    if isinstance(value, str | bytes):
        return _text(value)
    if isinstance(value, float):
        return f'{value:.6g}'
    if value is None or isinstance(value, int):
        return str(value)
    if isinstance(value, BaseException):
        return f'{type(value).__name__}: {value}'
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)
                 if getattr(value, field.name) != field.default}
    if isinstance(value, dict):
        return ', '.join(f'{_words(key)}={_part(each)}' for key, each in value.items()) or '{}'
    if isinstance(value, list | tuple):
        sizes = isinstance(value, tuple) and all(isinstance(each, int) and each > 0 for each in value)
        return ('x' if sizes else ', ').join(map(_part, value)) or '[]'
    if isinstance(value, set | frozenset):
        return ', '.join(sorted(map(_part, value))) or '{}'
    name = getattr(value, '__name__', getattr(value, 'name', None))  # a function, a class, a tf.DType
    return name if isinstance(name, str) else None


def _part(value) -> str:
    inside = isinstance(value, dict | list | tuple | set) and value
    return f'({_words(value)})' if inside else str(_words(value))


def _text(value: str | bytes) -> str:
    """A text without what a regular expression escapes; binary data by its beginning."""
    if isinstance(value, bytes):
        if not value.isascii() or b'\0' in value:
            return f'0x{value[:4].hex()} of {len(value)} bytes'
        value = value.decode()
    text = re.sub(r'\\([^\w\s])', r'\1', value).replace('.*', '...').replace('\n', ' ')
    return ''.join(each if each.isprintable() and each.isascii() else f'U+{ord(each):04X}' for each in text)
