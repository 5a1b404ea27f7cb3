"""Measures what a configuration costs on this machine: the user's data prepared small, and the real trainer's steps.

The same trainer, precision and input pipeline as those of `pipelines.train`, so nothing is modelled but what a whole
run does more of. Where other programs have the cores meanwhile, seconds are those an idle machine would take, by
processor time.
"""
import collections
import contextlib
import os
import pathlib
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

from pipelines.starting.findings import resolved

STEPS = 20  # that are timed
WARM_UP = 4  # at least that are not, and until every shape of a batch was seen
MOST_WARM_UP = 24
_GIGABYTE = 1 << 30
OTHERS = 0.2  # share of the cores that other programs may have before wall time says nothing
PARALLEL = 0.75  # share of the cores that a step then is assumed to keep busy


class Seconds(NamedTuple):
    """Of an idle machine, and of its processors."""
    idle: float
    cpu: float


class Stopwatch:
    """Measures from where it is made: wall and processor time, and what other programs took of the cores."""

    def __init__(self):
        self._wall, self._own, self._all = time.monotonic(), time.process_time(), _jiffies()

    def read(self, cores: float) -> Seconds:
        """Returns the time since then, of work that keeps so many cores busy."""
        wall, own = time.monotonic() - self._wall, time.process_time() - self._own
        others = (_jiffies() - self._all) / os.sysconf('SC_CLK_TCK') - own
        busy = self._all > 0 and others > OTHERS * wall * (os.cpu_count() or 1)
        return Seconds(min(wall, own / cores) if busy else wall, own)


def _jiffies() -> int:
    """What all programs of the machine have had of its processors; 0 where the system does not say."""
    try:
        user, nice, system, _, _, irq, softirq, *_ = map(
            int, pathlib.Path('/proc/stat').read_text().split('\n', 1)[0].split()[1:])
    except (OSError, ValueError):
        return 0
    return user + nice + system + irq + softirq


def cores() -> float:
    """What a training step keeps busy where that cannot be measured."""
    return max(1.0, PARALLEL * (os.cpu_count() or 1))


class Measured(NamedTuple):
    """What one configuration costs here.

    Attributes:
      prepare: seconds to prepare the small data.
      begin: seconds to build the trainer and trace its steps.
      step: seconds of a step, shapes weighted as an epoch has them.
      evaluation: seconds of a validation batch.
      per_step: examples of a batch, on average.
      parameters: of all nets.
      memory: the process's largest resident size, in gigabytes.
    """
    prepare: Seconds
    begin: Seconds
    step: Seconds
    evaluation: Seconds
    per_step: float
    parameters: int
    memory: float


class Small:
    """A folder with a part of the user's data, prepared once for each different section `data`."""

    def __init__(self, found):
        self._found, self._scratch = found, tempfile.TemporaryDirectory(prefix='landmark-init-')
        raw = os.path.join(self._scratch.name, 'raw')
        os.makedirs(raw)
        self._named = found.make_small(raw)
        self._prepared: dict[str, tuple[str, Seconds]] = {}

    def measure(self, values: dict[str, dict[str, Any]]) -> Measured:
        """What a configuration costs.

        Args:
          values: its sections; those of `data` that say where it is are replaced.
        """
        from data_prep.core import records
        from pipelines.core import config as configs
        config = self._config(values)
        with contextlib.redirect_stdout(None):  # where the configuration goes
            examples, prepare = self._examples(config)
        config = configs.with_data_set(config, records.read_manifest(examples))
        return _steps(config, examples)._replace(prepare=prepare)

    def lengths(self, values: dict[str, dict[str, Any]]) -> np.ndarray:
        """Subwords of the longer side of every training example of the small data."""
        from data_prep.core import records
        with contextlib.redirect_stdout(None):
            examples, _ = self._examples(self._config(values))
        index = records.open_split(examples, 'train').index
        return np.maximum(index['inputs'], index['targets'])

    def _config(self, values: dict[str, dict[str, Any]]):
        fresh = {key: value for key, value in values['data'].items() if key not in (
            'train', 'validation', 'test', 'folder', 'validation_fraction', 'test_fraction')}
        values = {**values, 'data': {**fresh, **self._named}, 'train': {'steps': 1000, **values.get('train', {})}}
        values = {name: keys for name, keys in values.items() if name != 'evaluate'}
        return resolved(values)

    def _examples(self, config) -> tuple[str, Seconds]:
        """The folder of the small data set, and the time it took to prepare."""
        from pipelines.core import artifacts, roles
        key = artifacts.sha256(config.values['data'])
        if key not in self._prepared:
            folder = os.path.join(self._scratch.name, f'examples-{len(self._prepared)}')
            os.makedirs(folder)
            watch = Stopwatch()
            roles.job(config.data_spec).run(config.data, folder, [])
            self._prepared[key] = folder, watch.read(1)
        return self._prepared[key]


def _steps(config, examples: str) -> Measured:
    """Times the trainer's steps, all shapes of batches traced before."""
    import tensorflow as tf

    from pipelines.training import devices, precision
    from pipelines.training.trainer import Trainer
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
        times = collections.defaultdict(list)
        for _ in range(STEPS):
            taken = _step(trainer, batches)
            times[batches.lengths[-1]].append(taken)
        trainer.evaluate(tf.constant(-1))  # traced
        watch, count = Stopwatch(), _batches(config, examples, 'validation').steps_per_epoch
        trainer.evaluate(tf.constant(-1))
        evaluation = Seconds(*(part / count for part in watch.read(cores())))
    known = {length: _usual(each) for length, each in times.items()}
    rest = Seconds(*np.mean([*known.values()], 0))  # of a shape that was not timed
    step = Seconds(*np.sum([np.multiply(share, known.get(length, rest)) for length, share in shares.items()], 0))
    nothing = Seconds(0, 0)
    found = Measured(nothing, begin, step, evaluation, sum(batches.rows) / len(batches.rows),
                     sum(net.count_params() for net in trainer.nets.values()), _peak())
    del trainer
    tf.keras.backend.clear_session()
    return found


class _Seen:
    """An iterator that notes the length and the filled rows of every batch."""

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
    """The mean, without the slowest tenth: something else ran then."""
    kept = max(1, round(0.9 * len(times)))
    return Seconds(*(float(np.mean(sorted(each)[:kept])) for each in zip(*times)))


def _batches(config, examples: str, split: str):
    from data_prep.core import input_pipeline, records
    settings = config.input
    rows = input_pipeline.rows_per_bucket(settings.buckets, settings.tokens, settings.rows, settings.rows_multiple_of)
    return input_pipeline.Batches(records.open_split(examples, split), settings.buckets, rows, 1,
                                  settings.rows_multiple_of)


def _shares(config, examples: str) -> dict[int, float]:
    """Which part of an epoch's batches has which length."""
    batches = _batches(config, examples, 'train')
    counts = collections.Counter(batches.buckets[batches[step][0]] for step in range(batches.steps_per_epoch))
    return {length: count / counts.total() for length, count in counts.items()}


def _forget_peak() -> None:
    """Begins the measurement of the largest resident size again, where the system can."""
    try:
        pathlib.Path('/proc/self/clear_refs').write_text('5')
    except OSError:
        pass


def _peak() -> float:
    for line in pathlib.Path('/proc/self/status').read_text().splitlines():
        if line.startswith('VmHWM'):
            return int(line.split()[1]) * 1024 / _GIGABYTE
    return 0.0
