"""Pairs files and the images they name -> TFRecords, one tf.Example a pair (Choi et al. 2021, 3.1), as one Beam job.

Images never pass a shuffle. A scan of each pairs file yields names; those are dealt to shards by a stable hash, and a
shard's writer reads the files itself, checks them against each other (`sample_reader.py`) and writes the samples in the
order of the hash. So memory does not grow with the images, and a rerun gives the same bytes. People in two splits are
found afterwards by the hashes of their images.
"""
import dataclasses
import functools
import hashlib
import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import tensorflow as tf
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from data_prep import UserError
from data_prep.core import job, records, splits, threads
from data_prep.core.files import NOT_THERE
from data_prep.people import pairs_files, sample_reader
from data_prep.people.schema import SPLITS, Config

COUNTS = ('read', 'written', 'filtered_not_worn', 'filtered_repeated', 'dead_letters', 'drawn_pose')
_PARTS = 64  # in which hashes are compared


class Item(NamedTuple):
    """A pair of files below `root`. Without a garment it is the one the person wears."""
    root: str
    person: str
    garment: str
    group: str = ''


class Source(NamedTuple):
    """A pairs file, and its number in its split."""
    split: str
    number: int
    path: str


def run(config: Config, folder: str, argv: list[str]) -> records.Manifest:
    """Prepare a try-on data set.

    Args:
      config: files and settings.
      folder: an empty folder for the data set.
      argv: Beam's own flags, `--runner DataflowRunner …`.

    Returns:
      The manifest.

    Raises:
      UserError: a pairs file or a folder is missing, a split holds no usable pair, or more pairs than
        `max_dead_letters` cannot be used. No manifest is written then.
    """
    if config.samples:
        _make_samples(config, os.path.join(folder, 'raw'))
    for source in sources(_with_samples(config, folder)):
        if not tf.io.gfile.exists(source.path):
            raise UserError(f'data.{source.split}: there is no file {source.path}.' + NOT_THERE)
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        build(pipeline, config, folder)
    return job.finish(folder)


def sources(config: Config) -> list[Source]:
    """Return the pairs files the configuration names, whether or not they exist."""
    return [Source(split, number, os.path.join(config.folder, path))
            for split in SPLITS for number, path in enumerate(getattr(config, split))]


def _with_samples(config: Config, folder: str) -> Config:
    """Return the configuration in terms of files; generated ones are in the data set's folder."""
    if not config.samples:
        return config
    from data_prep.people import sample_people
    return dataclasses.replace(config, samples='', folder=os.path.join(folder, 'raw'), **sample_people.FILES,
                               validation_fraction=config.validation_fraction or 0.1)


def _make_samples(config: Config, folder: str) -> None:
    """Draw the demo's people on this machine and copy them to where workers can read them."""
    from data_prep.people import sample_people
    with tempfile.TemporaryDirectory() as scratch:
        train, test = config.samples_count
        height, width = config.samples_size
        sample_people.write_people(scratch, train, test, (height, width), held_out=config.samples_held_out)
        for here, _, names in os.walk(scratch):
            there = os.path.join(folder, os.path.relpath(here, scratch))
            tf.io.gfile.makedirs(there)
            for name in names:
                tf.io.gfile.copy(os.path.join(here, name), os.path.join(there, name), overwrite=True)


def build(pipeline: beam.Pipeline, config: Config, folder: str) -> None:
    """Build the job's graph; no file is opened."""
    config = _with_samples(config, folder)
    cut = (pipeline
           | 'Sources' >> beam.Create(sources(config))
           | 'Spread' >> beam.Reshuffle()
           | 'Scan' >> beam.ParDo(_Scan(config, folder)).with_outputs('problems', 'counts', main='packs'))
    totals = cut.packs | 'Count' >> beam.Map(splits.count) | 'Total' >> beam.CombinePerKey(sum)
    problems = beam.pvalue.AsList(cut.problems)
    written = (cut.packs
               | 'Deal' >> beam.FlatMap(splits.deal, config.pairs_per_shard, _number, beam.pvalue.AsDict(totals))
               | 'Group' >> beam.GroupByKey()  # of names
               | 'Write' >> beam.ParDo(_WriteShard(config, folder), problems)
               .with_outputs('counts', 'people', main='shards'))
    repeats = (written.people
               | 'Group people' >> beam.GroupByKey()  # of hashes
               | 'Find repeats' >> beam.FlatMap(_repeats))
    counts = [cut.counts, written.counts, repeats] | 'All counts' >> beam.Flatten()
    (pipeline
     | 'Once' >> beam.Create([folder])
     | 'Commit' >> beam.Map(_commit, config, beam.pvalue.AsList(written.shards), beam.pvalue.AsList(counts), problems))


