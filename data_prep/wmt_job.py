"""Parallel text -> TFRecords, one tf.Example a pair (Vaswani et al. 5.1), as one Beam job.

Lines never pass a shuffle. A scan of each source yields blocks: byte offsets and a count. What Beam groups are these
few numbers; the writer of a shard reads its blocks' bytes itself, tokenises them and writes them in order, so memory
does not grow with the corpus and a rerun gives the same bytes. The subwords are learned in the same job, from a sample
chosen by a stable hash.
"""
import hashlib
import heapq
import json
import os
import tempfile
from collections.abc import Iterator

import apache_beam as beam
import tensorflow as tf
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from data_prep import UserError, records, subwords, text_files
from data_prep.text_files import Block, Source
from data_prep.wmt import LENGTHS, SPLITS, SUBWORDS, Config

_PROBLEMS = 'problems.json'


def run(config: Config, folder: str, argv: list[str]) -> dict:
    """Prepares a parallel corpus.

    Args:
      config: files and settings.
      folder: an empty folder for the data set.
      argv: Beam's own flags, `--runner DataflowRunner …`.

    Returns:
      The manifest.

    Raises:
      UserError: a file is missing, cut short or has other lines than its partner; the corpus is empty; or more records
        than `max_dead_letters` were unreadable. No manifest is written then.
    """
    if config.samples:
        found = _make_samples(config, os.path.join(folder, 'raw'))
    else:
        found = [source for split in SPLITS
                 for source in text_files.sources(split, config.folder, getattr(config, split))]
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        build(pipeline, found, config, folder)
    return _finish(config, folder)


def _make_samples(config: Config, folder: str) -> list[Source]:
    """Makes the demo's corpus, on this machine, and puts it where workers can read it."""
    import babel

    from data_prep import samples
    tf.io.gfile.makedirs(folder)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            made = samples.write_cldr_pairs(scratch, source=config.source, target=config.target)
        except (babel.UnknownLocaleError, ValueError) as error:
            raise UserError(f'data.source {config.source!r} or data.target {config.target!r} is no language CLDR knows '
                            f'({error}); write it as en, de or pt_BR.') from error
        for path in made.values():
            tf.io.gfile.copy(path, os.path.join(folder, os.path.basename(path)), overwrite=True)
    return [Source(split, (os.path.join(folder, os.path.basename(made[split])),), 'tsv') for split in SPLITS]


def build(pipeline: beam.Pipeline, found: list[Source], config: Config, folder: str) -> None:
    """The job's graph."""
    cut = (pipeline
           | 'Sources' >> beam.Create(list(enumerate(found)))
           | 'Spread' >> beam.Reshuffle()
           | 'Scan' >> beam.ParDo(_Scan(config, folder)).with_outputs('problems', main='blocks'))
    vocabulary = (cut.blocks
                  | 'Sample' >> beam.FlatMap(_sample, config)
                  | 'Gather' >> beam.CombineGlobally(_Smallest(config.subword_sample))
                  | 'Learn' >> beam.Map(_learn, config, folder))
    written = (cut.blocks
               | 'Group' >> beam.GroupByKey()  # a few numbers a block, no text
               | 'Write' >> beam.ParDo(_WriteShard(config, folder), beam.pvalue.AsSingleton(vocabulary),
                                       beam.pvalue.AsList(cut.problems)))
    (pipeline
     | 'Once' >> beam.Create([folder])
     | 'Commit' >> beam.Map(_commit, config, beam.pvalue.AsList(written), beam.pvalue.AsList(cut.problems),
                            beam.pvalue.AsSingleton(vocabulary)))


class _Scan(beam.DoFn):
    """(number, source) -> ((split, shard), block)s; a source that cannot be read is a problem, in one sentence."""

    def __init__(self, config: Config, folder: str):
        self.config, self.folder = config, folder

    def process(self, element):
        number, source = element
        try:
            scratch = os.path.join(self.folder, 'unpacked', str(number))
            tf.io.gfile.makedirs(scratch)
            plain = tuple(text_files.unpack(path, scratch) for path in source.files)
            blocks = list(text_files.scan(source, plain, self.config.pairs_per_block, self.config.header))
        except UserError as error:
            return [beam.pvalue.TaggedOutput('problems', str(error))]
        a_shard = max(1, self.config.pairs_per_shard // self.config.pairs_per_block)
        return [((source.split, f'{number:03d}-{i // a_shard:05d}'), block) for i, block in enumerate(blocks)]


def _sample(keyed: tuple[tuple[str, str], Block], config: Config) -> Iterator[list[tuple[int, str, str]]]:
    """The pairs of a training block with the smallest hashes, at most as many as the whole sample may have."""
    (split, _), block = keyed
    if split == 'train':
        pairs = [(_hash(f'{os.path.basename(record.file)}:{record.line}'), record.columns[0], record.columns[1])
                 for record in text_files.read(block)
                 if record.reason is None and all(text.strip() for text in record.columns[:2])]
        yield heapq.nsmallest(config.subword_sample, pairs)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), 'big')


class _Smallest(beam.CombineFn):
    """The n smallest of many sorted lists."""

    def __init__(self, n: int):
        self.n = n

    def create_accumulator(self):
        return []

    def add_input(self, accumulator, element):
        # Only when twice too long is it cut: a sort for every block would cost more than the memory.
        accumulator.extend(element)
        return heapq.nsmallest(self.n, accumulator) if len(accumulator) > 2 * self.n else accumulator

    def merge_accumulators(self, accumulators):
        return heapq.nsmallest(self.n, (pair for accumulator in accumulators for pair in accumulator))

    def extract_output(self, accumulator):
        return heapq.nsmallest(self.n, accumulator)


