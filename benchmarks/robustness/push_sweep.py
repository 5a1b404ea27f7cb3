"""Pushing under fire: kills at random moments, two at once, rollbacks, before readers that look as fast as they can.

    python benchmarks/robustness/push_sweep.py --out /tmp/push_sweep

Two models of a tiny configuration go through pipelines of their own, then `pipelines.push` pushes them 200 times, each
time again; half of the commands are killed at a random moment of their run time. A poller in a second process lists the
serving folder without a pause, hashes what is new and looks that nothing vanishes; a server in a third does as
TensorFlow Serving does, loads every new version beside the one it has, and answers from that meanwhile. Each command is
a fork of one process that has imported what it needs. `--models DIR DIR` pushes two SavedModels instead.

Leaves with exit code 1 if a version was not whole or did not answer, if a version vanished, if the poller saw none or
the server had no answer after the first, or if a push that nobody killed did not leave one whole version.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
ASKED = 'one two three'
WORDS = {'one': 'eins', 'two': 'zwei', 'three': 'drei', 'four': 'vier', 'five': 'fünf', 'six': 'sechs'}

CONFIG = """\
data: {{module: data_prep.wmt, folder: {folder}, train: [train.tsv], validation: [test.tsv], test: [test.tsv],
       vocab_size: 60}}
input: {{buckets: [16], tokens: 256}}
model: {{module: keras_models.transformer, N: 1, d_model: 32, d_ff: 64, h: 2}}
inference: {{extra_length: 8, max_input_length: 16}}
train: {{steps: 20, checkpoint_every: 10, validate_every: 20, average_checkpoints: 2}}
evaluate: {{thresholds: {{bleu: {{min: 0, max_drop: 100}}}}}}
"""


def version_numbers(destination: str) -> list[int]:
    """Return the versions TensorFlow Serving would see, lowest first."""
    return sorted(int(name) for name in os.listdir(destination) if name.isdecimal())


def flaw(version: str) -> str | None:
    """Return what is wrong with a version, by hashlib and its own record alone."""
    try:
        record = json.loads(pathlib.Path(version, 'landmark.json').read_bytes())
        found = {str(path.relative_to(version)): hashlib.sha256(path.read_bytes()).hexdigest()
                 for path in pathlib.Path(version).rglob('*') if path.is_file()}
    except (OSError, ValueError) as error:
        return f'{version}: {error}'
    del found['landmark.json']
    if found != record['files'] or 'saved_model.pb' not in found or record['version'] != int(version.rsplit('/', 1)[1]):
        return f'{version}: its files are not those of its record'
    return None


def over() -> bool:
    """Return whether standard input has ended, which tells readers to stop."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def poll(destination: str) -> dict:
    """List the folder without a pause."""
    seen: list[int] = []
    wrong, polls = [], 0
    while not over():
        polls += 1
        now = version_numbers(destination)
        if lost := {*seen} - {*now}:
            wrong.append(f'{sorted(lost)} vanished')
        if seen and not now:
            wrong.append('a poll found no version')
        wrong += [what for number in now if number not in seen and (what := flaw(f'{destination}/{number}'))]
        seen = now
    return {'polls': polls, 'versions': len(seen), 'wrong': wrong}


class Served:
    """A version that was loaded, and what it answers."""

    def __init__(self, version: str):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers the tokenizer's ops, as TensorFlow Serving does)
        self.number = int(os.path.basename(version))
        self._text, self._model = tf.constant([ASKED]), tf.saved_model.load(version)
        self.files = json.dumps(json.loads(pathlib.Path(version, 'landmark.json').read_bytes())['files'])
        self.answer = self.ask()

    def ask(self) -> str:
        return self._model.signatures['serving_default'](text=self._text)['text'].numpy()[0].decode()


