"""Machine-moves a second: a population of learning machines beside one in a plain Python and NumPy loop.

    python benchmarks/speed/machine_moves.py --out /tmp/machine_moves.json
    python benchmarks/speed/machine_moves.py --config learning_machine_noughts --machines 960

The machines have the memory of the configuration and are given its first lessons. Then, in rounds, they are given some
more by each rule in turn, looking up in the graph and compiled by XLA; and the plain loop teaches machines of
its own, which have had as many before, for two seconds. Lessons are counted whole: with the opponent, the rules of the
game, and keys.
"""
import argparse
import functools
import itertools
import json
import pathlib
import random
import statistics
import time

import plain_machine
import tensorflow as tf

from keras_models.learning_machine import Machines
from keras_models.turing import lessons
from pipelines.core import config as configs

RULES = ('majority', 'learned')


def lesson_of(machines: Machines, term: lessons.Term, rule: str, jit: bool):
    def lesson(number):
        machines.config.rule, machines.jit = rule, jit  # read as it is traced
        return lessons.lesson(machines, term, number, tf.stack([0, number]))
    return tf.function(lesson, autograph=False)


class PlainSchool:
    """A plain machine and its lessons."""

    def __init__(self, config, term: lessons.Term):
        self._draw = random.Random(0)
        self.machine = plain_machine.PlainMachine(config, self._draw.choices((0, 1), k=config.tape))
        game, self._keys = self.machine.game, {1: term.won, 0: term.drawn, -1: term.lost}
        self._best = functools.cache(game.best if term.against == 'perfect' else game.legal)

    def lesson(self, number: int) -> None:
        plain_machine.lesson(self.machine, lambda position, turn: self._draw.choice(self._best(position)),
                             number % 2 == 0, self._draw.choice(self.machine.game.starts()), self._keys)

    def measure(self, seconds: float) -> float:
        """Return the moves per second."""
        moves, started = len(self.machine.memory), time.perf_counter()
        for number in itertools.count():
            if number % 2 == 0 and time.perf_counter() > started + seconds:
                return (len(self.machine.memory) - moves) / (time.perf_counter() - started)
            self.lesson(number)
        raise AssertionError


def measure(machines: Machines, lesson, first: int, count: int) -> float:
    """Return the moves of all machines per second, in lessons from number `first`."""
    moves, started = int(tf.reduce_sum(machines.memory.time)), time.perf_counter()
    for number in range(first, first + count):
        lesson(tf.constant(number))
    return (int(tf.reduce_sum(machines.memory.time)) - moves) / (time.perf_counter() - started)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--config', default='learning_machine_nim')
    flags.add_argument('--machines', type=int, default=4096)
    flags.add_argument('--taught', type=int, default=100, help='lessons that all have had before')
    flags.add_argument('--lessons', type=int, default=4, help='of a round, an even number')
    flags.add_argument('--rounds', type=int, default=5)
    flags.add_argument('--out', type=pathlib.Path)
    args = flags.parse_args()
    config = configs.load(args.config, [f'model.machines={args.machines}']).model
    term, _ = config.term(0)
    machines = Machines(config)
    machines.tape.supply(0)
    ways = {f'{rule}, {"XLA" if jit else "graph"}': lesson_of(machines, term, rule, jit)
            for rule in RULES for jit in (False, True)}
    given = itertools.count(0, args.lessons)
    for _ in range(0, args.taught, args.lessons):
        measure(machines, ways['learned, XLA'], next(given), args.lessons)
    for lesson in ways.values():  # traces
        measure(machines, lesson, next(given), args.lessons)
    plain = {}
    for rule in RULES:
        config.rule = rule
        plain[f'{rule}, plain loop'] = school = PlainSchool(config, term)
        for number in range(next(given)):
            school.lesson(number)
    found: dict[str, list[float]] = {name: [] for name in (*ways, *plain)}
    for _ in range(args.rounds):
        for name, lesson in ways.items():
            found[name].append(measure(machines, lesson, next(given), args.lessons))
        for name, school in plain.items():
            config.rule = name.split(',')[0]
            found[name].append(school.measure(2))
    report = {'config': args.config, 'machines': args.machines, 'memory': config.memory, 'taught': args.taught,
              'moves_a_second': found}
    print(f'{args.machines:,} machines of {config.memory:,} moments, {args.config}, against {term.against}')
    for name, rates in found.items():
        median = statistics.median(rates)
        times = median / statistics.median(found[f'{name.split(",")[0]}, plain loop'])
        print(f'{name:22} {median:12,.0f} moves a second ({min(rates):,.0f} to {max(rates):,.0f}), {times:6.1f} times '
              'the plain loop')
    if args.out:
        args.out.write_text(json.dumps(report, indent=1))


if __name__ == '__main__':
    main()
