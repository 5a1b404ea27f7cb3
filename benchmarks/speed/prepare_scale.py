"""Preparing millions of pairs: peak memory, pairs a second, and whether every pair became one tf.Example.

    python benchmarks/speed/prepare_scale.py --pairs 5000000 --out /tmp/scale

Makes the pairs from a seed and runs `python -m pipelines.prepare` on them as a child process. Leaves with exit code 1
if the child's memory reached 2 GiB, if a pair is not exactly one record, or if the manifest's counts do not add up.
Flags not listed are the child's, as `--set data.subword_sample=100000`.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import threading
import time

import numpy as np
import psutil

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 2 << 30
HELD_OUT = 3000  # as many as newstest2013 and newstest2014 have
TYPES = 500_000  # words of a language: about what the 13 million tokens of 500,000 pairs of news hold, by Heaps' law

CONFIG = """\
data:
  module: data_prep.wmt
  folder: {folder}
  train: [train.en, train.de]
  validation: [validation.en, validation.de]
  test: [test.en, test.de]
  vocab_size: 37000
input: {{buckets: [32, 64, 128, 256], tokens: 4096}}
model: {{module: keras_models.transformer}}
"""


def words(onsets: str, vowels: str) -> np.ndarray:
    """Different made-up words, the frequent ones (the first) short: the ranks, written in syllables for digits."""
    syllables = [onset + vowel for vowel in vowels for onset in onsets]
    found, longer = list(syllables), list(syllables)
    while len(found) < TYPES:
        longer = [word + syllable for word in longer[:TYPES // len(syllables) + 1] for syllable in syllables]
        found += longer
    return np.array(found[:TYPES], dtype=object)


def make_pairs(folder: pathlib.Path, split: str, count: int, seed: int, chunk: int = 50_000) -> None:
    """Streams `count` pairs to `<split>.en` and `<split>.de`.

    Word frequencies follow Zipf's law; lengths are those of news (26 words on average, at most 90); the target has
    another word for each source word, some left out, so the sides differ in length.
    """
    source, target = words('bdfghklmnprstvw', 'aeiou'), words('bdfghklmnprstvwz', 'aeiouäöü')
    cumulative = np.cumsum(1 / (np.arange(TYPES) + 2.7))
    rng = np.random.default_rng(seed)
    with (open(folder / f'{split}.en', 'w', encoding='utf-8') as english,
          open(folder / f'{split}.de', 'w', encoding='utf-8') as german):
        for start in range(0, count, chunk):
            lengths = np.clip(rng.gamma(2.6, 10, min(chunk, count - start)).astype(int), 1, 90)
            ends = np.cumsum(lengths)
            ranks = np.searchsorted(cumulative, rng.random(ends[-1]) * cumulative[-1])
            kept = rng.random(ends[-1]) > 0.05
            kept[ends - 1] = True  # no side is empty
            for file, vocabulary, keep in ((english, source, np.ones_like(kept)), (german, target, kept)):
                text = vocabulary[ranks[keep]].tolist()
                bounds = [0, *np.cumsum(keep)[ends - 1].tolist()]
                file.writelines(' '.join(text[a:b]) + '.\n' for a, b in zip(bounds, bounds[1:]))


def make(out: pathlib.Path, pairs: int) -> None:
    """Make the pairs and their configuration, `scale.yaml`, once for runs with all flags."""
    out.mkdir(parents=True, exist_ok=True)
    (out / 'scale.yaml').write_text(CONFIG.format(folder=out.resolve()))
    made = out / f'made-{pairs}'
    if made.exists():
        return
    for old in out.glob('made-*'):
        old.unlink()
    for seed, (split, count) in enumerate({'train': pairs, 'validation': HELD_OUT, 'test': HELD_OUT}.items()):
        make_pairs(out, split, count, seed + 1)
    made.touch()


class Watch(threading.Thread):
    """Samples the resident memory of a process and all below it, by what the child has finished so far."""

    def __init__(self, pid: int, root: pathlib.Path):
        super().__init__(daemon=True)
        self._process, self._root, self._begun = psutil.Process(pid), root, time.monotonic()
        self.peaks: dict[str, int] = {}
        self.ends: dict[str, float] = {}

    def _phase(self) -> str:
        for name, mark in (('statistics', 'manifest.json'), ('write', 'subwords.model')):
            if any(self._root.glob(f'prepare/*/examples/{mark}')):
                return name
        return 'scan, sample, learn'

    def run(self) -> None:
        while True:
            try:
                used = sum(process.memory_info().rss
                           for process in [self._process, *self._process.children(recursive=True)])
            except psutil.NoSuchProcess:
                return
            phase = self._phase() if used else ''  # a finished child that was not waited for uses nothing
            if phase:
                self.peaks[phase] = max(self.peaks.get(phase, 0), used)
                self.ends[phase] = time.monotonic() - self._begun
            time.sleep(0.05)


def prepare(out: pathlib.Path, flags: list[str]) -> tuple[Watch, float, pathlib.Path]:
    """Run the stage. Returns what was watched, its seconds and the examples it left."""
    root = out / f'root-{time.time_ns()}'
    child = subprocess.Popen([sys.executable, '-m', 'pipelines.prepare', '--config', str(out / 'scale.yaml'),
                              '--pipeline_root', str(root), *flags],
                             env={**os.environ, 'PYTHONPATH': str(ROOT), 'CUDA_VISIBLE_DEVICES': ''})
    started = time.monotonic()
    watch = Watch(child.pid, root)
    watch.start()
    try:
        if child.wait():
            sys.exit(f'prepare left with exit code {child.returncode}')
    finally:
        child.kill()  # on Ctrl-C; one that has left is not there to be killed
    seconds = time.monotonic() - started
    watch.join()
    [examples] = root.glob('prepare/*/examples')
    return watch, seconds, examples


def check(examples: pathlib.Path, pairs: int, peak: int) -> list[str]:
    """Return what is wrong, as sentences."""
    import tensorflow as tf
    manifest = json.loads((examples / 'manifest.json').read_text())
    wrong = [f'memory reached {peak / 2**20:,.0f} MiB'] if peak >= LIMIT else []
    for split, expected in (('train', pairs), ('validation', HELD_OUT), ('test', HELD_OUT)):
        counts = manifest['counts'][split]
        left = counts['read'] - sum(value for key, value in counts.items()
                                    if key in ('written', 'dead_letters') or key.startswith('filtered'))
        files = [str(examples / shard['file']) for shard in manifest['splits'][split]]
        found = int(tf.data.TFRecordDataset(files).batch(1000).reduce(
            np.int64(0), lambda total, batch: total + tf.size(batch, tf.int64)))  # reads every byte, checks every CRC
        listed = sum(shard['records'] for shard in manifest['splits'][split])
        if not counts['read'] == counts['written'] == found == listed == expected or left:
            wrong.append(f'{split}: {expected:,} pairs made, {found:,} records found, {listed:,} listed, {counts}')
    return wrong


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--pairs', type=int, required=True)
    flags.add_argument('--out', type=pathlib.Path, required=True, help='a folder; 1 GB a million pairs')
    args, rest = flags.parse_known_args()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    make(args.out, args.pairs)
    watch, seconds, examples = prepare(args.out, rest)
    peak = max(*watch.peaks.values(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
    size = sum((args.out / f'train.{side}').stat().st_size for side in ('en', 'de'))
    print(f'{args.pairs:,} pairs, {size / 1e6:,.0f} MB: {seconds:.0f} s, {args.pairs / seconds:,.0f} pairs/s, '
          f'peak {peak / 2**20:,.0f} MiB')
    started = 0.0
    for phase, end in watch.ends.items():
        print(f'  {phase}: {end - started:.0f} s, peak {watch.peaks[phase] / 2**20:,.0f} MiB')
        started = end
    wrong = check(examples, args.pairs, peak)
    sys.exit('\n'.join(wrong) or 0)


if __name__ == '__main__':
    main()