def _place(item: Item) -> tuple[int, Item]:
    return splits.order(f'{item.person}/{item.garment}')[1], item


class _Scan(beam.DoFn):
    """Source -> packs of items; a file that cannot be read becomes a problem, in one sentence."""

    def __init__(self, config: Config, folder: str):
        self.config, self.folder = config, folder

    def process(self, source):
        try:
            yield from self._scan(source)
        except UserError as error:
            yield beam.pvalue.TaggedOutput('problems', f'data.{source.split}: {error}')

    def _scan(self, source):
        root = pairs_files.root(source.path)
        pairs_files.folders(root)
        packs: dict[str, list] = {split: [] for split in SPLITS}
        letters = []
        for pair in pairs_files.pairs(source.path):
            if pair.reason:
                if splits.is_left_out(self.config, source.split, f'line {pair.line}'):
                    continue
                letters.append({'file': source.path, 'line': pair.line, 'reason': pair.reason})
                continue
            split = splits.split_of(self.config, source.split, splits.order(pair.person)[0])
            if splits.is_left_out(self.config, split, pair.person):
                continue
            as_worn = source.split == 'test' and self.config.pairing == 'paired'
            packs[split].append(Item(root, pair.person, '' if as_worn else pair.garment, pair.group))
            if len(packs[split]) == self.config.pairs_per_block:
                yield split, (len(packs[split]), splits.pack(packs[split]))
                packs[split] = []
        yield from ((split, (len(pack), splits.pack(pack))) for split, pack in packs.items() if pack)
        if letters:
            job.write_letters(self.folder, f'{source.split}-scan-{source.number:03d}', letters)
            yield beam.pvalue.TaggedOutput('counts', (source.split, {'read': len(letters),
                                                                     'dead_letters': len(letters)}))


def _number(item: list) -> int:
    return _place(Item(*item))[0]


class _WriteShard(beam.DoFn):
    """((split, shard), items) -> the shard's manifest entry, its counts and the hashes of its people."""

    def __init__(self, config: Config, folder: str):
        self.config, self.folder = config, folder

    def process(self, element, problems):
        if not problems:  # else nothing will be committed
            yield from self._write(*element)

    def _write(self, key, packs):
        split, number = key
        name = f'part-{number:05d}'
        writer = records.ShardWriter(os.path.join(self.folder, f'Split-{split}', f'{name}.tfrecord'))
        shard = _Shard(self.config, split)
        items = sorted(map(Item._make, itertools.chain(*map(splits.unpack, packs))), key=_place)
        try:
            for record in shard.records(items):
                writer.write(record)
            yield writer.close()
        except BaseException:
            writer.abandon()
            raise
        job.write_letters(self.folder, f'{split}-{name}', shard.letters)
        for key, value in shard.counts.items():
            Metrics.counter('images', f'{split}_{key}').inc(value)
        yield beam.pvalue.TaggedOutput('counts', (split, shard.counts))
        for part, hashes in itertools.groupby(sorted(shard.people), key=lambda digest: int(digest[:2], 16) % _PARTS):
            yield beam.pvalue.TaggedOutput('people', (part, (split, splits.pack(list(hashes)))))


