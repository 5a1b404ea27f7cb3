"""Beam job of parallel text: lines -> TFRecords, one tf.Example per pair (Vaswani et al. 5.1).

Lines are never shuffled. A scan of each source yields blocks: byte offsets and a count. Beam groups only these few
numbers; a shard's writer reads its blocks' bytes itself, tokenises them and writes them in order, so memory does not
grow with the corpus and a rerun gives the same bytes. The subwords are learned in the same job, from a sample chosen by
a stable hash. Duplicates are found by hashes of the held-out pairs, which every writer receives whole.
"""
import contextlib
import gc
import hashlib
import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import tensorflow as tf
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from data_prep import UserError
from data_prep.core import job, records, splits, text_files, threads
from data_prep.core.text_files import Block, Record, Source
from data_prep.text import examples, subwords
from data_prep.text.schema import LENGTHS, SPLITS, SUBWORDS, Config

HELD_OUT = 4  # a split-off example may have so many times `max_length` subwords
_COUNTS = ('read', 'written', 'filtered_empty', 'filtered_duplicate', 'filtered_long', 'dead_letters')


def run(config: Config, folder: str, argv: list[str]) -> records.Manifest:
    """Prepare a parallel corpus.

    Args:
      config: files and settings.
      folder: an empty folder for the data set.
      argv: Beam's own flags, `--runner DataflowRunner …`.

    Returns:
      The manifest.

    Raises:
      UserError: a file is missing, truncated or has another number of lines than its partner; the corpus is empty; or
        more records than `max_dead_letters` allows are unreadable. No manifest is written then.
    """
    if config.samples:
        _make_samples(config, os.path.join(folder, 'raw'))
    text_files.look_for(sources(config, folder))
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        build(pipeline, config, folder)
    return job.finish(folder)


def sources(config: Config, folder: str) -> list[Source]:
    """Return the sources; those of `samples` are files in the data set's folder."""
    if config.samples:
        return [Source(split, (os.path.join(folder, 'raw', f'{split}.tsv'),), 'tsv') for split in SPLITS]
    return [source for split in SPLITS for source in text_files.sources(split, config.folder, getattr(config, split))]


def _make_samples(config: Config, folder: str) -> None:
    """Generate the demo's corpus on this machine, and put it where workers can read it."""
    import babel

    from data_prep.text import samples
    tf.io.gfile.makedirs(folder)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            made = samples.write_cldr_pairs(scratch, source=config.source, target=config.target)
        except (babel.UnknownLocaleError, ValueError) as error:
            raise UserError(f'data.source {config.source!r} or data.target {config.target!r} is not a language of CLDR '
                            f'({error}). Write it like en, de or pt_BR.') from error
        for split, path in made.items():
            tf.io.gfile.copy(path, os.path.join(folder, f'{split}.tsv'), overwrite=True)


class Files(NamedTuple):
    """Functions that turn raw files into records; `trees.job` substitutes its own.

    A block has `first` and `records`; a record is a `text_files.Record`: source, target and possibly kind.

    Attributes:
      sources: (config, folder) -> sources, without accessing them.
      scan: (number, source, an empty folder, config) -> ((split, shard), block)s; raises `UserError`.
      read: (block, config) -> its records.
      properties: (config) -> further properties of the manifest.
      further: (rows of a training shard, config) -> rows to train with that are made from them.
    """
    sources: Callable[[Any, str], list]
    scan: Callable[[int, Any, str, Any], Iterable[tuple[tuple[str, str], Any]]]
    read: Callable[[Any, Any], Iterator[Record]]
    properties: Callable[[Any], dict]
    further: Callable[[list[tuple[str, ...]], Any], Iterable[tuple[str, ...]]] | None = None


