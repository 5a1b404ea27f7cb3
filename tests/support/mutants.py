"""Break a module of the project in 20 small ways, one at a time, and check that its tests fail.

    python tests/support/mutants.py                              all modules of `TESTS`
    python tests/support/mutants.py parseval views --jobs 1      two of them
    python tests/support/mutants.py records --list               only says what would be changed
    python tests/support/mutants.py records --number 7           one mutant, with what pytest prints

A mutant is one change at one place of a syntax tree (mutations.py): a comparison, an operator, a constant, a
condition, an argument, the bound of a slice, a statement left out. The seed draws lines first and then a
change on each, so that a long table weighs no more than its lines.

The mutant is written to a copy of the tree, so that commands that the tests start see it, too. A forked child
of this process, which has imported the libraries but not the project, runs the module's tests there until one
fails. A mutant is killed if a test fails, or if the tests take longer than `LIMIT`. survivors.yaml says why
the others survive.
"""
import argparse
import contextlib
import importlib
import io
import json
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tests'))

from support.mutations import Mutant, differs, mutants

SEED, COUNT = 0, 20
LIMIT = 60  # seconds a mutant
SURVIVORS = pathlib.Path(__file__).with_name('survivors.yaml')
LIBRARIES = ('pytest', 'hypothesis', 'xdist', 'tensorflow', 'tensorflow_text', 'tensorflow_model_analysis',
             'orbit', 'ml_metadata', 'sacrebleu', 'PIL.Image')
OWN = ('support', 'data_prep', 'keras_models', 'pipelines', 'configs', 'benchmarks', 'conftest')


class Tests(NamedTuple):
    """A module, the pytest arguments that test it, and the functions that are changed (all, if empty)."""
    path: str
    arguments: tuple[str, ...]
    functions: tuple[str, ...] = ()


TESTS = {
    'records': Tests('data_prep/core/records.py', ('tests/data_prep/core/test_records.py',)),
    'checkpoints': Tests('pipelines/training/checkpoints.py',
                         ('tests/pipelines/training/test_weights.py',
                          'tests/pipelines/training/test_checkpoints.py', '-k', 'not calls')),
    'pusher': Tests('pipelines/serving/pusher.py',
                    ('tests/pipelines/serving/test_pusher.py', 'tests/pipelines/release/test_promotion.py')),
    'evaluate.decide': Tests('pipelines/evaluate.py',
                             ('tests/pipelines/evaluation/test_decide.py',), ('decide', '_threshold')),
    'decoding': Tests('keras_models/text/decoding.py',
                      ('tests/keras_models/text/test_decoding.py', '-k', 'not post and not pre')),
    'losses': Tests('keras_models/core/losses.py', ('tests/keras_models/core/test_losses_and_optimizers.py',)),
    'optimizers': Tests('keras_models/core/optimizers.py', ('tests/keras_models/core/test_losses_and_optimizers.py',)),
    'parseval': Tests('pipelines/evaluation/parseval.py', ('tests/pipelines/evaluation/test_parseval.py',)),
    'boxes': Tests('keras_models/image/boxes.py', ('tests/keras_models/image/test_boxes.py',)),
    'views': Tests('keras_models/image/views.py', ('tests/keras_models/image/test_views.py',)),
    'person': Tests('data_prep/people/person.py', ('tests/data_prep/people/test_person.py', '-k', 'not saved_model')),
}


def drawn(name: str, seed: int, count: int) -> list[Mutant]:
    """Mutants of a module: from as many lines as there are, by lot, then from them again."""
    draw, by_line, source = random.Random(f'{seed} {name}'), {}, (ROOT / TESTS[name].path).read_bytes()
    for mutant in mutants(source, TESTS[name].functions):
        by_line.setdefault(mutant.line, []).append(mutant)
    for each in by_line.values():
        draw.shuffle(each)
    chosen, lines = [], []
    while len(chosen) < count and any(by_line.values()):
        lines = lines or draw.sample(sorted(by_line), len(by_line))
        left = by_line[lines.pop()]
        while left:
            if differs(mutant := left.pop(), source):
                chosen.append(mutant)
                break
    return sorted(chosen)


def copied(folder: str) -> pathlib.Path:
    """A copy of the tree's own files, in `folder`."""
    listed = subprocess.run(['git', '-C', str(ROOT), 'ls-files', '-co', '--exclude-standard', '-z'],
                            check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split('\0')):
        if (ROOT / name).is_file():
            (to := pathlib.Path(folder, name)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to)
    return pathlib.Path(folder)


class _FirstFailure:
    """A pytest plugin for Hypothesis, whose own is not loaded: a failing input is not made simpler."""

    def pytest_collection(self) -> None:
        import hypothesis
        hypothesis.settings.load_profile('first failure')