def serve(destination: str) -> dict:
    """Load every version that appears, one after the other, and never ceases to answer."""
    wrong: list[str] = []
    asked = collections.Counter[str]()
    models: dict[str, str] = {}  # files -> answer
    served, loading, last, longest = None, None, 0.0, 0.0
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        while True:
            at = served.number if served else -1
            newer = [number for number in version_numbers(destination) if number > at]
            if not newer and over():
                return {'answers': asked['answers'], 'loads': asked['loads'], 'models': len(models),
                        'longest_pause': round(longest, 3), 'wrong': wrong}
            if loading is None and newer:
                loading = pool.submit(Served, f'{destination}/{newer[0]}')
            if loading and loading.done():
                try:
                    served, loading = loading.result(), None
                except Exception as error:  # whatever loading raises is what is looked for
                    return {'wrong': [*wrong, f'{newer[0]} cannot be loaded: {error}']}
                asked['loads'] += 1
                if models.setdefault(served.files, served.answer) != served.answer:
                    wrong.append(f'{served.number} answers {served.answer!r}')
            if served:
                if served.ask() != served.answer:
                    wrong.append(f'{served.number} changed its answer')
                asked['answers'] += 1
                longest, last = max(longest, time.monotonic() - (last or time.monotonic())), time.monotonic()


READERS = {'poll': poll, 'serve': serve}


class Child:
    """A command in a fork of this process, killed after `seconds`, if any are given and it still runs then."""

    def __init__(self, work: Callable[[], object], log: str, seconds: float | None):
        self._end, self._seconds, self.started = seconds and time.monotonic() + seconds, seconds, time.monotonic()
        self.pid, self.killed, self.code = os.fork(), False, None
        if self.pid:
            return
        code: object = 1
        try:
            for stream in (1, 2):
                os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
            work()
            code = 0
        except SystemExit as leave:
            code = leave.code or 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code if isinstance(code, int) else 1)

    def wait(self) -> 'Child':
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code, self.seconds = os.waitstatus_to_exitcode(status), time.monotonic() - self.started
                self.killed = self.code == -signal.SIGKILL
                return self
            if self._end and time.monotonic() > self._end:
                os.kill(self.pid, signal.SIGKILL)
            time.sleep(0.001)


def sweep(pushers: list[Callable[[], object]], back: Callable[[], object], destination: str, pushes: int,
          draw: random.Random, log: str) -> dict:
    """Push and rolls back until there were `pushes`; every run that nobody kills must leave one version more.

    Args:
      pushers: push one model each, again if need be.
      back: rolls back.

    Returns:
      Counts of what was done and where kills hit, and what went wrong.
    """
    counts, wrong, seconds = collections.Counter[str](), [], 0.0
    works, first = [], [*pushers, *pushers]
    for pusher in first:  # whole ones: there is something to serve and to go back to, and a run's time
        seconds = Child(pusher, log, None).wait().seconds
    counts['pushes'] = len(first)
    while counts['pushes'] < pushes:
        turn = counts['pushes'] % len(pushers)
        works = draw.choices([[pushers[turn]], pushers, [back]], [7, 2, works != [back]])[0]
        before = {*version_numbers(destination)}
        children = [Child(work, log, draw.uniform(0, seconds) if draw.random() < 0.5 else None) for work in works]
        for child in children:
            child.wait()
        whole = [child for child in children if not child.killed]
        made = {*version_numbers(destination)} - before
        counts['rollbacks' if works == [back] else 'pushes'] += len(works)
        counts['two at once'] += len(works) == 2
        if any(child.code for child in whole):
            wrong.append(f'a command left with {[child.code for child in children]}; see {log}')
        if not len(whole) <= len(made) <= len(children):
            wrong.append(f'{len(children)} pushes, {len(whole)} not killed, left {len(made)} versions')
        if len(children) == 1 and children[0].killed:
            copying = any(name.startswith('.staging') for name in os.listdir(destination))
            counts['killed after it appeared' if made else 'killed while copying' if copying else
                   'killed before or after that'] += 1
        else:
            counts['killed of two at once'] += len(children) - len(whole)
            seconds = max(child.seconds for child in whole) if len(whole) == len(children) == 1 else seconds
    if Child(pushers[0], log, None).wait().code:
        wrong.append(f'the last push failed; see {log}')
    if left := [name for name in os.listdir(destination) if not name.isdecimal()]:
        wrong.append(f'{left} were left behind')
    wrong += [what for number in version_numbers(destination) if (what := flaw(f'{destination}/{number}'))]
    return {**counts, 'seconds a push': round(seconds, 2), 'wrong': wrong}


