"""The papers' tables and figures as data: which runs they need, what is measured, and what the paper claims.

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
SCALES = ('small', 'medium', 'paper')


def kind_of(scale: str) -> str:
    """Return the scale whose settings and plots hold at a scale: those of `small` hold for `medium`."""
    return 'small' if scale == 'medium' else scale


@dataclasses.dataclass(frozen=True)
class Scale:
    """Scale of an experiment.

    It names a shipped configuration; overrides for every run (`{data}` is replaced by --data); the seeds of every
    setting; its stages, if they differ from the experiment's; the total time; and, as `chance`, the difference of a
    measure that may be due to the small test set. `medium` takes from `small` what it does not name, and adds to its
    overrides.
    """
    config: str
    set: list[str] = dataclasses.field(default_factory=list)
    seeds: list[int] = dataclasses.field(default_factory=lambda: [1])
    stages: list[str] | None = None
    time: str = 'unmeasured'
    chance: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Setting:
    """One of the compared settings.

    It has overrides, further overrides for one scale and, where they differ, configurations by scale, stages, and the
    scales it runs at; what holds for `small` holds for `medium`, which differs by its `Scale` alone. In overrides,
    `{run: NAME}` is the training run of an earlier setting with the same seed, and `{model: NAME}` the model exported
    from it: to start from, to combine with, or to use at inference.
    """
    set: list[str] = dataclasses.field(default_factory=list)
    small: list[str] = dataclasses.field(default_factory=list)
    paper: list[str] = dataclasses.field(default_factory=list)
    config: dict[str, str] = dataclasses.field(default_factory=dict)
    stages: list[str] | None = None
    scales: list[str] = dataclasses.field(default_factory=lambda: ['small', 'paper'])

    def at(self, scale: str, chosen: Scale) -> tuple[str, list[str]] | None:
        """Return configuration and overrides at a scale, `chosen`; None if it is not run there."""
        kind = kind_of(scale)
        if kind not in self.scales:
            return None
        return self.config.get(kind, chosen.config), [*chosen.set, *self.set, *getattr(self, kind)]


@dataclasses.dataclass(frozen=True)
class Measure:
    """Source of a number of a run.

    `take`: the validation of the last weights or of the `averaged` ones; the `least` of all validations; the `steps` to
    the first validation at or `below` a value, infinite if there is none; the result `evaluated` on the exported model;
    the number of `parameters`; the `minutes` of training. `metric` is a metric's name, without `validation/`; `least`
    and `steps` also accept metrics of training as `training/…`, means over `train.log_every` steps. `exp` and `percent`
    transform the number shown.
    """
    metric: str = ''
    take: Literal['averaged', 'last', 'least', 'steps', 'evaluated', 'parameters', 'minutes'] = 'averaged'
    below: float = 0.0
    exp: bool = False
    percent: bool = False

    @property
    def stage(self) -> str:
        """Stage that produces it."""
        return 'evaluate' if self.take == 'evaluated' else 'train'

    def of(self, run: 'Run') -> float:
        """Return the number of a run; NaN if the run has none."""
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
    """Verdict on a claim: `word` is shows, does not show, not clear or not measured; `why` has the numbers."""
    word: str
    why: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the paper that numbers can support.

    It concerns one `measure` and has one of these forms: the measure `rises` along settings; it is `at_least` or
    `at_most` a number for some settings; the `ratio` of the first setting to the second is at least or at most a
    number.
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
        """Judge the claim by the measured numbers.

        A claim shows if it holds by more than `chance` for every choice of a seed per setting, does not show if it
        fails by as much for all of them, and is not clear otherwise.

        Args:
          values: setting -> the measure, for every seed.
          chance: difference that may be due to chance, in the measure's unit.
        """
        wanted = {name: values.get(name, []) for name in self.settings}
        if lacking := [name for name, found in wanted.items() if not found or any(map(math.isnan, found))]:
            return Verdict('not measured', f'{self.measure} of {", ".join(lacking)} was not measured')
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
        """Return whether the claim holds by this margin, given one value per setting."""
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
    """A table or a figure of a paper.

    Attributes:
      name: `<paper>/<item>`.
      title, source: a short description, and where in which paper.
      needs: the data that --data names; empty if it needs none.
      stages: stages run for every setting and seed; empty if everything is computed from configurations.
      scales: `small` for a quarter of an hour on two cores, `medium` for two hours, `paper` for the paper's own.
      settings: by name; the first is the baseline of comparisons.
      measures: column -> source of its number.
      exhibits: plots: `draw`, a module of `pipelines/reproduction/plots`, and arguments of its `draw` function.
      paper: the paper's numbers, setting -> column -> number or text.
      claims: claims to judge.
      notes: what a reader must know.
      instead: why there is nothing to run, and what shows it instead.
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

    @property
    def why_not_run(self) -> str:
        """Reason why two cores cannot run the item; empty if they can."""
        if self.instead or 'small' in self.scales:
            return self.instead
        return (f"It has no small scale. `python -m pipelines.reproduce {self.name} --scale paper --data DIR` runs the "
                f"paper's. Time: {self.time('paper')}. DIR: {self.needs}.")

    def time(self, scale: str) -> str:
        return self.scales[scale].time if scale in self.scales else '–'