def pytest_in_child(tree: pathlib.Path, arguments: tuple[str, ...], log: pathlib.Path,
                    keep_bytecode: bool) -> None:
    """Runs pytest in a copy of the tree and ends this process with its exit code."""
    code = 70
    try:
        os.setsid()
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(fd, 'wb'), line_buffering=True) for fd in (1, 2))
        os.chdir(tree)
        sys.dont_write_bytecode = not keep_bytecode
        os.environ.update({} if keep_bytecode else {'PYTHONDONTWRITEBYTECODE': '1'})
        for name in [name for name in sys.modules if name.split('.')[0] in OWN]:
            del sys.modules[name]
        sys.path[:] = [str(tree), str(tree / 'tests')] + [path for path in sys.path if not pathlib.Path(
            path or os.getcwd()).resolve().is_relative_to(ROOT) or 'site-packages' in path]
        import hypothesis
        import pytest
        hypothesis.settings.register_profile(
            'first failure', phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate], derandomize=True,
            database=None, deadline=None)
        code = int(pytest.main(['-x', '-n', '0', '-p', 'no:cacheprovider', '--tb=short', '-rfE', *arguments],
                               plugins=[_FirstFailure()]))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def outcome(tree: pathlib.Path, arguments: tuple[str, ...], log: pathlib.Path, limit: float,
            keep_bytecode: bool = False) -> tuple[str, float]:
    """Runs tests in a forked child: 'passed', 'failed' or 'timeout', and the seconds it took."""
    before = time.monotonic()
    if not (child := os.fork()):
        pytest_in_child(tree, arguments, log, keep_bytecode)
    code = None
    while code is None and time.monotonic() - before < limit:
        pid, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if pid else None
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # what it started, too
    if code is None:
        os.waitpid(child, 0)
    return {None: 'timeout', 0: 'passed'}.get(code, 'failed'), time.monotonic() - before


class Bench:
    """A process's copy of the tree, in which modules are broken and mended."""
    tree: pathlib.Path

    @classmethod
    def make(cls, folder: str) -> None:
        cls.tree = copied(tempfile.mkdtemp(dir=folder))
        cls.whole: set[str] = set()

    @classmethod
    def run(cls, work: tuple[str, Mutant]) -> dict:
        name, mutant = work
        module, arguments = cls.tree / TESTS[name].path, TESTS[name].arguments
        log, source = cls.tree.with_suffix('.log'), module.read_bytes()
        if name not in cls.whole:
            how, seconds = outcome(cls.tree, arguments, log, 10 * LIMIT, keep_bytecode=True)
            if how != 'passed':
                raise RuntimeError(f'The tests of {name} fail without a mutant:\n{log.read_text()}')
            for cached in module.parent.glob(f'__pycache__/{module.stem}.*'):
                cached.unlink()
            cls.whole.add(name)
        try:
            module.write_bytes(mutant.applied(source))
            how, seconds = outcome(cls.tree, arguments, log, LIMIT)
        finally:
            module.write_bytes(source)
        said = log.read_text(errors='replace')
        by = re.search(r'^(?:FAILED|ERROR) (\S+)', said, re.M)
        line = source.splitlines()[mutant.line - 1].decode().strip()
        return {'module': name, 'line': mutant.line, 'source': line, 'change': mutant.change, 'outcome': how,
                'seconds': round(seconds, 1), 'by': by[1] if by else '', 'said': said}


def known() -> dict[tuple[str, str, str], str]:
    """(module, source line, change) -> why no test can, or need, notice it."""
    import yaml
    return {(name, line, change): why for name, lines in yaml.safe_load(SURVIVORS.read_text()).items()
            for line, changes in lines.items() for change, why in changes.items()}


def table(results: list[dict]) -> str:
    """Markdown: what was killed of each module, and what survived."""
    rows = ['| module | mutants | killed | of these timeouts | survived | killed % | seconds |',
            '|---|---|---|---|---|---|---|']
    for name in dict.fromkeys(result['module'] for result in results):
        own = [result for result in results if result['module'] == name]
        count = {how: sum(result['outcome'] == how for result in own)
                 for how in ('failed', 'timeout', 'passed')}
        killed = count['failed'] + count['timeout']
        rows.append(f'| {name} | {len(own)} | {killed} | {count["timeout"]} | {count["passed"]} | '
                    f'{100 * killed / len(own):.0f} | {sum(result["seconds"] for result in own):.0f} |')
    rows += ['', '| survivor | line | change | why |', '|---|---|---|---|']
    reasons = known()
    for result in results:
        if result['outcome'] == 'passed':
            why = reasons.get((result['module'], result['source'], result['change']), 'not known')
            rows.append(f'| {result["module"]} | {result["line"]} | `{result["change"]}` | {why} |')
    return '\n'.join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('modules', nargs='*', metavar='MODULE',
                        help=f'of {", ".join(TESTS)}; all if none is given')
    parser.add_argument('--seed', type=int, default=SEED)
    parser.add_argument('--count', type=int, default=COUNT, help='mutants a module')
    parser.add_argument('--jobs', type=int, default=2, help='mutants at once')
    parser.add_argument('--list', action='store_true', help='print the mutants and run nothing')
    parser.add_argument('--number', type=int, help='run only this one of those that --list prints')
    parser.add_argument('--out', type=pathlib.Path, help='also write the results, as FILE.json or FILE.md')
    args = parser.parse_args()
    if unknown := set(args.modules) - {*TESTS}:
        parser.error(f'there is no {", ".join(sorted(unknown))}; there are {", ".join(TESTS)}')
    work = [(name, mutant) for name in args.modules or TESTS for mutant in drawn(name, args.seed, args.count)]
    if args.number is not None:
        work = work[args.number:][:1]
    if args.list:
        for number, (name, mutant) in enumerate(work):
            print(f'{number:3} {name}:{mutant.line}: {mutant.change}')
        return 0
    os.environ.update(TF_CPP_MIN_LOG_LEVEL='3', CUDA_VISIBLE_DEVICES='')
    for library in LIBRARIES:
        importlib.import_module(library)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        with multiprocessing.get_context('fork').Pool(args.jobs, Bench.make, (folder,)) as pool:
            for result in pool.imap(Bench.run, work):
                print('{module}:{line}: {outcome} in {seconds} s: {change}  {by}'.format(**result),
                      flush=True)
                said = result.pop('said')
                if args.number is not None:
                    print(said)
                results.append(result)
    print(table(results))
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) if args.out.suffix == '.json'
                            else table(results) + '\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
