"""Keys and names of examinations."""
import dataclasses
from typing import Literal

from data_prep.games import board_games

SPLITS = ('validation', 'test')


@dataclasses.dataclass
class Config:
    """The game and its `options` (see `board_games`), such as `{heaps: 3, highest: 5, most: 5}` of Nim.

    Nim and noughts and crosses use every position that offers a choice; Go uses `count` positions of random play,
    without repetitions. `validation_fraction` of them are for validation, chosen by a hash of the position, the others
    for the test.
    """
    game: Literal['nim', 'noughts', 'go'] = 'noughts'  # the game whose positions are used
    options: dict[str, float] = dataclasses.field(default_factory=dict)
    count: int = 1000
    validation_fraction: float = 0.2

    def __post_init__(self):
        board_games.make(self.game, self.options)
        if not 0 < self.validation_fraction < 1:
            raise ValueError('validation_fraction must be between 0 and 1, since the test split needs the rest; it is '
                             f'{self.validation_fraction}')

    def files(self, split: str) -> list[str]:
        """Return no files, since positions follow from the rules."""
        del split
        return []
