"""One trainer for every paper, on Orbit.

Orbit owns the loop, summaries and actions. Ours are the step, the input position and the exact resume: batches and
dropout masks are pure functions of (seed, step), so a checkpoint only needs weights, optimizers and the step.
"""
import functools
import importlib
import os
import time
from collections.abc import Callable

import orbit
import tensorflow as tf

from data_prep import UserError
from data_prep.core import input_pipeline, records
from keras_models.core import layers, rematerialisation
from pipelines.core import compatibility, roles
from pipelines.core.config import Config
from pipelines.core.progress import Progress
from pipelines.training import (
    best,
    checkpoints,
    curriculum,
    devices,
    divergence,
    ema,
    hybrid_parallel,
    loop,
    precision,
)
from pipelines.training import strategy as strategies
from pipelines.training.devices import Devices
from pipelines.training.facts import RunFacts

DRAWN = 4  # validation rows whose output images are kept at every validation


class Trainer(orbit.StandardTrainer, orbit.StandardEvaluator):
    """Train `nets` with the model module's `loss_fn` and `optimizers`: `losses[k]` updates exactly `nets[k]`.

    The nets are those of the module's `build` and, if it has them, its `discriminators`, which only training needs.
    `loss_fn` also receives the module's `frozen` networks; they are not updated, and checkpoints do not contain them.

    The loop is Python around one compiled function per step. Each bucket has its own static shape, so there is one
    trace per bucket (`traces` counts them), and XLA sees only static shapes.

    Args:
      devices: hardware to compute on, and whether XLA compiles the forward and backward pass.
    """

    def __init__(self, config: Config, devices: Devices, examples: str):
        self.config, self.devices, self.strategy = config, devices, devices.strategy
        self.model, self.data = config.model_spec, config.data_spec
        self.phases = curriculum.phases(config)
        self.hybrid = config.train.dense_layers == 'one_device' and devices.replicas > 1
        self.traces = 0
        self.before_step: Callable[[], None] = lambda: None
        self._totals: list[dict] = []
        with self.strategy.scope():
            tf.keras.utils.set_random_seed(config.seed)
            with precision.policy(config.train.precision, devices.use_mixed_policy):
                self.nets = self.model.build(config.model) | self.model.discriminators(config.model)
                frozen = self.model.frozen(config.model)
            self._eval_nets, self._train_nets = (self._called(self.nets | frozen, recompute)
                                                 for recompute in (False, config.train.rematerialise))
            self.optimizers = self.model.optimizers(config.model)
            # Schedules that depend on validation results keep their state in variables.
            self.schedules = {name: optimizer.schedule for name, optimizer in self.optimizers.items()
                              if hasattr(optimizer, 'schedule')}
            self.averages = ema.Averages(self.nets, self.optimizers, config.train.ema)
            if config.train.precision == 'float16':
                self.optimizers = precision.scaling(self.optimizers)
            for name, optimizer in self.optimizers.items():
                optimizer.build(self.nets[name].trainable_variables)
            self.global_step = orbit.utils.create_global_step()
            self.validated = tf.Variable(self.global_step, trainable=False, name='validated',
                                         aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
            self.best = best.Best(config.train, config.decoded_metrics, self.phases[-1].start)
        # Without XLA this is not a function of its own: synchronised normalisation could not reach the other replicas
        # from inside one, nor could the first device's dense layers; hybrid nets compile their halves themselves.
        self._compute = (tf.function(self._forward_backward, autograph=False, jit_compile=True)
                         if devices.jit and not self.hybrid else self._forward_backward)
        # Imported by name: training that decodes nothing does not depend on it (see `roles.sources`).
        self._decoded = (importlib.import_module(roles.DECODED).Decoded(config, examples)
                         if config.decodes_validation else None)
        self._examples = examples
        manifest = records.read_manifest(examples)
        self.vocabulary = manifest.vocabulary.get('sha256')
        self.agnostic = manifest.properties.get('agnostic')
        options = orbit.StandardTrainerOptions(use_tf_function=False, use_tf_while_loop=False)
        orbit.StandardTrainer.__init__(self, None, options)
        orbit.StandardEvaluator.__init__(self, self._dataset('validation'), orbit.StandardEvaluatorOptions(
            use_tf_function=False, recreate_iterator_for_each_eval=True))

    def _called(self, nets: dict, recompute: bool) -> dict:
        """Return the nets as losses call them; `recompute` repeats most of the forward pass instead of keeping it."""
        if self.hybrid:
            return {name: hybrid_parallel.Hybrid(net, self.devices.jit, recompute) for name, net in nets.items()}
        return {name: rematerialisation.Rematerialised(net) for name, net in nets.items()} if recompute else nets

    @property
    def checkpoint(self) -> tf.train.Checkpoint:
        return tf.train.Checkpoint(nets=layers.by_name(self.nets), optimizers=self.optimizers,
                                   schedules={name: schedule.state for name, schedule in self.schedules.items()},
                                   step=self.global_step, validated=self.validated, best=self.best.state)

    def _dataset(self, split: str):
        """Return training batches from the current step on, or the validation set once, in order."""
        step = int(self.global_step.numpy())
        parts = ([self._batches(split, phase.input, max(step, phase.start), phase.stop)
                  for phase in self.phases[curriculum.at(self.phases, step):]] if split == 'train' else
                 [self._batches(split, self.config.input)])
        return self.strategy.distribute_datasets_from_function(
            lambda context: functools.reduce(tf.data.Dataset.concatenate, (part(context) for part in parts)))

    def _batches(self, split: str, own, start: int = 0, stop: int | None = None) -> Callable:
        """Return the maker of the batches of steps [start, stop), or of one epoch, for one worker.

        own: the section `input` that holds there.
        """
        c, training = self.config, split == 'train'
        rows = input_pipeline.rows_per_bucket(own.buckets, own.tokens, own.rows, own.rows_multiple_of)
        part = records.open_split(self._examples, split)
        batches = input_pipeline.Batches(part, own.buckets, rows, c.seed if training else None, own.rows_multiple_of)
        parts = c.train.gradient_accumulation_steps * self.strategy.num_replicas_in_sync
        if uneven := [n for n in batches.rows if n % parts]:
            raise UserError(f'Batches of {uneven[0]} rows cannot be divided into {parts} parts, '
                            f'{self.strategy.num_replicas_in_sync} replicas times train.gradient_accumulation_steps. '
                            f'Set input.rows_multiple_of to a multiple of {parts}.')
        decode = self.data.decoder(self._examples, own, training)

        def make(context: tf.distribute.InputContext) -> tf.data.Dataset:
            replicas = context.num_replicas_in_sync
            local = replicas // context.num_input_pipelines
            return input_pipeline.dataset(part, batches, decode, start,
                                          batches.steps_per_epoch if stop is None else stop, c.seed, replicas,
                                          context.input_pipeline_id * local, local)
        return make

    def train_loop_begin(self):
        if self.train_dataset is None:  # made here, after the step is restored
            self.train_dataset = self._dataset('train')
            self._began = divergence.sizes(self.nets)
        self._totals, self._started = [], time.monotonic()

    def train_step(self, iterator):
        self.before_step()
        batch = next(iterator)
        batch.pop('id')
        self._totals.append(self._train(batch, curriculum.graph_at(self.phases, int(self.global_step.numpy()))))

    def train_loop_end(self):
        result, units = _means(self._totals, len(self.optimizers))
        divergence.check(self._totals, int(self.global_step.numpy()), self.nets, self._began, self.config)
        seconds = time.monotonic() - self._started
        rates = {f'learning_rate/{name}' if len(self.optimizers) > 1 else 'learning_rate':
                 float(optimizer.learning_rate.numpy()) for name, optimizer in self.optimizers.items()}
        return {**result, **rates, f'{self.model.unit}_per_second': units / seconds}

    def evaluate(self, num_steps):
        with self.averages.in_place():
            return orbit.StandardEvaluator.evaluate(self, num_steps)

    def eval_begin(self):
        self._eval_totals: list[dict] = []

    def eval_step(self, iterator):
        batch = next(iterator)
        ids = batch.pop('id')
        if not self._eval_totals and self.model.pictures and tf.summary.should_record_summaries():
            for n, (number, picture) in enumerate(zip(self._first(ids), self._first(self._pictures(batch)))):
                if number >= 0:  # not padding
                    tf.summary.image(f'pictures/{n}', picture[tf.newaxis], self.global_step)
        self._eval_totals.append(self._evaluate(batch))

    def eval_end(self):
        found = self._monitored() | _means(self._eval_totals, len(self.optimizers))[0]  # the first are shown
        return {f'validation/{name}': value for name, value in found.items()}

    def _monitored(self) -> dict[str, float]:
        """Return `train.monitor` if it needs decoding: in float32, as in the gate, and in a cluster by the chief."""
        if self._decoded is None:
            return {}
        with precision.rewriting('float32', self.devices.use_mixed_policy):
            value = 0.0 if strategies.is_worker(self.config.train) else self._decoded(self.nets)
        return {self.config.train.monitor: strategies.of_chief(self.strategy, [value], tf.float64)[0]}

    def validation_action(self, output: dict) -> None:
        """Pass a validation's results to the schedules that depend on them; an `orbit.Action`."""
        for schedule in self.schedules.values():
            schedule.after_validation({name.removeprefix('validation/'): float(value)
                                       for name, value in output.items()})
        self.validated.assign(self.global_step)

    @tf.function(autograph=False)
    def _train(self, batch, phase: int = -1):
        return self._reduce(self.strategy.run(lambda batch: self._replica_step(batch, phase), [batch]))

    @tf.function(autograph=False)
    def _evaluate(self, batch):
        def evaluate(part, *_):
            seed = tf.zeros([2], tf.int32)
            losses, metrics = self.model.loss_fn(self._eval_nets, part, seed, False, self.config.model)
            return {f'loss/{name}': value for name, value in losses.items()} | metrics
        return self._reduce(self.strategy.run(lambda batch: self._in_parts(evaluate, batch), [batch]))

    @tf.function(autograph=False)
    def _pictures(self, batch):
        """Return the model module's images of a few rows, on every replica."""
        def draw(batch):
            return self.model.pictures(self.nets, {name: x[:DRAWN] for name, x in batch.items()}, self.config.model)
        return self.strategy.run(draw, [batch])

    def _first(self, values):
        """Return the first rows of a batch, in order; rows are interleaved over replicas."""
        local = self.strategy.experimental_local_results(values)
        return [local[n % len(local)][n // len(local)] for n in range(min(DRAWN, len(local) * local[0].shape[0]))]

    def _replica_step(self, batch, phase: int):
        self.traces += 1
        replica = tf.distribute.get_replica_context()
        draw = tf.cast(self.global_step, tf.int32) * replica.num_replicas_in_sync + replica.replica_id_in_sync_group
        seed = tf.stack([tf.constant(self.config.seed, tf.int32), draw])
        parts = self.config.train.gradient_accumulation_steps
        gradients, losses, metrics = self._in_parts(
            lambda part, i, accumulating: self._compute(part, seed * [1, parts] + [0, i], accumulating, phase), batch)
        for name, optimizer in self._learning(losses):
            # Gradients are of sums; dividing by the normaliser of all replicas makes their sum that of the whole batch.
            loss, normaliser = replica.all_reduce(tf.distribute.ReduceOp.SUM, list(losses[name]))
            # A loss that is not finite gives zero gradients, so the weights still show where they grew.
            normaliser = tf.where(tf.math.is_finite(loss), normaliser, tf.zeros_like(normaliser))
            scaled = [tf.math.divide_no_nan(gradient, normaliser) for gradient in gradients[name]]
            if self.hybrid:
                self._train_nets[name].update(optimizer, scaled)
            else:
                optimizer.apply_gradients(zip(scaled, self.nets[name].trainable_variables))
        self.global_step.assign_add(1)
        return {f'loss/{name}': value for name, value in losses.items()} | metrics

    def _in_parts(self, compute: Callable, batch: dict[str, tf.Tensor]):
        """Sum `compute(part, number, accumulating)` over the `gradient_accumulation_steps` parts of a batch's rows."""
        n = self.config.train.gradient_accumulation_steps
        if n == 1:
            return compute(batch, 0, False)
        parts = {name: tf.reshape(x, [n, x.shape[0] // n, *x.shape[1:]]) for name, x in batch.items()}

        def add(i, sums):
            part = {name: x[i] for name, x in parts.items()}
            return i + 1, tf.nest.map_structure(tf.add, sums, compute(part, i, True))
        first = compute({name: x[0] for name, x in parts.items()}, 0, False)
        return tf.while_loop(lambda i, _: i < n, add, (1, first), parallel_iterations=1)[1]

    def _learning(self, losses: dict) -> list[tuple]:
        """Return name and optimizer of the networks that have a loss, which in a phase are not all."""
        return [(name, optimizer) for name, optimizer in self.optimizers.items() if name in losses]

    def _forward_backward(self, batch, seed, accumulating: bool, phase: int = -1):
        """Return the sums of the losses and their gradients on one replica.

        Args:
          accumulating: whether this is a later part of a batch, computed with the weights of the first.
          phase: number of a phase of the curriculum that has the step's section `model`.
        """
        with rematerialisation.repeat(accumulating), tf.GradientTape(persistent=len(self.optimizers) > 1) as tape:
            losses, metrics = self.model.loss_fn(self._train_nets, batch, seed, True, self.phases[phase].model)
            learned = {name: precision.scaled(optimizer, *losses[name]) for name, optimizer in self._learning(losses)}
        gradients = {}
        for name, optimizer in self._learning(losses):
            found = tape.gradient(learned[name], self.nets[name].trainable_variables, unconnected_gradients='zero')
            gradients[name] = precision.unscaled(optimizer, [tf.convert_to_tensor(gradient) for gradient in found],
                                                 losses[name][1])
        return gradients, losses, metrics

    def _reduce(self, values):
        return {name: tuple(self.strategy.reduce(tf.distribute.ReduceOp.SUM, part, None) for part in pair)
                for name, pair in values.items()}


def _means(totals: list[dict], networks: int) -> tuple[dict[str, float], float]:
    """Return sums over steps divided by summed normalisers, and the units of all steps, tokens or images.

    A step's units are its losses' largest normaliser, since a phase may be without some losses.

    Args:
      totals: of every step, name -> (sum, normaliser).
      networks: how many are trained; the loss of a single one is called `loss`.
    """
    sums: dict[str, list[float]] = {}
    units = 0.0
    for total in totals:
        here = 0.0
        for name, (value, normaliser) in total.items():
            pair, count = sums.setdefault(name, [0.0, 0.0]), float(normaliser)
            pair[0] += float(value)
            pair[1] += count
            here = max(here, count) if name.startswith('loss/') else here
        units += here
    result = {name: value / normaliser if normaliser else 0.0 for name, (value, normaliser) in sums.items()}
    names = [name for name in sums if name.startswith('loss/')]
    if len(names) == 1 == networks:
        result = {'loss': result.pop(names[0]), **result}
    return result, units


def _of_last_phase(trainer: Trainer, found: list[str]) -> list[str]:
    """Return the checkpoints of the curriculum's last phase, and the newest anyway; others trained something else."""
    start = trainer.phases[-1].start
    return [path for path in found if checkpoints.step_of(path) > start] or found[-1:]


def train(config: Config, examples: str, run: str) -> RunFacts:
    """Train to `train.steps`, resuming at the newest checkpoint in `run`.

    Args:
      config: the resolved configuration.
      examples: the data set's folder.
      run: the ModelRun folder: checkpoints/, interrupted/ (saved at SIGTERM), best/ (if `train.monitor` is set),
        tensorboard/, weights (those of the best checkpoint, or the mean of the last ones).

    Returns:
      Facts of the run, for lineage and reports.

    Raises:
      UserError: the checkpoint is of another model, or the data set is damaged.
    """
    chosen = devices.choose(config)
    devices.prepare(chosen, config)
    trainer = Trainer(config, chosen, examples)
    with loop.errors_in_words(chosen.strategy):
        started = start(trainer, run)
    seconds = time.monotonic()
    with (Progress(trainer.global_step, config.train.steps, trainer.model.unit) as progress,
          loop.errors_in_words(chosen.strategy),
          precision.rewriting(config.train.precision, chosen.use_mixed_policy)):
        loop.run(trainer, progress, run)
        last = ((config.train.monitor and loop.newest_intact(trainer, run, [loop.BEST], 1))
                or _of_last_phase(trainer, loop.newest_intact(trainer, run, [loop.SCHEDULED],
                                                              config.train.average_checkpoints)))
        checkpoints.assign_mean(trainer.nets, last, moving=bool(config.train.ema))
        trainer.averages.begin()
        # Weights that are not trained are scored only by `evaluate`.
        averaged = trainer.evaluate(tf.constant(-1)) if config.train.steps else {}
    facts = RunFacts(
        steps=int(trainer.global_step.numpy()), resumed_at=started, seconds=round(time.monotonic() - seconds, 1),
        jit=chosen.jit, replicas=chosen.replicas, traces=trainer.traces,
        vocabulary=trainer.vocabulary, agnostic=trainer.agnostic,
        foreign=checkpoints.foreign(config.train.init_from, trainer.model),
        parameters={name: layers.count_params(net) for name, net in trainer.nets.items()},
        last={name: float(value) for name, value in progress.validation.items()},
        averaged={name: float(value) for name, value in averaged.items()},
        averaged_checkpoints=[os.path.basename(path) for path in last], best=trainer.best.facts(),
        notes=trainer.model.notes(config.model))
    loop.finish(trainer, run, facts)
    return facts


def start(trainer: Trainer, run: str) -> int:
    """Restore the newest checkpoint in `run`, or else the weights of `train.init_from`; return the step."""
    def begin():
        _initial_weights(trainer)
        trainer.averages.begin()
    return loop.start(trainer, run, begin)


def _initial_weights(trainer: Trainer) -> None:
    """Set the nets to the weights of `train.init_from`, if it names any."""
    settings = trainer.config.train
    if not settings.init_from:
        return
    paths = checkpoints.sources(settings.init_from, trainer.model)
    if other := [path for path in paths if checkpoints.recorded(path).get('vocabulary') not in (
            None, trainer.vocabulary)]:  # the shapes would fit anyway
        raise UserError(f'train.init_from: the weights of {other[0]} use other subwords than the data. '
                        'Prepare the data again with the subwords of the weights, --set data.subword_model=…/'
                        'subwords.model (beside their examples, or in assets.extra of an exported model).')
    for path in paths:
        compatibility.check(f'train.init_from: {path}', checkpoints.recorded(path), trainer.config.data)
    new = checkpoints.start(trainer.nets, paths, trainer.optimizers, trainer.model, trainer.config.model)
    print(f'train: starting from the weights of {", ".join(paths)}'
          f'{"; new: " + ", ".join(new) if new else ""}.', flush=True)
