"""One trainer for every paper, on Orbit.

Orbit owns the loop, its summaries and actions. Ours are the step, the input position and the exact resume:
batches and dropout masks are pure functions of (seed, step), so weights, optimizers and the step are all there is to
restore.
"""
import contextlib
import io
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable

import orbit
import tensorflow as tf

from data_prep import UserError, input_pipeline, records
from keras_models import layers
from pipelines import checkpoints, precision
from pipelines import strategy as strategies
from pipelines.config import Config
from pipelines.progress import Progress

SCHEDULED, INTERRUPTED = 'checkpoints', 'interrupted'  # of the first the last are averaged
DRAWN = 4  # rows of the validation set, of which the model's pictures are kept at every validation
PREEMPTED = 42  # the exit code of a run that saved on SIGTERM, which is Orbit's too


class Trainer(orbit.StandardTrainer, orbit.StandardEvaluator):
    """Trains `nets` by the model module's `loss_fn` and `optimizers`: `losses[k]` updates exactly `nets[k]`.

    They are those of the module's `build` and, if it has them, its `discriminators`, which only training needs. Those
    of its `frozen` are given to `loss_fn` beside them and stay as they are; no checkpoint holds them.

    The loop is Python, a compiled function a step: every bucket has its own static shape, so there is one trace a
    bucket (`traces` counts them), and XLA, where it is on, sees static shapes only.

    Args:
      jit: whether forward and backward are compiled by XLA. The gradients are applied outside it, the one form that
        works with several replicas.
    """

    def __init__(self, config: Config, strategy: tf.distribute.Strategy, examples: str, jit: bool):
        self.config, self.strategy = config, strategy
        self.model, self.data = config.model_module, config.data_module
        self.whole = jit or strategies.accelerated(strategy)  # how bfloat16 is come by, see `precision`
        self.traces = 0
        self.before_step: Callable[[], None] = lambda: None
        self._totals: list[dict] = []
        with strategy.scope():
            tf.keras.utils.set_random_seed(config.seed)
            with precision.policy(config.train.precision, self.whole):
                self.nets = self.model.build(config.model) | self._others('discriminators')
                frozen = self._others('frozen')
            self._asked = self.nets | frozen
            self.optimizers = self.model.optimizers(config.model)
            for name, optimizer in self.optimizers.items():
                optimizer.build(self.nets[name].trainable_variables)
            self.global_step = orbit.utils.create_global_step()
            self.validated = tf.Variable(self.global_step, trainable=False, name='validated',
                                         aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        # Schedules that follow the validation results keep what they saw in variables.
        self.schedules = {name: optimizer.schedule for name, optimizer in self.optimizers.items()
                          if hasattr(optimizer, 'schedule')}
        # Not a function of its own without XLA: normalisation over all replicas could not be reached from within one.
        self._compute = (tf.function(self._forward_backward, autograph=False, jit_compile=True) if jit else
                         self._forward_backward)
        self._examples = examples
        self.vocabulary = records.read_manifest(examples).get('vocabulary', {}).get('sha256')
        options = orbit.StandardTrainerOptions(use_tf_function=False, use_tf_while_loop=False)
        orbit.StandardTrainer.__init__(self, None, options)
        orbit.StandardEvaluator.__init__(self, self._dataset('validation'), orbit.StandardEvaluatorOptions(
            use_tf_function=False, recreate_iterator_for_each_eval=True))

    def _others(self, which: str) -> dict[str, tf.keras.Model]:
        return getattr(self.model, which, lambda config: {})(self.config.model)

    @property
    def checkpoint(self) -> tf.train.Checkpoint:
        return tf.train.Checkpoint(nets=layers.by_name(self.nets), optimizers=self.optimizers,
                                   schedules={name: schedule.state for name, schedule in self.schedules.items()},
                                   step=self.global_step, validated=self.validated)

    def _dataset(self, split: str):
        """Training batches from the current step on, or the validation set once, in order."""
        c = self.config
        training = split == 'train'
        rows = input_pipeline.rows_per_bucket(c.input.buckets, c.input.tokens, c.input.rows, c.input.rows_multiple_of)
        part = records.open_split(self._examples, split)
        batches = input_pipeline.Batches(part, c.input.buckets, rows, c.seed if training else None,
                                         c.input.rows_multiple_of)
        parts = c.train.gradient_accumulation_steps * self.strategy.num_replicas_in_sync
        if uneven := [n for n in batches.rows if n % parts]:
            raise UserError(f'Batches of {uneven[0]} rows cannot be divided into {parts} parts, '
                            f'{self.strategy.num_replicas_in_sync} replicas times train.gradient_accumulation_steps; '
                            f'make input.rows_multiple_of a multiple of {parts}.')
        decode = self.data.decoder(self._examples, c.input, training)
        start, stop = (int(self.global_step.numpy()), c.train.steps) if training else (0, batches.steps_per_epoch)

        def make(context: tf.distribute.InputContext):
            replicas = context.num_replicas_in_sync
            local = replicas // context.num_input_pipelines
            return input_pipeline.dataset(part, batches, decode, start, stop, c.seed, replicas,
                                          context.input_pipeline_id * local, local)
        return self.strategy.distribute_datasets_from_function(make)

    def train_loop_begin(self):
        if self.train_dataset is None:  # made here, when the step is restored
            self.train_dataset = self._dataset('train')
        self._totals, self._started = [], time.monotonic()

    def train_step(self, iterator):
        self.before_step()
        batch = next(iterator)
        batch.pop('id')
        self._totals.append(self._train(batch))

    def train_loop_end(self):
        result, units = _means(self._totals)
        if lost := [name for name, value in result.items() if name.startswith('loss') and not math.isfinite(value)]:
            raise UserError(f'train: at step {int(self.global_step.numpy()):,} {lost[0]} is {result[lost[0]]}; '
                            'lower the learning rate.')
        seconds = time.monotonic() - self._started
        rates = {f'learning_rate/{name}' if len(self.optimizers) > 1 else 'learning_rate':
                 float(optimizer.learning_rate.numpy()) for name, optimizer in self.optimizers.items()}
        return {**result, **rates, f'{self.model.UNIT}_per_second': units / seconds}

    def eval_begin(self):
        self._eval_totals: list[dict] = []

    def eval_step(self, iterator):
        batch = next(iterator)
        ids = batch.pop('id')
        if not self._eval_totals and hasattr(self.model, 'pictures') and tf.summary.should_record_summaries():
            for n, (number, picture) in enumerate(zip(self._first(ids), self._first(self._pictures(batch)))):
                if number >= 0:  # no padding
                    tf.summary.image(f'pictures/{n}', picture[tf.newaxis], self.global_step)
        self._eval_totals.append(self._evaluate(batch))

    def eval_end(self):
        return {f'validation/{name}': value for name, value in _means(self._eval_totals)[0].items()}

    def validation_action(self, output: dict) -> None:
        """An orbit.Action, called with the results of every validation training is to hear of."""
        for schedule in self.schedules.values():
            schedule.after_validation({name.removeprefix('validation/'): float(value)
                                       for name, value in output.items()})
        self.validated.assign(self.global_step)

    @tf.function(autograph=False)
    def _train(self, batch):
        return self._reduce(self.strategy.run(self._replica_step, [batch]))

    @tf.function(autograph=False)
    def _evaluate(self, batch):
        def evaluate(part, _):
            losses, metrics = self.model.loss_fn(self._asked, part, tf.zeros([2], tf.int32), False, self.config.model)
            return {f'loss/{name}': value for name, value in losses.items()} | metrics
        return self._reduce(self.strategy.run(lambda batch: self._in_parts(evaluate, batch), [batch]))

    @tf.function(autograph=False)
    def _pictures(self, batch):
        """What the model module draws of as many rows as are looked at, on every replica."""
        def draw(batch):
            return self.model.pictures(self.nets, {name: x[:DRAWN] for name, x in batch.items()}, self.config.model)
        return self.strategy.run(draw, [batch])

    def _first(self, values):
        """The first rows of a batch, in order: the replicas have its rows in turn."""
        local = self.strategy.experimental_local_results(values)
        return [local[n % len(local)][n // len(local)] for n in range(min(DRAWN, len(local) * local[0].shape[0]))]

    def _replica_step(self, batch):
        self.traces += 1
        replica = tf.distribute.get_replica_context()
        draw = tf.cast(self.global_step, tf.int32) * replica.num_replicas_in_sync + replica.replica_id_in_sync_group
        seed = tf.stack([tf.constant(self.config.seed, tf.int32), draw])
        parts = self.config.train.gradient_accumulation_steps
        gradients, losses, metrics = self._in_parts(
            lambda part, i: self._compute(part, seed * [1, parts] + [0, i]), batch)
        for name, optimizer in self.optimizers.items():
            # Gradients are of the sum; dividing by all replicas' normaliser makes their sum that of one big batch.
            normaliser = replica.all_reduce(tf.distribute.ReduceOp.SUM, losses[name][1])
            scaled = [tf.math.divide_no_nan(gradient, normaliser) for gradient in gradients[name]]
            optimizer.apply_gradients(zip(scaled, self.nets[name].trainable_variables))
        self.global_step.assign_add(1)
        return {f'loss/{name}': value for name, value in losses.items()} | metrics

    def _in_parts(self, compute: Callable, batch: dict[str, tf.Tensor]):
        """`compute(part, its number)` summed over the `gradient_accumulation_steps` parts of a batch's rows."""
        n = self.config.train.gradient_accumulation_steps
        if n == 1:
            return compute(batch, 0)
        parts = {name: tf.reshape(x, [n, x.shape[0] // n, *x.shape[1:]]) for name, x in batch.items()}

        def add(i, sums):
            return i + 1, tf.nest.map_structure(tf.add, sums, compute({name: x[i] for name, x in parts.items()}, i))
        first = compute({name: x[0] for name, x in parts.items()}, 0)
        return tf.while_loop(lambda i, _: i < n, add, (1, first), parallel_iterations=1)[1]

    def _forward_backward(self, batch, seed):
        """The losses' sums and gradients on one replica."""
        with tf.GradientTape(persistent=len(self.optimizers) > 1) as tape:
            losses, metrics = self.model.loss_fn(self._asked, batch, seed, True, self.config.model)
        gradients = {}
        for name in self.optimizers:
            variables = self.nets[name].trainable_variables
            gradients[name] = [tf.convert_to_tensor(gradient) for gradient in
                               tape.gradient(losses[name][0], variables, unconnected_gradients='zero')]
        return gradients, losses, metrics

    def _reduce(self, values):
        return {name: tuple(self.strategy.reduce(tf.distribute.ReduceOp.SUM, part, None) for part in pair)
                for name, pair in values.items()}


def _means(totals: list[dict]) -> tuple[dict[str, float], float]:
    """Sums over steps divided by summed normalisers, and the first loss's normaliser: tokens or images."""
    sums: dict[str, list[float]] = {}
    for total in totals:
        for name, (value, normaliser) in total.items():
            pair = sums.setdefault(name, [0.0, 0.0])
            pair[0] += float(value)
            pair[1] += float(normaliser)
    result = {name: value / normaliser if normaliser else 0.0 for name, (value, normaliser) in sums.items()}
    names = [name for name in result if name.startswith('loss/')]
    if len(names) == 1:
        result = {'loss': result.pop(names[0]), **result}
    return result, sums[names[0]][1] if names else 0.0


def train(config: Config, examples: str, run: str) -> dict:
    """Trains to `train.steps`, resuming at the newest checkpoint in `run`.

    Args:
      config: the resolved configuration.
      examples: the data set's folder.
      run: the ModelRun folder: checkpoints/, interrupted/ (the one a SIGTERM left), tensorboard/, weights (the mean of
        the last checkpoints).

    Returns:
      What training found out, for lineage and reports.

    Raises:
      UserError: the checkpoint is of another model, or the data set is damaged.
    """
    strategy = strategies.make(config.train)
    jit = strategies.accelerated(strategy) if config.train.jit == 'auto' else bool(config.train.jit)
    if not jit:  # under it XLA refuses the gradient of max-pooling; what it compiles for CPUs and TPUs repeats anyway
        tf.config.experimental.enable_op_determinism()
    trainer = Trainer(config, strategy, examples, jit)
    started = _start(trainer, run)
    seconds = time.monotonic()
    with (Progress(trainer.global_step, config.train.steps, trainer.model.UNIT) as progress,
          _errors_in_words(strategy),
          precision.rewriting(config.train.precision, trainer.whole)):
        _run(trainer, progress, run)
        last = checkpoints.present(os.path.join(run, SCHEDULED))[-config.train.average_checkpoints:]
        checkpoints.assign_mean(trainer.nets, last)
        # Weights that stay as they were given are judged by `evaluate` alone.
        averaged = trainer.evaluate(tf.constant(-1)) if config.train.steps else {}
    found = {'steps': config.train.steps, 'resumed_at': started, 'seconds': round(time.monotonic() - seconds, 1),
             'jit': jit, 'replicas': strategy.num_replicas_in_sync, 'traces': trainer.traces,
             'vocabulary': trainer.vocabulary, 'foreign': _foreign(trainer),
             'parameters': {name: int(net.count_params()) for name, net in trainer.nets.items()},
             'last': {name: float(value) for name, value in progress.validation.items()},
             'averaged': {name: float(value) for name, value in averaged.items()},
             'notes': getattr(trainer.model, 'notes', lambda config: [])(config.model),
             'averaged_checkpoints': [os.path.basename(path) for path in last]}
    if not strategies.follows(config.train):
        checkpoints.save(trainer.nets, os.path.join(run, 'weights'))
        records.write_atomically(os.path.join(run, 'run.json'), json.dumps(found, indent=1).encode())
    return found


def _start(trainer: Trainer, run: str) -> int:
    """Restores the newest checkpoint in `run`, or else the weights of `init_from`. Returns the step."""
    settings = trainer.config.train
    newest = max((path for kind in (SCHEDULED, INTERRUPTED) for path in checkpoints.present(os.path.join(run, kind))),
                 key=_step_of, default=None)
    with trainer.strategy.scope():
        if newest:
            checkpoints.resume(trainer.checkpoint, trainer.nets, newest)
        elif settings.init_from:
            paths = checkpoints.sources(settings.init_from, trainer.model)
            if other := [path for path in paths if checkpoints.recorded(path).get('vocabulary') not in (
                    None, trainer.vocabulary)]:  # the shapes would fit all the same
                raise UserError(f'train.init_from: the weights of {other[0]} are of other subwords than the data; '
                                'prepare it again with their own, --set data.subword_model=…/subwords.model (beside '
                                'their examples, or in assets.extra of an exported model).')
            new = checkpoints.start(trainer.nets, paths, trainer.optimizers, trainer.model, trainer.config.model)
            print(f'train: starting from the weights of {", ".join(paths)}'
                  f'{"; new: " + ", ".join(new) if new else ""}.', flush=True)
    started = int(trainer.global_step.numpy())
    if started:
        print(f'train: resuming at step {started:,} of {settings.steps:,}.', flush=True)
    return started


def _foreign(trainer: Trainer) -> dict:
    """Whose weights, under which licence, these began as, if not ours: it stays with all that comes of them."""
    paths = checkpoints.sources(trainer.config.train.init_from, trainer.model)
    found = [foreign for path in paths if (foreign := checkpoints.recorded(path).get('foreign'))]
    several = {key: [*dict.fromkeys(each[key] for each in found)] for key in ('source', 'licence')}
    return {**found[0], 'files': [file for each in found for file in each['files']],
            **{key: ' and '.join(words) for key, words in several.items()}} if found else {}


def _step_of(path: str) -> int:
    return int(path.rsplit('-', 1)[1])


def _run(trainer: Trainer, progress: Progress, run: str) -> None:
    """Orbit's loop to the last step, with loops, checkpoints and validation at multiples of their intervals.

    A worker that follows the chief writes nothing: weights and step are the chief's own.
    """
    settings, step, chief = trainer.config.train, trainer.global_step, not strategies.follows(trainer.config.train)
    keep = max(settings.keep_checkpoints, settings.average_checkpoints)
    managers = {kind: tf.train.CheckpointManager(trainer.checkpoint, os.path.join(run, kind), max_to_keep=count)
                for kind, count in ((SCHEDULED, keep), (INTERRUPTED, 1))}

    def save(kind) -> str | None:
        return managers[kind].save(checkpoint_number=step) if chief else None
    controller = orbit.Controller(
        global_step=step, trainer=trainer, evaluator=trainer, strategy=trainer.strategy,
        summary_dir=os.path.join(run, 'tensorboard') if chief else None,
        steps_per_loop=lambda step: min(every - int(step) % every for every in (
            settings.log_every, settings.checkpoint_every, settings.validate_every)),
        train_actions=[progress.train_action, orbit.actions.ConditionalAction(
            lambda _: step % settings.checkpoint_every == 0 or step == settings.steps, lambda _: save(SCHEDULED))],
        eval_actions=[progress.eval_action, trainer.validation_action])
    if not settings.steps and not checkpoints.present(os.path.join(run, SCHEDULED)):
        save(SCHEDULED)  # weights from elsewhere, as they are
    # Orbit prints what progress shows.
    with _stop_at_sigterm(trainer, lambda: save(INTERRUPTED)), contextlib.redirect_stdout(io.StringIO()):
        while True:
            # From the step, not from where this process began, so that a resumed run validates where any run does:
            # at a step whose checkpoint was written before its validation, too.
            done = int(step.numpy())
            if int(trainer.validated.numpy()) < done and (not done % settings.validate_every or done == settings.steps):
                controller.evaluate()
            if done >= settings.steps:
                return
            controller.train(min(settings.steps, done - done % settings.validate_every + settings.validate_every))


@contextlib.contextmanager
def _stop_at_sigterm(trainer: Trainer, save: Callable[[], str | None]):
    """At SIGTERM saves before the next step and leaves with exit code 42: start me again.

    Orbit's own action, made for several workers, would first finish the loop and one more.
    """
    def stop(*_):
        trainer.before_step = save_and_leave

    def save_and_leave():
        path = save()
        print(f'train: SIGTERM: {f"saved {path}; " if path else ""}the same command goes on from there.',
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
def _errors_in_words(strategy: tf.distribute.Strategy):
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
