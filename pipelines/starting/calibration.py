"""Measure a configuration's cost on this machine: prepare a little of the user's data, and time real training steps.

Trainer, precision and input pipeline are those of `pipelines.train`; only what grows with the whole run is modelled.
When other programs use the cores, seconds are converted to those of an idle machine by means of processor time.
"""
import collections
import contextlib
import os
import pathlib
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data_prep.core import input_pipeline, records
from pipelines.core import artifacts, roles
from pipelines.core import config as configs
from pipelines.core.config import Config
from pipelines.starting.findings import resolved
from pipelines.training import devices, precision
from pipelines.training.trainer import Trainer

STEPS = 20  # steps timed
WARM_UP = 4  # least steps before timing; they last until every shape of a batch was seen
MOST_WARM_UP = 24
_GIGABYTE = 1 << 30
OTHERS = 0.2  # share of the cores used by others above which wall time is not used
PARALLEL = 0.75  # share of the cores that a step is then assumed to use


class Seconds(NamedTuple):
    """Wall seconds of an idle machine, and its processor seconds."""
    idle: float
    cpu: float


class Stopwatch:
    """Measure wall time, processor time and the cores' use by other programs, from its creation on."""

    def __init__(self):
        self._wall, self._own, self._all = time.monotonic(), time.process_time(), _jiffies()

    def read(self, cores: float) -> Seconds:
        """Return the time since then, for work that keeps this many cores busy."""
        wall, own = time.monotonic() - self._wall, time.process_time() - self._own
        others = (_jiffies() - self._all) / os.sysconf('SC_CLK_TCK') - own
        busy = self._all > 0 and others > OTHERS * wall * (os.cpu_count() or 1)
        return Seconds(min(wall, own / cores) if busy else wall, own)


def _jiffies() -> int:
    """Return the processor time of all programs on this machine; 0 if the system does not report it."""
    try:
        user, nice, system, _, _, irq, softirq, *_ = map(
            int, pathlib.Path('/proc/stat').read_text().split('\n', 1)[0].split()[1:])
    except (OSError, ValueError):
        return 0
    return user + nice + system + irq + softirq


def cores() -> float:
    """Return the number of cores a training step is assumed to use when that cannot be measured."""
    return max(1.0, PARALLEL * (os.cpu_count() or 1))


class Measured(NamedTuple):
    """Cost of one configuration on this machine.

    Attributes:
      prepare: time to prepare the small data.
      begin: time to build the trainer and trace its steps.
      step: time of a step, with shapes weighted as in an epoch.
      evaluation: time of a validation batch.
      per_step: average examples of a batch.
      parameters: parameters of all nets.
      memory: the process's peak resident size in gigabytes.
    """
    prepare: Seconds
    begin: Seconds
    step: Seconds
    evaluation: Seconds
    per_step: float
    parameters: int
    memory: float


