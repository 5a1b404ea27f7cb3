"""A training command that sends itself a signal at a step: for `commands.start(before=...)`.

It comes between two steps, by their number, so that no test has to be faster than the last of them.
"""
import functools
import os
import signal
from collections.abc import Callable


def at_step(step: int, number: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Sends `number` to the command that calls this first, when it has taken `step` steps."""
    return functools.partial(_watch, step, number)


def _watch(step: int, number: signal.Signals) -> None:
    from pipelines import trainer
    take = trainer.Trainer.train_step

    def train_step(self, iterator):
        if int(self.global_step.numpy()) == step:
            os.kill(os.getpid(), number)
        return take(self, iterator)
    trainer.Trainer.train_step = train_step
