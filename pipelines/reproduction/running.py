"""Run the stages that a table or a figure needs, by their own commands."""
import os

from data_prep import UserError
from pipelines import export
from pipelines.core import config
from pipelines.core.pipeline import Pipeline
from pipelines.reproduction.experiments import REFERENCE, Experiment, Run


def run(experiment: Experiment, scale: str, data: str, root: str, overrides: list[str]) -> list[Run]:
    """Run every setting and seed of an experiment; finished stages are not repeated.

    Args:
      data: what --data names, or nothing.
      root: pipeline root of all runs.
      overrides: `section.key=value` for every run.

    Raises:
      UserError: there is no such scale, or --data is missing.
    """
    if scale not in experiment.scales:
        raise UserError(f'{experiment.name} has no scale {scale}. Choose from {", ".join(experiment.scales)}.')
    chosen = experiment.scales[scale]
    if experiment.needs and not data and chosen.stages != []:
        raise UserError(f'{experiment.name} needs --data: {experiment.needs}.')
    common = experiment.stages if chosen.stages is None else chosen.stages
    done: list[Run] = []
    for name, setting in experiment.settings.items():
        if not (found := setting.at(scale, chosen)):
            continue
        source, chosen_keys = found
        stages = common if setting.stages is None else setting.stages
        for seed in chosen.seeds if stages else chosen.seeds[:1]:
            keys = [filled(key, data, seed, done) for key in chosen_keys]
            keys += ['evaluate.thresholds={}', f'seed={seed}', *overrides]  # nothing is pushed, so nothing is blessed
            flags = [part for flag, values in (('--config', [source]), ('--set', keys), ('--pipeline_root', [root]))
                     for value in values for part in (flag, value)]
            done.append(Run(name, seed, Pipeline(config.load(source, keys), root, [], flags), stages))
            for each in stages:
                done[-1].pipeline.perform(each, f'{name}, seed {seed}')
    return done


def filled(key: str, data: str, seed: int, done: list[Run]) -> str:
    """Fill in an override's paths: the data, and what earlier runs produced (`experiments.Setting`)."""
    def path(match) -> str:
        kind, name = match.groups()
        [earlier] = [each for each in done if each.setting == name and each.seed == seed]
        if kind == 'run':
            return earlier.pipeline.outputs('train')['model_run'].uri
        return os.path.join(earlier.pipeline.outputs('export')['model'].uri, export.FORMAT)
    return REFERENCE.sub(path, key.replace('{data}', data))
