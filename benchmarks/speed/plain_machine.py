"""One learning machine in plain Python and NumPy, as one would write it first.

The rules are those of `keras_models/learning_machine.py`, without combined indexes: a row of a population and a machine
of this kind with the same tape live the same lives, which `test_learning_machine.py` holds. By how much the
population is faster, `machine_moves.py` says.
"""
import collections
import dataclasses
import math
from collections.abc import Callable, Hashable

import numpy as np

from data_prep.games import board_games
from keras_models.turing.games import noughts
from keras_models.turing.memory import HEARD, MOVED, SURPRISE

FEATURES = 4  # of a game


@dataclasses.dataclass
class Moment:
    """A choice and its votes.

    `features` has those of the indexes that have one.
    """
    kind: int
    scene: tuple[int, ...]
    choice: int
    features: list[Hashable]
    outcome: int = 0


class Card:
    """All outcomes of a feature, and those of the latest that count for a choice."""

    def __init__(self):
        self.good = self.bad = self.run = 0
        self.lately: list[int] = []

    def add(self, outcome: int, most: int) -> None:
        self.good, self.bad = self.good + (outcome > 0), self.bad + (outcome < 0)
        self.run = outcome if self.run * outcome <= 0 else self.run + outcome
        self.lately = [outcome, *self.lately][:most]
        length = min(abs(self.run), len(self.lately))
        alike = self.lately.count(outcome) - length
        if length * math.log((len(self.lately) - length + 2) / (alike + 1)) > SURPRISE:
            del self.lately[length:]

    def counts(self) -> tuple[int, int]:
        return self.lately.count(1), self.lately.count(-1)


class PlainMachine:
    """See `keras_models.learning_machine.Machines`.

    Args:
      config: a `learning_machine.Config`, of Nim or noughts and crosses and with nothing combined.
      tape: its figures, 0 and 1.
    """

    def __init__(self, config, tape):
        self.config, self.game, self.tape = config, board_games.make(config.game, config.options), tape
        self._keys = nim_keys if config.game == 'nim' else noughts_keys
        self._conditions = nim_conditions if config.game == 'nim' else noughts_conditions
        self.memory: list[Moment] = []
        self.cards: dict[Hashable, Card] = collections.defaultdict(Card)
        self.felt = self.read = 0
        self.heard: int | None = None

    def remember(self, moment: Moment) -> None:
        self.memory.append(moment)

    def look_up(self, feature: Hashable) -> tuple[int, int]:
        return self.cards[feature].counts() if feature in self.cards else (0, 0)

    def think(self, position, legal: list[int]):
        """Features [choices, indexes], outcomes for and against, and votes by the two rules [choices]."""
        features = [[(index, key) for index, key in enumerate(self._keys(self.game, position, move))]
                    + [('word and move', self.heard, move)] for move in legal]
        counts = np.array([[self.look_up(feature) for feature in each] for each in features], np.int32)
        if self.heard is None:
            counts[:, -1] = 0
        good, bad = counts[..., 0], counts[..., 1]
        odds = (2 * good + 1).astype(np.float32) / (2 * bad + 1).astype(np.float32)
        learned = (np.log(odds) * self._weights()).sum(1)
        return features, np.sign(good - bad), (good - bad).sum(1), learned

    def _weights(self):
        """Return how often each index was right for once that it was wrong."""
        right, wrong = np.zeros([2, FEATURES + 1], np.float32)
        for index in range(FEATURES + 1):
            for spoke in (1, -1):
                card = self.cards[('thought', index, spoke)]
                right[index] += card.good if spoke > 0 else card.bad
                wrong[index] += card.bad if spoke > 0 else card.good
        return (right + 1) / (wrong + 1)

    def grown(self) -> bool:
        cards = [self.cards[('rule', agreed)] for agreed in (False, True)]
        good, bad = (np.array([getattr(card, part) + 1 for card in cards], np.float32) for part in ('good', 'bad'))
        share, mean = good / (good + bad), good.sum() / (good + bad).sum()
        deviation = np.sqrt(mean * (1 - mean) * (1 / (good + bad)).sum())
        return bool(share[1] - share[0] > np.float32(self.config.certainty) * deviation)

    def decide(self, best: list[int]) -> int:
        figures = math.ceil(math.log2(len(best)))
        number = len(best) if figures else 0
        while number >= len(best):
            number = 0
            for _ in range(figures):
                number = 2 * number + self.tape[self.read % self.config.tape]
                self.read += 1
        return best[number]

    def feel(self, signal: int) -> None:
        if not signal:
            return
        for moment in self.memory[self.felt:]:
            moment.outcome = signal
            for feature in moment.features:
                self.cards[feature].add(signal, self.config.looked_up)
        self.felt = len(self.memory)

    def recognise(self, features: list[Hashable]) -> int:
        constant = set()
        for place, feature in enumerate(features):
            good, bad = self.look_up(feature)
            if good + bad >= self.config.constancy * min(1 + place, 2) and not (good and bad):
                constant.add(1 if good else -1)
        return min(constant, default=0)

    def move(self, position) -> int:
        conditions: list[Hashable] = [('condition', *each) for each in enumerate(self._conditions(self.game, position))]
        self.feel(self.recognise(conditions))
        legal = self.game.legal(position)
        features, spoke, crude, learned = self.think(position, legal)
        votes = learned if self.config.rule == 'learned' or self.config.rule == 'grows' and self.grown() else crude
        choice = self.decide(np.flatnonzero(votes == votes.max()).tolist())
        own: list[Hashable] = [feature for feature in features[choice] if self.heard is not None or len(feature) == 2]
        own += [('thought', index, int(said)) for index, said in enumerate(spoke[choice]) if said]
        if crude[choice] == crude.max():
            own.append(('rule', bool(learned[choice] == learned.max())))
        self.remember(Moment(MOVED, position, legal[choice], conditions + own))
        self.heard = None
        return legal[choice]

    def hear(self, word: int, position) -> None:
        self.feel(self.recognise([('word', word)]))
        self.remember(Moment(HEARD, position, word, [('word', word)]))
        self.heard = word


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


def nim_conditions(game, heaps) -> list[int]:
    """`games.nim.Game.condition_keys` of a position."""
    return [number(heaps, game), number(sorted(heaps), game)]


def noughts_conditions(game, men) -> list[int]:
    """`games.noughts.Game.condition_keys` of a position."""
    return [number(men, game), min(number([men[square] for square in sheet], game) for sheet in SYMMETRIES)]


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
