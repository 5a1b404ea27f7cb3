"""Bad bytes: every reader of files is fed damaged and made-up ones, and must accept or refuse them and name the place.

    python -m benchmarks.robustness.fuzz --out /tmp/fuzz --inputs 5000

Of a reader's inputs half are small valid files with bytes flipped, cut, spliced, inserted, repeated or made large
numbers, checksums put right again or not; half are made by hypothesis (fuzz_shapes.py), whole in their outer form and
odd inside. Every input is a function of seed and number. Readers work in a process of their own, under a limit of
memory, so that a crash or a hang is a finding and not the end. Findings are: any exception but the project's own
refusals, a refusal that does not name its file or is no single line of text, death of the process, more than
`--seconds` an input, more memory than MEMORY for one. Their bytes are written below `--out`. Leaves with exit code 1 if
there is one. `--atheris RUNS` lets atheris, where it is installed, look for more, guided by the coverage of data_prep,
keras_models and pipelines; `--reader` takes only some; `--first 123 --inputs 1` repeats one.
"""
import argparse
import functools
import gc
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import struct
import sys
import tempfile
import time
import traceback
import warnings
from typing import NamedTuple

BLOCK = 100  # inputs of one kind, one after the other
LARGEST = 1 << 18  # bytes of a damaged file; one in a hundred may have four times as many
MEMORY = 1 << 30  # bytes that one input may add to the most the process ever used
ROOM = 3 << 30  # bytes of address space beside what is used at start
SLOW = 5  # seconds of the processor's
CONTROL = re.compile('[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
NUMBERS = [0, 1, 127, 128, 255, 32767, 65535, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1]


def mutated(draw: random.Random, seeds: list[bytes], words: tuple[bytes, ...]) -> bytes:
    """One of the seeds, damaged in one place or a few."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice([1, 1, 1, 2, 3, 8])):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice([1, 2, 4, 16, 200]))
        match draw.choice('flip flip set cut drop insert word word splice repeat number number digits swap'.split()):
            case 'flip' if at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            case 'set':
                data[at:end] = draw.randbytes(end - at)
            case 'cut':
                del data[at:]
            case 'drop':
                del data[at:end]
            case 'insert':
                data[at:at] = draw.randbytes(draw.choice([1, 2, 4, 16, 200]))
            case 'word' if words:
                data[at:at if draw.random() < .5 else end] = draw.choice(words)
            case 'splice':
                other = draw.choice(seeds)
                data[at:] = other[draw.randrange(len(other) + 1):]
            case 'repeat':
                times = draw.choice([2, 10, 1000, 1 << 20])
                limit = LARGEST * (1 + 3 * (draw.random() < .01))
                data[at:at] = (data[at:end] * min(times, limit // max(1, end - at)))[:limit]
            case 'number':
                size, order = draw.choice([1, 2, 4, 8]), draw.choice(['little', 'big'])
                number = draw.choice([*NUMBERS, len(data), len(data) + 1, 2 ** 64 - len(data)])
                data[at:at + size] = (number % (1 << 8 * size)).to_bytes(size, order)
            case 'digits' if places := [i for i, byte in enumerate(data[:4096]) if 48 <= byte < 58]:
                at = draw.choice(places)
                data[at:at + 1] = draw.choice([b'9' * 5000, *(b'%d' % number for number in NUMBERS), b'-1', b'1e999'])
            case 'swap':
                data[at:end] = data[at:end][::-1]
        del data[4 * LARGEST:]
    return bytes(data)


@functools.lru_cache(maxsize=2)
def _shaped(strategy, seed: int) -> list[bytes]:
    """Return a block of examples that hypothesis draws from a strategy, reproducible by seed."""
    import hypothesis
    warnings.simplefilter('ignore')  # of long tokens
    found: list[bytes] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=BLOCK, database=None, deadline=None, phases=[hypothesis.Phase.generate],
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(strategy)
    def collect(data):
        found.append(data)
    collect()
    return found


class Fed:
    """A reader working in its own folder.

    Args:
      reader: of `fuzz_readers.READERS`.
      folder: a new one.
      seed: of its inputs.
    """

    def __init__(self, reader, folder: pathlib.Path, seed: int):
        folder.mkdir(parents=True, exist_ok=True)
        self.reader, self.seed = reader, seed
        self.read, self.seeds = reader.make(folder)
        self.strategy = reader.shape(self.seeds) if reader.shape else None

    def input(self, number: int) -> bytes:
        block, place = divmod(number, BLOCK)
        draw = random.Random(f'{self.seed} {self.reader.place} {number}')
        if block % 2 and self.strategy is not None:
            found = _shaped(self.strategy, self.seed * 1_000_003 + block)
            data = found[place % len(found)]
            return data if place < len(found) and place % 5 else mutated(draw, [data], self.reader.words)
        if number < len(self.seeds):
            return self.seeds[number]
        data = mutated(draw, self.seeds, self.reader.words)
        return self.reader.repair(data) if draw.random() < .5 else data

    def outcome(self, data: bytes) -> tuple[str, str]:
        """Run a reader; return ('accepted', ''), ('refused', reason) or ('finding', what is wrong)."""
        from data_prep import UserError
        from keras_models import ModelError
        try:
            refusals = self.read(data)
        except (UserError, ModelError) as error:
            refusals = [str(error)]
        except BaseException as error:  # SystemExit too
            if isinstance(error, KeyboardInterrupt):
                raise
            return 'finding', ''.join(traceback.format_exception(error)[-8:])
        for text in refusals:
            if wrong := self._wrong(text):
                return 'finding', f'{wrong}: {text!r:.600}'
        return ('refused', refusals[0]) if refusals else ('accepted', '')

    def _wrong(self, text: str) -> str:
        if self.reader.place not in text:
            return f'it does not name {self.reader.place}'
        if CONTROL.search(text):
            return 'no single line of text'
        return 'longer than 2,000 characters' if len(text) > 2000 else ''


class State(NamedTuple):
    """Progress of a worker: its task, its input, the results so far, and the input's bytes."""
    task: int
    number: int
    accepted: int
    refused: int
    finding: int
    size: int  # 0 before the first


STATE = struct.Struct('<6Q')


def _work(tasks: list[tuple[str, int, int]], seed: int, out: pathlib.Path, scratch: pathlib.Path) -> None:
    """Run readers one after another in a worker; put a row of each into `rows`; `current` is for a post-mortem."""
    from benchmarks.robustness.fuzz_readers import READERS
    for place, (name, first, last) in enumerate(tasks):
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        fed = Fed(READERS[name], scratch / f'{name}-{first}', seed)
        for data in fed.seeds:
            if (outcome := fed.outcome(data))[0] != 'accepted' and fed.reader.whole:
                raise AssertionError(f'{name}: a seed is not accepted: {outcome[1]}')
        resource.setrlimit(resource.RLIMIT_AS, (_pages(0) + ROOM, resource.RLIM_INFINITY))
        before, begun = _pages(1), time.process_time()
        counts = _feed(fed, name, place, first, last, out, scratch / 'current')
        gc.collect()  # exceptions hold what they were raised in
        row = {**counts, 'growth MiB': (_pages(1) - before) >> 20, 'seconds': round(time.process_time() - begun, 1)}
        with open(scratch / 'rows', 'a') as rows:
            print(json.dumps({'reader': name, **row}), file=rows)
        print(name, first, last, ', '.join(f'{key} {value:,}' for key, value in row.items()), flush=True)


def _feed(fed: Fed, name: str, place: int, first: int, last: int, out: pathlib.Path, current: pathlib.Path) -> dict:
    counts, kinds = {'accepted': 0, 'refused': 0, 'finding': 0}, set()
    with open(current, 'r+b', buffering=0) as state:
        for number in range(first, last):
            data = fed.input(number)
            state.seek(0)
            state.write(STATE.pack(place, number, *counts.values(), len(data) + 1) + data)
            most, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
            kind, text = fed.outcome(data)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most) << 10
            seconds = time.process_time() - begun
            if kind != 'finding' and (grown > MEMORY or seconds > SLOW):
                kind, text = 'finding', f'{seconds:.1f} s, {grown >> 20} MiB more: {kind} {text:.200}'
            counts[kind] += 1
            if kind == 'finding' and _kind(text) not in kinds:  # one of each
                kinds.add(_kind(text))
                _keep(out, name, number, data, text)
    return counts


