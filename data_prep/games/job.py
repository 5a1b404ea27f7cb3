"""Beam job of `data_prep.examination`: positions of a game -> TFRecords, one tf.Example per position."""
import dataclasses
import itertools
import os
from collections.abc import Iterable

import apache_beam as beam
import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from data_prep.core import job, records, splits
from data_prep.games import board_games
from data_prep.games.schema import SPLITS, Config

_COUNTS = ('read', 'written', 'filtered_repeated', 'dead_letters')
_BLOCK = 1000  # positions per element
_SHARD = 10_000
_Key = tuple[str, int]  # split, shard


def run(config: Config, folder: str, argv: list[str]) -> records.Manifest:
    """Prepare the positions of a game.

    Args:
      folder: an empty folder for the data set.
      argv: Beam's own flags, `--runner DataflowRunner …`.

    Returns:
      The manifest.

    Raises:
      UserError: there are too few positions for two splits; no manifest is written.
    """
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        build(pipeline, config, folder)
    return job.finish(folder)


def build(pipeline, config: Config, folder: str) -> None:
    """Add the job's steps to a Beam pipeline.

    Texts of positions are dealt to shards by a stable hash, so repetitions meet in one shard. A shard's writer looks up
    the best moves and writes in the order of the hash. A rerun gives the same bytes.
    """
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
    """Return ranges of all positions by number: (first, last + 1)."""
    count = len(board_games.make(config.game, config.options).solve()) or config.count
    return [(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]


def _find(block: tuple[int, int], config: Config) -> list[splits.Pack]:
    """Return the texts of the positions with these numbers, in a pack for each split."""
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
    """Write a shard, ((split, shard), texts); return its manifest entry and counts."""
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
    """Return a position as its text describes it, without the history that the text omits."""
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
    """Write the manifest last, or the problems."""
    totals = job.total({split: dict.fromkeys(_COUNTS, 0) for split in SPLITS}, (part[1:] for part in written))
    for split, counts in totals.items():
        if not counts['written']:
            found = sum(counts['written'] for counts in totals.values())
            return job.refuse(folder, [f'data.validation_fraction {config.validation_fraction} leaves no position for '
                                       f'{split}, of {found:,}. Give another, or a larger game.'])
    game = board_games.make(config.game, config.options)
    job.commit(folder, [entry for entry, *_ in written], (), totals, {
        'game': config.game, 'options': dataclasses.asdict(game), 'categories': ['stage_of_game', 'value'],
        'binary': ['source', 'target']})  # `position` and `best` hold the same as numbers
