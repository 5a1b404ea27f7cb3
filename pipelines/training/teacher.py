"""Terminal for the schoolmaster of one machine.

"The machine is provided with a typewriter keyboard on which any remarks to it are typed, and it also types out any
remarks that it wishes to make" (Turing). The schoolmaster also has two keys. He is "forbidden any detailed knowledge of
the inner workings", which `mechanic.py` shows to another person.
"""
import contextlib
import os
import readline  # noqa: F401, lets `input` edit its line and recall earlier ones
from collections.abc import Iterator
from typing import IO

import numpy as np
import tensorflow as tf

from data_prep import UserError
from keras_models.core import layers
from keras_models.learning_machine import PAIN, PLEASURE, Machines
from pipelines.training import checkpoints

HELP = """  a move, as the board names it      play it
  +   pleasure      -   pain         press a key, for everything done since the last one
  any other words                    a remark, which the machine hears
  words that end with ?              a question, which it answers if its game has words, such as: mover?
  new     start another game, in which the other side begins
  help    show this      quit     leave; the machine is kept as it is now"""
POSITIONS = 20  # number of latest positions of a machine to keep
_ROWS = np.zeros(1, np.int32)  # not a tensor, because importing this must not start TensorFlow


class Positions:
    """Numbered positions of one machine on disk, one before each game in the schoolroom.

    Args:
      machine: a population of one.
      folder: folder of the positions.
    """

    def __init__(self, machine: Machines, folder: str):
        self.folder = folder
        self._checkpoint = tf.train.Checkpoint(nets=layers.by_name({'machines': machine}))

    def numbers(self) -> list[int]:
        return [checkpoints.step_of(path) for path in checkpoints.present(self.folder)]

    def keep(self) -> int:
        """Keep the machine as it is, as the latest position; return its number."""
        number = max(self.numbers(), default=0) + 1
        checkpoints.write(self._checkpoint, self.folder, number, POSITIONS)
        return number

    def put_back(self, number: int) -> None:
        """Put the machine back to a position.

        Raises:
          UserError: there is no such position, or its machine has another construction.
        """
        if number not in self.numbers():
            raise UserError(f'{self.folder} has no position {number}; there are {self.numbers() or "none"}.')
        self.read(os.path.join(self.folder, f'ckpt-{number}'))

    def read(self, path: str) -> None:
        """Put the machine into the state of a file.

        Raises:
          UserError: the file does not have a machine of this construction.
        """
        try:
            self._checkpoint.read(path).assert_consumed()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise UserError(f'{path} has no machine of this configuration; give another, or remove it.') from error


class Schoolroom:
    """A schoolmaster, a machine and a board.

    Args:
      machine: a population of one; it learns.
      out: stream for the board and all messages.
      known: what the machine knows, as a phrase.
      positions: the machine's positions; one is kept before each game.
    """

    def __init__(self, machine: Machines, out: IO[str], known: str, positions: Positions):
        self.machine, self.game, self._out, self._positions = machine, machine.game, out, positions
        self._move = tf.function(lambda board: machine.move(_ROWS, board, tf.constant([True])), autograph=False)
        self._hear = tf.function(lambda word, board: machine.hear(_ROWS, word, board, tf.constant([True])),
                                 autograph=False)
        self._state = tf.function(lambda board: machine.say(_ROWS, board, tf.constant([True])), autograph=False)
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
        """Show the board, and let the machine move if it is its turn."""
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
        """Let the machine hear every word, and answer if the remark is a question."""
        for word in text.lower().removesuffix('?').split():
            self._hear(tf.constant([self.machine.word_number(word)]), self.board)
            self.say(f'It hears "{word}".')
        if text.endswith('?') and self.machine.language:
            words = self._state(self.board)[0].numpy().tolist()
            self.say(f'The machine says "{" ".join(map(self.machine.written, words))}".')

    def line(self, text: str) -> bool:
        """Do what a typed line says; return whether to go on."""
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



def open_machine(pipeline) -> tuple[Machines, str, Positions]:
    """Open the machine of a configuration's schoolroom.

    It is the machine as it was left there; else the best one that left school; else a new one.

    Returns:
      The machine as a population of one, what it knows as a phrase, and its positions.
    """
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
    """Let a person teach the machine of a configuration's schoolroom, and keep it there."""
    machine, known, positions = open_machine(pipeline)
    room = Schoolroom(machine, out, known, positions)
    for line in typed(lines):
        if not room.line(line.strip()):
            break
    positions.keep()


def typed(lines: IO[str]) -> Iterator[str]:
    """Yield lines, at a terminal after a prompt and until Ctrl-D."""
    if not lines.isatty():
        yield from lines
        return
    with contextlib.suppress(EOFError):
        while True:
            yield input('> ')
    print()
