"""Makes a table or a figure of the papers again, and says whether what the paper claims of it shows.

    python -m pipelines.reproduce --list
    python -m pipelines.reproduce prelu/fig3 --data DIR
    python -m pipelines.reproduce transformer/table3_a --scale paper --data DIR --set train.strategy=mirrored
    python -m pipelines.reproduce --publish docs/results

Every setting is run by the stages' own commands, which are shown; what was run before is not run again. Leaves
`page.html`, one page that needs no network, with its pictures and `found.json`, in `runs/reproduce/<paper>/<item>`.
With --publish nothing is run: pages of what was run before are written as Markdown, without other people's data.
"""
import argparse
import os
import sys

from data_prep import UserError
from pipelines.core import cli


def listing(name: str = '') -> None:
    """Prints a line for each item: its name, its title and how long it takes; of items whose name begins with `name`
    also what they need, and the paper's numbers."""
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
    flags.add_argument('item', nargs='?', default='', help='<paper>/<item>; with --list the beginning of one')
    flags.add_argument('--list', action='store_true', help='name every table and figure, and leave')
    flags.add_argument('--scale', choices=('small', 'paper'), default='small',
                       help='small (the default): two cores, a quarter of an hour; paper: the paper\'s own')
    flags.add_argument('--data', metavar='PATH', default='', help='the data the item needs')
    flags.add_argument('--set', metavar='KEY=VALUE', action='append', default=[], dest='overrides',
                       help='override one value in every run; may be repeated')
    flags.add_argument('--out', metavar='DIR', default=os.path.join('runs', 'reproduce'),
                       help='where pages and runs go (default: runs/reproduce)')
    flags.add_argument('--publish', metavar='DIR', help='write the pages of what was run into DIR, and leave')
    args = flags.parse_args(argv)
    if not (args.item or args.list or args.publish):
        flags.error('name an item, or give --list or --publish')

    def work():
        if args.list:
            listing(args.item)
        elif args.publish:
            publish(args.out, args.publish)
        else:
            reproduce(args)
    cli.run_command(work)


def reproduce(args: argparse.Namespace) -> None:
    """Runs an item, writes its page and prints the verdicts."""
    cli.quiet_libraries()
    from pipelines.reproduction import experiments, results, running
    experiment = experiments.load(args.item)
    if experiment.instead:
        raise UserError(f'{experiment.name} is not run: {experiment.instead}')
    paper, out = experiment.name.partition('/')[0], os.path.join(args.out, experiment.name)
    runs = running.run(experiment, args.scale, os.path.abspath(args.data) if args.data else '',
                       os.path.join(args.out, paper, f'runs_{args.scale}'), args.overrides)
    found = results.gather(experiment, args.scale, runs, args.data, out, args.overrides)
    page = results.write(experiment, found, out)
    for each in found.verdicts:
        print(f'{each["claim"]} {each["verdict"]}. {each["why"]}.', flush=True)
    print(page)


def publish(runs: str, folder: str) -> None:
    """Publishes what was run below `runs` as pages of `folder`."""
    cli.quiet_libraries()
    from pipelines.reproduction import publishing
    for name in publishing.publish(runs, folder):
        print(os.path.join(folder, f'{name}.md'))
    print(os.path.join(folder, 'index.md'))


if __name__ == '__main__':
    main(sys.argv[1:])
