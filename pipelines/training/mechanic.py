"""Terminal for the mechanic of the machine that another person teaches in `teacher.py`.

The mechanic is "permitted to keep the machine in running order, and … may put it back to one of its previous
positions and ask the schoolmaster to repeat his lessons from that point on, but he may not take any part in the
teaching" (Turing), so this terminal has no moves, remarks or keys.
"""
from typing import IO

import numpy as np
import tensorflow as tf

from data_prep import UserError
from keras_models import reason
from keras_models.learning_machine import Machines
from keras_models.turing.memory import HEARD, MOVED, SAID
from pipelines.training import checkpoints, teacher

HELP = """  memories [N]    show its N latest moments
  votes POSITION  show what its indexes say about every move there, such as: votes 3 4 5
  positions       list the positions it can be put back to; the last is the present one
  back NUMBER     put it back; the schoolmaster's next session goes on from there
  save PATH       save it to a file       load PATH    load it from a file
  help            show this               quit         leave"""
_ROWS = np.zeros(1, np.int32)


class Workshop:
    """A mechanic and a machine whose inside is visible.

    Args:
      machine: a population of one.
      positions: the machine's positions.
      out: stream for all messages.
    """

    def __init__(self, machine: Machines, positions: teacher.Positions, out: IO[str]):
        self.machine, self.game, self._positions, self._out = machine, machine.game, positions, out
        self._commands = {'memories': self.memories, 'votes': self.votes, 'positions': self.positions,
                          'back': self.back, 'save': self.save, 'load': self.load, 'help': lambda _: self.say(HELP)}

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def memories(self, count: str) -> None:
        lived, felt = int(self.machine.memory.time[0]), {1: ': pleasure', -1: ': pain', 0: ''}
        did = {MOVED: lambda move: f'it moved {self.game.name(move)}',
               HEARD: lambda word: f'it heard {self.machine.written(word)}',
               SAID: lambda word: f'it said {self.machine.written(word)}'}
        for time in range(max(0, lived - (int(count) if count.isdigit() else 10)), lived):
            at = tf.constant([time])
            kind, scene, choice = self.machine.memory.moment(_ROWS, at, at >= 0)
            outcome = felt[int(self.machine.memory.outcome[time])]
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
            counts = ', '.join(f'{name} {int(good)} for {int(bad)} against' for name, good, bad in zip(
                self.machine.indexes, thought.good[0, move], thought.bad[0, move]) if good + bad)
            self.say(f'{self.game.name(int(move))}: {float(thought.votes[0, move]):+.2f}; {counts or "no memories"}')

    def positions(self, _) -> None:
        self.say(' '.join(map(str, self._positions.numbers())) or 'It has not been taught here yet.')

    def back(self, number: str) -> None:
        self._positions.put_back(int(number) if number.isdigit() else -1)
        self.say(f'It is as it was at {number}, and kept as {self._positions.keep()}.')

    def save(self, path: str) -> None:
        checkpoints.save({'machines': self.machine}, path)
        self.say(f'It is saved as {path}.index.')

    def load(self, path: str) -> None:
        self._positions.read(path)
        self.say(f'It is as in {path}, and kept as {self._positions.keep()}.')

    def line(self, text: str) -> bool:
        """Do what a typed line says; return whether to go on."""
        command, _, rest = text.partition(' ')
        if command == 'quit':
            return False
        try:
            if command in ('save', 'load') and not rest:
                raise UserError(f'{command}: give a path.')
            if command in self._commands:
                self._commands[command](rest.strip())
            elif command:
                raise UserError(f'{command!r} is not a command of the mechanic; type help.')
        except UserError as error:
            self.say(str(error))
        return True


def inspect(pipeline, lines: IO[str], out: IO[str]) -> None:
    """Let a person look into the machine of a configuration's schoolroom."""
    machine, known, positions = teacher.open_machine(pipeline)
    workshop = Workshop(machine, positions, out)
    workshop.say(f'This machine {known}. Type help for what you can do.')
    for line in teacher.typed(lines):
        if not workshop.line(line.strip()):
            return
