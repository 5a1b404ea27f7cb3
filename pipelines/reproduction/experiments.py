"""Tables and figures of the papers as data: what is run for each, what is measured, and what the paper claims of it.

An item is a file `configs/reproduce/<paper>/<item>.yaml`, see `Experiment`; `pipelines/reproduce.py` runs it.
"""
import dataclasses
import importlib
import importlib.resources
import itertools
import math
import os
import pathlib
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import typeguard
import yaml

from data_prep import UserError

REFERENCE = re.compile(r'\{(run|model): ([^{}]*)\}')
SCALES = ('small', 'paper')


@dataclasses.dataclass(frozen=True)
class Scale:
    """How large an experiment is made: a shipped configuration, what of it is overridden in every run (`{data}` is what
    --data names), the seeds of every setting, its stages if they are not the experiment's, how long all of it takes,
    and what difference of a measure may be due to `chance`, to which of so few things were drawn for the test."""
    config: str
    set: list[str] = dataclasses.field(default_factory=list)
    seeds: list[int] = dataclasses.field(default_factory=lambda: [1])
    stages: list[str] | None = None
    time: str = 'unmeasured'
    chance: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is compared: overrides, more of them at one scale, and where it differs its configurations by scale, its
    stages, and the scales it is run at. In overrides `{run: NAME}` is the training run of a setting above, of the same
    seed, and `{model: NAME}` the model exported from it: what a net begins with, is fused with or asks."""
    set: list[str] = dataclasses.field(default_factory=list)
    small: list[str] = dataclasses.field(default_factory=list)
    paper: list[str] = dataclasses.field(default_factory=list)
    config: dict[str, str] = dataclasses.field(default_factory=dict)
    stages: list[str] | None = None
    scales: list[str] = dataclasses.field(default_factory=lambda: [*SCALES])


@dataclasses.dataclass(frozen=True)
class Measure:
    """Where a number of a run comes from.

    `take`: the validation of the last weights or of the `averaged` ones; the `least` of all validations; the `steps` to
    the first validation at or `below` a value, infinite if there is none; what was `evaluated` of the exported model;
    the number of `parameters`; the `minutes` of training. `metric` is a metric's name, without `validation/`; `least`
    and `steps` also know those of training, as `training/…`, means over `train.log_every` steps. `exp` and `percent`
    say what is shown of its number.
    """
    metric: str = ''
    take: Literal['averaged', 'last', 'least', 'steps', 'evaluated', 'parameters', 'minutes'] = 'averaged'
    below: float = 0.0
    exp: bool = False
    percent: bool = False

    @property
    def stage(self) -> str:
        """Which leaves it."""
        return 'evaluate' if self.take == 'evaluated' else 'train'

    def of(self, run: 'Run') -> float:
        """The number for a run; NaN where the run has none."""
        if self.take == 'evaluated':
            value = run.pipeline.outputs('evaluate')['evaluation'].properties['metrics']['overall'].get(self.metric)
        else:
            found = run.pipeline.outputs('train')['model_run']
            if self.take == 'parameters':
                value = sum(found.properties['parameters'].values())
            elif self.take == 'minutes':
                value = found.properties['seconds'] / 60
            elif self.take in ('averaged', 'last'):
                value = found.properties[self.take].get(f'validation/{self.metric}')
            else:
                from pipelines.reporting import report
                name = self.metric.removeprefix('training/')
                tag = name if name != self.metric else f'validation/{name}'
                curve = report.curves(os.path.join(found.uri, 'tensorboard')).get(tag, [])
                value = (min((value for _, value in curve), default=None) if self.take == 'least' else
                         next((step for step, value in curve if value <= self.below), math.inf))
        if value is None:
            return math.nan
        value = math.exp(value) if self.exp else value
        return 100 * value if self.percent else value


class Verdict(NamedTuple):
    """`word` is shows, does not show, not clear or not measured; `why` has the numbers."""
    word: str
    why: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of the paper that numbers can bear out.

    It is of one `measure`, and one of: the measure `rises` along settings; it is `at_least` or `at_most` a number for
    some settings; the first setting's over the second's, their `ratio`, is at least or at most a number.
    """
    says: str
    measure: str
    rises: list[str] = dataclasses.field(default_factory=list)
    at_least: dict[str, float] = dataclasses.field(default_factory=dict)
    at_most: dict[str, float] = dataclasses.field(default_factory=dict)
    ratio: list[str] = dataclasses.field(default_factory=list)
    least: float | None = None
    most: float | None = None

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys([*self.rises, *self.at_least, *self.at_most, *self.ratio]))

    def judged(self, values: dict[str, list[float]], chance: float = 0.0) -> Verdict:
        """Whether what was measured bears it out.

        A claim shows if it holds by more than `chance` whichever seed is taken of each setting, does not if it fails by
        as much for all, and is not clear in between.

        Args:
          values: setting -> the measure, of every seed.
          chance: what may be due to it, in the measure's unit.
        """
        wanted = {name: values.get(name, []) for name in self.settings}
        if lacking := [name for name, found in wanted.items() if not found or any(map(math.isnan, found))]:
            return Verdict('not measured', f'{self.measure} of {", ".join(lacking)} is not known')
        drawn = [dict(zip(wanted, seeds)) for seeds in itertools.product(*wanted.values())]
        word = ('shows' if all(self._holds(values, chance) for values in drawn) else
                'not clear' if any(self._holds(values, -chance) for values in drawn) else 'does not show')
        said = {name: spread(found) for name, found in wanted.items()}
        why = '; '.join(f'{name} {mean}' + (f' ({least_to_most})' if least_to_most else '')
                        for name, (mean, least_to_most) in said.items())
        if self.ratio:
            over, under = (sum(wanted[name]) / len(wanted[name]) for name in self.ratio)
            why += f': a ratio of {number(over / under if under else math.nan)}'
        if chance:
            why += f'; {number(chance)} may be chance'
        return Verdict(word, f'{self.measure}: {why}')

    def _holds(self, value: dict[str, float], margin: float) -> bool:
        """For a value of every setting, with so much to spare."""
        rising = [value[name] for name in self.rises]
        holds = (all(less + margin < more for less, more in zip(rising, rising[1:]))
                 and all(value[name] >= bound + margin for name, bound in self.at_least.items())
                 and all(value[name] <= bound - margin for name, bound in self.at_most.items()))
        if self.ratio:
            over, under = (value[name] for name in self.ratio)
            low, high = (-math.inf if self.least is None else self.least, math.inf if self.most is None else self.most)
            holds = holds and low * under + margin <= over <= high * under - margin
        return holds


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Attributes:
      name: `<paper>/<item>`.
      title, source: what it is, in a few words, and where in which paper.
      needs: what --data names; nothing, if it needs none.
      stages: what is run for every setting and seed; nothing for what is computed from configurations.
      scales: `small` for two cores, `paper` for the paper's own.
      settings: by name; the first is what others are compared with.
      measures: column -> where its number comes from.
      exhibits: `draw`, a module of `pipelines/reproduction/plots`, and what its `draw` is given besides.
      paper: the paper's numbers, setting -> column -> number or words.
      claims: what is judged.
      notes: what a reader must know.
      instead: why there is nothing to run, and what shows it.
    """
    name: str
    title: str
    source: str
    needs: str = ''
    stages: list[str] = dataclasses.field(default_factory=list)
    scales: dict[str, Scale] = dataclasses.field(default_factory=dict)
    settings: dict[str, Setting] = dataclasses.field(default_factory=dict)
    measures: dict[str, Measure] = dataclasses.field(default_factory=dict)
    exhibits: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    paper: dict[str, dict[str, float | str]] = dataclasses.field(default_factory=dict)
    claims: list[Claim] = dataclasses.field(default_factory=list)
    notes: str = ''
    instead: str = ''

    def time(self, scale: str) -> str:
        return self.scales[scale].time if scale in self.scales else '–'


class Run(NamedTuple):
    """One setting with one seed: its pipeline is opened on its configuration, and has what was run of it."""
    setting: str
    seed: int
    pipeline: Any
    stages: list[str]


class Study(NamedTuple):
    """What an exhibit sees: all runs of an experiment, what --data named, and the page's folder, for its pictures."""
    runs: list[Run]
    data: str
    out: str
    scale: str