def _scan(number: int, source: Source, scratch: str, config: Config) -> Iterator[tuple[tuple[str, str], Block]]:
    plain = text_files.unpack(source, scratch)
    a_shard = max(1, config.pairs_per_shard // config.pairs_per_block)
    taken = {source.split, *(split for split in SPLITS if source.split == 'train' and splits.fraction(config, split))}
    for i, block in enumerate(text_files.scan(source, plain, config.pairs_per_block, config.header,
                                             config.columns)):
        for split in sorted(taken):  # every split reads the same lines and keeps its own
            yield (split, f'{number:03d}-{i // a_shard:05d}'), block._replace(source=source._replace(split=split))


def _read_pairs(block: Block, config: Config) -> Iterator[Record]:
    """Return the records of a block that belong to its split."""
    found, split = text_files.read(block, config.columns), block.source.split
    if splits.fraction(config, split) or (split == 'train' and any(splits.fraction(config, other) for other in SPLITS)):
        found = (record for record in found
                 if splits.split_of(config, 'train', splits.order(_about(record))[0]) == split)
    if config.train_fraction < 1:  # otherwise nothing is asked of each record
        found = (record for record in found if not splits.is_left_out(config, split, _about(record)))
    return found


def _about(record: Record) -> str:
    """Return the text whose hash decides a record's split: its source, or its location if it cannot be read."""
    return record.columns[0].strip() if record.columns else f'{os.path.basename(record.file)}:{record.line}'


def _languages(config: Config) -> dict:
    return {'languages': [config.source, config.target]}


PAIRS = Files(sources, _scan, _read_pairs, _languages)


def build(pipeline: beam.Pipeline, config: Any, folder: str, files: Files = PAIRS) -> None:
    """Build the job's graph without accessing files."""
    cut = (pipeline
           | 'Sources' >> beam.Create(list(enumerate(files.sources(config, folder))))
           | 'Spread' >> beam.Reshuffle()
           | 'Scan' >> beam.ParDo(_Scan(config, folder, files)).with_outputs('problems', main='blocks'))
    shards = cut.blocks | 'Group' >> beam.GroupByKey()  # a few numbers per block, no text
    once = pipeline | 'Once' >> beam.Create([folder])
    if config.subword_model:
        vocabulary = once | 'Take' >> beam.Map(_take, config)
    else:
        total = cut.blocks | 'Count' >> beam.Map(_training_pairs) | 'Total' >> beam.CombineGlobally(sum)
        samples = shards | 'Sample' >> beam.FlatMap(_sample, config, folder, files, beam.pvalue.AsSingleton(total))
        vocabulary = once | 'Learn' >> beam.Map(_learn, config, beam.pvalue.AsList(samples))
    held_out = cut.blocks | 'Hash held-out' >> beam.FlatMap(_hash_held_out, config, files)
    written = (shards
               | 'Write' >> beam.ParDo(_WriteShard(config, folder, files), beam.pvalue.AsSingleton(vocabulary),
                                       beam.pvalue.AsList(held_out), beam.pvalue.AsList(cut.problems)))
    (once
     | 'Commit' >> beam.Map(_commit, config, files, beam.pvalue.AsList(written), beam.pvalue.AsList(cut.problems),
                            beam.pvalue.AsSingleton(vocabulary)))


class _Scan(beam.DoFn):
    """Scan a source into ((split, shard), block)s; an unreadable source is reported as a problem, one sentence."""

    def __init__(self, config: Any, folder: str, files: Files):
        self.config, self.folder, self.files = config, folder, files

    def process(self, element):
        number, source = element
        try:
            scratch = os.path.join(self.folder, 'unpacked', str(number))
            tf.io.gfile.makedirs(scratch)
            return list(self.files.scan(number, source, scratch, self.config))
        except UserError as error:
            return [beam.pvalue.TaggedOutput('problems', str(error))]


def _training_pairs(keyed: tuple[tuple[str, str], Block]) -> int:
    (split, _), block = keyed
    return block.records if split == 'train' else 0


def _sample(keyed: tuple[tuple[str, str], Iterable[Block]], config: Any, folder: str, files: Files, total: int
            ) -> Iterator[str]:
    """Write a training shard's part of the sample for subwords, and yield its path.

    A pair is sampled if its hash is in the lowest `subword_sample / total`, so the sample has about that size.
    """
    (split, name), blocks = keyed
    bound = round((1 << 56) * min(1, config.subword_sample / max(1, total)))
    lines = [text for block in sorted(blocks, key=lambda block: block.first) if split == 'train'
             for record in files.read(block, config)
             if record.reason is None and _has_text(record.columns)
             and _hash(f'{os.path.basename(record.file)}:{record.line}') < bound for text in record.columns[:2]]
    if lines:
        path = os.path.join(folder, 'sample', f'{name}.txt')
        tf.io.gfile.makedirs(os.path.dirname(path))
        records.write_atomically(path, ('\n'.join(lines) + '\n').encode())
        yield path


def _has_text(columns: tuple[str, ...]) -> bool:
    return all(text.strip() for text in columns[:2])


def _hash(text: str, size: int = 7) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), 'big')