class Run(NamedTuple):
    """One setting with one seed; its pipeline is open on its configuration and has the results of its stages."""
    setting: str
    seed: int
    pipeline: Any
    stages: list[str]


class Study(NamedTuple):
    """Input of a plot: all runs of an experiment, the path given as --data, the page's folder, for image files."""
    runs: list[Run]
    data: str
    out: str
    kind: str  # small or paper


class Figure(NamedTuple):
    """A figure or table of a page.

    Attributes:
      html: an <svg>, an <img> of a file in the page's folder, or a <table>.
      shows_data: whether it shows images, people or sentences of the data. Such a figure is published only if the
        item generates its data.
    """
    title: str
    html: str
    shows_data: bool = False


class Exhibit(NamedTuple):
    """Output of a plot: numbers that join the table, (setting, seed) -> column -> number, and figures."""
    values: dict[tuple[str, int], dict[str, float]] = {}
    figures: list[Figure] = []


def load(name: str) -> Experiment:
    """Load an item by name or from a file `<paper>/<item>.yaml`.

    Raises:
      UserError: there is none, or its file has an unknown or invalid entry.
    """
    file = pathlib.Path(name) if name.endswith('.yaml') else _folder() / f'{name}.yaml'
    if not file.is_file() or not (name.endswith('.yaml') or name in names()):
        raise UserError(f'There is no {name!r}. `python -m pipelines.reproduce --list` lists all items.')
    try:
        return _read(f'{file.absolute().parent.name}/{file.stem}', yaml.safe_load(file.read_text(encoding='utf-8')))
    except (TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise UserError(f'{file}: {error}') from error


def _read(name: str, raw: dict) -> Experiment:
    exhibit = raw.pop('exhibit', [])
    made: dict[str, Any] = {'exhibits': exhibit if isinstance(exhibit, list) else [exhibit]}
    scales = raw.get('scales', {})
    if 'small' in scales and 'medium' in scales:  # the small one, changed
        small, medium = scales['small'], scales['medium']
        scales['medium'] = {**small, **medium, 'set': [*small.get('set', []), *medium.get('set', [])]}
    for key, kind in (('scales', Scale), ('settings', Setting), ('measures', Measure)):
        made[key] = {each: _checked(kind, values or {}) for each, values in raw.pop(key, {}).items()}
    made['claims'] = [_checked(Claim, values) for values in raw.pop('claims', [])]
    experiment = _checked(Experiment, {'name': name, **made, **raw})
    _complete(experiment)
    return experiment


def names() -> list[str]:
    """Return the names of all items, as `<paper>/<item>`."""
    return sorted(f'{paper.name}/{file.stem}' for paper in _folder().iterdir() if paper.is_dir()
                  for file in paper.glob('*.yaml'))


def _folder() -> pathlib.Path:
    return pathlib.Path(str(importlib.resources.files('configs'))) / 'reproduce'


def _checked(kind: type, values: dict):
    """Return an instance of a dataclass, checking every value against its annotation."""
    made = kind(**values)
    for field in dataclasses.fields(kind):
        typeguard.check_type(field.name, getattr(made, field.name), field.type)
    return made


def _complete(experiment: Experiment) -> None:
    """Refuse references to settings, measures or scales that do not exist."""
    if bool(experiment.instead) == bool(experiment.scales):
        raise ValueError('it must have either scales or instead')
    if unknown := {*experiment.scales} - {*SCALES}:
        raise ValueError(f'scales are {", ".join(SCALES)}; not {", ".join(unknown)}')
    above: list[str] = []
    for name, setting in experiment.settings.items():
        for _, other in REFERENCE.findall(' '.join([*setting.set, *setting.small, *setting.paper])):
            if other not in above:
                raise ValueError(f'{name!r} refers to {other!r}, which is not an earlier setting')
        above.append(name)
    drawn = bool(experiment.exhibits)  # a plot may add rows and columns of its own
    claimed = {claim.measure for claim in experiment.claims}
    for measure in (each for scale in experiment.scales.values() for each in scale.chance):
        if measure not in claimed:
            raise ValueError(f'chance is given for {measure!r}, which no claim uses')
    for claim in experiment.claims:
        if claim.measure not in experiment.measures and not drawn:
            raise ValueError(f'{claim.says!r} uses {claim.measure!r}, which is not among measures')
        if lost := [name for name in claim.settings if name not in experiment.settings and not drawn]:
            raise ValueError(f'{claim.says!r} uses {lost[0]!r}, which is not a setting')
        if not claim.settings:
            raise ValueError(f'{claim.says!r} needs one of rises, at_least, at_most, ratio')


def drawer(exhibit: dict[str, Any]) -> Callable[..., Exhibit]:
    """Return the function that draws a plot."""
    return importlib.import_module(f'pipelines.reproduction.plots.{exhibit["draw"]}').draw


def number(value: float | str) -> str:
    """Format a number for tables: four digits, an exponent only if needed."""
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return 'not reached'
    return f'{value:,.0f}' if abs(value) >= 1000 and value == round(value) else f'{value:.4g}'


def spread(values: list[float]) -> tuple[str, str]:
    """Return the mean and, if values differ, their range as text: 5.21, and 5.18 to 5.24."""
    least, most = min(values), max(values)
    return number(sum(values) / len(values)), f'{number(least)} to {number(most)}' if least < most else ''