def _pages(column: int) -> int:
    """Bytes of address space (0) or memory (1) of this process."""
    return int(pathlib.Path('/proc/self/statm').read_text().split()[column]) * resource.getpagesize()


def sweep(names: list[str], args: argparse.Namespace, scratch: pathlib.Path) -> list[dict]:
    """Feed readers in a process, and in a new one after every crash or hang. Returns the table."""
    tasks = [(name, args.first, args.first + args.inputs) for name in names]
    deaths: list[dict] = []
    (scratch / 'rows').touch()
    while tasks:
        (scratch / 'current').write_bytes(bytes(STATE.size))
        worker = multiprocessing.get_context('spawn').Process(target=_work, args=(tasks, args.seed, args.out, scratch))
        worker.start()
        hung = _wait(worker, scratch / 'current', args.seconds)
        if not hung and worker.exitcode == 0:
            break
        content = (scratch / 'current').read_bytes()
        state = State(*STATE.unpack_from(content))
        name, _, last = tasks[state.task]
        if worker.exitcode > 0 or not state.size:
            sys.exit(f'{name}: the worker left with exit code {worker.exitcode}')
        deaths.append({'reader': name, 'accepted': state.accepted, 'refused': state.refused, 'finding': state.finding,
                       'hangs' if hung else 'crashes': 1})
        _keep(args.out, name, state.number, content[STATE.size:STATE.size + state.size - 1],
              f'a hang of {args.seconds} s' if hung else f'the process died of signal {-worker.exitcode}')
        rest = (name, state.number + 1, last)
        if sum(death['reader'] == name for death in deaths) > 20:
            print(f'{name}: given up', flush=True)
            rest = (name, last, last)
        tasks = [task for task in (rest, *tasks[state.task + 1:]) if task[1] < task[2]]
    return _table(names, deaths + [json.loads(line) for line in (scratch / 'rows').read_text().splitlines()])


