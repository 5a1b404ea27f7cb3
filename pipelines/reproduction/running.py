"""Run the stages that a table or a figure needs, by their own commands, one after another or side by side."""
import dataclasses
import os
from concurrent import futures

from data_prep import UserError
from pipelines import export
from pipelines.core import children, config
from pipelines.core.pipeline import Pipeline
from pipelines.reproduction.experiments import REFERENCE, Experiment, Run


@dataclasses.dataclass
class _Plan:
    """A run, opened once the earlier runs that its overrides name are finished."""
    setting: str
    seed: int
    source: str
    keys: list[str]  # overrides, some with names of earlier runs for their paths
    common: list[str]  # overrides of all runs
    stages: list[str]
    run: Run | None = None

    @property
    def title(self) -> str:
        return f'{self.setting}, seed {self.seed}'


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
    plans = _planned(experiment, scale, data, overrides)
    if jobs > 1:
        _side_by_side(plans, root, jobs)
    for plan in plans:
        opened = _opened(plan, plans, root)
        for each in opened.stages:
            opened.pipeline.perform(each, plan.title)
    return [_opened(plan, plans, root) for plan in plans]


def _planned(experiment: Experiment, scale: str, data: str, overrides: list[str]) -> list[_Plan]:
    if scale not in experiment.scales:
        raise UserError(f'{experiment.name} has no scale {scale}. Choose from {", ".join(experiment.scales)}.')
    chosen = experiment.scales[scale]
    if experiment.needs and not data and chosen.stages != []:
        raise UserError(f'{experiment.name} needs --data: {experiment.needs}.')
    plans, usual = [], experiment.stages if chosen.stages is None else chosen.stages
    for name, setting in experiment.settings.items():
        if not (found := setting.at(scale, chosen)):
            continue
        source, keys = found
        stages = usual if setting.stages is None else setting.stages
        for seed in chosen.seeds if stages else chosen.seeds[:1]:
            same = ['evaluate.thresholds={}', f'seed={seed}', *overrides]  # nothing is pushed, so nothing is blessed
            plans.append(_Plan(name, seed, source, [key.replace('{data}', data) for key in keys], same, stages))
    return plans


def _opened(plan: _Plan, plans: list[_Plan], root: str) -> Run:
    """Return a plan's run; earlier runs that it names are finished."""
    if plan.run is None:
        def path(match) -> str:
            kind, name = match.groups()
            earlier = _opened(_named(name, plan, plans), plans, root).pipeline
            if kind == 'run':
                return earlier.outputs('train')['model_run'].uri
            return os.path.join(earlier.outputs('export')['model'].uri, export.FORMAT)
        keys = [*(REFERENCE.sub(path, key) for key in plan.keys), *plan.common]
        flags = [part for flag, values in (('--config', [plan.source]), ('--set', keys), ('--pipeline_root', [root]))
                 for value in values for part in (flag, value)]
        pipeline = Pipeline(config.load(plan.source, keys), root, [], flags)
        plan.run = Run(plan.setting, plan.seed, pipeline, plan.stages)
    return plan.run


def _named(setting: str, plan: _Plan, plans: list[_Plan]) -> _Plan:
    [earlier] = [each for each in plans if each.setting == setting and each.seed == plan.seed]
    return earlier


def _side_by_side(plans: list[_Plan], root: str, jobs: int) -> None:
    """Run the stages of all plans, as many at a time as there are jobs; never twice what two plans share.

    Small nets do not fill several cores: a training of transformer/table3_c_width's base has 10,600 tokens a second on
    two, and 8,200 on each of them when another runs beside it.
    """
    under_way: dict[futures.Future, tuple[str, str]] = {}
    with futures.ThreadPoolExecutor(jobs, initializer=children.confine, initargs=(children.shares(jobs),)) as pool:
        while True:
            for plan in plans:
                step = _next(plan, plans, root) if len(under_way) < jobs else None
                if step and step not in under_way.values():
                    command = _opened(plan, plans, root).pipeline.full_command(step[0])
                    under_way[pool.submit(children.run, command, plan.title, True)] = step
            if not under_way:
                return
            for ended in futures.wait(under_way, return_when=futures.FIRST_COMPLETED).done:
                del under_way[ended]
                ended.result()


def _next(plan: _Plan, plans: list[_Plan], root: str) -> tuple[str, str] | None:
    """Return a plan's next stage and what identifies its work; None if all are finished or it must wait for others."""
    earlier = [_named(match[2], plan, plans) for key in plan.keys for match in REFERENCE.finditer(key)]
    if any(each.run is None or not all(map(each.run.pipeline.finished, each.stages)) for each in earlier):
        return None
    pipeline = _opened(plan, plans, root).pipeline
    stage = next((each for each in plan.stages if not pipeline.finished(each)), '')
    return (stage, pipeline.work(stage)) if stage else None
