"""Looks at your data, measures this machine, and writes a configuration that learns from it in the minutes you give.

    python -m pipelines.init images photos/ > my.yaml
    python -m pipelines.init pairs train.en train.de --minutes 60 > my.yaml
    python -m pipelines.init trees treebank/ > my.yaml
    python -m pipelines.init tryon DIR --memory 16 > my.yaml

`images` takes folders or archives of class folders; `pairs` two files, line by line, or tables, with or without those
for validation and test; `trees` files in brackets, or folders of them; `tryon` a folder laid out as VITON-HD's. What
was found, chosen and expected is printed as it goes, and stands in the file's head. What cannot be learned is refused.
"""
import argparse
import shlex
import sys

from pipelines.core import cli

KINDS = ('images', 'pairs', 'trees', 'tryon')


def run(kind: str, paths: list[str], minutes: float, memory: float, accelerators: str, command: str) -> str:
    """The text of a configuration for somebody's data.

    Raises:
      UserError: nothing can be learned from it.
    """
    cli.quiet_libraries()
    import importlib
    look = importlib.import_module(f'pipelines.starting.{kind}').look

    from pipelines.starting import calibration, findings, planning, recipes, writing
    from pipelines.starting.findings import say
    found = look(paths)
    for sentence in found.said:
        say(sentence)
    say(f'To beat: {found.metric} {found.baseline:.3g}, by {found.baseline_words}.')
    if accelerators:
        from pipelines.starting import accelerated
        plan = accelerated.choose(found, accelerators, minutes)
    else:
        say('measuring this machine, with the steps of the real trainer …')
        small = calibration.Small(found)
        if found.kind in recipes.BUCKETS:  # until now lengths were guessed
            first = findings.merged(found.sections, next(recipes.candidates(found)).sections)
            found.facts['buckets'] = recipes.buckets(found.kind, small.lengths(findings.values(first)))
        plan = planning.choose(found, small.measure, minutes, memory)
    say(f'chose {plan.candidate.words}: {plan.steps:,} steps, {plan.passes:.0f} passes over the training data.')
    for sentence in plan.said:
        say(sentence)
    say(f'expect {plan.expected}.')
    return writing.text(found, plan, command, minutes, memory)


def main(argv: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(prog='python -m pipelines.init', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('kind', choices=KINDS, help='what the data is')
    flags.add_argument('data', nargs='+', metavar='DATA', help='files, folders or archives')
    flags.add_argument('--minutes', type=float, default=20, help='for the whole run (default: 20)')
    flags.add_argument('--memory', type=float, default=8, metavar='GB', help='that it may take (default: 8)')
    flags.add_argument('--accelerators', default='', metavar='NxNAME',
                       help='plan for those instead of this machine, as 8xA100, by the cost model')
    args = flags.parse_args(argv)
    if args.minutes <= 0 or args.memory <= 0:
        flags.error('--minutes and --memory must be more than 0')
    command = shlex.join(['python', '-m', 'pipelines.init', *(sys.argv[1:] if argv is None else argv)])

    def work() -> None:
        print(run(args.kind, args.data, args.minutes, args.memory, args.accelerators, command), end='')
        print('init: next: python -m pipelines.run --config FILE, with the file this went to.', file=sys.stderr)
    cli.run_command(work)


if __name__ == '__main__':
    main(sys.argv[1:])
