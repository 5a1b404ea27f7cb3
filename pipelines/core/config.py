"""Load a configuration: one YAML file holds a whole run, from data to push.

The sections `data` and `input` belong to the module named by `data.module` (its dataclasses `Config`, and `Input`: how
records become batches); `model` and `inference` belong to the module named by `model.module` (its `Config`, and
`Inference`: how a trained model predicts). The other sections are in `sections.py`. `official.modeling.hyperparams`
loads, overrides and locks; it checks no types, so every value is checked here against its annotation. A file with
`extends: NAME` holds only what differs from that configuration.
"""
import dataclasses
from collections.abc import Iterable
from typing import Any

from official.modeling import hyperparams

from data_prep import UserError
from data_prep.core.protocol import DataSpec
from keras_models.protocol import ModelSpec
from pipelines.core import checking, reading, renamed, roles
from pipelines.core.sections import (
    SECTIONS,
    CanaryConfig,
    ClusterConfig,
    EvaluateConfig,
    ExportConfig,
    InfraValidateConfig,
    LearningCurveConfig,
    PushConfig,
    TrainConfig,
)


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
    learning_curve: LearningCurveConfig
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
        """Return whether its data is generated, so that nothing has to be fetched."""
        return not any(self.data.files(split) for split in self.data_spec.splits)

    @property
    def decoded_metrics(self) -> tuple[str, ...]:
        """Return the metrics of the gate that `train.monitor` can name though no loss gives them: those of text."""
        is_text = self.data_spec.task in ('text', 'tree')
        return (self.data_spec.metrics or self.model_spec.metrics) if is_text else ()

    @property
    def decodes_validation(self) -> bool:
        """Return whether validation decodes its examples, for `train.monitor`."""
        return self.train.monitor in self.decoded_metrics


def load(path: str | None = None, overrides: Iterable[str] = ()) -> Config:
    """Read a configuration.

    Args:
      path: a YAML file or the name of a shipped configuration; None is the demo.
      overrides: `section.key=value` strings, the value in YAML.

    Returns:
      The resolved, locked configuration.

    Raises:
      UserError: no such file, not YAML, an unknown key or a value of the wrong type; the message names the place.
    """
    found = reading.read(path, overrides)
    where, raw = found.where, found.values
    specs = {section: _spec(where, raw, section) for section in roles.PACKAGES}
    data, model = specs['data'], specs['model']
    if data.task not in model.tasks:
        raise UserError(f'{where}: data.module: {data.name} prepares data for the task {data.task}, and '
                        f'{model.name} is for {" and ".join(model.tasks)}. Choose another data.module or model.module.')
    owned = {'data': data.config, 'input': data.input, 'model': model.config, 'inference': model.inference}
    renamed.settle(raw, found.old_names, owned, found.source)
    template = _template(specs, owned, {section: raw.get(section) or {} for section in specs})
    checking.check(where, raw, template)
    _refuse_reserved(where, raw)
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
    if getattr(template.inference, 'prefer_well_formed', False) and data.task != 'tree':
        raise UserError(f'{where}: inference.prefer_well_formed is for trees; data.module: {data.name} prepares data '
                        f'for the task {data.task}. Leave it out.')
    template.lock()
    values = template.as_dict()
    checking.check_name(where, values['name'])
    sections = {name: cls(**values[name]) for name, cls in SECTIONS.items()}
    for section, cls in owned.items():
        keys = {key: value for key, value in values[section].items() if key != 'module'}
        try:
            sections[section] = cls(**keys)
        except (ValueError, ArithmeticError) as error:
            raise UserError(f'{where}: {section}: {error}') from error
    return Config(name=values['name'], seed=values['seed'], is_demo=values['is_demo'], source=found.source,
                  values=values, data_spec=data, model_spec=model, **sections)


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


def _refuse_reserved(where: str, values: dict, prefix: str = '') -> None:
    """Refuse keys that would clash with hyperparams' own attributes, where it stores them."""
    for key, value in values.items():
        if key.startswith('_') or hasattr(hyperparams.Config, key):
            raise UserError(f'{where}: {prefix}{key}: this name is reserved. Choose another.')
        if isinstance(value, dict):
            _refuse_reserved(where, value, f'{prefix}{key}.')
