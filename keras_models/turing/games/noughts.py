"""Noughts and crosses, on squares 1 to 9; crosses begin."""
import dataclasses
import functools

import numpy as np
import tensorflow as tf

from keras_models.turing.games import texts as board_texts

SQUARES = np.arange(9).reshape(3, 3)
LINES = np.array([*SQUARES, *SQUARES.T, SQUARES.diagonal(), SQUARES[:, ::-1].diagonal()])
# [8, 9]: the square at each place after the board is turned and mirrored.
SYMMETRIES = np.array([np.rot90(sheet, turns).ravel() for sheet in (SQUARES, SQUARES.T) for turns in range(4)])
DIGITS = 3 ** np.arange(9, dtype=np.int32)
KIND = np.array([0, 1, 0, 1, 2, 1, 0, 1, 0], np.int32)  # corner, edge, centre


@functools.cache
def others_in_lines() -> tuple[np.ndarray, np.ndarray]:
    """Return the two other squares of each line through a square, [9, 4, 2], and 1 where there is a line, [9, 4]."""
    others, there = np.zeros([9, 4, 2], np.int32), np.zeros([9, 4], np.int32)
    for square in range(9):
        for place, line in enumerate(line for line in LINES if square in line):
            others[square, place], there[square, place] = line[line != square], 1
    return others, there


@functools.cache
def perfect() -> np.ndarray:
    """Return the choices that keep a board's value, bool [3^9, 9] by its number, from the full boards back."""
    numbers = np.arange(3 ** 9)
    boards = numbers[:, None] // DIGITS % 3 - 1
    men, lines = np.abs(boards).sum(-1), boards[:, LINES].sum(-1)  # [3^9], [3^9, 8]
    value = (lines == 3).any(-1).astype(int) - (lines == -3).any(-1)
    open_ = (np.abs(lines) < 3).all(-1) & (men < 9)
    after = 3 ** 9 - 1 - numbers[:, None] - DIGITS  # an own man on an empty square, as the other side sees it
    best = np.zeros([3 ** 9, 9], bool)
    for count in reversed(range(9)):
        rows = np.flatnonzero(open_ & (men == count))
        values = np.where(boards[rows] == 0, -value[after[rows]], -2)
        value[rows] = values.max(-1)
        best[rows] = values == value[rows, None]
    return best


@dataclasses.dataclass(frozen=True)
class Game:
    """Rules of noughts and crosses. No key is a hash."""
    features = ('position', 'position up to symmetry', 'lines', 'kind of square')
    language = None
    conditions = ('position', 'position up to symmetry')
    moves = 9
    size = 9
    most_turns = 9

    def start(self, seed, n: int) -> tf.Tensor:
        del seed
        return tf.zeros([n, 9], tf.int32)

    def legal(self, board) -> tf.Tensor:
        return (board == 0) & ~self.result(board)[0][:, None]

    def play(self, board, move) -> tf.Tensor:
        return tf.where(self.result(board)[0][:, None], board, -board - tf.one_hot(move, 9, dtype=tf.int32))

    def result(self, board) -> tuple[tf.Tensor, tf.Tensor]:
        lines = tf.reduce_sum(tf.gather(board, LINES, axis=1), -1)  # [n, 8]
        won, lost = (tf.reduce_any(lines == full, -1) for full in (3, -3))
        return won | lost | tf.reduce_all(board != 0, -1), tf.cast(won, tf.int32) - tf.cast(lost, tf.int32)

    def best(self, board) -> tf.Tensor:
        return tf.gather(tf.constant(perfect()), self._number(board))

    def keys(self, board) -> tf.Tensor:
        """Return the keys of each choice, int32 [n, 9, 4].

        - position: board and choice.
        - position up to symmetry: the least number among the square's 8 symmetries.
        - lines: the number of lines through the chosen square with none, one or two men of either side.
        - kind of square: corner, edge or centre, and the number of men on the board.
        """
        places = np.argsort(SYMMETRIES, -1).astype(np.int32)  # [8, 9], the new place of each square
        turned = self._number(tf.gather(board, SYMMETRIES, axis=1))  # [n, 8]
        others, there = others_in_lines()
        men = tf.gather(board, others, axis=1)  # [n, 9, 4, 2]
        own, other = (tf.reduce_sum(tf.cast(men == side, tf.int32), -1) for side in (1, -1))
        # A square is in 4 lines at most, so numbers of lines are digits in base 5.
        lines = tf.reduce_sum(there * tf.gather(5 ** np.arange(9, dtype=np.int32), 3 * own + other), -1)
        all_men = tf.reduce_sum(tf.abs(board), -1)[:, None]
        return tf.stack([self._number(board)[:, None] * 9 + np.arange(9, dtype=np.int32),
                         tf.reduce_min(turned[..., None] * 9 + places, 1), lines, KIND * 10 + all_men], -1)

    def condition_keys(self, board) -> tf.Tensor:
        turned = self._number(tf.gather(board, SYMMETRIES, axis=1))  # [n, 8]
        return tf.stack([self._number(board), tf.reduce_min(turned, 1)], -1)

    def _number(self, board) -> tf.Tensor:
        return tf.reduce_sum((board + 1) * DIGITS, -1)

    def read(self, texts) -> tf.Tensor:
        return board_texts.read(texts, 3)

    def write(self, board) -> tf.Tensor:
        return board_texts.write(board, 3)

    def show(self, board) -> str:
        men = np.asarray(board, np.int32)
        side, other = 'OX' if np.count_nonzero(men) % 2 else 'XO'
        drawn = [{1: side, -1: other, 0: str(square + 1)}[man] for square, man in enumerate(men)]
        rows = [' ' + ' | '.join(drawn[row:row + 3]) for row in (0, 3, 6)]
        over = self.result(men[None])[0][0]
        return '\n---+---+---\n'.join(rows) + ('' if over else f'\n{side} to move')

    def name(self, move: int) -> str:
        return str(move + 1)

    def move(self, text: str) -> int:
        """Return the number of a square.

        Raises:
          ValueError: the text is not a square.
        """
        if text.strip() in map(self.name, range(9)):
            return int(text) - 1
        raise ValueError(f'{text!r} is not a move; name a square, 1 to 9')
