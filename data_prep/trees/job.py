"""Beam job of treebanks: the job of `text/job.py` over files of trees, one tf.Example per tree.

Only sources, record boundaries and parsing differ; blocks, subwords, shards, duplicates, dead letters and the commit
are those of text.
"""
import os
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from data_prep.core import job, records, text_files
from data_prep.text import job as text_job
from data_prep.trees import substitution, tree_files
from data_prep.trees.schema import SPLITS, Config
from data_prep.trees.tree_files import EXTRA, Block, Source


def run(config: Config, folder: str, argv: list[str]) -> records.Manifest:
    """Prepare a treebank.

    Args:
      config: files and settings.
      folder: an empty folder for the data set.
      argv: Beam's own flags, `--runner DataflowRunner …`.

    Returns:
      The manifest.

    Raises:
      UserError: a source is missing, damaged or without trees; a split is empty; or more records than
        `max_dead_letters` allows are not trees. No manifest is written then.
    """
    tree_files.look_for(sources(config, folder))
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        build(pipeline, config, folder)
    return job.finish(folder)


def build(pipeline: beam.Pipeline, config: Config, folder: str) -> None:
    """Build the job's graph without accessing files."""
    text_job.build(pipeline, config, folder, TREES)


def sources(config: Config, folder: str) -> list[Source]:
    """Return the sources, in the order of the configuration."""
    del folder
    return [Source(split, os.path.join(config.folder, path)) for split in (*SPLITS, EXTRA)
            for path in getattr(config, split)]


def scan(number: int, source: Source, scratch: str, config: Config):
    """Yield a source's blocks, by split and shard. A treebank's files are small, so a shard holds many."""
    for block in tree_files.scan(source, scratch, config):
        yield (block.split, f'{number:03d}-{block.first // config.trees_per_shard:05d}'), block


def read(block: Block, config: Config):
    return (text_files.Record(*found) for found in tree_files.read(block, config))


def further(rows: list[tuple[str, ...]], config: Config) -> Iterator[tuple[str, ...]]:
    """Yield the trees made from those of a training shard: words, linear form and kind."""
    pairs = [substitution.Pair(*(tuple(text.split(' ')) for text in row[:2])) for row in rows]
    for words, tokens in substitution.substituted(pairs, config.substitutions):
        yield ' '.join(words), ' '.join(tokens), tree_files.kind(len(words))


def properties(config: Config) -> dict:
    """Return the manifest's properties of the trees."""
    return {'tags': config.tags}


TREES = text_job.Files(sources, scan, read, properties, further)
