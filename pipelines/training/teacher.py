"""A terminal in which a person is the schoolmaster of one machine.

"The machine is provided with a typewriter keyboard on which any remarks to it are typed" (Turing), and with two keys.
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
from keras_models.learning_machine import PAIN, PLEASURE, Machines
from pipelines.training import checkpoints

HELP = """  a move, as the board names it      you play it
  +   pleasure      -   pain         press a key: it is about all that was done since the last
  any other words                    a remark, which the machine hears
  new     another game, in which the other side begins
  why     the memories that voted for the machine's last move
  back    puts the machine back to where it was before this game
  save PATH     keeps the machine as it is now      help     this      quit     leave
"""
_FELT = {PLEASURE: 'That felt good to it.', PAIN: 'That hurt it.'}
_ROWS = np.zeros(1, np.int32)  # no tensor: importing this must not start TensorFlow


class Schoolroom:
    """A person, a machine and a board.

    Args:
      machine: a population of one; it learns.
      out: where the board is shown and everything is said.
      known: what the machine knows, in words.
    """

    def __init__(self, machine: Machines, out: IO[str], known: str):
        self.machine, self.game, self._out = machine, machine.game, out
        self._earlier = machine.alone(0)
        self._move = tf.function(lambda board: machine.move(_ROWS, board, tf.constant([True])), autograph=False)
        self._hear = tf.function(lambda word, board: machine.hear(_ROWS, word, board, tf.constant([True])),
                                 autograph=False)
        self._games = 0
        self._last: tuple | None = None  # what was before the machine at its last move, and the move
        self.say(f'This machine {known}. Type help for what you can do.')
        self.new()

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def new(self) -> None:
        self._earlier.put_back(_ROWS, self.machine)
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
            before, move = self.board, self._move(self.board)
            self._last = before, int(move[0])
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
        """Every word is heard; one that has always come with pain comes to work like pain."""
        for word in text.lower().split():
            number = word_number(word)
            known = int(self.machine.recognise(_ROWS, self.machine.WORD, tf.constant([number]))[0])
            self._hear(tf.constant([number]), self.board)
            self.say(f'It hears "{word}".{" " + _FELT[known] if known else ""}')

    def why(self) -> None:
        if self._last is None:
            self.say('It has not moved yet.')
            return
        board, move = self._last
        thought = self.machine.think(_ROWS, board)
        for index, good, bad in zip(self.machine.indexes[self.machine.FIRST:], thought.good[0, move].numpy(),
                                    thought.bad[0, move].numpy()):
            self.say(f'  {index}: {good} memories for {self.game.name(move)}, {bad} against')

    def back(self) -> None:
        self.machine.put_back(_ROWS, self._earlier)
        self._games -= 1
        self._last = None
        self.say('It is as it was before this game.')
        self.new()

    def line(self, text: str) -> bool:
        """Does what a typed line says. Returns whether to go on."""
        command, _, rest = text.partition(' ')
        simple = {'+': lambda: self.press(PLEASURE), '-': lambda: self.press(PAIN), 'new': self.new, 'why': self.why,
                  'back': self.back, 'help': lambda: self.say(HELP)}
        if text == 'quit':
            return False
        if text in simple:
            simple[text]()
        elif command == 'save' and rest:
            checkpoints.save({'machines': self.machine}, rest)
            self.say(f'{rest}.index keeps it.')
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


def teach(pipeline, lines: IO[str], out: IO[str]) -> None:
    """Lets a person teach the best machine of a configuration, as it left school, or one that knows nothing."""
    nets = pipeline.config.model_spec.build(pipeline.config.model)
    nets['machines'].supply_tapes(pipeline.config.seed)
    try:
        run = pipeline.outputs('train')['model_run'].uri
    except UserError:
        known = 'was never taught anything'
    else:
        checkpoints.restore(nets, os.path.join(run, 'weights'))
        known = 'left school'
    room = Schoolroom(nets['machines'].alone(int(tf.argmax(nets['register'].degree))), out, known)
    for line in _typed(lines):
        if not room.line(line.strip()):
            return


def _typed(lines: IO[str]) -> Iterator[str]:
    """Lines, at a terminal after a prompt and until Ctrl-D."""
    if not lines.isatty():
        yield from lines
        return
    with contextlib.suppress(EOFError):
        while True:
            yield input('> ')
    print()