def _learn(pairs: list[tuple[int, str, str]], config: Config, folder: str) -> bytes:
    """The subword model, or nothing where there is no text (which `_commit` then says)."""
    if not pairs:
        return b''
    try:
        model = subwords.learn((text for pair in pairs for text in pair[1:]), config)
    except UserError as error:
        return b'!' + str(error).encode()
    records.write_atomically(os.path.join(folder, SUBWORDS), model)
    return model


class _WriteShard(beam.DoFn):
    """((split, shard), blocks) -> the shard's manifest entry and counts."""

    def __init__(self, config: Config, folder: str):
        self.config, self.folder = config, folder

    def process(self, element, vocabulary, problems):
        (split, name), blocks = element
        if problems or vocabulary.startswith(b'!') or (not vocabulary and split != 'train'):
            return []  # nothing will be committed; without usable text the training split is still counted
        shard = os.path.join(self.folder, f'Split-{split}', f'part-{name}.tfrecord')
        writer = records.ShardWriter(shard, LENGTHS)
        counts = dict.fromkeys(('read', 'written', 'filtered_empty', 'filtered_long', 'dead_letters'), 0)
        dead: list[dict] = []
        try:
            for block in sorted(blocks, key=lambda block: block.first):
                self._write_block(block, split, vocabulary, writer, counts, dead)
            entry = writer.close()
        except BaseException:
            writer.abandon()
            raise
        if dead:
            path = os.path.join(self.folder, 'dead_letters', f'{split}-{name}.jsonl')
            tf.io.gfile.makedirs(os.path.dirname(path))
            records.write_atomically(path, ''.join(
                json.dumps(letter, ensure_ascii=False) + '\n' for letter in dead).encode())
        for key, value in counts.items():
            Metrics.counter('pairs', f'{split}_{key}').inc(value)
        return [(entry, split, counts)]

    def _write_block(self, block, split, vocabulary, writer, counts, dead):
        good = []
        for record in text_files.read(block):
            counts['read'] += 1
            if record.reason:
                counts['dead_letters'] += 1
                dead.append({'file': record.file, 'line': record.line, 'offset': record.offset,
                             'reason': record.reason})
            elif split == 'train' and not all(text.strip() for text in record.columns[:2]):
                counts['filtered_empty'] += 1
            else:
                good.append(record.columns)
        if not good:
            return
        processor = subwords.processor(vocabulary)
        inputs, targets = ([ids + [subwords.EOS] for ids in processor.encode([row[side] for row in good])]
                           for side in (0, 1))
        for row, source_ids, target_ids in zip(good, inputs, targets):
            if split == 'train' and max(len(source_ids), len(target_ids)) > self.config.max_length:
                counts['filtered_long'] += 1
                continue
            writer.write(_example(row, source_ids, target_ids), inputs=len(source_ids), targets=len(target_ids))
            counts['written'] += 1


def _example(row: tuple[str, ...], inputs: list[int], targets: list[int]) -> bytes:
    texts = {'source': row[0], 'target': row[1], 'kind': row[2] if len(row) > 2 else ''}
    feature = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
               for name, text in texts.items()}
    feature |= {name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
                for name, ids in (('inputs', inputs), ('targets', targets))}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)


def _commit(folder: str, config: Config, written: list, problems: list[str], vocabulary: bytes) -> None:
    """Writes the manifest last of all, or what stands against it."""
    problems = sorted(problems)
    if vocabulary.startswith(b'!'):
        problems.append(vocabulary[1:].decode())
    totals = {split: dict.fromkeys(('read', 'written', 'filtered_empty', 'filtered_long', 'dead_letters'), 0)
              for split in SPLITS}
    for _, split, counts in written:
        for key, value in counts.items():
            totals[split][key] += value
    if not problems:
        problems = _refusals(totals, config)
    if problems:
        records.write_atomically(os.path.join(folder, _PROBLEMS), json.dumps(problems).encode())
        return
    records.write_manifest(folder, [entry for entry, _, _ in written], LENGTHS, totals, {
        'vocabulary': {'size': subwords.processor(vocabulary).get_piece_size(),
                       'sha256': hashlib.sha256(vocabulary).hexdigest()},
        'languages': [config.source, config.target]})


def _refusals(totals: dict[str, dict[str, int]], config: Config) -> list[str]:
    problems = []
    for split, counts in totals.items():
        if counts['dead_letters'] > config.max_dead_letters * max(1, counts['read']):
            problems.append(f'{counts["dead_letters"]:,} of the {counts["read"]:,} {split} records cannot be read, '
                            f'more than data.max_dead_letters {config.max_dead_letters} allows; '
                            'see dead_letters/ for file, line and reason.')
        elif not counts['written']:
            problems.append(f'data.{split} holds no usable pair: {counts["read"]:,} read, '
                            f'{counts["filtered_empty"]:,} empty, {counts["filtered_long"]:,} too long.')
        if problems:
            break
    return problems


def _finish(config: Config, folder: str) -> dict:
    if tf.io.gfile.exists(os.path.join(folder, 'unpacked')):
        tf.io.gfile.rmtree(os.path.join(folder, 'unpacked'))
    path = os.path.join(folder, _PROBLEMS)
    if tf.io.gfile.exists(path):
        with tf.io.gfile.GFile(path, 'rb') as file:
            problems = json.loads(file.read())
        raise UserError(problems[0] + (f' ({len(problems) - 1} more such in {path})' if problems[1:] else ''))
    return records.read_manifest(folder)
