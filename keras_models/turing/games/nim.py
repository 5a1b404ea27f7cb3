"""Nim: a turn takes one or more men from one heap, and the player who takes the last man wins (Bouton 1901).

Both players see the same, so a board is the men of each heap. With one heap and two to take at most, such as
`Game(heaps=1, highest=20, most=2)`, every choice is binary.
"""
import dataclasses
import functools
import re

import numpy as np
import tensorflow as tf

from keras_models.turing.games import nim_language
from keras_models.turing.games import texts as board_texts

LETTERS = 'abcdefghijklmnopqrstuvwxyz'


def ascending(heaps) -> tf.Tensor:
    """Sort heaps, […, heaps], elementwise: `tf.sort` is slow for so few under XLA."""
    columns = tf.unstack(heaps, axis=-1)
    for i in range(len(columns)):
        for j in range(i):
            columns[j], columns[i] = tf.minimum(columns[j], columns[i]), tf.maximum(columns[j], columns[i])
    return tf.stack(columns, -1)


@dataclasses.dataclass(frozen=True)
class Game:
    """Rules of Nim. Choice (heap, taken) has the number heap * most + taken - 1; no key is a hash.

    Attributes:
      highest: largest number of men in a heap.
      most: largest number of men taken in a turn.
      opening: `any` starts at every position but the empty one with equal probability, `full` with full heaps.
    """
    heaps: int = 3
    highest: int = 5
    most: int = 5
    opening: str = 'any'

    features = ('position', 'heaps by size', 'heap', 'what is left')
    conditions = ('position', 'heaps by size')

    def __post_init__(self):
        if min(self.heaps, self.highest, self.most) < 1:
            raise ValueError('heaps, highest and most must be 1 or more; '
                             f'they are {self.heaps}, {self.highest} and {self.most}')
        if self.opening not in ('any', 'full'):
            raise ValueError(f"opening is {self.opening!r}; choose 'any' or 'full'")
        if self.heaps > len(LETTERS) or (self.highest + 1) ** self.heaps * self._kinds > 2 ** 31:
            raise ValueError(f'{self.heaps} heaps of up to {self.highest} have more positions than keys of 31 bits; '
                             'choose fewer or lower heaps')

    @property
    def language(self) -> nim_language.Language | None:
        """The statements about positions; None if the heaps are too many or too high for the words."""
        return nim_language.Language(self) if self.heaps <= 3 and self.highest < len(nim_language.NUMBERS) else None

    @property
    def moves(self) -> int:
        return self.heaps * self.most

    @property
    def size(self) -> int:
        return self.heaps

    @property
    def most_turns(self) -> int:
        return self.heaps * self.highest

    @property
    def _kinds(self) -> int:
        """A number above those of choices, whether the heap is named by place or by size."""
        return max(self.heaps, self.highest + 1) * self.most

    @property
    def _heap(self) -> np.ndarray:
        """The heap of each choice, [A]."""
        return np.arange(self.moves, dtype=np.int32) // self.most

    @property
    def _taken(self) -> np.ndarray:
        """The men that each choice takes, [A]."""
        return np.arange(self.moves, dtype=np.int32) % self.most + 1

    def start(self, seed, n: int) -> tf.Tensor:
        if self.opening == 'full':
            return tf.fill([n, self.heaps], self.highest)
        scale = self.highest + 1
        number = tf.random.stateless_uniform([n, 1], seed, 1, scale ** self.heaps, tf.int32, alg='philox')
        return number // scale ** np.arange(self.heaps, dtype=np.int32) % scale

    def legal(self, board) -> tf.Tensor:
        return tf.gather(board, self._heap, axis=1) >= self._taken

    def play(self, board, move) -> tf.Tensor:
        taken = tf.one_hot(move // self.most, self.heaps, dtype=tf.int32) * (move % self.most + 1)[:, None]
        return tf.where(self.result(board)[0][:, None], board, board - taken)

    def result(self, board) -> tuple[tf.Tensor, tf.Tensor]:
        over = tf.reduce_all(board == 0, -1)
        return over, -tf.cast(over, tf.int32)  # the other took the last man

    def _nim_sum(self, board) -> tf.Tensor:
        """Return the nim-sum of heaps modulo most + 1, the Sprague-Grundy value of each, int32 [n]."""
        return functools.reduce(tf.bitwise.bitwise_xor, tf.unstack(board % (self.most + 1), axis=1))

    def won(self, board) -> tf.Tensor:
        """Return whether the player to move wins by perfect play, bool [n]."""
        return self._nim_sum(board) != 0

    def best(self, board) -> tf.Tensor:
        """Return the choices that leave a nim-sum of zero, or all if there is none, bool [n, A]."""
        nim_sum = self._nim_sum(board)[:, None]
        heap = tf.gather(board, self._heap, axis=1)
        after = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(nim_sum, heap % (self.most + 1)),
                                       (heap - self._taken) % (self.most + 1))
        return self.legal(board) & ((after == 0) | (nim_sum == 0))

    def keys(self, board) -> tf.Tensor:
        """Return the keys of each choice, int32 [n, A, 4].

        - position: heaps and choice.
        - heaps by size: the same, with heaps in order of size and the choice's heap named by size.
        - heap: the size of the heap and the men taken.
        - what is left: the heaps afterwards, in order of size.
        """
        heap = tf.gather(board, self._heap, axis=1)  # [n, A]
        taken = tf.one_hot(self._heap, self.heaps, dtype=tf.int32) * self._taken[:, None]  # [A, heaps]
        left = tf.maximum(board[:, None] - taken, 0)
        choice = heap * self.most + self._taken - 1
        return tf.stack([self._number(board)[:, None] * self._kinds + np.arange(self.moves, dtype=np.int32),
                         self._number(ascending(board))[:, None] * self._kinds + choice,
                         choice,
                         self._number(ascending(left))], -1)

    def condition_keys(self, board) -> tf.Tensor:
        return tf.stack([self._number(board), self._number(ascending(board))], -1)

    def _number(self, heaps) -> tf.Tensor:
        """Return the number of heaps, int32 [..., heaps] -> [...], a different one for different heaps."""
        return tf.reduce_sum(heaps * (self.highest + 1) ** np.arange(self.heaps, dtype=np.int32), -1)

    def read(self, texts) -> tf.Tensor:
        texts = board_texts.check(texts, ' '.join(['[0-9]{1,9}'] * self.heaps), f'{self.heaps} numbers')
        board = tf.strings.to_number(tf.strings.split(texts, ' '), tf.int32).to_tensor(shape=[None, self.heaps])
        board_texts.check(tf.where(tf.reduce_all(board <= self.highest, 1), '', texts), '',
                          f'heaps of 0 to {self.highest}')
        return board

    def write(self, board) -> tf.Tensor:
        return tf.strings.reduce_join(tf.strings.as_string(board), -1, separator=' ')

    def show(self, board) -> str:
        lines = []
        for letter, men in zip(LETTERS, np.asarray(board).tolist()):
            names = ' '.join(f'{letter}{taken}' for taken in range(1, min(men, self.most) + 1))
            lines.append(f'{letter}  {"| " * men:{2 * self.highest}}  {names}'.rstrip())
        return '\n'.join(lines)

    def name(self, move: int) -> str:
        return f'{LETTERS[self._heap[move]]}{self._taken[move]}'

    def move(self, text: str) -> int:
        """Return the number of a choice.

        Raises:
          ValueError: the text is not a choice of this game.
        """
        found = re.fullmatch(r'([a-z])([0-9]{1,9})', text.strip().lower())
        if found and LETTERS.index(found[1]) < self.heaps and 1 <= int(found[2]) <= self.most:
            return LETTERS.index(found[1]) * self.most + int(found[2]) - 1
        raise ValueError(f'{text!r} is not a move; name a heap from a to {LETTERS[self.heaps - 1]} and how many to '
                         f'take from it, 1 to {self.most}, such as b1')
