"""Reproduce a table or figure of a paper, and check the paper's claims about it.

    python -m pipelines.reproduce --list
    python -m pipelines.reproduce prelu/fig3 --data DIR
    python -m pipelines.reproduce transformer/table3_a --scale paper --data DIR --set train.strategy=mirrored

Each setting is run by the stages' own commands, which are printed; finished runs are not repeated. The result is
`page.html`, one self-contained page, with its images and `found.json`, in `runs/reproduce/<paper>/<item>`.
"""
import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import time
from typing import Any

from data_prep import UserError
from pipelines.core import cli, stage


def runs(experiment, scale: str, data: str, root: str, overrides: list[str]) -> list:
    """Run the experiment's stages for every setting and seed; return an `experiments.Run` for each.

    Raises:
      UserError: there is no such scale, or --data is missing.
    """
    if scale not in experiment.scales:
        raise UserError(f'{experiment.name} has no scale {scale}. Choose from {", ".join(experiment.scales)}.')
    chosen = experiment.scales[scale]
    if experiment.needs and not data and chosen.stages != []:
        raise UserError(f'{experiment.name} needs --data: {experiment.needs}.')
    from pipelines.core import config, pipeline
    from pipelines.reproduction import experiments
    common = experiment.stages if chosen.stages is None else chosen.stages
    found: list[experiments.Run] = []
    for name, setting in experiment.settings.items():
        if scale not in setting.scales:
            continue
        source = setting.config.get(scale, chosen.config)
        stages = common if setting.stages is None else setting.stages
        for seed in chosen.seeds if stages else chosen.seeds[:1]:
            keys = [filled(key, data, seed, found) for key in [*chosen.set, *setting.set, *getattr(setting, scale)]]
            keys += ['evaluate.thresholds={}', f'seed={seed}', *overrides]  # nothing is pushed, so nothing is blessed
            flags = [part for flag, values in (('--config', [source]), ('--set', keys), ('--pipeline_root', [root]))
                     for value in values for part in (flag, value)]
            opened = pipeline.Pipeline(config.load(source, keys), root, [], flags)
            found.append(experiments.Run(name, seed, opened, stages))
            for each in stages:
                perform(found[-1], each)
    return found


def filled(key: str, data: str, seed: int, done: list) -> str:
    """Fill in an override's paths: the data, and what earlier runs produced (`experiments.Setting`)."""
    from pipelines import export
    from pipelines.reproduction import experiments

    def path(match) -> str:
        kind, name = match.groups()
        [run] = [run for run in done if run.setting == name and run.seed == seed]
        if kind == 'run':
            return run.pipeline.outputs('train')['model_run'].uri
        return os.path.join(run.pipeline.outputs('export')['model'].uri, export.FORMAT)
    return experiments.REFERENCE.sub(path, key.replace('{data}', data))


def perform(run, name: str) -> None:
    """Run one stage by its command, unless it is finished.

    Raises:
      SystemExit: it failed, and has printed why.
    """
    if run.pipeline.finished(name):
        return
    command = run.pipeline.command(stage.name_of(name, run.pipeline.config))
    print(f'[{run.setting}, seed {run.seed}] {command}', flush=True)
    done = subprocess.run([sys.executable, *shlex.split(command)[1:]])
    if done.returncode:
        sys.exit(done.returncode)
    run.pipeline.finished(name)  # looks up its outputs


def measured(experiment, found: list, shown: list) -> dict[str, dict[str, list[float]]]:
    """Return setting -> column -> one number per seed, from measures and from the plots' findings."""
    table: dict[str, dict[str, list[float]]] = {name: {} for name in experiment.settings}
    for run in found:
        for column, measure in experiment.measures.items():
            if measure.stage in run.stages:
                table[run.setting].setdefault(column, []).append(measure.of(run))
    for exhibit in shown:
        for (setting, _), columns in exhibit.values.items():
            for column, value in columns.items():
                table.setdefault(setting, {}).setdefault(column, []).append(value)
    return table


def differing(experiment, scale: str, overrides: list[str]) -> list[tuple[str, str, str]]:
    """Return the configuration keys that this scale changes: key, the paper's value, this scale's value."""
    from pipelines.core import config
    from pipelines.core.flow import flow
    from pipelines.reporting import report
    if scale == 'paper' or 'paper' not in experiment.scales:
        return []

    def values(which: str, more: list[str]) -> dict[str, str]:
        chosen = experiment.scales[which]
        loaded = config.load(chosen.config, [key.replace('{data}', 'DIR') for key in chosen.set] + more)
        return {key: flow(value) for key, value in report.flat(loaded.values).items()}
    theirs, ours = values('paper', []), values(scale, overrides)
    return [(key, theirs.get(key, '–'), ours.get(key, '–')) for key in {**theirs, **ours}
            if theirs.get(key) != ours.get(key) and key not in ('name', 'seed')]