def _pair_hashes(rows: list[tuple[str, ...]]) -> np.ndarray:
    """Return a uint64 for each pair, equal for equal text; surrounding white space is ignored."""
    return np.array([_hash(f'{row[0].strip()}\0{row[1].strip()}', 8) for row in rows], np.uint64)


def _hash_held_out(keyed: tuple[tuple[str, str], Block], config: Any, files: Files) -> Iterator[tuple[str, bytes]]:
    """Yield the hashes of a held-out block's pairs, 8 bytes each."""
    (split, _), block = keyed
    if split != 'train':
        yield split, _pair_hashes([record.columns for record in files.read(block, config)
                                   if record.reason is None and _has_text(record.columns)]).tobytes()


def _new_counts(split: str) -> dict[str, int]:
    """Return zero counts; `in_<other>` counts pairs that are also in a split further from training."""
    return dict.fromkeys([*_COUNTS, *(f'in_{other}' for other in SPLITS[SPLITS.index(split) + 1:])], 0)


def _learn(folder: str, config: subwords.Config, samples: list[str]) -> bytes:
    """Return the subword model, or nothing if there is no text (which `_commit` reports)."""
    if not samples:
        return b''
    try:
        model = subwords.learn(_lines(sorted(samples)), config)
    except UserError as error:
        return b'!' + str(error).encode()
    records.write_atomically(os.path.join(folder, SUBWORDS), model)
    return model


def _lines(paths: list[str]) -> Iterator[str]:
    for path in paths:
        with tf.io.gfile.GFile(path) as file:
            for line in file:
                yield line.rstrip('\n')


def _take(folder: str, config: subwords.Config) -> bytes:
    """Return the subword model of an earlier data set, in the form of `_learn`."""
    path = config.subword_model
    try:
        with tf.io.gfile.GFile(path, 'rb') as file:
            model = file.read()
        size = len(subwords.pieces(model))
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        return f'!data.subword_model: {path} is not a subword model ({str(error).splitlines()[0]}).'.encode()
    if size > config.vocab_size:
        return f'!data.vocab_size {config.vocab_size} is below the {size} pieces of {path}. Give {size}.'.encode()
    records.write_atomically(os.path.join(folder, SUBWORDS), model)
    return model


class _WriteShard(beam.DoFn):
    """Write a shard, ((split, shard), blocks); yield its manifest entry and counts."""

    def __init__(self, config: Any, folder: str, files: Files):
        self.config, self.folder, self.files = config, folder, files

    def process(self, element, vocabulary, held_out, problems):
        (split, name), blocks = element
        if problems or vocabulary.startswith(b'!') or (not vocabulary and split != 'train'):
            return []  # nothing will be committed; the training split is still counted without usable text
        writer = records.ShardWriter(os.path.join(self.folder, f'Split-{split}', f'part-{name}.tfrecord'), LENGTHS)
        counts, dead = _new_counts(split), []
        hashes = {other: np.unique(np.frombuffer(b''.join(part for whose, part in held_out if whose == other),
                                                 np.uint64))
                  for other in SPLITS if f'in_{other}' in counts}

        def encode(rows):
            sides = [[row[side] for row in rows] for side in (0, 1)]
            return subwords.versions(vocabulary, sides, self.config, split == 'train')
        try:
            found = (self._repeated(split, rows, hashes, counts) for rows in self._rows(split, blocks, counts, dead))
            with _without_collecting():
                # SentencePiece releases the interpreter lock: a block is encoded while the previous one is written.
                for rows, ids in threads.in_order(encode, filter(None, found), threads=1, max_waiting=2):
                    self._write(split, rows, ids, writer, counts)
            entry = writer.close()
        except BaseException:
            writer.abandon()
            raise
        job.write_letters(self.folder, f'{split}-{name}', dead)
        for key, value in counts.items():
            Metrics.counter('pairs', f'{split}_{key}').inc(value)
        return [(entry, split, counts)]

    def _rows(self, split, blocks, counts, dead):
        """Yield the usable rows of every block, and those that are made from all of them."""
        known = []
        for block in sorted(blocks, key=lambda block: block.first):
            rows = _usable(self.files.read(block, self.config), split, counts, dead)
            yield rows
            known += rows if self.files.further and split == 'train' else []
        if known:
            further = iter(self.files.further(known, self.config))
            while rows := list(itertools.islice(further, 2000)):
                counts['made'] = counts.get('made', 0) + len(rows)
                yield rows

    def _repeated(self, split, rows, hashes, counts):
        """Count pairs that are also held out, and remove them from the training rows if configured."""
        own = _pair_hashes(rows) if hashes else np.array([], np.uint64)
        repeated = np.zeros(len(rows), bool)
        for other, theirs in hashes.items():
            found = np.isin(own, theirs)
            counts[f'in_{other}'] += int(found.sum())
            repeated |= found
        if split != 'train' or not self.config.remove_duplicates:
            return rows
        counts['filtered_duplicate'] += int(repeated.sum())
        return [row for row, again in zip(rows, repeated) if not again]

    def _write(self, split, rows, ids, writer, counts):
        serialize, longest = examples.serializer(), _longest(self.config, split)
        if len(ids) > 1:
            counts['made'] = counts.get('made', 0) + (len(ids) - 1) * len(rows)
        for row, inputs, targets in (each for sides in ids for each in zip(rows, *sides)):
            if max(len(inputs), len(targets)) > longest:
                counts['filtered_long'] += 1
                continue
            writer.write(serialize(row, inputs, targets), inputs=len(inputs), targets=len(targets))
            counts['written'] += 1


