"""Examination papers for a machine that learns by play: positions, and what a perfect player would do there.

What is learned in play needs no training examples, so there are none. By the validation split teaching is followed, by
the test split its result is judged; no position is in both.
"""
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable
from typing import Literal

import tensorflow as tf

from data_prep import board_games, job, records, splits
from data_prep.input_pipeline import InputConfig

SPLITS = ('validation', 'test')
UNIT = 'positions'

_VALUES = {1: 'won', 0: 'drawn', -1: 'lost'}
_COUNTS = ('read', 'written', 'filtered_repeated', 'dead_letters')
_BLOCK = 1000  # positions found together
_SHARD = 10_000
_Key = tuple[str, int]  # split, shard


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


def prepare(config: Config, folder: str, argv: list[str]) -> dict:
    """Prepares the positions of a game.

    Args:
      folder: an empty folder for the data set.
      argv: Beam's own flags, `--runner DataflowRunner …`.

    Returns:
      The manifest.

    Raises:
      UserError: there are too few positions for two splits. No manifest is written then.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        build(pipeline, config, folder)
    return job.finish(folder)


def build(pipeline, config: Config, folder: str) -> None:
    """Adds the job's steps to a Beam pipeline.

    Texts of positions are dealt to shards by a stable hash, so those that repeat meet; a shard's writer looks up what
    is best and writes in the order of the hash. A rerun gives the same bytes.
    """
    import apache_beam as beam
    packs = (pipeline
             | 'Blocks' >> beam.Create(_blocks(config))
             | 'Spread' >> beam.Reshuffle()
             | 'Find' >> beam.FlatMap(_find, config))
    totals = packs | 'Count' >> beam.Map(splits.count) | 'Total' >> beam.CombinePerKey(sum)
    written = (packs
               | 'Deal' >> beam.FlatMap(splits.deal, _SHARD, _place, beam.pvalue.AsDict(totals))
               | 'Group' >> beam.GroupByKey()
               | 'Write' >> beam.Map(_write, config, folder))
    (pipeline
     | 'Once' >> beam.Create([folder])
     | 'Commit' >> beam.Map(_commit, config, beam.pvalue.AsList(written)))


def _blocks(config: Config) -> list[tuple[int, int]]:
    """All positions by their numbers: (first, last + 1)."""
    count = len(board_games.make(config.game, config.options).solve()) or config.count
    return [(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]


def _find(block: tuple[int, int], config: Config) -> list[splits.Pack]:
    """The texts of the positions with these numbers, in a pack for each split."""
    game = board_games.make(config.game, config.options)
    positions = (map(game.drawn, range(*block)) if isinstance(game, board_games.Go) else
                 sorted(game.solve())[slice(*block)])
    packs: dict[str, list[str]] = {split: [] for split in SPLITS}
    for text in map(game.write, positions):
        held_out = splits.order(text)[0] / (1 << 64) < config.validation_fraction
        packs['validation' if held_out else 'test'].append(text)
    return [(split, (len(texts), splits.pack(texts))) for split, texts in packs.items() if texts]


def _place(text: str) -> int:
    return splits.order(text)[1]


def _write(element: tuple[_Key, Iterable[bytes]], config: Config, folder: str) -> tuple[dict, str, dict[str, int]]:
    """((split, shard), texts) -> the shard's manifest entry and counts."""
    (split, number), packs = element
    game = board_games.make(config.game, config.options)
    texts = list(itertools.chain(*map(splits.unpack, packs)))
    once = sorted(set(texts), key=lambda text: (_place(text), text))
    writer = records.ShardWriter(os.path.join(folder, f'Split-{split}', f'part-{number:05d}.tfrecord'))
    try:
        for text in once:
            writer.write(_example(game, text))
        entry = writer.close()
    except BaseException:
        writer.abandon()
        raise
    return entry, split, {'read': len(texts), 'written': len(once), 'filtered_repeated': len(texts) - len(once)}


def _example(game: board_games.Game, text: str) -> bytes:
    """A position as its text tells it, so that nobody is asked about what he cannot see."""
    position = game.read(text)
    best, value = game.best(position), game.value(position)
    numbers = {'position': position, 'best': [move in best for move in range(game.moves)],
               'value': [] if value is None else [value]}
    texts = {'source': text, 'target': ' '.join(map(game.name, best)), 'stage_of_game': game.stage(position)}
    feature = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=value))
               for name, value in numbers.items() if value}
    feature |= {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
                for name, value in texts.items()}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)


def _commit(folder: str, config: Config, written: list[tuple[dict, str, dict[str, int]]]) -> None:
    """Writes the manifest last of all, or what stands against it."""
    totals = job.total({split: dict.fromkeys(_COUNTS, 0) for split in SPLITS}, (part[1:] for part in written))
    for split, counts in totals.items():
        if not counts['written']:
            found = sum(counts['written'] for counts in totals.values())
            return job.refuse(folder, [f'data.validation_fraction {config.validation_fraction} leaves no position for '
                                       f'{split}, of {found:,}; give another, or a larger game.'])
    game = board_games.make(config.game, config.options)
    job.commit(folder, [entry for entry, *_ in written], (), totals, {
        'game': config.game, 'options': dataclasses.asdict(game), 'categories': ['stage_of_game', 'value'],
        'binary': ['source', 'target']})  # which `position` and `best` say in numbers


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
