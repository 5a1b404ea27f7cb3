"""Go on a small board by Tromp and Taylor's rules, but that suicide is forbidden and the ko simple.

The men of a side (Turing's word for stones) are one number, with a bit per point, and a group grows by shifting bits.
All choices of thousands of boards are tried at once, elementwise.
"""
import dataclasses
import functools

import numpy as np
import tensorflow as tf

from keras_models import ModelError
from keras_models.turing.games import texts as board_texts
from keras_models.turing.games.noughts import SYMMETRIES

COLUMNS = 'abcdefg'
EDGE = 3
KO, PASSES, TURNS = -3, -2, -1  # their places in a board, after its points


@functools.cache
def smallest_pattern() -> np.ndarray:
    """Return a table [4^8] from a 3 x 3 pattern's number to the least number among its 8 symmetries."""
    digits = 4 ** np.array([0, 1, 2, 3, 0, 4, 5, 6, 7]) * (np.arange(9) != 4)
    squares = np.arange(4 ** 8)[:, None] // np.maximum(digits, 1) % 4  # [4^8, 9]
    return (squares[:, SYMMETRIES] * digits).sum(-1).min(-1).astype(np.int32)


@functools.cache
def random_numbers(places: int, values: int) -> np.ndarray:
    """Return random int64 [places, values] from 0 to 2^31 - 1, equal on all machines as NumPy keeps raw streams."""
    return (np.random.PCG64(0).random_raw(places * values) >> 33).astype(np.int64).reshape(places, values)


def count(bits) -> tf.Tensor:
    """Return the number of bits, int64 -> int32 of the same shape."""
    return tf.cast(tf.raw_ops.PopulationCount(x=bits), tf.int32)