class Small:
    """A part of the user's data, prepared once for each distinct `data` section."""

    def __init__(self, found):
        self._found, self._scratch = found, tempfile.TemporaryDirectory(prefix='landmark-init-')
        raw = os.path.join(self._scratch.name, 'raw')
        os.makedirs(raw)
        self._named = found.make_small(raw)
        self._prepared: dict[str, tuple[str, Seconds]] = {}

    def measure(self, values: dict[str, dict[str, Any]]) -> Measured:
        """Measure a configuration's cost.

        Args:
          values: its sections; the keys of `data` that locate it are replaced.
        """
        config = self._config(values)
        with contextlib.redirect_stdout(None):  # standard output is for the configuration
            examples, prepare = self._examples(config)
        config = configs.with_data_set(config, records.read_manifest(examples).model)
        return _steps(config, examples)._replace(prepare=prepare)

    def lengths(self, values: dict[str, dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
        """Return the subwords of the source and of the target of every training example of the small data."""
        with contextlib.redirect_stdout(None):
            examples, _ = self._examples(self._config(values))
        index = records.open_split(examples, 'train').index
        return index['inputs'], index['targets']

    def _config(self, values: dict[str, dict[str, Any]]) -> Config:
        fresh = {key: value for key, value in values['data'].items() if key not in (
            'train', 'validation', 'test', 'folder', 'validation_fraction', 'test_fraction')}
        # A small part may lack the rarest classes.
        model = {key: value for key, value in values['model'].items() if key != 'class_counts'}
        values = {**values, 'data': {**fresh, **self._named}, 'model': model,
                  'train': {'steps': 1000, **values.get('train', {})}}
        values = {name: keys for name, keys in values.items() if name != 'evaluate'}
        return resolved(values)

    def _examples(self, config: Config) -> tuple[str, Seconds]:
        """Return the folder of the small data set, and the time it took to prepare."""
        key = artifacts.sha256(config.values['data'])
        if key not in self._prepared:
            folder = os.path.join(self._scratch.name, f'examples-{len(self._prepared)}')
            os.makedirs(folder)
            watch = Stopwatch()
            roles.job(config.data_spec).run(config.data, folder, [])
            self._prepared[key] = folder, watch.read(1)
        return self._prepared[key]


def _steps(config: Config, examples: str) -> Measured:
    """Time the trainer's steps after tracing every shape of a batch."""
    _forget_peak()
    chosen, watch = devices.choose(config), Stopwatch()
    trainer = Trainer(config, chosen, examples)
    with precision.rewriting(config.train.precision, chosen.use_mixed_policy):
        trainer.train_loop_begin()
        batches = _Seen(iter(trainer.train_dataset))
        shares = _shares(config, examples)
        for done in range(MOST_WARM_UP):
            if done >= WARM_UP and set(batches.lengths) >= set(shares):
                break
            _step(trainer, batches)
        begin = watch.read(1)
        times, traced = _timed(trainer, batches)
        begin = Seconds(*map(sum, zip(begin, *traced)))
        trainer.evaluate(tf.constant(-1))  # traced
        watch, count = Stopwatch(), _batches(config, examples, 'validation').steps_per_epoch
        trainer.evaluate(tf.constant(-1))
        evaluation = Seconds(*(part / count for part in watch.read(cores())))
    known = {length: _usual(each) for length, each in times.items()}
    rest = Seconds(*np.mean([*known.values()], 0))  # for shapes that were not timed
    step = Seconds(*np.sum([np.multiply(share, known.get(length, rest)) for length, share in shares.items()], 0))
    nothing = Seconds(0, 0)
    found = Measured(nothing, begin, step, evaluation, sum(batches.rows) / len(batches.rows),
                     sum(net.count_params() for net in trainer.nets.values()), _peak())
    del trainer
    tf.keras.backend.clear_session()
    return found


def _timed(trainer, batches: '_Seen') -> tuple[dict[int, list[Seconds]], list[Seconds]]:
    """Time `STEPS` steps: return those of each length, and those that traced a length too rare for the warm-up.

    Of 5,000 captions, one batch in 40 has the last length. Tracing it took 1.6 s, and its steps then take 0.07 s.
    """
    times, traced = collections.defaultdict[int, list[Seconds]](list), list[Seconds]()
    for _ in range(STEPS):
        before = trainer.traces
        taken = _step(trainer, batches)
        (times[batches.lengths[-1]] if trainer.traces == before else traced).append(taken)
    return times, traced


class _Seen:
    """An iterator that records the length and the filled rows of every batch."""

    def __init__(self, iterator):
        self._iterator, self.lengths, self.rows = iterator, list[int](), list[int]()

    def __next__(self):
        batch = next(self._iterator)
        self.lengths.append(batch['inputs'].shape[1] if 'inputs' in batch else 0)
        self.rows.append(int(np.sum(batch['id'].numpy() >= 0)))
        return batch


def _step(trainer, batches: _Seen) -> Seconds:
    watch = Stopwatch()
    trainer.train_step(batches)
    trainer._totals[-1][next(iter(trainer._totals[-1]))][0].numpy()  # noqa: SLF001 (waits for an accelerator)
    return watch.read(cores())


def _usual(times: list[Seconds]) -> Seconds:
    """Return the mean, without the slowest tenth: other programs ran then."""
    kept = max(1, round(0.9 * len(times)))
    return Seconds(*(float(np.mean(sorted(each)[:kept])) for each in zip(*times)))


def _batches(config: Config, examples: str, split: str) -> input_pipeline.Batches:
    settings = config.input
    rows = input_pipeline.rows_per_bucket(settings.buckets, settings.tokens, settings.rows, settings.rows_multiple_of)
    return input_pipeline.Batches(records.open_split(examples, split), settings.buckets, rows, 1,
                                  settings.rows_multiple_of)


def _shares(config: Config, examples: str) -> dict[int, float]:
    """Return the share of an epoch's batches that have each length."""
    batches = _batches(config, examples, 'train')
    counts = collections.Counter(batches.buckets[batches[step][0]] for step in range(batches.steps_per_epoch))
    return {length: count / counts.total() for length, count in counts.items()}


def _forget_peak() -> None:
    """Reset the peak resident size, if the system supports it."""
    try:
        pathlib.Path('/proc/self/clear_refs').write_text('5')
    except OSError:
        pass


def _peak() -> float:
    for line in pathlib.Path('/proc/self/status').read_text().splitlines():
        if line.startswith('VmHWM'):
            return int(line.split()[1]) * 1024 / _GIGABYTE
    return 0.0
