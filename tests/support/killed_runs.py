"""A training command that sends itself a signal at a step, or writes down its steps: for `commands.start(before=...)`.

The signal comes between two steps, by their number, so that no test has to be faster than the last of them.
"""
import functools
import json
import os
import signal
from collections.abc import Callable


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
