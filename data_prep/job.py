"""What every prep job ends with: its dead letters, its counts by split, and the one sentence that stands against it.

A worker cannot raise a user's mistake through Beam: the job commits either a manifest or `problems.json`, and `finish`,
on the machine that asked, raises it.
"""
import json
import os
from collections.abc import Iterable

import tensorflow as tf

from data_prep import UserError, records

_PROBLEMS = 'problems.json'
_SCRATCH = ('unpacked', 'sample')  # what workers put aside


def write_letters(folder: str, name: str, letters: list[dict]) -> None:
    """Writes the dead letters of a shard, if any: a JSON object a line, {file, line or offset, reason}."""
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
