"""Nim: heaps of men; a turn takes one or more from one heap, and who takes the last man wins (Bouton 1901).

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
    """[..., heaps], sorted: elementwise, as `tf.sort` is slow for so few under XLA."""
    columns = tf.unstack(heaps, axis=-1)
    for i in range(len(columns)):
        for j in range(i):
            columns[j], columns[i] = tf.minimum(columns[j], columns[i]), tf.maximum(columns[j], columns[i])
    return tf.stack(columns, -1)


@dataclasses.dataclass(frozen=True)
class Game:
    """Choice (heap, taken) is number heap * most + taken - 1. Every key is a number of its own, none a hash.

    Attributes:
      highest: the most men of a heap.
      most: the most men a turn takes.
      opening: `any` starts at every position but the empty one with equal chance, `full` with all heaps the highest.
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
        """What can be said of it; None of heaps too many or too high for its words."""
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
        """More than there are choices, whether told by the heap's place or by its size."""
        return max(self.heaps, self.highest + 1) * self.most

    @property
    def _heap(self) -> np.ndarray:
        """[A], the heap of each choice."""
        return np.arange(self.moves, dtype=np.int32) // self.most

    @property
    def _taken(self) -> np.ndarray:
        """[A], the men each choice takes."""
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
        """Of heaps modulo most + 1: a heap's Sprague-Grundy value where `most` are taken. int32 [n]."""
        return functools.reduce(tf.bitwise.bitwise_xor, tf.unstack(board % (self.most + 1), axis=1))

    def won(self, board) -> tf.Tensor:
        """Whether the player to move wins by perfect play, bool [n]."""
        return self._nim_sum(board) != 0

    def best(self, board) -> tf.Tensor:
        """Leave a nim-sum of zero."""
        nim_sum = self._nim_sum(board)[:, None]
        heap = tf.gather(board, self._heap, axis=1)
        after = tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(nim_sum, heap % (self.most + 1)),
                                       (heap - self._taken) % (self.most + 1))
        return self.legal(board) & ((after == 0) | (nim_sum == 0))

    def keys(self, board) -> tf.Tensor:
        """position: heaps and choice. heaps by size: the same, with heaps in order of size and the choice told by its
        heap's size. heap: the size of the heap and the men taken. what is left: the heaps after it, in order of size.
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
        """int32 [..., heaps] -> [...], another for other heaps."""
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
        """Raises ValueError: the text is no choice of this game."""
        found = re.fullmatch(r'([a-z])([0-9]{1,9})', text.strip().lower())
        if found and LETTERS.index(found[1]) < self.heaps and 1 <= int(found[2]) <= self.most:
            return LETTERS.index(found[1]) * self.most + int(found[2]) - 1
        raise ValueError(f'{text!r} is no move; name a heap from a to {LETTERS[self.heaps - 1]} and how many to take '
                         f'from it, 1 to {self.most}, such as b1')
