"""Our work and a peer's in alternation: rates, their ratio, the share of this machine's ceiling, memory.

    make bench
    make bench-quick
    python benchmarks/speed/side_by_side.py --peers .venv-bench/bin/python --out DIR
    python benchmarks/speed/side_by_side.py --only vgg16_forward --rounds 3 --out DIR
    python benchmarks/speed/side_by_side.py --given authors=DIR text=DIR --out DIR

Every side is a process of its own, ours in this environment and peers in theirs (`[bench]` of setup.py). All make the
same inputs, and before anything is timed their answers are compared. In every round each side works for some seconds
while the others wait, then the ceiling is taken: the rate of a product of two matrices of 2,048 x 2,048 float32. A
round in which anything else took more than a twentieth of the processors' time is dropped and made again, up to as many
times as there are rounds. A ratio is of two rates of one round, the median of rounds is what counts.

Work on files that are not ours to give stands in `contests.yaml` with a name in braces. Without `--given NAME=PATH` it
gets files made from a seed, if there are such (`made.py`), and is left out otherwise. What was found before in DIR is
kept, so that work can be measured in parts. With `--quick`, work that has a small size in `contests.yaml` is measured
at that size, to check a change on the machine at hand in ten minutes.

Leaves side_by_side.json, .md and .png in DIR; with exit code 1 if sides did not compute the same.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import psutil
import yaml
from matplotlib.figure import Figure

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.speed import made  # noqa: E402
from pipelines.core import machine  # noqa: E402

DISTURBED = 0.05  # of the processors' time, taken by what is no side


@dataclasses.dataclass
class Contest:
    """One row of `contests.yaml`.

    Attributes:
      unit: of work.
      sides: name -> script in `sides/`, work and its values; the first is ours, the others are peers.
      reach: peer -> the ratio of our rate to its that is aimed at.
      flops: of a unit, for the share of the ceiling; 0 if that says nothing.
      tolerance: absolute, of the answers; float32 sums in another order.
      quick: values of the sides' commands with `--quick`, which leaves out contests without any.
      made: whether its files are made ones.
    """
    unit: str
    sides: dict[str, str]
    reach: dict[str, float]
    flops: float = 0
    tolerance: float = 1e-3
    quick: dict[str, int] = dataclasses.field(default_factory=dict)
    made: bool = False

    def __post_init__(self):
        self.flops, self.tolerance = float(self.flops), float(self.tolerance)  # YAML reads 1e-3 as text
        assert [*self.sides][1:] == [*self.reach], 'a reach for every peer'

    def small(self) -> 'Contest':
        """Return the contest at its quick size."""
        def resized(command: str) -> str:
            name, work, *values = command.split()
            sizes = dict(value.split('=', 1) for value in values)
            assert {*self.quick} <= {*sizes}, f'{command} has no {", ".join(self.quick)}'
            return ' '.join([name, work, *(f'{key}={self.quick.get(key, value)}' for key, value in sizes.items())])
        return dataclasses.replace(self, sides={name: resized(command) for name, command in self.sides.items()})


class Side:
    """A side's process, which waits for requests."""

    def __init__(self, command: str, interpreters: dict[str, str], answer: pathlib.Path):
        script, *rest = command.split()
        python = interpreters['ours' if script.startswith('ours') else 'peers']
        self.answer = answer
        self._process = subprocess.Popen(
            [python, '-W', 'ignore', str(HERE / 'sides' / script), rest[0], str(answer), *rest[1:]],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3', 'PYTHONPATH': str(ROOT)})

    def say(self, line: str = '') -> dict:
        """Raise RuntimeError: the process has ended; its message is on standard error."""
        assert self._process.stdin and self._process.stdout
        if line:
            with contextlib.suppress(BrokenPipeError):  # it says nothing more then, either
                self._process.stdin.write(line + '\n')
                self._process.stdin.flush()
        said = self._process.stdout.readline()
        if not said:
            raise RuntimeError(f'{self._process.args[3]} ended: exit code {self._process.wait()}')
        return json.loads(said)

    def processor_seconds(self) -> float:
        """Return the processor time of the side and its children, those that have ended included."""
        process = psutil.Process(self._process.pid)
        return sum(sum(each.cpu_times()[:4]) for each in [process, *process.children(recursive=True)])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def busy_seconds() -> float:
    """Seconds of all processors since the start, including those a hypervisor took."""
    with open('/proc/stat') as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf('SC_CLK_TCK')


def measure(side: Side, seconds: float) -> dict:
    """One turn of one side: its rate, its processor seconds per unit, and the share of time taken by others."""
    busy, own = busy_seconds(), side.processor_seconds()
    said = side.say(str(seconds))
    own = side.processor_seconds() - own
    others = busy_seconds() - busy - own
    return {'rate': said['units'] / said['seconds'], 'processor': own / said['units'], 'peak_mib': said['peak_mib'],
            'others': max(0.0, others) / said['seconds'] / (os.cpu_count() or 1)}


def differences(answers: list[pathlib.Path]) -> list[float]:
    """Return the largest difference of each other side's outputs from the first's; inf if names or shapes differ.

    For texts it is the share that differs.
    """
    first, *others = ({name: array for name, array in np.load(path).items()} for path in answers)
    return [max((_difference(first[name], value) for name, value in other.items()), default=np.inf)
            if other.keys() == first.keys() else np.inf for other in others]


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape:
        return np.inf
    return float((one != other).mean() if one.dtype.kind == 'U' else np.abs(one - other).max())


def alternate(sides: dict[str, Side], rounds: int, seconds: float) -> tuple[list[dict], list[dict]]:
    """Run rounds in which every side has a turn, by name; return undisturbed and disturbed rounds.

    There are as many undisturbed rounds as requested, or as possible.
    """
    kept: list[dict] = []
    dropped: list[dict] = []
    while len(kept) < rounds and len(dropped) < rounds:
        turns = {name: measure(side, seconds) for name, side in sides.items()}
        (dropped if max(turn['others'] for turn in turns.values()) > DISTURBED else kept).append(turns)
    return kept, dropped


def hold(contest: Contest, interpreters: dict[str, str], rounds: int, seconds: float) -> dict:
    """Prepare all sides, compare their answers, and let them work in turn."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        sides = {}
        for name, command in {**contest.sides, 'ceiling': 'ours_ceiling.py gemm'}.items():
            sides[name] = Side(command, interpreters, pathlib.Path(folder) / f'{len(sides)}.npz')
            stack.callback(sides[name].close)
            sides[name].say()
        far = dict(zip([*contest.sides][1:], differences([sides[name].answer for name in contest.sides])))
        kept, dropped = alternate(sides, rounds, seconds)
    return {'machine': machine.describe(), 'made': contest.made, 'differences': far, 'rounds': kept,
            'dropped': len(dropped), **summary(contest, kept or dropped, undisturbed=bool(kept))}


def summary(contest: Contest, rounds: list[dict], undisturbed: bool) -> dict:
    """Medians over rounds; `ratios` are of our rate to every peer's: the median, the least and the greatest."""
    def median(name, key='rate'):
        return statistics.median(turns[name][key] for turns in rounds)
    ours, *peers = contest.sides
    ceiling, ratios = median('ceiling'), {}
    for peer in peers:
        found = [turns[ours]['rate'] / turns[peer]['rate'] for turns in rounds]
        ratios[peer] = [statistics.median(found), min(found), max(found)]
    return {'undisturbed': undisturbed, 'ratios': ratios,
            'sides': {name: {'rate': median(name), 'processor': median(name, 'processor'),
                             'peak_mib': median(name, 'peak_mib'),
                             'of the ceiling': median(name) * contest.flops / ceiling} for name in contest.sides}}


def markdown(contests: dict[str, Contest], found: dict[str, dict]) -> str:
    rows = [measured_on(found), '',
            '| work | side | rate | of the ceiling | peak memory | ours over it | reach | rounds |',
            '|---|---|---:|---:|---:|---:|---:|---:|']
    for work, result in found.items():
        contest = contests[work]
        for name, side in result['sides'].items():
            share = f'{side["of the ceiling"]:.0%}' if contest.flops else ''
            begins, last = work, f'| | {len(result["rounds"])}, {result["dropped"]} dropped |'
            if name in contest.reach:
                begins = ''
                ratio, least, most = result['ratios'][name]
                last = f'{ratio:.2f} ({least:.2f} to {most:.2f}) | {contest.reach[name]:g} | |'
            rows.append(f'| {begins} | {name} | {side["rate"]:,.4g} {contest.unit}/s | {share} | '
                        f'{side["peak_mib"]:,.0f} MiB | {last}')
    return '\n'.join(rows)


def measured_on(found: dict[str, dict]) -> str:
    """Name the processors, and count the work whose every round was disturbed.

    Results from before processors were recorded name none.
    """
    names = {result['machine'] for result in found.values() if 'machine' in result}
    disturbed = sum(not result['undisturbed'] for result in found.values())
    notes = [f'{disturbed} of {len(found)} measured beside other work'] if disturbed else []
    if on_made := [work for work, result in found.items() if result.get('made')]:
        notes.append(f'{", ".join(on_made)} on files made from a seed')
    return '; '.join([*sorted(names), *notes])


def draw(contests: dict[str, Contest], found: dict[str, dict], path: str) -> None:
    """Draw a bar per peer: our rate over its rate, with a whisker from worst to best round and a tick at the target."""
    bars = [(work, peer) for work, result in found.items() for peer in result['ratios']]
    figure = Figure(figsize=(9, 1 + 0.42 * len(bars)), layout='constrained')
    axes = figure.subplots()
    for place, (work, peer) in enumerate(bars):
        (ratio, least, most), reach = found[work]['ratios'][peer], contests[work].reach[peer]
        axes.barh(place, ratio, color='#2468a8' if ratio >= reach else '#d1642a', height=0.6)
        axes.plot([least, most], [place, place], color='#333333', linewidth=1)
        axes.plot([reach, reach], [place - 0.4, place + 0.4], color='black', linewidth=2)
        axes.annotate(f' {ratio:.2f}', (max(ratio, most, reach), place), va='center')
    axes.axvline(1, color='#888888', linewidth=0.8, linestyle=':')
    axes.set(yticks=range(len(bars)), xlabel='our rate over the peer\'s; the black tick is what is aimed at',
             yticklabels=[f'{work.replace("_", " ")}: {peer}' for work, peer in bars], ylim=(len(bars) - 0.3, -0.7))
    axes.margins(x=0.1)  # for the last number
    figure.suptitle(measured_on(found), fontsize='medium')
    figure.savefig(path, dpi=120)


def chosen(contests: dict[str, Contest], only: list[str], given: dict[str, str],
           folder: pathlib.Path) -> dict[str, Contest]:
    """Return the requested contests that lack no path; paths are given, or of files made in a folder."""
    found = {}
    for name in only or contests:
        named = set(re.findall(r'{(\w+)}', ' '.join(contests[name].sides.values())))
        if lost := named - {*given} - {*made.FILES}:
            print(f'{name}: left out; it needs --given {min(lost)}=PATH')
            continue
        paths = {each: given.get(each) or make(each, folder) for each in named}
        sides = {side: command.format_map(paths) for side, command in contests[name].sides.items()}
        found[name] = dataclasses.replace(contests[name], sides=sides, made=not named <= {*given})
    return found


def make(name: str, folder: pathlib.Path) -> str:
    """Return the path of made files, which are made once."""
    path = folder / name
    if not path.exists():
        made.FILES[name](path)
    return str(path.resolve())


def main() -> None:
    with open(HERE / 'contests.yaml') as file:
        contests = {name: Contest(**row) for name, row in yaml.safe_load(file).items()}
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True)
    flags.add_argument('--only', nargs='+', choices=contests, default=[], metavar='WORK')
    flags.add_argument('--given', nargs='+', type=lambda pair: pair.split('=', 1), default=[], metavar='NAME=PATH')
    flags.add_argument('--peers', default=sys.executable, help='the interpreter of the peers\' environment')
    flags.add_argument('--quick', action='store_true', help='small sizes, of the work that has one')
    flags.add_argument('--rounds', type=int, default=5)
    flags.add_argument('--seconds', type=float, default=5, help='that a side works in a round, at least one unit')
    args = flags.parse_args()
    if args.quick:
        contests = {name: contest.small() for name, contest in contests.items() if contest.quick}
        if unknown := {*args.only} - {*contests}:
            flags.error(f'{", ".join(sorted(unknown))}: no small size. Leave out --quick.')
    args.out.mkdir(parents=True, exist_ok=True)
    machine.prefer_onednn()  # as in our commands; the peers that use TensorFlow have it too
    results = args.out / 'side_by_side.json'
    found = json.loads(results.read_text()) if results.exists() else {}
    given = {name: os.path.abspath(path) for name, path in args.given}
    asked = chosen(contests, args.only, given, args.out / 'made')
    for work, contest in asked.items():
        found[work] = result = hold(contest, {'ours': sys.executable, 'peers': args.peers}, args.rounds, args.seconds)
        print(f'{work}: ' + ', '.join(f'{ratio:.2f} of {peer}' for peer, (ratio, *_) in result['ratios'].items())
              + f'; answers differ by at most {max(result["differences"].values()):.1e}', flush=True)
        results.write_text(json.dumps(found, indent=1))
    found = {work: found[work] for work in contests if work in found}
    (args.out / 'side_by_side.md').write_text(markdown(contests, found) + '\n')
    draw(contests, found, str(args.out / 'side_by_side.png'))
    print(markdown(contests, found))
    sys.exit(any(far > contests[work].tolerance for work, result in found.items()
                 for far in result['differences'].values()))


if __name__ == '__main__':
    main()
