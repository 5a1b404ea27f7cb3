"""Resolve the modules of papers and data, and their roles.

A module names its other parts (`JOB = 'data_prep.text.job'`) so that it need not import them: training code imports
neither Beam nor serving code, and a stage hashes only the sources of its own roles.
"""
import dataclasses
import difflib
import importlib
import importlib.util
import re
import types
from collections.abc import Iterable
from typing import Any

from data_prep import UserError
from data_prep.core.protocol import DataSpec
from keras_models.protocol import ModelSpec

DECODED = 'pipelines.evaluation.decoded'  # its `Decoded` scores decoded examples in training
PACKAGES = {'data': 'data_prep', 'model': 'keras_models'}
_ALIKE = 0.8  # similarity from which a name counts as a misspelling


def model(name: str) -> ModelSpec:
    """Return the specification of a module of keras_models.

    Raises:
      UserError: there is no such module, it lacks a required name, or it has a misspelt one.
    """
    module = _module(name, 'model')
    values = _offered(ModelSpec, 'module', module, 'model', ('SERVING',), ('SCORER',))
    learns = () if 'train' in values.get('stages', {}) else ('loss_fn', 'optimizers')
    _demand(module, learns, 'model')
    serving, scorer = (_role(module, role, 'model') for role in ('SERVING', 'SCORER'))
    values |= _offered(ModelSpec, 'SERVING', _module(serving, 'model'), 'model')
    return ModelSpec(name=name, title=(module.__doc__ or '').strip().split('\n')[0], serving_module=serving,
                     scorer_module=scorer, **values)


def data(name: str) -> DataSpec:
    """Return the specification of a module of data_prep; raises as `model`."""
    module = _module(name, 'data')
    values = _offered(DataSpec, 'module', module, 'data', ('JOB',))
    return DataSpec(name=name, job_module=_role(module, 'JOB', 'data'), **values)


def job(spec: DataSpec) -> types.ModuleType:
    """Return the module of the Beam job, which has `run` and `build`."""
    return _with(spec.job_module, 'data', 'run', 'build')


def scorer(spec: ModelSpec) -> Any:
    """Return the class that scores a model's outputs, or None if metrics compare them directly."""
    return _with(spec.scorer_module, 'model', 'Scorer').Scorer if spec.scorer_module else None


def sources(config: Any, names: tuple[str, ...]) -> list[str]:
    """Return the modules of a stage's roles, for its hash.

    Args:
      names: any of `data`, `job`, `model`, `serving`, `scorer` and `decoded`, what validation decodes with, if it does.
    """
    data, model = config.data_spec, config.model_spec
    known = {'data': [data.name], 'job': [data.job_module], 'model': [model.name], 'serving': [model.serving_module],
             'scorer': [model.scorer_module],
             'decoded': [DECODED, model.serving_module] if config.decodes_validation else []}
    return [module for name in names for module in known[name] if module]


def _module(name: str, section: str) -> types.ModuleType:
    package = PACKAGES[section]
    if not isinstance(name, str) or not re.fullmatch(rf'{package}(\.\w+)+', name):
        raise UserError(f'{section}.module must be a module of {package}, {package}.<name>; it is {name!r}.')
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f'{section}.module: there is no module {name}. Check its spelling.') from error


def _role(module: types.ModuleType, role: str, section: str) -> str:
    """Return the module named for a role, or nothing; it is found but not imported."""
    name, package = vars(module).get(role, ''), PACKAGES[section]
    try:
        there = not name or bool(re.fullmatch(rf'{package}(\.\w+)+', name) and importlib.util.find_spec(name))
    except ModuleNotFoundError:
        there = False
    if not there:
        raise UserError(f'{section}.module: {module.__name__} says {role} = {name!r}, and there is no such module of '
                        f'{package}.')
    return name


def _offered(spec: Any, part: str, module: types.ModuleType, section: str, roles: tuple[str, ...] = (),
             more: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the values of a spec's fields that one part, a module, has.

    Args:
      roles: further names that it must have.
      more: further names that it may have.
    """
    fields = [field for field in dataclasses.fields(spec) if field.metadata.get('part') == part]
    for field in fields:
        if (old := field.metadata.get('formerly')) and old in vars(module):
            raise UserError(f'{section}.module: {module.__name__} has {old}, which was renamed to '
                            f'{field.metadata["attribute"]}. Rename it.')
    _demand(module, [*(field.metadata['attribute'] for field in fields
                       if field.default is field.default_factory is dataclasses.MISSING), *roles], section)
    _refuse_alike(module, {field.metadata['attribute'] for field in fields} | {*roles, *more})
    return {field.name: vars(module)[field.metadata['attribute']] for field in fields
            if field.metadata['attribute'] in vars(module)}


def _demand(module: types.ModuleType, names: Iterable[str], section: str) -> None:
    if missing := [name for name in names if name not in vars(module)]:
        raise UserError(f'{section}.module: {module.__name__} has no {", no ".join(missing)}, so it cannot be a '
                        f'{section} section.')


def _refuse_alike(module: types.ModuleType, known: set[str]) -> None:
    """Refuse a public name that nearly matches an optional one the module lacks: it would be ignored silently."""
    missing = {name.lower(): name for name in known - {*vars(module)}}
    for name, value in vars(module).items():
        own = getattr(value, '__module__', module.__name__) == module.__name__
        if name.startswith('_') or name in known or isinstance(value, types.ModuleType) or not own:
            continue
        if near := difflib.get_close_matches(name.lower(), missing, n=1, cutoff=_ALIKE):
            raise UserError(f'{module.__name__} has {name}, which nothing uses. Did you mean {missing[near[0]]}? '
                            'Rename it, or begin it with an underscore.')


def _with(name: str, section: str, *attributes: str) -> types.ModuleType:
    module = _module(name, section)
    _demand(module, attributes, section)
    return module
