"""Read a configuration's YAML, without importing the modules it names: parents, old names of keys, and overrides."""
import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

import yaml

from data_prep import UserError
from pipelines.core import renamed, shipped

DEFAULT = 'demo_translation'
_LARGEST_FILE = 1 << 20  # bytes


@dataclasses.dataclass(frozen=True)
class Raw:
    """A configuration as its user wrote it: nothing is checked, and defaults are missing.

    Attributes:
      source: the file it was read from.
      where: the file and the overrides, for messages.
      values: sections by name, merged over those of its parent, with the overrides.
      old_names: of keys, that the user wrote.
    """
    source: str
    where: str
    values: dict
    old_names: set[str]


class _Loader(yaml.SafeLoader):
    """Plain YAML, except for three rules.

    1e-9 is a number (YAML 1.1 wants 1.0e-9); aliases are refused, because a few lines of them can expand to a billion
    values; and no text may hold a character that no path can.
    """

    def compose_node(self, parent, index):
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f'aliases (*name) are not allowed; write the value out{self.peek_event().start_mark}')
        return super().compose_node(parent, index)

    def construct_scalar(self, node):
        value = super().construct_scalar(node)
        if re.search('[\0\ud800-\udfff]', value):
            raise yaml.YAMLError(f'a null character or an unpaired surrogate in a text{node.start_mark}')
        return value


_Loader.add_implicit_resolver('tag:yaml.org,2002:float', re.compile(r'^[-+]?\d+(\.\d*)?[eE][-+]?\d+$'),
                              list('-+0123456789'))


def read(path: str | None, overrides: Iterable[str] = ()) -> Raw:
    """Read a YAML file, or the demo's.

    Args:
      path: a YAML file or the name of a shipped configuration; None is the demo.
      overrides: `section.key=value` strings, the value in YAML.

    Raises:
      UserError: there is no such file, or it is not YAML; the message names the place.
    """
    old: set[str] = set()
    source, values = _read(path or DEFAULT, old)
    for override in overrides:
        old |= {override.partition('=')[0].strip()} & {*renamed.KEYS}
        _apply(values, renamed.override(override))
    return Raw(source, source + (f' with --set {" ".join(overrides)}' if overrides else ''), values, old)


def _read(path: str, asked: set[str], children: tuple[str, ...] = ()) -> tuple[str, dict]:
    """Return a configuration's file and its values merged over its parent's; old key names are added to `asked`."""
    source = path if path.endswith(('.yaml', '.yml')) else f'{path}.yaml'
    if not os.path.exists(source):
        own, note = shipped.find(path)
        source = own or source
        if note:
            print(f'note: {note}', file=sys.stderr)
    if not os.path.exists(source):
        where = f'{children[-1]}: extends: ' if children else ''
        near = difflib.get_close_matches(os.path.basename(path), shipped.paths(), n=1)
        hint = f'Did you mean {near[0]}? ' if near else ''
        raise UserError(f'{where}There is no configuration {path!r}. {hint}Give a YAML file or a name that '
                        '`python -m pipelines.run --list` shows.')
    raw = _yaml(_text(source), f'{source} is not YAML')
    if not isinstance(raw, dict):
        raise UserError(f'{source} must hold `key: value` sections; it holds {type(raw).__name__}.')
    asked |= renamed.rename(raw, source)
    raw.setdefault('name', os.path.basename(source).rsplit('.', 1)[0])
    raw.setdefault('is_demo', False)
    parent = raw.pop('extends', None)
    if parent is None:
        return source, raw
    if not isinstance(parent, str) or len(children) > 9:
        raise UserError(f'{source}: extends must name another configuration, and not itself; it is {parent!r}.')
    beside = os.path.join(os.path.dirname(source), parent)
    return source, _merge(_read(beside if os.path.exists(beside) else parent, asked, (*children, source))[1], raw)


def _merge(parent: dict, child: dict) -> dict:
    """Merge the child's values over the parent's, section by section."""
    both = {key: _merge(parent[key], value) if isinstance(value, dict) and isinstance(parent.get(key), dict) else value
            for key, value in child.items()}
    return {**parent, **both}


def _yaml(text: str, wrong: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # noqa: S506 (a SafeLoader)
    except Exception as error:  # an overlong number, an invalid date, deep nesting: each raises its own type
        raise UserError(f'{wrong}: {" ".join(str(error).split())}') from error


def _text(path: str) -> str:
    if os.path.getsize(path) > _LARGEST_FILE:
        raise UserError(f'{path} has over {_LARGEST_FILE:,} bytes, so it is not a configuration. Give a YAML file.')
    try:
        with open(path, encoding='utf-8') as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise UserError(f'{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8.') from error


def _apply(raw: dict, override: str) -> None:
    key, equals, text = (part.strip() for part in override.partition('='))
    if not equals or not all(key.split('.')):
        raise UserError(f'--set {override}: Write section.key=value, for example --set train.steps=100.')
    value = _yaml(text, f'--set {override}: {text!r} is not a YAML value')
    *sections, last = key.split('.')
    for section in sections:
        raw = raw.setdefault(section, {})
        if not isinstance(raw, dict):
            raise UserError(f'--set {override}: {section!r} is a single value, not a section.')
    raw[last] = value
