"""Long runs: 100,000 training steps and 100,000 predictions, and what they take in memory and open files.

    python benchmarks/robustness/endurance.py --out /tmp/endurance

A tiny model for number words goes through the pipeline; `pipelines.train` is watched from outside at every 1,000th
step, `pipelines.predict` at every 1,000th answer. Printed are Theil-Sen slopes with their 95% interval, without the
first fifth, in which a process finds its size. The lines are numbers, told digit by digit, so that no two are the same;
each answer must be that of its line in a second go over the lines in reverse order, and the right one.

What grows is TensorFlow's: 2.15 loses 48 bytes of every tensor it hands to Python 3.11
(https://github.com/tensorflow/tensorflow/issues/62551), ten a step. Leaves with exit code 1 if memory grew by more than
--bytes_per_step a step or --bytes_per_answer an answer, if open files or threads grew at all, or an answer was missing,
misplaced or (of more than 1 in 1,000) wrong.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import NamedTuple

import psutil
import scipy.stats

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = dict(zip('0123456789', ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')))
GERMAN = dict(zip('0123456789', ('null', 'eins', 'zwei', 'drei', 'vier', 'fünf', 'sechs', 'sieben', 'acht', 'neun')))

CONFIG = """\
data: {{module: data_prep.wmt, folder: {folder}, train: [train.tsv], validation: [test.tsv], test: [test.tsv],
       vocab_size: 90}}
