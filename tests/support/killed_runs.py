"""Kill training: a command by a signal it sends itself at a step, or a call in this process after each checkpoint.

The signal comes between two steps, by their number, so that no test has to be faster than the last of them. Commands
also write down their steps: for `commands.start(before=...)`.
"""
import contextlib
import functools
import json
import os
import signal
from collections.abc import Callable
from typing import TypeVar
from unittest import mock

T = TypeVar('T')


class Killed(BaseException):
    """Nothing in the training loop catches it, so that it writes no more than after SIGKILL."""


def after_each_checkpoint(train: Callable[[], T]) -> tuple[T, list[tuple[str, int]]]:
    """Trains, killed after each checkpoint it writes for the first time, and again until it ends.

    Returns:
      What `train` returned in the end; and (folder, step) of the checkpoints, in their order.
    """
    from pipelines.training import checkpoints
    done: list[tuple[str, int]] = []
    write = checkpoints.write

    def write_and_die(checkpoint, folder, step, keep):
        write(checkpoint, folder, step, keep)
        if (kind := (os.path.basename(folder), step)) not in done:
            done.append(kind)
            raise Killed
    with mock.patch.object(checkpoints, 'write', write_and_die):
        while True:
            with contextlib.suppress(Killed):
                return train(), done


def stored(path) -> dict:
    """Return what a checkpoint holds, by key."""
    import tensorflow as tf
    reader = tf.train.load_checkpoint(str(path))
    return {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map() if key[0] != '_'}


def same(one: dict, other: dict) -> None:
    """Assert that two checkpoints hold the same, to the bit."""
    import numpy as np
    assert one.keys() == other.keys() and one
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key], err_msg=key)


def at_step(step: int, number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Sends `number` to the command that calls this first, when it has taken `step` steps."""
    return functools.partial(_watch, functools.partial(_send, step, number))


def recorded(file: str, then: Callable[[], None] | None = None) -> Callable[[], None]:
    """Appends each step and the numbers of its records to `file`, as a line of JSON, and does what `then` does."""
    return functools.partial(_record, file, then)


def records(file: str) -> dict[int, list[int]]:
    """Step -> its records. Steps after the last checkpoint are taken twice; the second time counts."""
    with open(file) as lines:
        return dict(json.loads(line) for line in lines)


def _send(step: int, number: signal.Signals, trainer, batches):
    if int(trainer.global_step.numpy()) == step:
        os.kill(os.getpid(), number)
    return batches


def _write(file: str, trainer, batches):
    batch = next(batches)
    with open(file, 'a') as lines:
        lines.write(json.dumps([int(trainer.global_step), batch['id'].numpy().tolist()]) + '\n')
    return iter([batch])


def _record(file: str, then: Callable[[], None] | None) -> None:
    _watch(functools.partial(_write, file))
    if then:
        then()


def _watch(see: Callable) -> None:
    """Calls `see(trainer, batches)` before every step, which is taken on the batches it returns."""
    from pipelines.training import trainer
    take = trainer.Trainer.train_step

    def train_step(self, iterator):
        return take(self, see(self, iterator))
    trainer.Trainer.train_step = train_step
