"""Inspect your data, time this machine, and write a configuration that trains on it in the minutes you give.

    python -m pipelines.init images photos/ > my.yaml
    python -m pipelines.init pairs train.en train.de --minutes 60 > my.yaml
    python -m pipelines.init trees treebank/ > my.yaml
    python -m pipelines.init tryon DIR --memory 16 > my.yaml

`images` takes folders or archives of class folders, or of images and a table of their classes; `pairs` takes two
line-aligned files, or tables, with or without those of validation and test; `trees` takes files in brackets or folders
of them; `tryon` takes a folder laid out as VITON-HD's. Tables are .csv, .tsv or JSON lines. Findings, choices and
expectations are printed, and written to the file's head. Data from which nothing can be learned is refused.
"""
import argparse
import math
import os
import shlex
import sys

from pipelines.core import cli

# What is not read, and what to do.
_UNPACK, _SAVE = 'Unpack it, and name the folder or files', 'Save it as a .csv'
_WRITE = 'Write text as JSON lines, for example by datasets.Dataset.to_json, images into class folders'
_UNREAD = {**dict.fromkeys(('.zip', '.7z', '.rar', '.bz2', '.xz', '.zst'), _UNPACK),
           **dict.fromkeys(('.xlsx', '.xls', '.ods'), _SAVE),
           **dict.fromkeys(('.parquet', '.arrow', '.feather'), _WRITE),
           '.tmx': 'Convert it to a .tsv of source and target'}
KINDS = ('images', 'pairs', 'trees', 'tryon')


def run(kind: str, paths: list[str], minutes: float, memory: float, accelerators: str, command: str) -> str:
    """Return the text of a configuration for the user's data.

    Raises:
      UserError: nothing can be learned from the data.
    """
    cli.prepare_libraries()
    import importlib
    look = importlib.import_module(f'pipelines.starting.{kind}').look

    from pipelines.starting import calibration, findings, planning, recipes, writing
    from pipelines.starting.findings import say
    _look_for(paths)
    found = look(paths)
    for sentence in found.said:
        say(sentence)
    say(f'To beat: {found.metric} {found.baseline:.3g}, by {found.baseline_words}.')
    if accelerators:
        from pipelines.starting import accelerated
        plan = accelerated.choose(found, accelerators, minutes)
    else:
        say('timing steps of the real trainer on this machine …')
        small = calibration.Small(found)
        if found.kind in recipes.BUCKETS:  # lengths were estimates until now
            first = findings.merged(found.sections, next(recipes.candidates(found)).sections)
            found.facts |= recipes.of_lengths(found.kind, *small.lengths(findings.values(first)))
        plan = planning.choose(found, small.measure, minutes, memory)
    say(f'chose {plan.candidate.words}: {plan.steps:,} steps, {plan.passes:.0f} passes over the training data.')
    for sentence in plan.said:
        say(sentence)
    say(f'expect {plan.expected}.')
    return writing.text(found, plan, command, minutes, memory)


def _look_for(paths: list[str]) -> None:
    """Refuse a path that does not exist (of one inside an archive, the archive), and files that are not read."""
    from data_prep import UserError
    from data_prep.core import archives, files
    for path in paths:
        outer, _ = archives.split(path)
        if not files.exists(outer) and not files.matching(outer):  # trees may be given by a pattern
            raise UserError(f'there is no file or folder {outer}. Check the path.')
        remedy = _UNREAD.get(os.path.splitext(outer.lower().removesuffix('.gz'))[1])
        if remedy and not files.is_folder(outer):
            raise UserError(f'{outer}: such files are not read. {remedy}.')


def main(argv: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(prog='python -m pipelines.init', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('kind', choices=KINDS, help='kind of data')
    flags.add_argument('data', nargs='+', metavar='DATA', help='files, folders or archives')
    flags.add_argument('--minutes', type=float, default=20, help='time for the whole run (default: 20)')
    flags.add_argument('--memory', type=float, default=8, metavar='GB', help='memory the run may use (default: 8)')
    flags.add_argument('--accelerators', default='', metavar='NxNAME',
                       help='plan by the cost model for accelerators such as 8xA100 instead of this machine')
    args = flags.parse_args(argv)
    if not (0 < args.minutes < math.inf and 0 < args.memory < math.inf):
        flags.error('--minutes and --memory must be numbers of more than 0')
    command = shlex.join(['python', '-m', 'pipelines.init', *(sys.argv[1:] if argv is None else argv)])

    def work() -> None:
        print(run(args.kind, args.data, args.minutes, args.memory, args.accelerators, command), end='')
        print('init: next: python -m pipelines.run --config FILE, with the file you wrote.', file=sys.stderr)
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