def _table(names: list[str], parts: list[dict]) -> list[dict]:
    keys = ('accepted', 'refused', 'finding', 'crashes', 'hangs', 'growth MiB', 'seconds')
    rows = []
    for name in names:
        own = [part for part in parts if part['reader'] == name]
        row = {key: round(sum(part.get(key, 0) for part in own), 1) for key in keys}
        rows.append({'reader': name, 'inputs': sum(row[key] for key in keys[:5]), **row})
    return rows


def _wait(worker, current: pathlib.Path, seconds: float) -> bool:
    """Wait for a worker's end. Returns whether it had to be killed because of one input.

    Seconds are the processor's, which others may share, or twenty times as many of the clock, if it sleeps.
    """
    seen, used, since = b'', 0.0, time.monotonic()
    while worker.is_alive():
        worker.join(0.2)
        state, now = current.read_bytes()[:STATE.size], _processor(worker.pid)
        if state != seen:
            seen, used, since = state, now, time.monotonic()
        bound = seconds if State(*STATE.unpack(state)).size else 300  # imports take longer than any input
        if now - used > bound or time.monotonic() - since > 20 * bound:
            worker.kill()
            worker.join()
            return True
    return False


def _processor(pid: int) -> float:
    """Seconds of processor time that a process used; none if it has ended."""
    try:
        fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def _kind(text: str) -> str:
    """Return the key that groups findings: the line of code and the exception, or the complaint."""
    where = [line for line in text.splitlines() if line.startswith('  File ')]
    return (where[-1] if where else '') + text.strip().splitlines()[-1].partition(':')[0]


