"""What every prep job ends with: its dead letters, its counts by split, and the one sentence that stands against it.

A worker cannot raise a user's mistake through Beam: the job commits either a manifest or `problems.json`, and `finish`,
on the machine that asked, raises it.
"""
import json
import os
from collections.abc import Iterable

import tensorflow as tf

from data_prep import UserError
from data_prep.core import records

_PROBLEMS = 'problems.json'
_SCRATCH = ('unpacked', 'sample')  # what workers put aside


def write_letters(folder: str, name: str, letters: list[dict]) -> None:
    """Writes the dead letters of a shard, if any: a JSON object a line, {file, offset or line, reason, …}."""
    if letters:
        path = os.path.join(folder, 'dead_letters', f'{name}.jsonl')
        tf.io.gfile.makedirs(os.path.dirname(path))
        lines = (json.dumps(letter, ensure_ascii=False) + '\n' for letter in letters)
        records.write_atomically(path, ''.join(lines).encode())


def total(empty: dict[str, dict[str, int]], parts: Iterable[tuple[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """Adds up (split, counts) to counts by split, beginning with `empty`."""
    found = {split: dict(counts) for split, counts in empty.items()}
    for split, counts in parts:
        for key, value in counts.items():
            found[split][key] += value
    return found


def too_many(counts: dict[str, int], limit: float) -> bool:
    """Whether more than this fraction of what was read is dead letters."""
    return counts['dead_letters'] / max(1, counts['read']) > limit  # the nearest number to 29/100 is that of 0.29


def commit(folder: str, shards: list[dict], lengths: tuple[str, ...], totals: dict[str, dict[str, int]],
           properties: dict) -> None:
    """Writes the manifest, last of all; see `records.write_manifest`.

    Raises:
      RuntimeError: what was read is not what was written, filtered or buried; the job lost something on the way.
    """
    for split, counts in totals.items():
        left_out = counts['dead_letters'] + sum(value for key, value in counts.items() if key.startswith('filtered_'))
        held = sum(shard['records'] for shard in shards if shard['file'].startswith(f'Split-{split}/'))
        if not counts['read'] - left_out == counts['written'] == held:
            raise RuntimeError(f'{folder}: the counts of {split} do not add up: its shards hold {held:,}, of {counts}.')
    records.write_manifest(folder, shards, lengths, totals, properties)


def refuse(folder: str, problems: list[str]) -> None:
    """Commits what stands against the data set, in place of a manifest."""
    records.write_atomically(os.path.join(folder, _PROBLEMS), json.dumps(problems).encode())


def finish(folder: str) -> dict:
    """Clears up after the workers. Returns the manifest.

    Raises:
      UserError: the job refused.
    """
    for scratch in _SCRATCH:
        if tf.io.gfile.exists(os.path.join(folder, scratch)):
            tf.io.gfile.rmtree(os.path.join(folder, scratch))
    path = os.path.join(folder, _PROBLEMS)
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path, 'rb') as file:
            problems = json.loads(file.read())
        raise UserError(problems[0] + (f' ({len(problems) - 1} more such in {path})' if problems[1:] else ''))
    return records.read_manifest(folder)
