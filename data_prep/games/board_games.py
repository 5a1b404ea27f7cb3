"""Nim, noughts and crosses, and Go on a small board, in plain Python: their rules, and perfect play where it is known.

Positions are tuples of whole numbers from the view of the player to move, and moves are numbers too. Nim and noughts
and crosses are solved by enumerating all positions; Go is only played.
"""
import abc
import dataclasses
import functools
import itertools
import random
import re

Position = tuple[int, ...]

STAGES = ('early', 'middle', 'late')
_MARKS = {'x': 1, 'o': -1, '.': 0}  # own, the opponent's, empty
_LETTERS = 'abcdefg'  # of heaps and columns; Go players skip i, which comes later
_MOST_POSITIONS = 100_000  # of Nim; solved in 3 s


@dataclasses.dataclass(frozen=True)
class Game(abc.ABC):
    """Interface of a game."""

    @property
    @abc.abstractmethod
    def moves(self) -> int:
        """Number of moves, legal or not."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Numbers in a position."""

    @property
    @abc.abstractmethod
    def whole(self) -> int:
        """Value of `played` at the end of a full game."""

    @abc.abstractmethod
    def starts(self) -> list[Position]:
        """Return the positions a game may start from."""

    @abc.abstractmethod
    def legal(self, position: Position) -> list[int]:
        """Return the legal moves, ascending; none once the game is over."""

    @abc.abstractmethod
    def play(self, position: Position, move: int) -> Position:
        """Return the position after a legal move, from the view of the other player."""

    @abc.abstractmethod
    def outcome(self, position: Position) -> int | None:
        """Return 1 if the player to move has won, -1 if lost, 0 if drawn; None while the game is not over."""

    @abc.abstractmethod
    def played(self, position: Position) -> int:
        """Return how much of the game has been played, 0 to `whole`."""

    @abc.abstractmethod
    def write(self, position: Position) -> str:
        """Format a position as text."""

    @abc.abstractmethod
    def read(self, text: str) -> Position:
        """Parse a position.

        Raises:
          ValueError: the text is not a position.
        """

    @abc.abstractmethod
    def name(self, move: int) -> str:
        """Format a move as text."""

    def move(self, text: str) -> int:
        """Parse a move.

        Raises:
          ValueError: the text is not a move.
        """
        names = {self.name(move): move for move in range(self.moves)}
        if text not in names:
            raise ValueError(f'{text!r} is not a move; moves are {self.name(0)} to {self.name(self.moves - 1)}')
        return names[text]

    def stage(self, position: Position) -> str:
        """Return the third of the game a position belongs to; one of `STAGES`."""
        return STAGES[3 * self.played(position) // (self.whole + 1)]

    def solve(self) -> dict[Position, int]:
        """Return the value of every unfinished position; empty if perfect play is unknown."""
        return {position: value for position, value in _values(self).items() if self.outcome(position) is None}

    def value(self, position: Position) -> int | None:
        """Return `outcome` after perfect play; None if it is unknown.

        Raises:
          KeyError: the position does not occur in play.
        """
        return _values(self)[position]

    def best(self, position: Position) -> tuple[int, ...]:
        """Return the moves of perfect play: all that keep the position's value.

        Empty once the game is over, or if perfect play is unknown.

        Raises:
          KeyError: the position does not occur in play.
        """
        value = self.value(position)
        return tuple(move for move in self.legal(position) if -_values(self)[self.play(position, move)] == value)


def reachable(game: Game) -> set[Position]:
    """Return all positions that occur in play, including finished ones."""
    found, new = set(game.starts()), game.starts()
    while new:
        new = list({game.play(position, move) for position in new for move in game.legal(position)} - found)
        found.update(new)
    return found


@functools.cache
def _values(game: Game) -> dict[Position, int]:
    """Return the value of every reachable position; every move is progress, so later positions are solved first."""
    values: dict[Position, int] = {}
    for position in sorted(reachable(game), key=game.played, reverse=True):
        outcome = game.outcome(position)
        values[position] = outcome if outcome is not None else max(
            -values[game.play(position, move)] for move in game.legal(position))
    return values


@dataclasses.dataclass(frozen=True)
class Nim(Game):
    """Heaps of up to `highest` men; a turn takes 1 to `most` from one, and the player who takes the last man wins.

    A position is the number of men in each heap. Move heap * most + taken - 1 is written `b3` for three of the second
    heap. A game may start from any position but the empty one.
    """
    heaps: int = 3
    highest: int = 5
    most: int = 5

    def __post_init__(self):
        if self.heaps > len(_LETTERS) or (self.highest + 1) ** self.heaps > _MOST_POSITIONS:
            raise ValueError(f'{self.heaps} heaps of {self.highest} have more positions than the {_MOST_POSITIONS:,} '
                             'that can be enumerated; give fewer or lower ones')

    @property
    def moves(self) -> int:
        return self.heaps * self.most

    @property
    def size(self) -> int:
        return self.heaps

    @property
    def whole(self) -> int:
        return self.heaps * self.highest

    def starts(self) -> list[Position]:
        return [heaps for heaps in itertools.product(range(self.highest + 1), repeat=self.heaps) if any(heaps)]

    def legal(self, position: Position) -> list[int]:
        return [heap * self.most + taken - 1 for heap, men in enumerate(position)
                for taken in range(1, min(men, self.most) + 1)]

    def play(self, position: Position, move: int) -> Position:
        chosen, less = divmod(move, self.most)
        return tuple(men - (less + 1) * (heap == chosen) for heap, men in enumerate(position))

    def outcome(self, position: Position) -> int | None:
        return None if any(position) else -1

    def played(self, position: Position) -> int:
        return self.whole - sum(position)

    def write(self, position: Position) -> str:
        return ' '.join(map(str, position))

    def read(self, text: str) -> Position:
        position = tuple(int(men) if re.fullmatch('[0-9]+', men) else -1 for men in text.split())
        if len(position) != self.heaps or not all(0 <= men <= self.highest for men in position):
            raise ValueError(f'{text!r} is not a position; it must be {self.heaps} numbers of 0 to {self.highest}')
        return position

    def name(self, move: int) -> str:
        heap, less = divmod(move, self.most)
        return f'{_LETTERS[heap]}{less + 1}'


class _Board(Game):
    """A game on a square board, row by row: own men 1, the opponent's -1."""
    side: int

    @property
    def whole(self) -> int:
        return self.side ** 2

    def played(self, position: Position) -> int:
        return self.whole - position[:self.whole].count(0)

    def write(self, position: Position) -> str:
        marks = {man: mark for mark, man in _MARKS.items()}
        return '/'.join(''.join(marks[man] for man in position[start:start + self.side])
                        for start in range(0, self.whole, self.side))

    def read(self, text: str) -> Position:
        rows = text.split('/')
        if not len(rows) == self.side == min(map(len, rows)) == max(map(len, rows)) or set(text) - {*_MARKS, '/'}:
            raise ValueError(f'{text!r} is not a position; it must be {self.side} rows of {self.side} of x, o and '
                             'dots, with a / between')
        return tuple(_MARKS[mark] for mark in ''.join(rows))


@dataclasses.dataclass(frozen=True)
class Noughts(_Board):
    """Noughts and crosses: three in a row win. A move is a square, `1` to `9` from the top left, row by row."""
    side = 3
    moves = size = 9

    def starts(self) -> list[Position]:
        return [(0,) * 9]

    def legal(self, position: Position) -> list[int]:
        return [] if self.outcome(position) is not None else [move for move in range(9) if not position[move]]

    def play(self, position: Position, move: int) -> Position:
        return tuple(-1 if square == move else -man for square, man in enumerate(position))

    def outcome(self, position: Position) -> int | None:
        rows = [*(position[i:i + 3] for i in (0, 3, 6)), *(position[i::3] for i in range(3)),
                position[::4], position[2:7:2]]
        if (-1, -1, -1) in rows:
            return -1
        return 1 if (1, 1, 1) in rows else None if 0 in position else 0

    def name(self, move: int) -> str:
        return str(move + 1)


@dataclasses.dataclass(frozen=True)
class Go(_Board):
    """Go by area: no suicide, simple ko, over after two passes or `most_turns`; Black begins and gives `komi`.

    A position is the board, row by row from a1; the point forbidden by ko, counted from 1, or 0; passes since the last
    man; and turns since the start, even when Black is to move. A move is a point, `c4` in the third column and the
    fourth row, or, as the last, `pass`. Text holds the board only, and a parsed board is taken to be from a game
    without captures. Perfect play is unknown: `solve` and `best` are empty, `value` is None.
    """
    side: int = 5
    komi: float = 0.5
    most_turns: int = 60

    def __post_init__(self):
        if not 2 <= self.side <= len(_LETTERS):
            raise ValueError(f'side must be 2 to {len(_LETTERS)}; it is {self.side}')

    @property
    def moves(self) -> int:
        return self.whole + 1

    @property
    def size(self) -> int:
        return self.whole + 3

    def starts(self) -> list[Position]:
        return [(0,) * self.size]

    def legal(self, position: Position) -> list[int]:
        if self.outcome(position) is not None:
            return []
        return [*(point for point in range(self.whole) if self.open(position, point)), self.whole]

    def open(self, position: Position, point: int) -> bool:
        """Return whether the player to move may play on a point: empty, not ko, and with a liberty afterwards."""
        if position[point] or position[self.whole] == point + 1:
            return False
        for near in _near(self.side, point):
            if not position[near] or (len(self._group(position, near)[1]) > 1) == (position[near] == 1):
                return True
        return False

    def play(self, position: Position, move: int) -> Position:
        *board, _, passes, turns = position
        if move == self.whole:
            return (*(-man for man in board), 0, passes + 1, turns + 1)
        board[move], taken = 1, set[int]()
        for near in _near(self.side, move):
            if board[near] == -1:
                men, liberties = self._group(board, near)
                taken |= set() if liberties else men
        for point in taken:
            board[point] = 0
        men, liberties = self._group(board, move)
        ko = min(taken) + 1 if len(taken) == len(men) == len(liberties) == 1 else 0
        return (*(-man for man in board), ko, 0, turns + 1)

    def outcome(self, position: Position) -> int | None:
        passes, turns = position[self.whole + 1:]
        if passes < 2 and turns < self.most_turns:
            return None
        margin = self.area(position, 1) - self.area(position, -1) + (self.komi if turns % 2 else -self.komi)
        return (margin > 0) - (margin < 0)

    def area(self, position: Position, side: int) -> int:
        """Return the area of one side, 1 or -1: its men, and the empty points connected to no other men."""
        board, area, seen = position[:self.whole], 0, set[int]()
        for point in range(self.whole):
            if not board[point] and point not in seen:
                empty, shore = self._group(board, point)
                seen |= empty
                area += len(empty) * ({board[near] for near in shore} == {side})
        return area + board.count(side)

    def _group(self, board, point: int) -> tuple[set[int], set[int]]:
        """Return the points connected to this one and like it, and their neighbours.

        The neighbours of men are their liberties; those of empty points are the men around them.
        """
        men, around, new = {point}, set(), [point]
        while new:
            for near in _near(self.side, new.pop()):
                if board[near] != board[point]:
                    around.add(near)
                elif near not in men:
                    men.add(near)
                    new.append(near)
        return men, {near for near in around if not board[point] or not board[near]}

    def solve(self) -> dict[Position, int]:
        return {}

    def value(self, position: Position) -> None:
        del position

    def best(self, position: Position) -> tuple[int, ...]:
        del position
        return ()

    def drawn(self, number: int) -> Position:
        """Return an unfinished position of random play, determined by the number."""
        draw, position = random.Random(number), self.starts()[0]
        for _ in range(draw.randrange(self.most_turns)):
            points = draw.sample(range(self.whole), self.whole)
            after = self.play(position, next((point for point in points if self.open(position, point)), self.whole))
            if self.outcome(after) is not None:
                break
            position = after
        return position

    def read(self, text: str) -> Position:
        board = super().read(text)
        return (*board, 0, 0, self.played(board))

    def name(self, move: int) -> str:
        row, column = divmod(move, self.side)
        return 'pass' if move == self.whole else f'{_LETTERS[column]}{row + 1}'


@functools.cache
def _near(side: int, point: int) -> tuple[int, ...]:
    """Return the neighbours of a point, in its row and column."""
    row, column = divmod(point, side)
    beside = (row - 1, column), (row, column - 1), (row, column + 1), (row + 1, column)
    return tuple(y * side + x for y, x in beside if 0 <= y < side and 0 <= x < side)


GAMES: dict[str, type[Game]] = {'nim': Nim, 'noughts': Noughts, 'go': Go}


def make(name: str, options: dict[str, float]) -> Game:
    """Return the game of this name with these parameters.

    Raises:
      ValueError: there is no such parameter, or its value is not allowed.
    """
    kinds = {field.name: type(field.default) for field in dataclasses.fields(GAMES[name])}
    for key, value in options.items():
        if key not in kinds:
            raise ValueError(f'options: {name} has no {key!r}; it has {", ".join(kinds) or "none"}')
        if kinds[key] is int and not (type(value) is int and value > 0):
            raise ValueError(f'options.{key} must be a whole number of 1 or more; it is {value!r}')
    return GAMES[name](**options)