class _Shard:
    """Make a shard's records; collect counts, dead letters and the hashes of people's images."""

    def __init__(self, config: Config, split: str):
        self._config, self._split = config, split
        self._folders = functools.cache(pairs_files.folders)
        self.counts = dict.fromkeys(COUNTS, 0)
        self.letters: list[dict] = []
        self.people: list[str] = []

    def records(self, items: list[Item]) -> Iterator[bytes]:
        """Yield serialized tf.Examples of the usable items, in their order."""
        self.counts['read'] += len(items)
        items = [item for item, repeated in itertools.groupby(items) if self._wanted(item, len(list(repeated)))]
        for item, (garment, made) in threads.in_order(self._make, items):
            if isinstance(made, pairs_files.Refused):
                self.counts['dead_letters'] += 1
                self.letters.append({'file': made.path, 'offset': 0, 'person': item.person, 'garment': garment,
                                     'reason': made.reason})
                continue
            self.counts['written'] += 1
            self.counts['drawn_pose'] += made.drawn
            self.people.append(hashlib.blake2b(made.image, digest_size=16).hexdigest())
            worn = pairs_files.is_worn(item.person, item.garment)
            yield sample_reader.example(made, item.person, garment, worn, item.group)

    def _wanted(self, item: Item, times: int) -> bool:
        """Return whether an item listed `times` times is used; count what is not."""
        wanted = self._split == 'test' or pairs_files.is_worn(item.person, item.garment)
        self.counts['filtered_repeated' if wanted else 'filtered_not_worn'] += times - wanted
        return wanted

    def _make(self, item: Item) -> tuple[str, sample_reader.Sample | pairs_files.Refused]:
        """Return the garment's name, and the sample or why there is none."""
        folders = self._folders(item.root)
        garment = item.garment or pairs_files.garment_of(folders, item.person)
        try:
            files = pairs_files.read(folders, item.person, garment)
            return garment, sample_reader.sample(files, self._config.padding, self._config.max_pixels,
                                                self._config.agnostic)
        except pairs_files.Refused as refused:
            return garment, refused


def _repeats(part: tuple[int, Iterable[tuple[str, bytes]]]) -> Iterator[tuple[str, dict[str, int]]]:
    """Count the samples of a split whose person is also in a later split: (split, counts)."""
    hashes: dict[str, list[str]] = {split: [] for split in SPLITS}
    for split, packed in part[1]:
        hashes[split] += splits.unpack(packed)
    for split, other in itertools.combinations(SPLITS, 2):
        held = set(hashes[other])
        yield split, {f'in_{other}': sum(digest in held for digest in hashes[split])}


def _commit(folder: str, config: Config, shards: list[dict], counts: list[tuple[str, dict[str, int]]],
            problems: list[str]) -> None:
    """Write the manifest, last of all, or the reasons why there is none."""
    empty = {split: dict.fromkeys([*COUNTS, *(f'in_{other}' for other in SPLITS[number + 1:])], 0)
             for number, split in enumerate(SPLITS)}
    totals = job.total(empty, counts)
    problems = sorted(problems) or _refusals(totals, config)
    if problems:
        return job.refuse(folder, problems)
    job.commit(folder, shards, (), totals, {
        'agnostic': config.agnostic, 'padding': config.padding, 'categories': ['height', 'width'],
        'binary': ['image', 'cloth', 'cloth_mask', 'parse', 'agnostic_parse', 'removed', 'pose', 'keypoints',
                   'kind', 'worn', 'group']})  # a test is meant to differ in the last three


def _refusals(totals: dict[str, dict[str, int]], config: Config) -> list[str]:
    for split, counts in totals.items():
        if job.too_many(counts, config.max_dead_letters):
            return [f'{counts["dead_letters"]:,} of the {counts["read"]:,} {split} pairs cannot be used, more than '
                    f'data.max_dead_letters {config.max_dead_letters} allows; see dead_letters/ for file and reason.']
        if not counts['written']:
            return [f'data.{split} holds no usable pair: {counts["read"]:,} read, {counts["filtered_not_worn"]:,} of '
                    f'garments that their persons do not wear, {counts["dead_letters"]:,} dead letters.']
    return []
