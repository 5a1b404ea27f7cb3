"""Education of a population of learning machines: the trainer's loop with lessons as steps."""
import functools
import math
import time
from collections.abc import Callable

import orbit
import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from keras_models import reason
from keras_models.core import layers
from keras_models.turing import lessons
from pipelines.core.config import Config
from pipelines.core.progress import Progress
from pipelines.training import best, jit, loop
from pipelines.training.facts import RunFacts

GAMES = 100  # per machine and opponent in an examination; with 10, luck would choose the best machine


class Education(orbit.AbstractTrainer, orbit.AbstractEvaluator):
    """Trainer whose steps are lessons of all machines, and whose validations are examinations.

    All draws are functions of (seed, lesson) and of the machines' tapes, so state and lesson are all that a checkpoint
    needs.

    Args:
      examples: data set whose validation split has the examination papers.
    """

    def __init__(self, config: Config, examples: str):
        self.config, self.strategy, self.model = config, tf.distribute.get_strategy(), config.model_spec
        self.nets = self.model.build(config.model)
        self.machines, self.register = self.nets['machines'], self.nets['register']
        self.machines.tape.supply(config.seed)
        self.machines.jit = jit.decided(config, accelerated=False)
        self.global_step = orbit.utils.create_global_step()
        self.validated = tf.Variable(0, dtype=tf.int64, trainable=False, name='validated')
        self.best = best.Best(config.train)  # `educate` refuses a metric to monitor
        self.before_step: Callable[[], None] = lambda: None
        self.checkpoint = tf.train.Checkpoint(nets=layers.by_name(self.nets), step=self.global_step,
                                              validated=self.validated)
        self._lesson = functools.cache(self._lesson_of)  # one traced function per term
        self._papers, self._examine = _papers(config, examples), tf.function(self._examined, autograph=False)

    def _lesson_of(self, term: lessons.Term):
        return tf.function(lambda number, seed: lessons.lesson(self.machines, term, number, seed), autograph=False)

    def train(self, num_steps) -> dict:
        started, outcomes, config = time.monotonic(), [], self.config
        for _ in range(int(num_steps)):
            self.before_step()
            number = int(self.global_step.numpy())
            term, before = config.model.term(number)
            if 0 < before <= config.model.combined:
                tf.function(lambda before=before: self.machines.combine(before - 1), autograph=False)()
            outcomes.append(self._lesson(term)(tf.constant(number), tf.constant([config.seed, number])))
            self.global_step.assign_add(1)
        all_ = tf.stack(outcomes)
        shares = {name: float(tf.reduce_mean(tf.cast(all_ == value, tf.float32)))
                  for name, value in (('won', 1), ('drawn', 0), ('lost', -1))}
        return {**{f'{name}/against {term.against}': share for name, share in shares.items()},
                'games_per_second': all_.shape[0] * all_.shape[1] / (time.monotonic() - started)}

    def evaluate(self, num_steps) -> dict:
        """Examine the machines; the mean of a machine's marks is its degree of education, kept by the register."""
        del num_steps
        marks = self._examine()
        degree = tf.reduce_mean(tf.stack([*marks.values()]), 0)
        self.register.degree.assign(degree)
        means = {f'validation/{name}': float(tf.reduce_mean(mark)) for name, mark in marks.items()}
        return {'validation/degree': float(tf.reduce_mean(degree)),
                'validation/degree/of the best': float(tf.reduce_max(degree)), **means}

    def _examined(self) -> dict[str, tf.Tensor]:
        boards, best = self._papers
        seed = tf.constant([self.config.seed, 2 ** 30])
        marks = {'best_move': lessons.examine(self.machines, boards, best)} if len(boards) else {}
        for kind in lessons.opponents(self.machines.game):
            lost, drawn, won = tf.unstack(lessons.trial(self.machines, kind, GAMES, seed), axis=1)
            marks[lessons.mark(kind)] = drawn + won if kind == 'perfect' else won
        return marks

    def validation_action(self, output: dict) -> None:
        """Record the lesson of an examination, as an orbit.Action."""
        del output
        self.validated.assign(self.global_step)


def _papers(config: Config, examples: str):
    """Return positions and the moves of perfect play of `input.rows` records across the validation split."""
    split = records.open_split(examples, 'validation')
    ids = range(0, len(split), max(1, math.ceil(len(split) / config.input.rows)))
    decode = config.data_spec.decoder(examples, config.input, False)
    papers = decode(tf.constant(split.read(ids)), None, None)
    known = tf.reduce_any(papers['best'], 1)
    return tf.boolean_mask(papers['position'], known), tf.boolean_mask(papers['best'], known)


def educate(config: Config, examples: str, run: str) -> RunFacts:
    """Give `train.steps` lessons, resuming at the newest checkpoint in `run`, as `trainer.train` does."""
    education = Education(config, examples)
    started = loop.start(education, run)
    seconds = time.monotonic()
    with Progress(education.global_step, config.train.steps, education.model.unit, 'educate', 'won') as progress:
        try:
            loop.run(education, progress, run)
        except tf.errors.InvalidArgumentError as error:
            raise UserError(f'{reason(error)}.') from error  # a full memory
    facts = RunFacts(
        steps=config.train.steps, resumed_at=started, seconds=round(time.monotonic() - seconds, 1),
        jit=education.machines.jit, replicas=1,
        parameters={name: layers.count_params(net) for name, net in education.nets.items()},
        last={name: float(value) for name, value in progress.validation.items()})
    loop.finish(education, run, facts)
    return facts