def write(experiment, scale: str, found: list, data: str, out: str, overrides: list[str], started: float) -> dict:
    """Write the page and found.json; return what the latter holds."""
    from data_prep.core import records
    from pipelines.reporting import pages
    from pipelines.reproduction import experiments
    os.makedirs(out, exist_ok=True)
    study = experiments.Study(found, data, out, scale)
    shown = [experiments.drawer(each)(study, **{key: value for key, value in each.items() if key != 'draw'})
             for each in experiment.exhibits]
    table = measured(experiment, found, shown)
    chance = experiment.scales[scale].chance
    verdicts = [(claim, claim.judged({setting: columns.get(claim.measure, []) for setting, columns in table.items()},
                                     chance.get(claim.measure, 0.0))) for claim in experiment.claims]
    facts = {
        'item': experiment.name, 'scale': scale, 'seeds': sorted({run.seed for run in found if run.stages}),
        'table': table, 'minutes': round((time.monotonic() - started) / 60, 1),
        'verdicts': [{'claim': claim.says, 'verdict': verdict.word, 'why': verdict.why} for claim, verdict in verdicts],
        'commands': [run.pipeline.command(stage.name_of(name, run.pipeline.config))
                     for run in found for name in run.stages]}
    columns = list(dict.fromkeys(column for rows in (table, experiment.paper) for row in rows.values()
                                 for column in row))
    rows = dict.fromkeys([*(row for row, found in table.items() if found), *experiment.paper])
    page = pages.environment().get_template('reproduction.html.j2').render(
        experiment=experiment, columns=columns, rows=rows, claims=verdicts,
        figures=[figure for exhibit in shown for figure in exhibit.figures], facts=facts,
        differing=differing(experiment, scale, overrides), number=experiments.number, spread=experiments.spread)
    records.write_atomically(os.path.join(out, 'page.html'), page.encode())
    finite = {setting: {column: [value if math.isfinite(value) else None for value in values]
                        for column, values in row.items()} for setting, row in table.items()}
    records.write_atomically(os.path.join(out, 'found.json'), json.dumps({**facts, 'table': finite}, indent=1).encode())
    return facts


def listing(name: str = '') -> None:
    """Print a line for each item: its name, title and duration.

    For items whose name begins with `name`, also print what data they need and the paper's numbers.
    """
    from rich.console import Console
    from rich.padding import Padding

    from pipelines.reproduction import experiments
    console = Console(highlight=False, markup=False)
    for each in experiments.names():
        if not each.startswith(name):
            continue
        item = experiments.load(each)
        time = 'not run' if item.instead else item.time('small').partition(';')[0]
        if not name:
            console.print(f'{each:32} {item.title}  ({time})', soft_wrap=True)
            continue
        lines = [item.source]
        if item.instead:
            lines.append(item.instead)
        else:
            lines.append(f'small: {item.time("small")}; paper: {item.time("paper")}'
                         + (f'; --data: {item.needs}' if item.needs else '; needs no data'))
        lines += [f'{setting}: ' + ', '.join(f'{column} {experiments.number(value)}' for column, value in row.items())
                  for setting, row in item.paper.items()]
        console.print(f'{each}  {item.title}', style='bold', soft_wrap=True)
        console.print(Padding('\n'.join(lines), (0, 0, 0, 4)))


def main(argv=None) -> None:
    flags = argparse.ArgumentParser(prog='python -m pipelines.reproduce', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('item', nargs='?', default='', help='<paper>/<item>; with --list, its beginning')
    flags.add_argument('--list', action='store_true', help='list every table and figure, then exit')
    flags.add_argument('--scale', choices=('small', 'paper'), default='small',
                       help='small (the default): 15 minutes on two cores; paper: the paper\'s own setting')
    flags.add_argument('--data', metavar='PATH', default='', help='data for the item, if it needs any')
    flags.add_argument('--set', metavar='KEY=VALUE', action='append', default=[], dest='overrides',
                       help='override one value in every run; may be repeated')
    flags.add_argument('--out', metavar='DIR', default=os.path.join('runs', 'reproduce'),
                       help='folder for pages and runs (default: runs/reproduce)')
    args = flags.parse_args(argv)
    if not (args.item or args.list):
        flags.error('name an item, or give --list')

    def work():
        if args.list:
            listing(args.item)
        else:
            reproduce(args)
    cli.run_command(work)


def reproduce(args: argparse.Namespace) -> dict[str, Any]:
    """Run an item, write its page and print the verdict on each claim."""
    cli.quiet_libraries()
    from pipelines.reproduction import experiments
    experiment = experiments.load(args.item)
    if experiment.instead:
        raise UserError(f'{experiment.name} cannot be run: {experiment.instead}')
    started, paper = time.monotonic(), experiment.name.partition('/')[0]
    found = runs(experiment, args.scale, os.path.abspath(args.data) if args.data else '',
                 os.path.join(args.out, paper, f'runs_{args.scale}'), args.overrides)
    out = os.path.join(args.out, experiment.name)
    facts = write(experiment, args.scale, found, args.data, out, args.overrides, started)
    for each in facts['verdicts']:
        print(f'{each["claim"]} {each["verdict"]}. {each["why"]}.', flush=True)
    print(os.path.join(out, 'page.html'))
    return facts


if __name__ == '__main__':
    main(sys.argv[1:])