input: {{buckets: [8, 16], tokens: 256}}
model: {{module: keras_models.transformer, N: 1, d_model: 64, d_ff: 128, h: 4, warmup_steps: 400}}
inference: {{extra_length: 4, max_input_length: 24, beam_size: 1}}
train: {{steps: {steps}, log_every: {every}, checkpoint_every: {every}, validate_every: {every}}}
evaluate: {{thresholds: {{bleu: {{min: 0, max_drop: 100}}}}}}
"""


class Sample(NamedTuple):
    """A process and its descendants after `done` steps or answers: resident bytes, open files, threads."""
    done: int
    memory: int
    files: int
    threads: int


def sample(done: int, process: psutil.Process) -> Sample:
    family = [process, *process.children(recursive=True)]
    return Sample(done, sum(each.memory_info().rss for each in family), sum(each.num_fds() for each in family),
                  sum(each.num_threads() for each in family))


def slope(samples: list[Sample], what: str) -> tuple[float, float, float]:
    """Slope of a quantity over the work done, by Theil and Sen, with the bounds of its 95% interval."""
    settled = samples[len(samples) // 5:]
    found = scipy.stats.theilslopes([getattr(each, what) for each in settled], [each.done for each in settled])
    return float(found.slope), float(found.low_slope), float(found.high_slope)


def numbers(count: int, seed: int) -> list[str]:
    """Different numbers of up to seven digits, in no order."""
    return [str(number) for number in random.Random(seed).sample(range(10 ** 7), count)]


def told(number: str, words: dict[str, str]) -> str:
    return ' '.join(words[digit] for digit in number)


def command(stage: str, out: pathlib.Path, **kwargs) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, '-m', f'pipelines.{stage}', '--config', str(out / 'endurance.yaml'),
                             '--pipeline_root', str(out / 'root')], stdout=subprocess.PIPE, text=True, **kwargs)


def train(out: pathlib.Path, every: int) -> list[Sample]:
    """Train to the end, watched at every `every`-th step."""
    samples = []
    with command('train', out) as child:
        process = psutil.Process(child.pid)
        for line in child.stdout or ():
            found = re.match('train: step ([0-9,]+)/', line)
            if found and not (done := int(found[1].replace(',', ''))) % every:
                samples.append(sample(done, process))
                print(f'  {done:9,} steps, {samples[-1].memory / 2 ** 20:,.0f} MiB', flush=True)
    if child.returncode:
        sys.exit(f'train left with exit code {child.returncode}')
    return samples


def predict(out: pathlib.Path, lines: list[str], every: int) -> tuple[list[str], list[Sample]]:
    """Return the answers to all lines in one go, watched at every `every`-th."""
    answers: list[str] = []
    samples = []
    with command('predict', out, stdin=subprocess.PIPE) as child:
        assert child.stdin and child.stdout
        process = psutil.Process(child.pid)
        threading.Thread(target=feed, args=(child.stdin, lines), daemon=True).start()
        for line in child.stdout:
            answers.append(line.removesuffix('\n'))
            if not len(answers) % every:
                samples.append(sample(len(answers), process))
    if child.returncode:
        sys.exit(f'predict left with exit code {child.returncode}')
    return answers, samples


def feed(stream, lines: list[str]) -> None:
    with stream:
        stream.writelines(f'{line}\n' for line in lines)


def report(what: str, samples: list[Sample], bound: float) -> Iterator[str]:
    """Print a table, and yield each fault as a sentence."""
    first, last = samples[len(samples) // 5], samples[-1]
    print(f'{what}: {last.done:,}, sampled {len(samples)} times')
    for name, unit, scale in (('memory', 'MiB', 2 ** 20), ('files', '', 1), ('threads', '', 1)):
        middle, low, high = slope(samples, name)
        start, end = (getattr(each, name) / scale for each in (first, last))
        print(f'  {name:8} {start:9,.1f} -> {end:9,.1f} {unit:4} slope {middle:+.4g} [{low:+.4g}, {high:+.4g}] '
              f'{"bytes " if unit else ""}each')
        if low > (bound if unit else 0):
            yield f'{what}: {name} grew by {middle:.4g} each'


def check(lines: list[str], answers: list[str], again: list[str], expected: list[str]) -> Iterator[str]:
    """Yield the faults in outputs for lines and, in reverse order, for the same lines."""
    if not len(lines) == len(answers) == len(again):
        yield f'{len(lines):,} lines, {len(answers):,} and {len(again):,} answers'
        return
    other = sum(one != two for one, two in zip(answers, reversed(again)))
    false = sum(one != right for one, right in zip(answers, expected))
    print(f'  {len(answers):,} answers to {len(lines):,} lines; {other:,} others in reverse order; {false:,} wrong')
    if other > len(lines) // 10_000 or false > len(lines) // 1_000:  # rounding may turn an answer in another batch
        yield f'{other:,} answers are others in reverse order, {false:,} are wrong'


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--out', type=pathlib.Path, required=True, help='a folder; what is there is not made again')
    flags.add_argument('--steps', type=int, default=100_000)
    flags.add_argument('--lines', type=int, default=100_000)
    flags.add_argument('--every', type=int, default=1_000, help='steps or answers a sample')
    flags.add_argument('--bytes_per_step', type=float, default=1_000)
    flags.add_argument('--bytes_per_answer', type=float, default=100)
    args = flags.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL='3', PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES='')
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for split, count, seed in (('train', 5_000, 1), ('test', 200, 2)):
        if not (out / f'{split}.tsv').exists():
            (out / f'{split}.tsv').write_text(''.join(f'{told(number, DIGITS)}\t{told(number, GERMAN)}\n'
                                                      for number in numbers(count, seed)), encoding='utf-8')
    (out / 'endurance.yaml').write_text(CONFIG.format(folder=out, steps=args.steps, every=args.every))
    command('prepare', out).communicate()
    steps, wrong = train(out, args.every), []
    if steps:  # else they were made before
        wrong += report('steps', steps, args.bytes_per_step)
    command('run', out).communicate()
    asked = numbers(args.lines, 3)
    lines = [told(number, DIGITS) for number in asked]
    answers, samples = predict(out, lines, args.every)
    wrong += report('answers', samples, args.bytes_per_answer)
    wrong += check(lines, answers, predict(out, lines[::-1], args.every)[0], [told(number, GERMAN) for number in asked])
    (out / 'endurance.json').write_text(json.dumps({'steps': steps, 'answers': samples, 'wrong': wrong}, indent=1))
    sys.exit('\n'.join(wrong) or 0)


if __name__ == '__main__':
    main()
