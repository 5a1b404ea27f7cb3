"""Examinations for a machine that learns by play: positions, and the moves of a perfect player.

Play needs no training examples, so there are none. The validation split measures progress during teaching, the test
split the result; no position is in both.
"""
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from data_prep.core import records
from data_prep.core.input_pipeline import InputConfig
from data_prep.games import board_games
from data_prep.games.schema import SPLITS, Config  # noqa: F401 (the names of a data module)

UNIT = 'positions'
TASK = 'play'
JOB = 'data_prep.games.job'

_VALUES = {1: 'won', 0: 'drawn', -1: 'lost'}


@dataclasses.dataclass
class Input(InputConfig):
    """How positions become batches."""
    rows: int | None = 256  # positions per batch

    def __post_init__(self):
        if self.buckets or self.tokens:
            raise ValueError('positions have no length; give rows, and neither buckets nor tokens')


def decoder(folder: str, config: Input, training: bool) -> Callable:
    """Return the function that decodes a batch of records.

    Returns:
      (serialized tf.Examples [n], length, seeds) -> `position` int32 [n, P], from the view of the player to move;
      `best` bool [n, A], the moves of perfect play; and `value` int32 [n], their result: 1 won, 0 drawn, -1 lost. If
      perfect play is unknown, as in Go, `best` is all false and `value` 0. An empty record gives zeros.
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
    """Parts of the data set a served model needs: the game and all of its options."""
    game: str
    options: dict[str, float]

    def rules(self) -> board_games.Game:
        return board_games.make(self.game, self.options)


def assets(folder: str, config: Input | None = None) -> Assets:
    """Return the parts of the data set a served model needs."""
    del config
    facts = records.read_manifest(folder).properties
    return Assets(facts['game'], facts['options'])


def examples(serialized: list[bytes]) -> tuple[list[str], dict[str, list[str]]]:
    """Convert serialized tf.Examples to model inputs and text for people.

    Returns:
      Inputs of a model, texts of positions; and text by column: `source`, the same; `target`, the best moves separated
      by spaces, empty if unknown; `stage_of_game`; and `value`, won, drawn, lost or unknown.
    """
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in ('source', 'target', 'stage_of_game')}
    features['value'] = tf.io.FixedLenFeature([], tf.int64, 2)
    parsed = {name: column.numpy() for name, column in tf.io.parse_example(serialized, features).items()}
    columns = {name: [text.decode() for text in column] for name, column in parsed.items() if name != 'value'}
    columns['value'] = [_VALUES.get(value, 'unknown') for value in parsed['value']]
    return columns['source'], columns
