"""Run the stages that a table or a figure needs, by their own commands, one after another or side by side."""
import dataclasses
import functools
import os
import re
from concurrent import futures

from data_prep import UserError
from pipelines import export
from pipelines.core import children, config
from pipelines.core.pipeline import Pipeline
from pipelines.reproduction.experiments import REFERENCE, Experiment, Run


@dataclasses.dataclass(eq=False)
class _Plan:
    """A run that is opened once the earlier ones that its overrides name are finished."""
    setting: str
    seed: int
    source: str
    keys: list[str]  # overrides, some with names of earlier settings for their paths
    common: list[str]  # overrides of all runs
    stages: list[str]
    root: str
    earlier: dict[str, '_Plan']  # those that `keys` name, by setting

    @property
    def title(self) -> str:
        return f'{self.setting}, seed {self.seed}'

    @functools.cached_property
    def run(self) -> Run:
        keys = [*(REFERENCE.sub(self._path, key) for key in self.keys), *self.common]
        flags = [part for flag, values in (
            ('--config', [self.source]), ('--set', keys), ('--pipeline_root', [self.root]))
            for value in values for part in (flag, value)]
        return Run(self.setting, self.seed, Pipeline(config.load(self.source, keys), self.root, [], flags), self.stages)

    def _path(self, match: re.Match) -> str:
        kind, name = match.groups()
        earlier = self.earlier[name].run.pipeline
        if kind == 'run':
            return earlier.outputs('train')['model_run'].uri
        return os.path.join(earlier.outputs('export')['model'].uri, export.FORMAT)

    def ready(self) -> bool:
        return all(each.ready() and not each.next_stage() for each in self.earlier.values())

    def next_stage(self) -> str:
        """Return the first stage of a run that is ready which is not finished; empty if all are."""
        return next((each for each in self.stages if not self.run.pipeline.finished(each)), '')

    def step(self) -> tuple[str, str] | None:
        """Return the next stage and what identifies its work; None if it must wait for others or none is left."""
        if not self.ready() or not (stage := self.next_stage()):
            return None
        return stage, self.run.pipeline.work(stage)


def run(experiment: Experiment, scale: str, data: str, root: str, overrides: list[str], jobs: int = 1) -> list[Run]:
    """Run every setting and seed of an experiment; finished stages are not repeated.

    Args:
      data: what --data names, or nothing.
      root: pipeline root of all runs.
      overrides: `section.key=value` for every run.
      jobs: how many stages may run side by side, each on its share of the cores.

    Raises:
      UserError: there is no such scale, or --data is missing.
      SystemExit: a stage failed, and has printed why. Those beside it come to their end.
    """
    plans = _planned(experiment, scale, data, root, overrides)
    if jobs > 1:
        _side_by_side(plans, jobs)
    for plan in plans:
        for each in plan.stages:
            plan.run.pipeline.perform(each, plan.title)
    return [plan.run for plan in plans]


def _planned(experiment: Experiment, scale: str, data: str, root: str, overrides: list[str]) -> list[_Plan]:
    if scale not in experiment.scales:
        raise UserError(f'{experiment.name} has no scale {scale}. Choose from {", ".join(experiment.scales)}.')
    chosen = experiment.scales[scale]
    if experiment.needs and not data and chosen.stages != []:
        raise UserError(f'{experiment.name} needs --data: {experiment.needs}.')
    plans: dict[tuple[str, int], _Plan] = {}
    usual = experiment.stages if chosen.stages is None else chosen.stages
    for name, setting in experiment.settings.items():
        if not (found := setting.at(scale, chosen)):
            continue
        source, keys = found
        stages = usual if setting.stages is None else setting.stages
        for seed in chosen.seeds if stages else chosen.seeds[:1]:
            same = ['evaluate.thresholds={}', f'seed={seed}', *overrides]  # nothing is pushed, so nothing is blessed
            earlier = {match[2]: plans[match[2], seed] for key in keys for match in REFERENCE.finditer(key)}
            plans[name, seed] = _Plan(name, seed, source, [key.replace('{data}', data) for key in keys], same, stages,
                                      root, earlier)
    return [*plans.values()]


def _side_by_side(plans: list[_Plan], jobs: int) -> None:
    """Run the stages of all plans, as many at a time as there are jobs; never twice what two plans share.

    Small nets do not fill several cores: a training of transformer/table3_c_width's base has 10,600 tokens a second on
    two, and 8,200 on each of them when another runs beside it.
    """
    under_way: dict[futures.Future, tuple[str, str]] = {}
    with futures.ThreadPoolExecutor(jobs, initializer=children.confine, initargs=(children.shares(jobs),)) as pool:
        while True:
            for plan in plans:
                step = plan.step() if len(under_way) < jobs else None
                if step and step not in under_way.values():
                    command = plan.run.pipeline.full_command(step[0])
                    under_way[pool.submit(children.run, command, plan.title, True)] = step
            if not under_way:
                return
            for ended in futures.wait(under_way, return_when=futures.FIRST_COMPLETED).done:
                del under_way[ended]
                ended.result()