def pipeline_pushers(out: pathlib.Path, destination: str) -> tuple[list[Callable], Callable]:
    """Two models made by the real commands, and the commands that push each of them again and roll back."""
    for split, n in (('train', 1000), ('test', 20)):
        draw = random.Random(n)
        with open(out / f'{split}.tsv', 'w', encoding='utf-8') as file:
            for _ in range(n):
                words = draw.choices([*WORDS], k=draw.randint(1, 6))
                file.write(f'{" ".join(words)}\t{" ".join(WORDS[word] for word in words)}\n')
    (out / 'sweep.yaml').write_text(CONFIG.format(folder=out))
    models = [['--config', str(out / 'sweep.yaml'), '--set', f'seed={seed}',
               '--pipeline_root', str(out / f'root-{seed}')]  # in one, the second's blessing would make the first's old
              for seed in (1, 2)]
    for flags in models:  # to elsewhere: what is watched is watched from its first push on
        subprocess.run([sys.executable, '-m', 'pipelines.run', *flags], check=True)
    from pipelines import push
    from pipelines.core import cli
    models = [[*flags, '--set', f'push.destination={destination}'] for flags in models]
    for flags in models:  # imports, and hashes of sources, once for all forks
        made = cli.open_pipeline(cli.parser('push', '').parse_args(flags))
        for need in push.STAGE.needs:
            made.outputs(need)

    def again(flags):
        for done in pathlib.Path(flags[flags.index('--pipeline_root') + 1]).glob('push/[0-9]*'):
            shutil.rmtree(done)  # by which the frame knows that there is nothing to do
        push.main(flags)
    return [functools.partial(again, flags) for flags in models], lambda: push.main([*models[0], '--rollback'])


def model_pushers(models: list[str], destination: str) -> tuple[list[Callable], Callable]:
    from pipelines.serving import pusher
    return ([functools.partial(pusher.publish, model, destination, {}) for model in models],
            functools.partial(pusher.rollback, destination))


@contextlib.contextmanager
def watched(destination: str, found: dict):
    """Readers in processes of their own; at the end `found` has what they saw."""
    children = {name: subprocess.Popen([sys.executable, __file__, '--reader', name, destination],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE) for name in READERS}
    try:
        yield
        for name, child in children.items():
            output = child.communicate(timeout=600)[0]  # ends its input first
            found[name] = json.loads(output) if output else {'wrong': [f'the reader left with {child.returncode}']}
    finally:
        for child in children.values():
            child.kill()


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, help='a new folder')
    flags.add_argument('--pushes', type=int, default=200)
    flags.add_argument('--seed', type=int, default=1)
    flags.add_argument('--models', nargs=2, metavar='DIR', help='two SavedModels to push instead')
    flags.add_argument('--reader', nargs=2, metavar=('KIND', 'DIR'), help=argparse.SUPPRESS)
    args = flags.parse_args()
    if args.reader:
        kind, place = args.reader
        print(json.dumps(READERS[kind](place)))
        return
    os.environ.update(TF_CPP_MIN_LOG_LEVEL='3', PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES='')
    out = args.out.resolve()
    out.mkdir(parents=True)
    destination = out / 'serving' / 'sweep'
    destination.mkdir(parents=True)
    pushers, back = (model_pushers(args.models, str(destination)) if args.models else
                     pipeline_pushers(out, str(destination)))
    found: dict[str, dict] = {}
    with watched(str(destination), found):
        found['push'] = sweep(pushers, back, str(destination), args.pushes, random.Random(args.seed),
                              str(out / 'pushes.log'))
    (out / 'push_sweep.json').write_text(json.dumps(found, indent=1))
    for name, values in found.items():
        for key, value in values.items():
            print(f'{name:6} {key:28} {value if value != [] else "nothing"}')
    sys.exit(any(values['wrong'] for values in found.values()))


if __name__ == '__main__':
    main()
