"""The cost of one learning machine's move by how much it remembers: from 1,000 to 1,000,000 moments.

    python benchmarks/speed/machine_memory.py --out /tmp/machine_memory.json

One machine remembers moments of random features, each with its outcome, until it has as many as asked for. Then it is
given lessons of the configuration, whose moves are timed: looking up, choosing, remembering, and the keys. At every
size the lessons are the same, and come in rounds.
"""
import argparse
import json
import pathlib
import statistics

import machine_moves
import tensorflow as tf

from keras_models.learning_machine import Machines, tag
from keras_models.turing.memory import MOVED, PAIN, PLEASURE
from pipelines.core import config as configs

FEATURES = 40_000  # different features of each place of a moment


def filler(machines: Machines):
    """Return a function that remembers random moments: (seed, how many)."""
    memory, row = machines.memory, tf.zeros([1], tf.int32)

    def one(number, seed):
        draw = tf.random.stateless_uniform([memory.places + 2], tf.stack([seed, number]), 0, 2 ** 31 - 1, tf.int32)
        tags = tag(tf.range(memory.places), draw[2:] % FEATURES)[None]  # hashes, as real features are
        scene = tf.fill([1, machines.game.size], draw[0] % 3)
        memory.remember(row, MOVED, draw[:1] % machines.game.moves, scene, tags, memory.places_for(row, tags),
                        tf.ones([1], tf.bool))
        memory.feel(row, tf.where(draw[1:2] % 2 == 0, PLEASURE, PAIN))
        return number + 1, seed

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)] * 2)
    def fill(seed, count):
        tf.while_loop(lambda number, _: number < count, one, (0, seed), parallel_iterations=1)
    return fill


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--config', default='learning_machine_noughts')
    flags.add_argument('--moments', type=int, nargs='+', default=[1_000, 10_000, 100_000, 1_000_000])
    flags.add_argument('--lessons', type=int, default=100, help='of a round, an even number')
    flags.add_argument('--rounds', type=int, default=5)
    flags.add_argument('--out', type=pathlib.Path)
    args = flags.parse_args()
    capacity = max(args.moments) + 100 * args.lessons * args.rounds
    config = configs.load(args.config, ['model.machines=1', f'model.memory={capacity}', 'model.cards=2000000']).model
    machines, (term, _) = Machines(config), config.term(0)
    machines.tape.supply(0)
    fill, seconds = filler(machines), dict[int, list[float]]()
    lesson = machine_moves.lesson_of(machines, term, config.rule, jit=False)
    for size in sorted(args.moments):
        fill(tf.constant(size), tf.constant(size - int(machines.memory.time[0])))
        rounds = [1 / machine_moves.measure(machines, lesson, 0, args.lessons) for _ in range(args.rounds + 1)]
        times = seconds[size] = rounds[1:]  # the first one traces
        print(f'{size:9,} moments, {int(machines.memory.used[0]):9,} cards: {1e3 * statistics.median(times):.2f} ms a '
              f'move ({1e3 * min(times):.2f} to {1e3 * max(times):.2f})', flush=True)
    if args.out:
        args.out.write_text(json.dumps({'config': args.config, 'seconds_a_move': seconds}, indent=1))


if __name__ == '__main__':
    main()
