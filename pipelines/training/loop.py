"""The loop of everything that learns, on Orbit: intervals, checkpoints, resuming, and leaving at SIGTERM.

A learner is an Orbit trainer and evaluator with `config`, `strategy`, `nets`, `checkpoint`, `global_step`, `validated`,
`validation_action` and `before_step`, which is called before every step.
"""
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable

import orbit
import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from pipelines.core import stage
from pipelines.core.progress import Progress
from pipelines.training import checkpoints
from pipelines.training import strategy as strategies

SCHEDULED, INTERRUPTED = 'checkpoints', 'interrupted'  # of the first the last are averaged
PREEMPTED = 42  # the exit code of a run that saved on SIGTERM, which is Orbit's too


def start(learner, run: str, begin: Callable[[], None] = lambda: None) -> int:
    """Restores the newest checkpoint in `run`, or else calls `begin`. Returns the step."""
    newest = newest_intact(learner, run, [SCHEDULED, INTERRUPTED], 1)
    with learner.strategy.scope():
        if newest:
            checkpoints.resume(learner.checkpoint, learner.nets, newest[0])
        else:
            begin()
    started = int(learner.global_step.numpy())
    if started:
        print(f'{stage.name_of("train", learner.config)}: resuming at step {started:,} of '
              f'{learner.config.train.steps:,}.', flush=True)
    return started


def newest_intact(learner, run: str, kinds: list[str], count: int) -> list[str]:
    """The newest `count` checkpoints that are whole, oldest first: the chief looks, and all workers take the same."""
    folders, strategy = [os.path.join(run, kind) for kind in kinds], learner.strategy
    found = [] if strategies.is_worker(learner.config.train) else checkpoints.newest_intact(folders, count)
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return found
    steps = [checkpoints.step_of(path) for path in found] + [-1] * (count - len(found))

    said = strategy.experimental_distribute_values_from_function(  # replica 0 is the chief's
        lambda context: tf.constant([0] * count if context.replica_id_in_sync_group else steps, tf.int64))
    told = strategy.reduce(tf.distribute.ReduceOp.SUM, said, None)
    by_step = {checkpoints.step_of(path): path for folder in folders for path in checkpoints.present(folder)}
    return [by_step[step] for step in told.numpy().tolist() if step >= 0]


def run(learner, progress: Progress, run: str) -> None:
    """Orbit's loop to the last step, with loops, checkpoints and validation at multiples of their intervals.

    A worker that follows the chief writes nothing: weights and step are the chief's own.
    """
    settings, step, chief = learner.config.train, learner.global_step, not strategies.is_worker(learner.config.train)
    keep = max(settings.keep_checkpoints, settings.average_checkpoints)
    checkpoint, count = learner.checkpoint, {SCHEDULED: keep, INTERRUPTED: 1}

    def save(kind) -> str | None:
        return checkpoints.write(checkpoint, os.path.join(run, kind), int(step.numpy()), count[kind]) if chief else None
    controller = orbit.Controller(
        global_step=step, trainer=learner, evaluator=learner, strategy=learner.strategy,
        summary_dir=os.path.join(run, 'tensorboard') if chief else None,
        steps_per_loop=lambda step: min(every - int(step) % every for every in (
            settings.log_every, settings.checkpoint_every, settings.validate_every)),
        train_actions=[progress.train_action],
        eval_actions=[progress.eval_action, learner.validation_action])
    if not settings.steps and not checkpoints.present(os.path.join(run, SCHEDULED)):
        save(SCHEDULED)  # weights from elsewhere, as they are
    # Orbit prints what progress shows.
    with (_stop_at_sigterm(learner, lambda: save(INTERRUPTED)), open(os.devnull, 'w') as nowhere,
          contextlib.redirect_stdout(nowhere)):
        while True:
            # From the step, not from where this process began, so that a resumed run validates where any run does:
            # at a step whose checkpoint was written before its validation, too.
            done = int(step.numpy())
            if int(learner.validated.numpy()) < done and (not done % settings.validate_every or done == settings.steps):
                controller.evaluate()
            if done >= settings.steps:
                return
            controller.train(min(settings.steps, *(done - done % every + every for every in (
                settings.checkpoint_every, settings.validate_every))))
            done = int(step.numpy())
            if not done % settings.checkpoint_every or done == settings.steps:
                save(SCHEDULED)  # no action of Orbit's: it writes the curves up to here after those


def finish(learner, run: str, found: dict) -> None:
    """Leaves the weights as they are now, and what was found out; the chief does."""
    if not strategies.is_worker(learner.config.train):
        checkpoints.save(learner.nets, os.path.join(run, 'weights'))
        records.write_atomically(os.path.join(run, 'run.json'), json.dumps(found, indent=1).encode())


@contextlib.contextmanager
def _stop_at_sigterm(learner, save: Callable[[], str | None]):
    """At SIGTERM saves before the next step and leaves with exit code 42: start me again.

    Orbit's own action, made for several workers, would first finish the loop and one more.
    """
    def stop(*_):
        learner.before_step = save_and_leave

    def save_and_leave():
        path = save()
        print(f'{stage.name_of("train", learner.config)}: SIGTERM: {f"saved {path}; " if path else ""}'
              'the same command goes on from there.',
              file=sys.stderr, flush=True)
        sys.exit(PREEMPTED)
    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: whoever runs this has signals of their own
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def errors_in_words(strategy: tf.distribute.Strategy):
    """A damaged record, found inside tf.data, which wraps the sentence in its own error; or a worker that went away."""
    lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)
    try:
        yield
    except tf.errors.OpError as error:
        if isinstance(error, lost) and isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            print('train: another worker is gone; start all workers again, they go on from the last checkpoint.',
                  file=sys.stderr, flush=True)
            sys.exit(PREEMPTED)
        for line in str(error).splitlines():
            if 'UserError: ' in line:
                raise UserError(line.split('UserError: ', 1)[1]) from error
        raise
