"""Load a configuration: one YAML file holds a whole run, from data to push.

The sections `data` and `input` belong to the module named by `data.module` (its dataclasses `Config`, and `Input`: how
records become batches); `model` and `inference` belong to the module named by `model.module` (its `Config`, and
`Inference`: how a trained model predicts). The other sections are in `sections.py`. `official.modeling.hyperparams`
loads, overrides and locks; it checks no types, so every value is checked here against its annotation. A file with
`extends: NAME` holds only what differs from that configuration.
"""
import dataclasses
import difflib
import os
import re
import sys
import types
import typing
from typing import Any

import typeguard
import yaml
from official.modeling import hyperparams

from data_prep import UserError
from data_prep.core.protocol import DataSpec
from keras_models.protocol import ModelSpec
from pipelines.core import renamed, roles, shipped
from pipelines.core.sections import (
    SECTIONS,
    CanaryConfig,
    ClusterConfig,
    EvaluateConfig,
    ExportConfig,
    InfraValidateConfig,
    PushConfig,
    TrainConfig,
)

DEFAULT = 'demo_translation'
_LARGEST_FILE = 1 << 20  # bytes
_LARGEST = 2 ** 31 - 1  # of whole numbers: batch sizes and seeds have 32 bits
_MAY_BE_ZERO = ('seed', 'steps', 'patience', 'warmup_requests', 'extra_length', 'max_drops', 'retries',
                'combined')


@dataclasses.dataclass(frozen=True)
class Config:
    """A resolved configuration. `data`, `input`, `model` and `inference` are instances of their modules' own classes.

    Attributes:
      is_demo: whether stages run missing earlier stages themselves; `extends` does not inherit it.
      source: the file it was read from.
      data_spec, model_spec: specifications of the data and model modules.
      values: all values as plain nested dicts, for fingerprints, lineage and `--explain`.
    """
    name: str
    seed: int
    is_demo: bool
    data: Any
    input: Any
    model: Any
    inference: Any
    train: TrainConfig
    export: ExportConfig
    evaluate: EvaluateConfig
    infra_validate: InfraValidateConfig
    push: PushConfig
    canary: CanaryConfig
    cluster: ClusterConfig
    source: str
    values: dict
    data_spec: DataSpec
    model_spec: ModelSpec

    @property
    def makes_its_data(self) -> bool:
        """Whether its data is generated, so that nothing has to be fetched."""
        return not any(self.data.files(split) for split in self.data_spec.splits)


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


def load(path: str | None = None, overrides: typing.Iterable[str] = ()) -> Config:
    """Read a configuration.

    Args:
      path: a YAML file or the name of a shipped configuration; None is the demo.
      overrides: `section.key=value` strings, the value in YAML.

    Returns:
      The resolved, locked configuration.

    Raises:
      UserError: no such file, not YAML, an unknown key or a value of the wrong type; the message names the place.
    """
    asked: set[str] = set()  # old names of keys
    source, raw = _read(path or DEFAULT, asked)
    for override in overrides:
        asked |= {override.partition('=')[0].strip()} & {*renamed.KEYS}
        _apply(raw, renamed.override(override))
    where = source + (f' with --set {" ".join(overrides)}' if overrides else '')
    specs = {section: _spec(where, raw, section) for section in roles.PACKAGES}
    data, model = specs['data'], specs['model']
    if data.task not in model.tasks:
        raise UserError(f'{where}: data.module: {data.name} prepares data for the task {data.task}, and '
                        f'{model.name} is for {" and ".join(model.tasks)}. Choose another data.module or model.module.')
    owned = {'data': data.config, 'input': data.input, 'model': model.config, 'inference': model.inference}
    renamed.settle(raw, asked, owned, source)
    template = _template(specs, owned, {section: raw.get(section) or {} for section in specs})
    _check(where, raw, template, '')
    _empty_lists(template, raw)
    template.override(raw, is_strict=False)  # keys are checked above; strict mode refuses free keys in dictionaries
    # An empty model key takes the data section's value of the same name, and `steps` that of train.
    for field in dataclasses.fields(model.config):
        for section in (template.data, template.input, template.train):
            if getattr(template.model, field.name) is None and hasattr(section, field.name):
                template.override({'model': {field.name: getattr(section, field.name)}}, is_strict=True)
    least = getattr(template.data, 'vocab_size', 0)
    if hasattr(template.model, 'vocab_size') and template.model.vocab_size < least:
        raise UserError(f'{where}: model.vocab_size {template.model.vocab_size} is smaller than data.vocab_size '
                        f'{template.data.vocab_size}. Leave it out to use that of the data.')
    template.lock()
    values = template.as_dict()
    if values['name'] in ('', '.', '..') or '/' in values['name']:
        raise UserError(f'{where}: name must be usable as a folder name; it is {values["name"]!r}.')
    sections = {name: cls(**values[name]) for name, cls in SECTIONS.items()}
    for section, cls in owned.items():
        keys = {key: value for key, value in values[section].items() if key != 'module'}
        try:
            sections[section] = cls(**keys)
        except (ValueError, ArithmeticError) as error:
            raise UserError(f'{where}: {section}: {error}') from error
    return Config(name=values['name'], seed=values['seed'], is_demo=values['is_demo'], source=source, values=values,
                  data_spec=data, model_spec=model, **sections)


