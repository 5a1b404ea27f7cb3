"""TFRecords -> batches, as a pure function of (seed, step).

Each epoch is a seeded permutation of all records. Records go to the smallest bucket that holds them, every bucket's
records are cut into batches in that order, and the batches are shuffled. The records of batch `step` follow from (seed,
step) alone, so a run resumes anywhere at no cost, and the same batch is split over any number of replicas.
"""
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from data_prep import UserError
from data_prep.core.records import Split


@dataclasses.dataclass
class InputConfig:
    """How records become batches.

    A batch has the shape of one bucket. With `tokens`, a bucket of length L holds `tokens / L` rows, rounded down to a
    multiple of `rows_multiple_of`, so that any number of replicas dividing it sees the same batches. Records without a
    length need `rows` and no buckets.
    """
    # lengths in tokens, ascending: each is one compiled shape
    buckets: list[int] = dataclasses.field(default_factory=list)
    tokens: int | None = None  # tokens per batch, including padding
    rows: int | None = None  # records per batch, for records without length
    rows_multiple_of: int = 8


class Batches:
    """Record numbers of every batch.

    Args:
      split: the records.
      buckets: lengths, ascending; a record goes to the first that holds the longest of its features. Empty: records
        have no length, and there is one bucket of length 0.
      rows: records per batch, for all buckets or for each.
      seed: of the permutations; None keeps the records in order (evaluation).
      multiple: the rows of the additional bucket for overlong records are a multiple of this.

    Raises:
      UserError: the split has no records.
    """

    def __init__(self, split: Split, buckets: Sequence[int], rows: Sequence[int], seed: int | None,
                 multiple: int = 8):
        if not len(split):
            raise UserError('The split has no records. '
                            'See its counts in manifest.json and the reasons in dead_letters/.')
        self.seed = seed
        names = [name for name in split.index.dtype.names if name not in ('offset', 'length', 'crc', 'shard')]
        lengths = np.max([split.index[name] for name in names], axis=0) if buckets else np.zeros(len(split), np.int64)
        self.buckets, self.rows = list(buckets) or [0], list(rows)
        if lengths.max() > self.buckets[-1]:  # evaluation drops nothing: one more bucket for longer records
            self.buckets.append(-(-int(lengths.max()) // 8) * 8)
            fits = self.rows[-1] * self.buckets[-2] // self.buckets[-1]
            self.rows.append(max(multiple, fits // multiple * multiple))
        self._bucket: np.ndarray = np.searchsorted(self.buckets, lengths).astype(np.int8)
        sizes = np.bincount(self._bucket, minlength=len(self.buckets))
        self.steps_per_epoch = int(sum(-(-size // rows) for size, rows in zip(sizes, self.rows)))

    def __getitem__(self, step: int) -> tuple[int, np.ndarray]:
        """Return (bucket number, record numbers) of the batch at `step`, counted from 0 through all epochs."""
        epoch, number = divmod(step, self.steps_per_epoch)
        return self._epoch(epoch)[number]

    @functools.lru_cache(maxsize=2)  # noqa: B019 (lives as long as the run)
    def _epoch(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        order = np.arange(len(self._bucket), dtype=np.int32)
        random = None if self.seed is None else np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        if random is not None:
            random.shuffle(order)
        batches: list[tuple[int, np.ndarray]] = []
        for bucket, rows in enumerate(self.rows):
            members = order[self._bucket[order] == bucket]
            batches.extend((bucket, members[start:start + rows]) for start in range(0, len(members), rows))
        if random is not None:
            random.shuffle(batches)  # type: ignore[arg-type]  # NumPy shuffles a list of pairs in place
        return batches


def rows_per_bucket(buckets: Sequence[int], tokens: int | None, rows: int | None, multiple: int) -> list[int]:
    """Return the rows of each bucket's batches: about `tokens` padded tokens per batch, or `rows` records.

    Raises:
      UserError: neither or both are given, or a bucket would hold no rows.
    """
    if (tokens is None) == (rows is None):
        raise UserError('input: give either tokens (padded tokens per batch) or rows (records per batch).')
    if rows is not None:
        return [rows] * max(1, len(buckets))
    assert tokens is not None
    if not buckets or list(buckets) != sorted(set(buckets)):
        raise UserError(f'input.buckets must be lengths in ascending order; they are {list(buckets)}.')
    result = [tokens // length // multiple * multiple for length in buckets]
    if not all(result):
        raise UserError(f'input.tokens {tokens} holds fewer than {multiple} rows of length {buckets[-1]}. '
                        'Raise it, or lower input.buckets or input.rows_multiple_of.')
    return result


def dataset(split: Split, batches: Batches, decode: Callable, start: int, stop: int, seed: int = 0, replicas: int = 1,
            first_replica: int = 0, local_replicas: int | None = None) -> tf.data.Dataset:
    """Return the batches of steps [start, stop), one element for each step and each of this worker's replicas in turn.

    A replica's share has `rows / replicas` rows. The last, smaller batch is padded with empty records, which decode to
    padding. Every element has the static shape of one bucket.

    Args:
      decode: (serialized [rows], bucket length, seeds int32 [rows, 2]) -> dict of tensors, as tf.data operations. A
        row's seed depends only on (seed, step) and its place in the whole batch, not on the number of replicas.
      replicas: number in the whole job.
      first_replica: the first of this worker's replicas.
      local_replicas: number on this worker; None: all of them.

    Raises:
      UserError: a batch cannot be divided by the number of replicas, or (while reading) a record is damaged.
    """
    local = local_replicas or replicas
    uneven = [rows for rows in batches.rows if rows % replicas]
    if uneven:
        raise UserError(f'Batches of {uneven[0]} rows cannot be divided among {replicas} replicas. '
                        f'Make input.rows_multiple_of a multiple of {replicas}.')

    def read(number):
        step, replica = divmod(int(number), local)
        bucket, ids = batches[step]
        share = ids[first_replica + replica::replicas]
        rows = batches.rows[bucket] // replicas
        empty = rows - len(share)
        records = [*split.read(share), *[b''] * empty]
        places = step * batches.rows[bucket] + first_replica + replica + replicas * np.arange(rows, dtype=np.int32)
        return (np.array(records, object), np.int64(batches.buckets[bucket]),
                np.stack([np.full(rows, seed, np.int32), places.astype(np.int32)], 1),
                np.concatenate([share.astype(np.int64), np.full(empty, -1)]))

    @tf.autograph.experimental.do_not_convert  # AutoGraph rewriting the decoder takes 3.4 s per try-on trainer
    def load(number):  # only bytes: Python runs in order, and decoding uses all cores
        records, length, seeds, ids = tf.numpy_function(read, [number], (tf.string, tf.int64, tf.int32, tf.int64))
        records.set_shape([None])
        seeds.set_shape([None, 2])
        ids.set_shape([None])
        return records, length, seeds, ids

    @tf.autograph.experimental.do_not_convert
    def decoded(records, length, seeds, ids):
        return {**decode(records, length, seeds), 'id': ids}

    numbers = tf.data.Dataset.range(start * local, stop * local)
    loaded = numbers.map(load).map(decoded, tf.data.AUTOTUNE).prefetch(2 * local)
    options = tf.data.Options()  # its own threads: on a CPU, training uses only one thread to start operations
    options.threading.private_threadpool_size = os.cpu_count() or 1
    # The tuner sleeps ever longer, and the end of a pass waits until it wakes: 1.3 s after a pass of 4 s, 2.2 s after
    # one of 8 s. Without it AUTOTUNE means one call per thread, at most 16, which is as fast.
    options.autotune.enabled = False
    return loaded.with_options(options)
