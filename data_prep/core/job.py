"""Common end of every prep job: dead letters, counts by split, and the sentence for a refusal.

A worker cannot raise a user's mistake through Beam. The job commits either a manifest or `problems.json`, and `finish`
raises it on the machine that started the job.
"""
import json
import os
from collections.abc import Iterable

import tensorflow as tf

from data_prep import UserError
from data_prep.core import records

_PROBLEMS = 'problems.json'
_SCRATCH = ('unpacked', 'sample')  # workers' temporary files


def write_letters(folder: str, name: str, letters: list[dict]) -> None:
    """Write the dead letters of a shard, if any: one JSON object per line, {file, offset or line, reason, …}."""
    if letters:
        path = os.path.join(folder, 'dead_letters', f'{name}.jsonl')
        tf.io.gfile.makedirs(os.path.dirname(path))
        lines = (json.dumps(letter, ensure_ascii=False) + '\n' for letter in letters)
        records.write_atomically(path, ''.join(lines).encode())


def total(empty: dict[str, dict[str, int]], parts: Iterable[tuple[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """Add up (split, counts) to counts by split, starting from `empty`."""
    found = {split: dict(counts) for split, counts in empty.items()}
    for split, counts in parts:
        for key, value in counts.items():
            found[split][key] = found[split].get(key, 0) + value
    return found


def too_many(counts: dict[str, int], limit: float) -> bool:
    """Return whether more than this fraction of the records read are dead letters."""
    return counts['dead_letters'] / max(1, counts['read']) > limit  # 0.29 is the float nearest to 29/100


def commit(folder: str, shards: list[dict], lengths: tuple[str, ...], totals: dict[str, dict[str, int]],
           properties: dict) -> None:
    """Write the manifest last; see `records.write_manifest`.

    Raises:
      RuntimeError: the records read, and those made from them, are not all written, filtered or dead-lettered, so the
        job lost some.
    """
    for split, counts in totals.items():
        left_out = counts['dead_letters'] + sum(value for key, value in counts.items() if key.startswith('filtered_'))
        held = sum(shard['records'] for shard in shards if shard['file'].startswith(f'Split-{split}/'))
        if not counts['read'] + counts.get('made', 0) - left_out == counts['written'] == held:
            raise RuntimeError(f'{folder}: the counts of {split} do not add up: its shards hold {held:,}, of {counts}.')
    records.write_manifest(folder, shards, lengths, totals, properties)


def refuse(folder: str, problems: list[str]) -> None:
    """Commit the problems of the data set instead of a manifest."""
    records.write_atomically(os.path.join(folder, _PROBLEMS), json.dumps(problems).encode())


def finish(folder: str) -> records.Manifest:
    """Remove the workers' temporary files and return the manifest.

    Raises:
      UserError: the job committed problems.
    """
    for scratch in _SCRATCH:
        if tf.io.gfile.exists(os.path.join(folder, scratch)):
            tf.io.gfile.rmtree(os.path.join(folder, scratch))
    for here, _, names in list(tf.io.gfile.walk(folder)):  # what a worker was writing when it was killed
        for name in filter(records.TEMPORARY.search, names):
            tf.io.gfile.remove(os.path.join(here, name))
    path = os.path.join(folder, _PROBLEMS)
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path, 'rb') as file:
            problems = json.loads(file.read())
        raise UserError(problems[0] + (f' ({len(problems) - 1} more in {path})' if problems[1:] else ''))
    return records.read_manifest(folder)