@dataclasses.dataclass(frozen=True)
class Game:
    """Rules of Go.

    Choices are the points, row by row from a1, then pass. After its points a board holds the point of the ko (1 for
    a1, 0 for none), the passes just made and the turns so far. Black begins, so he is to move if turns are even.

    Attributes:
      komi: White's points for being second, a half so that no game is drawn. In perfect play Black wins all of 5 x 5
        (van der Werf et al. 2003), so only 24.5 would be fair, but learners are far from that.
      most_turns: number of turns after which a game is over and scored as it stands.
    """
    side: int = 5
    komi: float = 0.5
    most_turns: int = 60

    features = ('position', 'pattern', 'pattern up to symmetry', 'liberties and captures')
    language = None
    conditions = ('position', 'men and atari')

    def __post_init__(self):
        if not 2 <= self.side <= len(COLUMNS):
            raise ValueError(f'side is {self.side}; choose 2 to {len(COLUMNS)}, whose points fit in 63 bits')
        if self.most_turns < 1:
            raise ValueError(f'most_turns is {self.most_turns}; choose 1 or more')

    @property
    def points(self) -> int:
        return self.side ** 2

    @property
    def moves(self) -> int:
        return self.points + 1

    @property
    def size(self) -> int:
        return self.points + 3

    @property
    def _point(self) -> np.ndarray:
        return 1 << np.arange(self.points, dtype=np.int64)

    @property
    def _board(self) -> int:
        return (1 << self.points) - 1

    def start(self, seed, n: int) -> tf.Tensor:
        del seed
        return tf.zeros([n, self.size], tf.int32)

    def legal(self, board) -> tf.Tensor:
        own, other, empty = self._sides(board)
        liberties = self._placed(own, other, empty, self._point)[2]
        may = (empty & self._point != 0) & (liberties != 0) & (board[:, KO, None] != np.arange(1, self.moves))
        return self._with_pass(may, True) & ~self._over(board)[:, None]

    def play(self, board, move) -> tf.Tensor:
        own, other, empty = self._sides(board)
        point = tf.bitwise.left_shift(np.int64(1), tf.cast(move, tf.int64))[:, None] & self._board  # a pass: none
        captured, group, liberties = self._placed(own, other, empty, point)
        men = self._spread(other & ~captured) - self._spread(own | point)  # [n, points], seen by the other player
        # A lone man who has taken one man, and could be taken from there only: that may not be done at once.
        ko = tf.where((group == point) & (liberties == captured) & (captured == self._point),
                      np.arange(1, self.moves, dtype=np.int32), 0)
        passes = tf.where(move == self.points, board[:, PASSES] + 1, 0)
        after = tf.concat([men, tf.stack([tf.reduce_sum(ko, -1), passes, board[:, TURNS] + 1], -1)], -1)
        return tf.where(self._over(board)[:, None], board, after)

    def result(self, board) -> tuple[tf.Tensor, tf.Tensor]:
        """Score by area: a side's men, and the empty points that are not connected to the other side's men."""
        own, other, empty = self._sides(board)
        reached, others_reached = self._flood(own, own | empty), self._flood(other, other | empty)
        area = (count(reached & ~others_reached) - count(others_reached & ~reached))[:, 0]
        komi = self.komi * tf.where(board[:, TURNS] % 2 == 0, -1.0, 1.0)
        over = self._over(board)
        return over, tf.where(over, tf.cast(tf.sign(tf.cast(area, tf.float32) + komi), tf.int32), 0)

    def best(self, board) -> tf.Tensor:
        raise ModelError('perfect play of Go is unknown here; play against capturing, random or each other')

    def greedy(self, board) -> tf.Tensor:
        """Return the choices of the plain player `capturing`, bool [n, A].

        They are those that take most men; if none takes any, those that save own men in atari, which have one liberty;
        else those that do not fill an own eye; else the pass.
        """
        own, other, empty = self._sides(board)
        captured, group, liberties = self._placed(own, other, empty, self._point)
        taken = tf.where(self.legal(board)[:, :-1], count(captured), -1)  # [n, points], below 0 where illegal
        takes = (taken > 0) & (taken == tf.reduce_max(taken, -1, keepdims=True))
        in_atari = self._with_liberties(1, own, empty)
        saves = (taken == 0) & (group & in_atari != 0) & (count(liberties) > 1)
        fills_no_eye = (taken == 0) & (self._beside(self._point) & ~own != 0)
        found = tf.zeros_like(taken, tf.bool)
        for rule in (takes, saves, fills_no_eye):
            found = tf.where(tf.reduce_any(found, -1, keepdims=True), found, rule)
        return self._with_pass(found, ~tf.reduce_any(found, -1, keepdims=True)) & self.legal(board)

    def keys(self, board) -> tf.Tensor:
        """Return the keys of each choice, int32 [n, A, 4].

        - position: a hash of men, ko, passes, side to move and choice, which two share with a chance of 2^-31. The
          other keys are plain numbers.
        - pattern: the 8 points around, which may lie off the board.
        - pattern up to symmetry: the least number among the pattern's 8 symmetries.
        - liberties and captures: the group's liberties afterwards up to 4, the men taken up to 3, and whether the
          choice leaves men of the other side one liberty.

        A pass has a pattern of its own, and in place of captures whether the other side has passed.
        """
        own, other, empty = self._sides(board)
        captured, _, liberties = self._placed(own, other, empty, self._point)
        gives_atari = self._beside(self._point) & self._with_liberties(2, other, empty) != 0
        counts = (tf.minimum(count(liberties), 4) + 5 * tf.minimum(count(captured), 3)
                  + 20 * tf.cast(gives_atari, tf.int32))
        pattern = self._patterns(board)
        choice = random_numbers(self.size + 1, self.moves)[-1]
        return tf.stack([
            tf.cast(self._hash(board)[:, None] + choice & 2 ** 31 - 1, tf.int32),
            self._with_pass(pattern, 4 ** 8),
            self._with_pass(tf.gather(smallest_pattern(), pattern), 4 ** 8),
            self._with_pass(counts, 40 + board[:, PASSES, None])], -1)

    def condition_keys(self, board) -> tf.Tensor:
        """Return the position as in `keys`, and for both sides the men and those in atari up to 3, int32 [n, 2]."""
        own, other, empty = self._sides(board)
        in_atari = [tf.minimum(count(self._with_liberties(1, men, empty)), 3) for men in (own, other)]
        numbers = tf.concat([count(own), count(other), *in_atari], 1)  # [n, 4]
        return tf.stack([tf.cast(self._hash(board) & 2 ** 31 - 1, tf.int32),
                         tf.reduce_sum(numbers * np.array([1, 64, 4096, 16384], np.int32), 1)], -1)

    def read(self, texts) -> tf.Tensor:
        """Return boards without ko or passes, which the text does not have, and as many turns as men."""
        men = board_texts.read(texts, self.side)
        turns = tf.reduce_sum(tf.abs(men), -1)
        return tf.concat([men, tf.stack([0 * turns, 0 * turns, turns], -1)], -1)

    def write(self, board) -> tf.Tensor:
        return board_texts.write(board[..., :self.points], self.side)

    def show(self, board) -> str:
        board = np.asarray(board, np.int32)
        names = ('Black', 'White') if board[TURNS] % 2 == 0 else ('White', 'Black')
        drawn = [{1: names[0], -1: names[1], 0: '.'}[man] for man in board[:self.points]]
        letters = {'Black': 'X', 'White': 'O', '.': '.'}
        rows = [f'{row + 1} ' + ' '.join(letters[name] for name in drawn[row * self.side:][:self.side])
                for row in reversed(range(self.side))]
        lines = [*rows, '  ' + ' '.join(COLUMNS[:self.side])]
        if not self._over(board[None])[0]:
            passed = f'; {names[1]} has passed' if board[PASSES] else ''
            ko = f'; ko at {self.name(board[KO] - 1)}' if board[KO] else ''
            lines.append(f'{names[0]} ({letters[names[0]]}) to move{passed}{ko}')
        return '\n'.join(lines)

    def name(self, move: int) -> str:
        return 'pass' if move == self.points else f'{COLUMNS[move % self.side]}{move // self.side + 1}'

    def move(self, text: str) -> int:
        """Return the number of a choice.

        Raises:
          ValueError: the text is neither a point of the board nor a pass.
        """
        names = [self.name(move) for move in range(self.moves)]
        if text.strip().lower() in names:
            return names.index(text.strip().lower())
        raise ValueError(f'{text!r} is not a move; name a point, a1 to {names[-2]}, or pass')

    def _over(self, board) -> tf.Tensor:
        return (board[:, PASSES] == 2) | (board[:, TURNS] >= self.most_turns)

    def _with_pass(self, points, value) -> tf.Tensor:
        """Append the value of a pass, broadcast to [n, 1], to those of points: [n, points] -> [n, A]."""
        value = tf.broadcast_to(tf.cast(value, points.dtype), tf.shape(points[:, :1]))
        return tf.concat([points, value], -1)

    def _sides(self, board) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the own men, those of the other side and the empty points as bits, int64 [n, 1] each."""
        def bits(man):
            return tf.reduce_sum(tf.where(board[:, :self.points] == man, self._point, 0), -1, keepdims=True)
        return bits(1), bits(-1), bits(0)

    def _spread(self, bits) -> tf.Tensor:
        """Spread bits to points, int64 [n, 1] -> int32 [n, points] of 0 and 1."""
        return tf.cast(bits & self._point != 0, tf.int32)

    def _beside(self, bits) -> tf.Tensor:
        """Return the points next to some points, both int64 […]."""
        first = sum(1 << row * self.side for row in range(self.side))  # the first column
        last = first << self.side - 1
        left, right = tf.bitwise.left_shift, tf.bitwise.right_shift
        one, row = np.int64(1), np.int64(self.side)
        return (left(bits & (self._board - last), one) | right(bits & (self._board - first), one)
                | left(bits, row) & self._board | right(bits, row))

    def _flood(self, bits, within) -> tf.Tensor:
        """Return the points of `within` that are connected to those of `bits` by points of `within`."""
        def grown(bits):
            return bits | self._beside(bits) & within
        return tf.while_loop(lambda before, bits: tf.reduce_any(before != bits), lambda _, bits: (bits, grown(bits)),
                             (bits & within, grown(bits & within)))[1]

    def _placed(self, own, other, empty, point) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Put a man on each empty `point`, [n, 1] or [points].

        Returns:
          The men that it takes, its group and the group's liberties, int64 [n, 1] or [n, points] each. A group without
          liberties is suicide.
        """
        empty = empty & ~point
        captured = other & ~self._flood(self._beside(empty), other)
        group = self._flood(point, own | point)
        return captured, group, self._beside(group) & (empty | captured)

    def _with_liberties(self, number: int, men, empty) -> tf.Tensor:
        """Return those of one side's `men`, [n, 1], whose group has `number` liberties, [n, 1]."""
        groups = self._flood(men & self._point, men)  # [n, points], none where no man is
        there = count(self._beside(groups) & empty) == number
        return tf.reduce_sum(tf.where(there & (groups != 0), self._point, 0), -1, keepdims=True)

    def _patterns(self, board) -> tf.Tensor:
        """Return each point's 8 neighbours as a number, [n, points]: 0 empty, 1 own, 2 other, `EDGE` outside."""
        men = tf.reshape(board[:, :self.points] % 3, [-1, self.side, self.side])
        men = tf.pad(men, [[0, 0], [1, 1], [1, 1]], constant_values=EDGE)
        around = [men[:, y:y + self.side, x:x + self.side] for y in range(3) for x in range(3) if (y, x) != (1, 1)]
        return tf.reshape(tf.add_n([4 ** place * each for place, each in enumerate(around)]), [-1, self.points])

    def _hash(self, board) -> tf.Tensor:
        """Return the sum of a random number for each point's content, for ko, passes and side to move, int64 [n]."""
        seen = tf.concat([board[:, :self.points] % 3, board[:, KO:TURNS], board[:, TURNS:] % 2], -1)
        table = random_numbers(self.size + 1, self.moves)
        return tf.reduce_sum(tf.gather(table.ravel(), seen + np.arange(self.size) * self.moves), -1)
