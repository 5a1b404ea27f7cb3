"""Reproduce a table or figure of a paper, and check the paper's claims about it.

    python -m pipelines.reproduce --list
    python -m pipelines.reproduce prelu/fig3 --data DIR
    python -m pipelines.reproduce transformer/table3_a --scale paper --data DIR --set train.strategy=mirrored
    python -m pipelines.reproduce --publish docs/results

Each setting is run by the stages' own commands, which are printed; finished runs are not repeated. The result is
`page.html`, one self-contained page, with its images and `found.json`, in `runs/reproduce/<paper>/<item>`.
--publish runs nothing; it writes pages of the finished items as Markdown, without third-party data.
"""
import argparse
import os
import sys

from data_prep import UserError
from pipelines.core import cli


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
        time = 'not run' if item.why_not_run else item.time('small').partition(';')[0]
        if not name:
            console.print(f'{each:32} {item.title}  ({time})', soft_wrap=True)
            continue
        lines = [item.source]
        if item.instead:
            lines.append(item.instead)
        else:
            times = [f'{scale}: {item.time(scale)}' for scale in experiments.SCALES if scale in item.scales]
            lines.append('; '.join([*times, f'--data: {item.needs}' if item.needs else 'needs no data']))
        lines += [f'{setting}: ' + ', '.join(f'{column} {experiments.number(value)}' for column, value in row.items())
                  for setting, row in item.paper.items()]
        console.print(f'{each}  {item.title}', style='bold', soft_wrap=True)
        console.print(Padding('\n'.join(lines), (0, 0, 0, 4)))


def main(argv=None) -> None:
    flags = argparse.ArgumentParser(prog='python -m pipelines.reproduce', description=__doc__, allow_abbrev=False,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('item', nargs='?', default='', help='<paper>/<item>; with --list, its beginning')
    flags.add_argument('--list', action='store_true', help='list every table and figure, then exit')
    flags.add_argument('--scale', choices=('small', 'medium', 'paper'), default='small',
                       help='small (the default): 15 minutes on two cores; medium: at most two hours, where an item '
                            'has it; paper: the paper\'s own setting')
    flags.add_argument('--data', metavar='PATH', default='', help='data for the item, if it needs any')
    flags.add_argument('--jobs', metavar='N', type=int, default=1,
                       help='run so many settings and seeds side by side, each on its share of the cores, which small '
                            'nets use better (default: 1)')
    flags.add_argument('--set', metavar='KEY=VALUE', action='append', default=[], dest='overrides',
                       help='override one value in every run; may be repeated')
    flags.add_argument('--out', metavar='DIR', default=os.path.join('runs', 'reproduce'),
                       help='where pages and runs go (default: runs/reproduce)')
    flags.add_argument('--publish', metavar='DIR', help='write the pages of finished items into DIR, then exit')
    args = flags.parse_args(argv)
    if not (args.item or args.list or args.publish):
        flags.error('name an item, or give --list or --publish')
    if args.jobs < 1:
        flags.error(f'--jobs must be 1 or more; it is {args.jobs}')

    def work():
        if args.list:
            listing(args.item)
        elif args.publish:
            publish(args.out, args.publish)
        else:
            reproduce(args)
    cli.run_command(work)


def reproduce(args: argparse.Namespace) -> None:
    """Run an item, write its page and print the verdict on each claim."""
    cli.prepare_libraries()
    from pipelines.reproduction import experiments, results, running
    experiment = experiments.load(args.item)
    if experiment.instead:
        raise UserError(f'{experiment.name} cannot be run: {experiment.instead}')
    paper, out = experiment.name.partition('/')[0], os.path.join(args.out, experiment.name)
    runs = running.run(experiment, args.scale, os.path.abspath(args.data) if args.data else '',
                       os.path.join(args.out, paper, f'runs_{args.scale}'), args.overrides, args.jobs)
    found = results.gather(experiment, args.scale, runs, args.data, out, args.overrides)
    page = results.write(experiment, found, out)
    for each in found.verdicts:
        print(f'{each["claim"]} {each["verdict"]}. {each["why"]}.', flush=True)
    print(page)


def publish(runs: str, folder: str) -> None:
    """Publish the finished items below `runs` as pages of `folder`."""
    cli.prepare_libraries()
    from pipelines.reproduction import publishing
    for name in publishing.publish(runs, folder):
        print(os.path.join(folder, f'{name}.md'))
    print(os.path.join(folder, 'index.md'))


if __name__ == '__main__':
    main(sys.argv[1:])
