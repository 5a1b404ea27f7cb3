"""A terminal in which a person is the mechanic of the machine that `teacher.py` lets another one teach.

The mechanic is "permitted to keep the machine in running order, and … may put it back to one of its previous
positions and ask the schoolmaster to repeat his lessons from that point on, but he may not take any part in the
teaching" (Turing): there are no moves here, no remarks and no keys.
"""
from typing import IO

import numpy as np
import tensorflow as tf

from data_prep import UserError
from keras_models import reason
from keras_models.learning_machine import Machines
from keras_models.turing.memory import HEARD, MOVED
from pipelines.training import checkpoints, teacher

HELP = """  memories [N]    the latest moments that it remembers
  votes POSITION  what its indexes say of every move there, such as: votes 3 4 5
  positions       those it can be put back to, of which the last is as it is now
  back NUMBER     puts it back; the next session of the schoolmaster goes on from there
  save PATH       keeps it elsewhere      load PATH    puts it back to what was kept
  help            this                    quit         leave"""
_ROWS = np.zeros(1, np.int32)


class Workshop:
    """A person and a machine that lies open.

    Args:
      machine: a population of one.
      positions: where it is kept.
      out: where everything is shown.
    """

    def __init__(self, machine: Machines, positions: teacher.Positions, out: IO[str]):
        self.machine, self.game, self._positions, self._out = machine, machine.game, positions, out
        self._commands = {'memories': self.memories, 'votes': self.votes, 'positions': self.positions,
                          'back': self.back, 'save': self.save, 'load': self.load, 'help': lambda _: self.say(HELP)}

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def memories(self, count: str) -> None:
        lived, felt = int(self.machine.memory.time[0]), {1: ': pleasure', -1: ': pain', 0: ''}
        for time in range(max(0, lived - (int(count) if count.isdigit() else 10)), lived):
            at = tf.constant([time])
            kind, scene, choice = self.machine.memory.moment(_ROWS, at, at >= 0)
            outcome = felt[int(self.machine.memory.outcome[time])]
            did = {MOVED: lambda move: f'it moved {self.game.name(move)}', HEARD: lambda word: f'it heard word {word}'}
            board = self.game.write(scene)[0].numpy().decode()
            self.say(f'{time}  {board}  {did[int(kind[0])](int(choice[0]))}{outcome}')

    def votes(self, position: str) -> None:
        try:
            board = tf.function(self.game.read, autograph=False)(tf.constant([position]))
        except tf.errors.InvalidArgumentError as error:
            raise UserError(f'{reason(error)}.') from error
        thought = self.machine.think(_ROWS, board)
        rule = 'learned weights' if bool(self.machine.grown(_ROWS)[0]) else 'the crude majority'
        self.say(f'It goes by {rule}.')
        for move in np.flatnonzero(self.game.legal(board)[0]):
            told = ', '.join(f'{name} {int(good)} for {int(bad)} against' for name, good, bad in zip(
                self.machine.indexes, thought.good[0, move], thought.bad[0, move]) if good + bad)
            self.say(f'{self.game.name(int(move))}: {float(thought.votes[0, move]):+.2f}; {told or "no memories"}')

    def positions(self, _) -> None:
        self.say(' '.join(map(str, self._positions.numbers())) or 'It was taught nothing here yet.')

    def back(self, number: str) -> None:
        self._positions.put_back(int(number) if number.isdigit() else -1)
        self.say(f'It is as it was at {number}, and kept so as {self._positions.keep()}.')

    def save(self, path: str) -> None:
        checkpoints.save({'machines': self.machine}, path)
        self.say(f'{path}.index keeps it.')

    def load(self, path: str) -> None:
        self._positions.read(path)
        self.say(f'It is as {path} kept it, and kept so as {self._positions.keep()}.')

    def line(self, text: str) -> bool:
        """Does what a typed line says. Returns whether to go on."""
        command, _, rest = text.partition(' ')
        if command == 'quit':
            return False
        try:
            if command in ('save', 'load') and not rest:
                raise UserError(f'{command}: give a path.')
            if command in self._commands:
                self._commands[command](rest.strip())
            elif command:
                raise UserError(f'{command!r} is nothing a mechanic does; type help.')
        except UserError as error:
            self.say(str(error))
        return True


def inspect(pipeline, lines: IO[str], out: IO[str]) -> None:
    """Opens the machine of a configuration's schoolroom to a person."""
    machine, known, positions = teacher.open_machine(pipeline)
    workshop = Workshop(machine, positions, out)
    workshop.say(f'This machine {known}. Type help for what you can do.')
    for line in teacher.typed(lines):
        if not workshop.line(line.strip()):
            return
