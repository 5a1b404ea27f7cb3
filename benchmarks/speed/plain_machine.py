"""One learning machine in plain Python and NumPy, as one would write it first.

The rules are those of `keras_models/learning_machine.py`, without combined indexes: a row of a population and a machine
of this kind with the same tape live the same lives, which `tests/test_learning_machine.py` holds. By how much the
population is faster, `machine_moves.py` says.
"""
import collections
import dataclasses
from collections.abc import Callable

import numpy as np

from data_prep.games import board_games
from keras_models.turing.games import noughts

CONDITION, WORD, FIRST = 0, 1, 3  # of the indexes; between them, that of thoughts
FEATURES = 4


@dataclasses.dataclass
class Moment:
    """A choice and its votes.

    `keys` has a feature for every index, None where there is none; `thought` says whether memory voted for (1) or
    against (-1) each of the choice's features.
    """
    scene: tuple[int, ...]
    choice: int
    keys: list[int | None]
    thought: list[int]
    outcome: int = 0


class PlainMachine:
    """See `keras_models.learning_machine.Machines`.

    Args:
      config: a `learning_machine.Config`, of Nim or noughts and crosses and with nothing combined.
      tape: its figures, 0 and 1.
    """

    def __init__(self, config, tape):
        self.config, self.game, self.tape = config, board_games.make(config.game, config.options), tape
        self._keys = nim_keys if config.game == 'nim' else noughts_keys
        self.memory: list[Moment | None] = []  # None where forgotten
        self.cards: list[dict[int, list[int]]] = [collections.defaultdict(list) for _ in range(FIRST + FEATURES)]
        self.felt = self.read = 0
        self.right, self.wrong = np.zeros([2, FEATURES], np.int32)

    def recall(self, index: int, key: int) -> list[int]:
        """How the remembered moments of a feature came out, as far back as it is looked up."""
        outcomes = []
        for time in reversed(self.cards[index][key % self.config.cards][-self.config.looked_up:]):
            moment = self.memory[time]
            if moment is None:
                break
            if moment.keys[index] == key and moment.outcome:
                outcomes.append(moment.outcome)
        return outcomes

    def remember(self, moment: Moment) -> None:
        for index, key in enumerate(moment.keys):
            if key is not None:
                self.cards[index][key % self.config.cards].append(len(self.memory))
        self.memory.append(moment)
        if len(self.memory) > self.config.memory:
            self.memory[-self.config.memory - 1] = None

    def think(self, position, legal: list[int]):
        """Features and signs of the indications [choices, indexes], and votes [choices]."""
        keys = [self._keys(self.game, position, move) for move in legal]
        good, bad = np.zeros([2, len(legal), FEATURES], np.int32)
        for choice, features in enumerate(keys):
            for index, key in enumerate(features):
                outcomes = self.recall(FIRST + index, key)
                good[choice, index], bad[choice, index] = outcomes.count(1), outcomes.count(-1)
        if self.config.rule == 'majority':
            return keys, np.sign(good - bad), (good - bad).sum(1)
        favour = (good - bad).astype(np.float32) / (good + bad + 1).astype(np.float32)
        weights = (self.right + 1).astype(np.float32) / (self.wrong + 1).astype(np.float32)
        return keys, np.sign(good - bad), (favour * weights).sum(1)

    def decide(self, best: list[int]) -> int:
        while len(best) > 1:
            half = len(best) // 2
            best = best[half:] if self.tape[self.read % self.config.tape] else best[:half]
            self.read += 1
        return best[0]

    def feel(self, signal: int) -> None:
        if not signal:
            return
        for moment in self.memory[max(self.felt, len(self.memory) - self.config.memory):]:
            moment.outcome = signal  # type: ignore[union-attr]
            for index, thought in enumerate(moment.thought):  # type: ignore[union-attr]
                if thought:
                    (self.right if thought == signal else self.wrong)[index] += 1
        self.felt = len(self.memory)

    def recognise(self, index: int, key: int) -> int:
        felt = self.recall(index, key)
        return felt[0] if len(felt) >= self.config.constancy and len(set(felt)) == 1 else 0

    def move(self, position) -> int:
        condition = number(position, self.game)
        self.feel(self.recognise(CONDITION, condition))
        legal = self.game.legal(position)
        keys, indications, votes = self.think(position, legal)
        choice = self.decide(np.flatnonzero(votes == votes.max()).tolist())
        self.remember(Moment(position, legal[choice], [condition, None, None, *keys[choice]],
                             indications[choice].tolist()))
        return legal[choice]

    def hear(self, word: int, position) -> None:
        self.feel(self.recognise(WORD, word))
        self.remember(Moment(position, self.game.moves + word, [None, word], []))


def lesson(machine: PlainMachine, other: Callable, begins: bool, position, keys: dict[int, int]) -> int:
    """Return a game, at whose end a key is pressed.

    Args:
      other: (position, turn) -> move.
      keys: by the game's outcome.

    Returns:
      How it ended for the machine.
    """
    game, turn = machine.game, 0
    while (outcome := game.outcome(position)) is None:
        own = (turn % 2 == 0) == begins
        position = game.play(position, machine.move(position) if own else other(position, turn))
        turn += 1
    outcome = outcome if (turn % 2 == 0) == begins else -outcome
    machine.feel(keys[outcome])
    return outcome


def number(position, game) -> int:
    """Return a position as a number whose digits are heaps, or squares (the opponent's man, none, an own man)."""
    base, least = (game.highest + 1, 0) if isinstance(game, board_games.Nim) else (3, -1)
    return sum((man - least) * base ** place for place, man in enumerate(position))


def nim_keys(game, heaps, move: int) -> list[int]:
    """`games.nim.Game.keys` of one choice."""
    chosen, less = divmod(move, game.most)
    kinds = max(game.heaps, game.highest + 1) * game.most
    choice = heaps[chosen] * game.most + less
    left = sorted(men - (less + 1) * (heap == chosen) for heap, men in enumerate(heaps))
    return [number(heaps, game) * kinds + move, number(sorted(heaps), game) * kinds + choice, choice,
            number(left, game)]


def noughts_keys(game, men, move: int) -> list[int]:
    """`games.noughts.Game.keys` of one choice."""
    turned = [number([men[square] for square in sheet], game) * 9 + sheet.index(move) for sheet in SYMMETRIES]
    lines = 0
    for line in LINES:
        if move in line:
            found = [men[square] for square in line]
            lines += 5 ** (3 * found.count(1) + found.count(-1))
    kind = 2 if move == 4 else move % 2
    return [number(men, game) * 9 + move, min(turned), lines, kind * 10 + len(men) - men.count(0)]


SYMMETRIES, LINES = noughts.SYMMETRIES.tolist(), noughts.LINES.tolist()