class Figure(NamedTuple):
    """One figure or table of a page.

    Attributes:
      html: an <svg>, an <img> of a file in the page's folder, or a <table>.
      shows_data: whether images, people or sentences of the data are in it. It is published only where the item makes
        its own data.
    """
    title: str
    html: str
    shows_data: bool = False


class Exhibit(NamedTuple):
    """What an exhibit found: (setting, seed) -> column -> number, which join the table, and figures."""
    values: dict[tuple[str, int], dict[str, float]] = {}
    figures: list[Figure] = []


def load(name: str) -> Experiment:
    """An item by its name, or from a file of that form, `<paper>/<item>.yaml`.

    Raises:
      UserError: there is none, or its file says something that is not known here.
    """
    file = pathlib.Path(name) if name.endswith('.yaml') else _folder() / f'{name}.yaml'
    if not file.is_file() or not (name.endswith('.yaml') or name in names()):
        raise UserError(f'There is no {name!r}; `python -m pipelines.reproduce --list` names what there is.')
    try:
        return _read(f'{file.absolute().parent.name}/{file.stem}', yaml.safe_load(file.read_text(encoding='utf-8')))
    except (TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise UserError(f'{file}: {error}') from error


def _read(name: str, raw: dict) -> Experiment:
    exhibit = raw.pop('exhibit', [])
    made: dict[str, Any] = {'exhibits': exhibit if isinstance(exhibit, list) else [exhibit]}
    for key, kind in (('scales', Scale), ('settings', Setting), ('measures', Measure)):
        made[key] = {each: _checked(kind, values or {}) for each, values in raw.pop(key, {}).items()}
    made['claims'] = [_checked(Claim, values) for values in raw.pop('claims', [])]
    experiment = _checked(Experiment, {'name': name, **made, **raw})
    _complete(experiment)
    return experiment


def names() -> list[str]:
    """All items, as `<paper>/<item>`."""
    return sorted(f'{paper.name}/{file.stem}' for paper in _folder().iterdir() if paper.is_dir()
                  for file in paper.glob('*.yaml'))


def _folder() -> pathlib.Path:
    return pathlib.Path(str(importlib.resources.files('configs'))) / 'reproduce'


def _checked(kind: type, values: dict):
    """An instance, of which every value has the type its class says."""
    made = kind(**values)
    for field in dataclasses.fields(kind):
        typeguard.check_type(field.name, getattr(made, field.name), field.type)
    return made


def _complete(experiment: Experiment) -> None:
    """Refuses names that lead nowhere."""
    if bool(experiment.instead) == bool(experiment.scales):
        raise ValueError('it must have either scales or instead')
    if unknown := {*experiment.scales} - {*SCALES}:
        raise ValueError(f'scales are {" and ".join(SCALES)}; not {", ".join(unknown)}')
    above: list[str] = []
    for name, setting in experiment.settings.items():
        for _, other in REFERENCE.findall(' '.join([*setting.set, *setting.small, *setting.paper])):
            if other not in above:
                raise ValueError(f'{name!r} names {other!r}, which is no setting above it')
        above.append(name)
    drawn = bool(experiment.exhibits)  # an exhibit may bring rows and columns of its own
    claimed = {claim.measure for claim in experiment.claims}
    for measure in (each for scale in experiment.scales.values() for each in scale.chance):
        if measure not in claimed:
            raise ValueError(f'chance is of {measure!r}, of which nothing is claimed')
    for claim in experiment.claims:
        if claim.measure not in experiment.measures and not drawn:
            raise ValueError(f'{claim.says!r} is of {claim.measure!r}, which nothing measures')
        if lost := [name for name in claim.settings if name not in experiment.settings and not drawn]:
            raise ValueError(f'{claim.says!r} is of {lost[0]!r}, which is no setting')
        if not claim.settings:
            raise ValueError(f'{claim.says!r} needs one of rises, at_least, at_most, ratio')


def drawer(exhibit: dict[str, Any]) -> Callable[..., Exhibit]:
    """The function of an exhibit."""
    return importlib.import_module(f'pipelines.reproduction.plots.{exhibit["draw"]}').draw


def number(value: float | str) -> str:
    """As tables show it: four digits, no exponent where none is needed."""
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return 'not reached'
    return f'{value:,.0f}' if abs(value) >= 1000 and value == round(value) else f'{value:.4g}'


def spread(values: list[float]) -> tuple[str, str]:
    """The mean, and of values that differ the least and the most: 5.21, and 5.18 to 5.24."""
    least, most = min(values), max(values)
    return number(sum(values) / len(values)), f'{number(least)} to {number(most)}' if least < most else ''