def empty_keys(config: Config) -> list[str]:
    """Return the model's keys that are empty until the data set is prepared, see `with_data_set`."""
    return [field.name for field in dataclasses.fields(config.model) if getattr(config.model, field.name) is None]


def with_data_set(config: Config, needed: dict[str, int]) -> Config:
    """Return the configuration with the model's empty keys filled from `model` of its data set's manifest.

    Raises:
      UserError: a key of the model is too small for the data set, such as the number of classes.
    """
    for key, value in needed.items():
        if (own := getattr(config.model, key, None)) is not None and own < value:
            raise UserError(f'{config.source}: model.{key} {own} is less than the {value} of the data set. '
                            'Leave it out to use those.')
    empty = {key: value for key, value in needed.items() if getattr(config.model, key, 0) is None}
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **empty)) if empty else config


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


def _spec(where: str, raw: dict, section: str) -> Any:
    """Return the specification of a section's module."""
    given = raw.get(section) or {}
    name: Any = given.get('module') if isinstance(given, dict) else None
    try:
        return {'data': roles.data, 'model': roles.model}[section](name)
    except UserError as error:
        raise UserError(f'{where}: {error}') from error


def _template(specs: dict, owned: dict[str, type], raw: dict[str, dict]) -> hyperparams.Config:
    """Return all defaults as one hyperparams.Config; a model's preset is applied before the file's values."""
    fields = [('name', str, ''), ('seed', int, 1), ('is_demo', bool, False)]
    sections, presets = owned | SECTIONS, {}
    for section, spec in specs.items():
        sections[section] = dataclasses.make_dataclass(section, [('module', str, spec.name)], bases=(spec.config,))
    known, default = specs['model'].presets, {field.name: field.default for field in dataclasses.fields(owned['model'])}
    preset = raw['model'].get('preset', default.get('preset'))
    presets['model'] = known.get(preset, {}) if isinstance(preset, str) else {}
    for section, cls in sections.items():
        params: Any = dataclasses.dataclass(type(section, (cls, hyperparams.Config), {'__post_init__': _post_init}))
        fields.append((section, params, dataclasses.field(default_factory=params)))
    template = dataclasses.make_dataclass('Experiment', fields, bases=(hyperparams.Config,))()
    template.override(presets, is_strict=True)
    return template


def _post_init(self, default_params=None, restrictions=None):
    hyperparams.Config.__post_init__(self, default_params, restrictions)


def _empty_lists(template: hyperparams.Config, raw: dict) -> None:
    """Empty the template's lists that `raw` sets; hyperparams would merge lists of dictionaries item by item."""
    for key, value in raw.items():
        if isinstance(value, dict):
            if isinstance(inner := getattr(template, key, None), hyperparams.Config):
                _empty_lists(inner, value)
        elif isinstance(value, list) and hasattr(template, key):
            setattr(template, key, [])


def _check(where: str, raw: dict, template: hyperparams.Config, prefix: str) -> None:
    """Refuse unknown keys and values of the wrong type, by name."""
    hints = {key: value for key, value in typing.get_type_hints(type(template)).items()
             if key not in ('default_params', 'restrictions')}
    for key, value in raw.items():
        name = f'{prefix}{key}'
        if key not in hints:
            near = _nearest(str(key), template, prefix)
            hint = f'Did you mean {near}?' if near else f'Known keys: {", ".join(sorted(hints))}.'
            raise UserError(f'{where}: unknown key {name}. {hint}')
        inner = getattr(template, key)
        if isinstance(hints[key], type) and issubclass(hints[key], hyperparams.Config):
            if not isinstance(value, dict):
                raise UserError(f'{where}: {name} must be a section of `key: value` lines; it is {value!r}.')
            _check(where, value, inner, f'{name}.')
        else:
            _check_value(where, name, value, hints[key])


def _nearest(key: str, template: hyperparams.Config, prefix: str) -> str:
    """Return the known key most like an unknown one, or nothing; at the top level, keys of all sections count."""
    own = {field.name: getattr(template, field.name) for field in dataclasses.fields(template)}
    if not prefix:
        train_first = sorted(own.items(), key=lambda item: item[0] != 'train')  # some models have a key `steps` too
        inside = {f'{section}.{each.name}': each.name for section, keys in train_first
                  if isinstance(keys, hyperparams.Config) for each in dataclasses.fields(keys)}
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
    _check_keys(where, name, value)
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int | float) and not abs(number) <= (_LARGEST if isinstance(number, int) else 1e38):
            raise UserError(f'{where}: {name} must be a number up to {_LARGEST:,} or 1e38; it is {number}.')
    if isinstance(value, int | float) and not isinstance(value, bool):
        may_be_zero = isinstance(value, float) or hint is float or name.split('.')[-1] in _MAY_BE_ZERO
        if value < 0 or (value == 0 and not may_be_zero):
            raise UserError(f'{where}: {name} must be {"0 or more" if may_be_zero else "more than 0"}; it is {value}.')


def _check_keys(where: str, name: str, value) -> None:
    """Refuse dictionary keys that would clash with hyperparams' own attributes, where it stores them."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key.startswith('_') or hasattr(hyperparams.Config, key):
            raise UserError(f'{where}: {name}.{key}: this name is reserved. Choose another.')
        _check_keys(where, f'{name}.{key}', inner)