def _longest(config: Any, split: str) -> float:
    """Return the most subwords of a side in a split.

    Attention takes memory by their square: a validation batch of one line of 10,000 subwords, split off from training,
    would take 13 GB. A given split keeps every pair.
    """
    if split == 'train':
        return config.max_length
    return HELD_OUT * config.max_length if splits.fraction(config, split) else math.inf


@contextlib.contextmanager
def _without_collecting():
    """Disable garbage collection: writing creates no cycles, and the search took 6 of 50 microseconds per pair."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _usable(found: Iterable[Record], split: str, counts: dict[str, int], dead: list[dict]) -> list[tuple[str, ...]]:
    """Return the columns of usable records; count the others, and add unreadable ones to `dead`."""
    rows = []
    for record in found:
        counts['read'] += 1
        if record.reason:
            counts['dead_letters'] += 1
            dead.append({'file': record.file, 'line': record.line, 'offset': record.offset, 'reason': record.reason})
        elif split == 'train' and not _has_text(record.columns):
            counts['filtered_empty'] += 1
        else:
            rows.append(record.columns)
    return rows


def _commit(folder: str, config: Any, files: Files, written: list, problems: list[str], vocabulary: bytes) -> None:
    """Write the manifest last, or the problems."""
    problems = sorted(problems)
    if vocabulary.startswith(b'!'):
        problems.append(vocabulary[1:].decode())
    totals = job.total({split: _new_counts(split) for split in SPLITS}, (part[1:] for part in written))
    if not problems:
        problems = _refusals(totals, config)
    if problems:
        return job.refuse(folder, problems)
    job.commit(folder, [entry for entry, _, _ in written], LENGTHS, totals, {
        'vocabulary': {'size': len(subwords.pieces(vocabulary)),
                       'sha256': hashlib.sha256(vocabulary).hexdigest()},
        **files.properties(config)})


def _refusals(totals: dict[str, dict[str, int]], config: Config) -> list[str]:
    problems = []
    for split, counts in totals.items():
        if job.too_many(counts, config.max_dead_letters):
            problems.append(f'{counts["dead_letters"]:,} of the {counts["read"]:,} {split} records cannot be read, '
                            f'more than data.max_dead_letters {config.max_dead_letters} allows. '
                            'See dead_letters/ for file, line and reason.')
        elif not counts['written']:
            problems.append(f'data.{split} holds no usable pair: {counts["read"]:,} read, '
                            f'{counts["filtered_empty"]:,} empty, {counts["filtered_duplicate"]:,} also held out, '
                            f'{counts["filtered_long"]:,} too long.')
        if problems:
            break
    return problems