def _keep(out: pathlib.Path, name: str, number: int, data: bytes, text: str) -> None:
    path = out / 'findings' / f'{name.replace(" ", "-")}-{number}'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix('.bin').write_bytes(data)
    path.with_suffix('.txt').write_text(text)
    print(f'  {name} {number}: {text.strip().splitlines()[-1]:.200}', flush=True)


def guided(name: str, seed: int, runs: int, out: pathlib.Path) -> None:
    """Let atheris make the inputs; a finding ends the process."""
    import atheris
    with atheris.instrument_imports(include=['data_prep', 'keras_models', 'pipelines', 'yaml', 'tarfile', 'zipfile']):
        from benchmarks.robustness.fuzz_readers import READERS
    with tempfile.TemporaryDirectory() as scratch:
        fed, corpus = Fed(READERS[name], pathlib.Path(scratch) / 'work', seed), pathlib.Path(scratch) / 'corpus'
        corpus.mkdir()
        for number, data in enumerate(fed.seeds):
            (corpus / str(number)).write_bytes(data)

        def one(data):
            for changed in (data, fed.reader.repair(data)):
                kind, text = fed.outcome(changed)
                if kind == 'finding':
                    raise RuntimeError(text)
        atheris.Setup([sys.argv[0], f'-runs={runs}', f'-seed={seed}', '-timeout=20', '-rss_limit_mb=6000',
                       f'-max_len={LARGEST}', f'-artifact_prefix={out}/{name}-', str(corpus)], one)
        atheris.Fuzz()


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True, help='a folder for table.json and findings')
    flags.add_argument('--inputs', type=int, default=5000, help='for each reader (default: 5000)')
    flags.add_argument('--first', type=int, default=0, help='the number of the first input (default: 0)')
    flags.add_argument('--seed', type=int, default=1)
    flags.add_argument('--seconds', type=float, default=20, help='that an input may take (default: 20)')
    flags.add_argument('--reader', action='append', default=[], help='only this one; may be repeated')
    flags.add_argument('--atheris', type=int, metavar='RUNS', help='let atheris make so many inputs for each reader')
    args = flags.parse_args()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    os.environ['CUDA_VISIBLE_DEVICES'] = ''
    args.out.mkdir(parents=True, exist_ok=True)
    names = args.reader or _names()
    if args.atheris:
        sys.exit(max(_guided(name, args) for name in names))
    with tempfile.TemporaryDirectory(dir='/dev/shm' if os.path.isdir('/dev/shm') else None) as scratch:
        rows = sweep(names, args, pathlib.Path(scratch))
    (args.out / 'table.json').write_text(json.dumps(rows, indent=1))
    print('| ' + ' | '.join(rows[0]) + ' |')
    for row in rows:
        print('| ' + ' | '.join(str(value) for value in row.values()) + ' |')
    bad = sum(row['finding'] + row['crashes'] + row['hangs'] for row in rows)
    print(f'{sum(row["inputs"] for row in rows):,} inputs, {bad} findings')
    sys.exit(bool(bad))


def _names() -> list[str]:
    from benchmarks.robustness.fuzz_readers import READERS
    return [*READERS]


def _guided(name: str, args: argparse.Namespace) -> int:
    """`guided` in a process of its own, which atheris never returns from. Returns its exit code."""
    worker = multiprocessing.get_context('spawn').Process(target=guided, args=(name, args.seed, args.atheris, args.out))
    worker.start()
    worker.join()
    print(f'{name}: atheris left with exit code {worker.exitcode}', flush=True)
    return abs(worker.exitcode)


if __name__ == '__main__':
    main()
