"""Training loop on Orbit: intervals, checkpoints, resuming, and stopping at SIGTERM.

A learner is an Orbit trainer and evaluator with `config`, `strategy`, `nets`, `checkpoint`, `global_step`, `validated`,
`best`, `validation_action`, and `before_step`, which is called before every step.
"""
import contextlib
import dataclasses
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
from pipelines.training.facts import RunFacts

# Folders; the last checkpoints of the first are averaged, unless the best one is exported.
SCHEDULED, INTERRUPTED, BEST = 'checkpoints', 'interrupted', 'best'
PREEMPTED = 42  # exit code of a run that saved on SIGTERM, as in Orbit


def start(learner, run: str, begin: Callable[[], None] = lambda: None) -> int:
    """Restore the newest checkpoint in `run`, or call `begin`; return the step."""
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
    """Return the newest `count` intact checkpoints, oldest first; the chief chooses and all workers use the same."""
    folders, strategy = [os.path.join(run, kind) for kind in kinds], learner.strategy
    found = [] if strategies.is_worker(learner.config.train) else checkpoints.newest_intact(folders, count)
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return found
    steps = strategies.of_chief(strategy, [checkpoints.step_of(path) for path in found] + [-1] * (count - len(found)),
                                tf.int64)
    by_step = {checkpoints.step_of(path): path for folder in folders for path in checkpoints.present(folder)}
    return [by_step[step] for step in steps if step >= 0]


def run(learner, progress: Progress, run: str) -> None:
    """Run Orbit's loop to the last step, with loops, checkpoints and validation at multiples of their intervals.

    It also ends after `train.patience` validations without a better one. Workers other than the chief write nothing,
    since weights and step equal the chief's.
    """
    settings, step, chief = learner.config.train, learner.global_step, not strategies.is_worker(learner.config.train)
    keep = max(settings.keep_checkpoints, settings.average_checkpoints)
    checkpoint, count = learner.checkpoint, {SCHEDULED: keep, INTERRUPTED: 1, BEST: 1}

    def save(kind) -> str | None:
        return checkpoints.write(checkpoint, os.path.join(run, kind), int(step.numpy()), count[kind]) if chief else None

    def keep_best(output: dict) -> None:
        found = {name.removeprefix('validation/'): float(value) for name, value in output.items()}
        if learner.best.update(found, int(step.numpy())):
            save(BEST)

    controller = orbit.Controller(
        global_step=step, trainer=learner, evaluator=learner, strategy=learner.strategy,
        summary_dir=os.path.join(run, 'tensorboard') if chief else None,
        steps_per_loop=lambda step: min(every - int(step) % every for every in (
            settings.log_every, settings.checkpoint_every, settings.validate_every)),
        train_actions=[progress.train_action],
        eval_actions=[progress.eval_action, learner.validation_action, keep_best])
    if not settings.steps and not checkpoints.present(os.path.join(run, SCHEDULED)):
        save(SCHEDULED)  # initial weights, unchanged
    # Orbit would print what `Progress` already shows.
    with (_stop_at_sigterm(learner, lambda: save(INTERRUPTED)), open(os.devnull, 'w') as nowhere,
          contextlib.redirect_stdout(nowhere)):
        while True:
            # Counted from the step, not from where this process began, so that a resumed run validates at the same
            # steps: also at a step whose checkpoint was written before its validation.
            done = int(step.numpy())
            if int(learner.validated.numpy()) < done and (not done % settings.validate_every or done == settings.steps):
                controller.evaluate()
            if learner.best.stopped and done % settings.checkpoint_every:
                save(SCHEDULED)
            if done >= settings.steps or learner.best.stopped:
                return
            controller.train(min(settings.steps, *(done - done % every + every for every in (
                settings.checkpoint_every, settings.validate_every))))
            done = int(step.numpy())
            if not done % settings.checkpoint_every or done == settings.steps:
                save(SCHEDULED)  # not an Orbit action: Orbit writes the curves up to here after its actions


def finish(learner, run: str, facts: RunFacts) -> None:
    """Write the current weights and the facts of the run; only the chief does."""
    if not strategies.is_worker(learner.config.train):
        checkpoints.save(learner.nets, os.path.join(run, 'weights'))
        text = json.dumps(dataclasses.asdict(facts), indent=1)
        records.write_atomically(os.path.join(run, 'run.json'), text.encode())


@contextlib.contextmanager
def _stop_at_sigterm(learner, save: Callable[[], str | None]):
    """At SIGTERM, save before the next step and exit with code 42, which means: start the command again.

    Orbit's own action, made for several workers, would first finish the current loop and run another.
    """
    def stop(*_):
        learner.before_step = save_and_leave

    def save_and_leave():
        path = save()
        print(f'{stage.name_of("train", learner.config)}: SIGTERM: {f"saved {path}; " if path else ""}'
              'the same command resumes from there.',
              file=sys.stderr, flush=True)
        sys.exit(PREEMPTED)
    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread: the caller handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def errors_in_words(strategy: tf.distribute.Strategy):
    """Turn the error of a damaged record, wrapped by tf.data, or of a lost worker into one sentence."""
    lost = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
            tf.errors.DeadlineExceededError)  # the last when its link is down
    try:
        yield
    except tf.errors.OpError as error:
        if isinstance(error, lost) and isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            print('train: another worker has stopped or cannot be reached. Start all workers again; they resume from '
                  'the last checkpoint.', file=sys.stderr, flush=True)
            sys.exit(PREEMPTED)
        for line in str(error).splitlines():
            if 'UserError: ' in line:
                raise UserError(line.split('UserError: ', 1)[1]) from error
        raise
