"""Examination papers for a machine that learns by play: positions, and what a perfect player would do there.

What is learned in play needs no training examples, so there are none. By the validation split teaching is followed, by
the test split its result is judged; no position is in both.
"""
import dataclasses
from collections.abc import Callable
from typing import Literal

import tensorflow as tf

from data_prep.core import records
from data_prep.core.input_pipeline import InputConfig
from data_prep.games import board_games

SPLITS = ('validation', 'test')
UNIT = 'positions'
TASK = 'play'
JOB = 'data_prep.games.job'

_VALUES = {1: 'won', 0: 'drawn', -1: 'lost'}


@dataclasses.dataclass
class Config:
    """Which game, with which `options` (see `board_games`), such as `{heaps: 3, highest: 5, most: 5}` of Nim.

    All positions of Nim and noughts and crosses in which there is something to choose are taken; of Go `count`
    positions of random play, less those that repeat. `validation_fraction` of them are for validation, by a hash of the
    position, and the others for the test.
    """
    game: Literal['nim', 'noughts', 'go'] = 'noughts'  # the game whose positions are asked
    options: dict[str, float] = dataclasses.field(default_factory=dict)
    count: int = 1000
    validation_fraction: float = 0.2

    def __post_init__(self):
        board_games.make(self.game, self.options)
        if not 0 < self.validation_fraction < 1:
            raise ValueError('validation_fraction must be between 0 and 1, for there is a test split too; it is '
                             f'{self.validation_fraction}')

    def files(self, split: str) -> list[str]:
        """None: positions follow from the rules."""
        del split
        return []


@dataclasses.dataclass
class Input(InputConfig):
    """How positions become batches."""
    rows: int | None = 256  # positions a batch

    def __post_init__(self):
        if self.buckets or self.tokens:
            raise ValueError('positions have no length: give rows, and neither buckets nor tokens')


def decoder(folder: str, config: Input, training: bool) -> Callable:
    """What makes a batch of records.

    Returns:
      (serialized tf.Examples [n], length, seeds) -> `position` int32 [n, P], as the player to move sees it; `best` bool
      [n, A], the choices of perfect play, and `value` int32 [n], to what they lead: 1 won, 0 drawn, -1 lost. `best` is
      all false where nobody knows, as of Go, and `value` 0. So is all of an empty record.
    """
    del config, training
    game = assets(folder).rules()
    features = {name: tf.io.FixedLenFeature([size], tf.int64, [0] * size)
                for name, size in (('position', game.size), ('best', game.moves))}
    features['value'] = tf.io.FixedLenFeature([], tf.int64, 0)

    def decode(serialized: tf.Tensor, length: tf.Tensor, seeds: tf.Tensor) -> dict[str, tf.Tensor]:
        del length, seeds
        parsed = tf.io.parse_example(serialized, features)
        return {name: tf.cast(column, tf.bool if name == 'best' else tf.int32) for name, column in parsed.items()}
    return decode


@dataclasses.dataclass(frozen=True)
class Assets:
    """What a served model needs of the data: the game, and all of its options."""
    game: str
    options: dict[str, float]

    def rules(self) -> board_games.Game:
        return board_games.make(self.game, self.options)


def assets(folder: str, config: Input | None = None) -> Assets:
    """What a served model needs of the data set."""
    del config
    manifest = records.read_manifest(folder)
    return Assets(manifest['game'], manifest['options'])


def examples(serialized: list[bytes]) -> tuple[list[str], dict[str, list[str]]]:
    """Serialized tf.Examples as people and models see them.

    Returns:
      What a model is asked, texts of positions; and text by column: `source`, the same; `target`, the best moves with a
      space between, empty where nobody knows; `stage_of_game`; and `value`, won, drawn, lost or unknown.
    """
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in ('source', 'target', 'stage_of_game')}
    features['value'] = tf.io.FixedLenFeature([], tf.int64, 2)
    parsed = {name: column.numpy() for name, column in tf.io.parse_example(serialized, features).items()}
    columns = {name: [text.decode() for text in column] for name, column in parsed.items() if name != 'value'}
    columns['value'] = [_VALUES.get(value, 'unknown') for value in parsed['value']]
    return columns['source'], columns
