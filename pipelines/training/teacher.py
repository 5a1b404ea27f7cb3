"""A terminal in which a person is the schoolmaster of one machine.

"The machine is provided with a typewriter keyboard on which any remarks to it are typed" (Turing), and with two keys.
He is "forbidden any detailed knowledge of the inner workings", which `mechanic.py` shows to another person.
"""
import contextlib
import os
import readline  # noqa: F401, lets `input` edit its line and go back to earlier ones
import zlib
from collections.abc import Iterator
from typing import IO

import numpy as np
import tensorflow as tf

from data_prep import UserError
from keras_models.core import layers
from keras_models.learning_machine import PAIN, PLEASURE, Machines
from pipelines.training import checkpoints

HELP = """  a move, as the board names it      you play it
  +   pleasure      -   pain         press a key: it is about all that was done since the last
  any other words                    a remark, which the machine hears
  new     another game, in which the other side begins
  help    this      quit     leave; the machine stays as it is now"""
POSITIONS = 20  # of a machine that are kept, the latest
_ROWS = np.zeros(1, np.int32)  # no tensor: importing this must not start TensorFlow


class Positions:
    """The positions of one machine on disk, numbered: after each game that it was taught here.

    Args:
      machine: a population of one.
      folder: where they are kept.
    """

    def __init__(self, machine: Machines, folder: str):
        self.folder = folder
        self._checkpoint = tf.train.Checkpoint(nets=layers.by_name({'machines': machine}))

    def numbers(self) -> list[int]:
        return [checkpoints.step_of(path) for path in checkpoints.present(self.folder)]

    def keep(self) -> int:
        """Keeps the machine as it is, after all others. Returns the number of this position."""
        number = max(self.numbers(), default=0) + 1
        checkpoints.write(self._checkpoint, self.folder, number, POSITIONS)
        return number

    def put_back(self, number: int) -> None:
        """Makes the machine what it was.

        Raises:
          UserError: there is no such position, or it is of a machine of another construction.
        """
        if number not in self.numbers():
            raise UserError(f'{self.folder} has no position {number}; there are {self.numbers() or "none"}.')
        self.read(os.path.join(self.folder, f'ckpt-{number}'))

    def read(self, path: str) -> None:
        """Makes the machine what was kept.

        Raises:
          UserError: it was no machine of this construction.
        """
        try:
            self._checkpoint.read(path).assert_consumed()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise UserError(f'{path} keeps no machine of this configuration; give another, or remove it.') from error


class Schoolroom:
    """A person, a machine and a board.

    Args:
      machine: a population of one; it learns.
      out: where the board is shown and everything is said.
      known: what the machine knows, in words.
      positions: where it is kept after each game.
    """

    def __init__(self, machine: Machines, out: IO[str], known: str, positions: Positions):
        self.machine, self.game, self._out, self._positions = machine, machine.game, out, positions
        self._move = tf.function(lambda board: machine.move(_ROWS, board, tf.constant([True])), autograph=False)
        self._hear = tf.function(lambda word, board: machine.hear(_ROWS, word, board, tf.constant([True])),
                                 autograph=False)
        self._games = 0
        self.say(f'This machine {known}. Type help for what you can do.')
        self.new()

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def new(self) -> None:
        self._positions.keep()
        self._games += 1
        self.board = self.game.start(tf.constant([self._games, 0]), 1)
        self._next(machine=self._games % 2 == 0)

    def _next(self, machine: bool) -> None:
        """Shows the board and lets the machine move if it is its turn."""
        over, outcome = (int(part[0]) for part in self.game.result(self.board))
        self.say(self.game.show(self.board[0].numpy()))
        if over:
            of_machine = outcome if machine else -outcome
            self.say({1: 'The machine has won.', 0: 'A draw.', -1: 'You have won.'}[of_machine]
                     + ' Press + or -, say something, or start a new game.')
            return
        if machine:
            move = self._move(self.board)
            self.say(f'The machine plays {self.game.name(int(move[0]))}.')
            self.board = self.game.play(self.board, move)
            self._next(machine=False)

    def press(self, signal: int) -> None:
        self.machine.feel(_ROWS, tf.constant([signal]))
        self.say('Pleasure.' if signal == PLEASURE else 'Pain.')

    def play(self, move: int) -> None:
        if bool(self.game.result(self.board)[0][0]):
            self.say('This game is over; type new for another.')
        elif not bool(self.game.legal(self.board)[0, move]):
            self.say(f'{self.game.name(move)} cannot be played now.')
        else:
            self.board = self.game.play(self.board, tf.constant([move]))
            self._next(machine=True)

    def remark(self, text: str) -> None:
        """Every word is heard."""
        for word in text.lower().split():
            self._hear(tf.constant([word_number(word)]), self.board)
            self.say(f'It hears "{word}".')

    def line(self, text: str) -> bool:
        """Does what a typed line says. Returns whether to go on."""
        simple = {'+': lambda: self.press(PLEASURE), '-': lambda: self.press(PAIN), 'new': self.new,
                  'help': lambda: self.say(HELP)}
        if text == 'quit':
            return False
        if text in simple:
            simple[text]()
        elif text:
            try:
                move = self.game.move(text)
            except ValueError:
                self.remark(text)
            else:
                self.play(move)
        return True


def word_number(word: str) -> int:
    """A word's key in the index of words, of 30 bits, so that two words share one by a rare chance."""
    return zlib.crc32(word.encode()) & 0x3FFFFFFF


def open_machine(pipeline) -> tuple[Machines, str, Positions]:
    """The machine of a configuration's schoolroom, alone, what it knows, in words, and its positions: as it was left
    there; else the best that left school; else one that knows nothing."""
    nets = pipeline.config.model_spec.build(pipeline.config.model)
    nets['machines'].tape.supply(pipeline.config.seed)
    try:
        run = pipeline.outputs('train', make=False)['model_run'].uri
    except UserError:
        known = 'was never taught anything'
    else:
        checkpoints.restore(nets, os.path.join(run, 'weights'))
        known = 'left school'
    machine = nets['machines'].alone(int(tf.argmax(nets['register'].degree)))
    positions = Positions(machine, os.path.join(pipeline.root, 'schoolroom'))
    if numbers := positions.numbers():
        positions.put_back(numbers[-1])
        known = 'was here before'
    return machine, known, positions


def teach(pipeline, lines: IO[str], out: IO[str]) -> None:
    """Lets a person teach the machine of a configuration's schoolroom, and keeps it there."""
    machine, known, positions = open_machine(pipeline)
    room = Schoolroom(machine, out, known, positions)
    for line in typed(lines):
        if not room.line(line.strip()):
            break
    positions.keep()


def typed(lines: IO[str]) -> Iterator[str]:
    """Lines, at a terminal after a prompt and until Ctrl-D."""
    if not lines.isatty():
        yield from lines
        return
    with contextlib.suppress(EOFError):
        while True:
            yield input('> ')
    print()
