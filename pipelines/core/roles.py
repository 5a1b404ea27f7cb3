"""Where the parts of papers and of data are: modules become specs here, and roles, which are names, become modules.

A module says by name where its other parts are (`JOB = 'data_prep.text.job'`), so that it need not import them: what
trains imports no Beam and nothing that serves, and a stage hashes the sources of its own roles alone.
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

PACKAGES = {'data': 'data_prep', 'model': 'keras_models'}
_ALIKE = 0.8  # of two names, from which on one is taken for a misspelt other


def model(name: str) -> ModelSpec:
    """Returns what a module of keras_models offers.

    Raises:
      UserError: there is no such module, it lacks something, or a name of it is nearly one that is asked for.
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
    """Returns what a module of data_prep offers. Raises as `model`."""
    module = _module(name, 'data')
    values = _offered(DataSpec, 'module', module, 'data', ('JOB',))
    return DataSpec(name=name, job_module=_role(module, 'JOB', 'data'), **values)


def job(spec: DataSpec) -> types.ModuleType:
    """Returns the module of a Beam job, with `run` and `build`."""
    return _with(spec.job_module, 'data', 'run', 'build')


def scorer(spec: ModelSpec) -> Any:
    """Returns the class that scores a model's answers, or None where metrics compare them."""
    return _with(spec.scorer_module, 'model', 'Scorer').Scorer if spec.scorer_module else None


def sources(config, names: tuple[str, ...]) -> list[str]:
    """Returns the modules of a stage's roles, for its hash.

    Args:
      names: of `data`, `job`, `model`, `serving` and `scorer`.
    """
    known = {'data': config.data_spec.name, 'job': config.data_spec.job_module, 'model': config.model_spec.name,
             'serving': config.model_spec.serving_module, 'scorer': config.model_spec.scorer_module}
    return [known[name] for name in names if known[name]]


def _module(name: str, section: str) -> types.ModuleType:
    package = PACKAGES[section]
    if not isinstance(name, str) or not re.fullmatch(rf'{package}(\.\w+)+', name):
        raise UserError(f'{section}.module must name a module of {package}, as {package}.<name>; it is {name!r}.')
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UserError(f'{section}.module: there is no {name}.') from error


def _role(module: types.ModuleType, role: str, section: str) -> str:
    """The module that another names for one of its parts, or nothing; it is looked for, and not imported."""
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
    """The values of a spec's fields that one part, a module, has.

    Args:
      roles: further names it must have.
      more: further names it may have.
    """
    fields = [field for field in dataclasses.fields(spec) if field.metadata.get('part') == part]
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
    """Refuses a public name that is nearly one the module may have and has not: it would be passed over silently."""
    missing = {name.lower(): name for name in known - {*vars(module)}}
    for name, value in vars(module).items():
        own = getattr(value, '__module__', module.__name__) == module.__name__
        if name.startswith('_') or name in known or isinstance(value, types.ModuleType) or not own:
            continue
        if near := difflib.get_close_matches(name.lower(), missing, n=1, cutoff=_ALIKE):
            raise UserError(f'{module.__name__} has {name}, which nothing asks for; did you mean {missing[near[0]]}? '
                            'Rename it, or put an underscore before it.')


def _with(name: str, section: str, *attributes: str) -> types.ModuleType:
    module = _module(name, section)
    _demand(module, attributes, section)
    return module
