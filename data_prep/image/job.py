"""Beam job of labelled images: files -> TFRecords, one tf.Example per image (Krizhevsky et al. 2).

Images are never shuffled. A scan of each folder or archive (for a tar, only its headers) yields the byte range of each
image; these few numbers are dealt to shards by a stable hash, so that every shard holds all classes. A shard's writer
(`shards.py`) reads the bytes itself, decodes each image once, and writes them in the order of the hash; it adds up the
pixels of training images in whole numbers. So memory grows by 160 bytes per image (measured up to 300,000), whatever
their size, and a rerun gives the same bytes. Equal files are found by hashes, for which all are read a second time.
"""
import dataclasses
import hashlib
import io
import itertools
import json
import os
import posixpath
import tempfile
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import tensorflow as tf
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from data_prep import UserError
from data_prep.core import files, job, records, splits, threads
from data_prep.core.splits import Pack
from data_prep.image import annotations, listing, readers
from data_prep.image.readers import BOXES, Source
from data_prep.image.schema import LABELS, PIXELS, SPLITS, Config
from data_prep.image.shards import Item, MergedSums, Shard, identity, letter, new_counts

_PARTS = 64  # partitions for comparing hashes
_LEFT_OUT = 'left out'  # key of packs of training images that only name their classes, see `train_fraction`


def run(config: Config, folder: str, argv: list[str]) -> records.Manifest:
    """Prepare a set of labelled images.

    Args:
      config: files and settings.
      folder: an empty folder for the data set.
      argv: Beam's own flags, `--runner DataflowRunner …`.

    Returns:
      The manifest.

    Raises:
      UserError: a source is missing, damaged or has no classes, a split holds no usable image, or more images than
        `max_dead_letters` allows are unusable; no manifest is written.
    """
    if config.samples:
        _make_samples(os.path.join(folder, 'raw'))
    for source in sources(_with_samples(config, folder)):
        readers.look_for(source)
    with beam.Pipeline(options=PipelineOptions(argv)) as pipeline:
        build(pipeline, config, folder)
    return job.finish(folder)


def sources(config: Config) -> list[Source]:
    """Return all sources, including those of boxes."""
    return [source for split in (*SPLITS, BOXES) for source in readers.sources(
        split, config.folder, getattr(config, split), config.path(getattr(config, f'{split}_labels', '')))]


def _with_samples(config: Config, folder: str) -> Config:
    """Return the configuration with `samples` replaced by files in the data set's folder."""
    if not config.samples:
        return config
    from data_prep.image import sample_images
    return dataclasses.replace(config, samples='', folder=os.path.join(folder, 'raw'), **sample_images.FILES)


def _make_samples(folder: str) -> None:
    """Generate the demo's images on this machine, and put them where workers can read them."""
    from data_prep.image import sample_images
    tf.io.gfile.makedirs(folder)
    with tempfile.TemporaryDirectory() as scratch:
        for path in sample_images.write_digits(scratch):
            tf.io.gfile.copy(path, os.path.join(folder, os.path.basename(path)), overwrite=True)


def build(pipeline: beam.Pipeline, config: Config, folder: str) -> None:
    """Build the job's graph without accessing files."""
    config = _with_samples(config, folder)
    once = pipeline | 'Once' >> beam.Create([folder])
    cut = (pipeline
           | 'Sources' >> beam.Create(sources(config))
           | 'Spread' >> beam.Reshuffle()
           | 'Scan' >> beam.ParDo(_Scan(config, folder)).with_outputs('problems', 'boxes', 'refused', main='packs'))
    names = cut.packs | 'Names' >> beam.Map(_names, config)
    packs = cut.packs | 'Keep' >> beam.Filter(_is_kept)
    classes = once | 'Classes' >> beam.Map(_classes, config, beam.pvalue.AsList(names))
    boxes = once | 'Boxes' >> beam.Map(_boxes, beam.pvalue.AsList(cut.boxes))
    totals = packs | 'Count' >> beam.Map(splits.count) | 'Total' >> beam.CombinePerKey(sum)
    repeats = (packs
               | 'Spread packs' >> beam.Reshuffle()
               | 'Hash' >> beam.FlatMap(_hash_files)
               | 'Group hashes' >> beam.GroupByKey()
               | 'Find repeats' >> beam.FlatMap(_find_repeats))
    problems = beam.pvalue.AsList(cut.problems)
    written = (packs
               | 'Deal' >> beam.FlatMap(splits.deal, config.images_per_shard, _place, beam.pvalue.AsDict(totals))
               | 'Group' >> beam.GroupByKey()  # only names and numbers
               | 'Write' >> beam.ParDo(_WriteShard(config, folder), beam.pvalue.AsSingleton(classes),
                                       beam.pvalue.AsSingleton(boxes), beam.pvalue.AsDict(repeats), problems)
               .with_outputs('sums', main='shards'))
    pixels = written.sums | 'Add' >> beam.CombineGlobally(MergedSums())
    (once
     | 'Commit' >> beam.Map(_commit, config, beam.pvalue.AsList(written.shards), beam.pvalue.AsList(cut.refused),
                            problems, beam.pvalue.AsSingleton(classes), beam.pvalue.AsSingleton(pixels)))


def _scratch(folder: str, source: Source) -> str:
    return os.path.join(folder, 'unpacked', f'{source.split}-{source.number}')


class _Scan(beam.DoFn):
    """Scan a source into packs, (split, items); an unreadable source is reported as a problem, one sentence."""

    def __init__(self, config: Config, folder: str):
        self.config, self.folder = config, folder

    def process(self, source):
        try:
            yield from self._scan(source)
        except UserError as error:
            yield beam.pvalue.TaggedOutput('problems', str(error))

    def _scan(self, source):
        scratch = _scratch(self.folder, source)
        tf.io.gfile.makedirs(scratch)
        packs: dict[str, list] = {split: [] for split in (*SPLITS, _LEFT_OUT, BOXES)}
        refused = []
        for found in listing.scan(source, scratch, _synsets(self.config).ids, self.config.columns):
            if isinstance(found, readers.Found):
                if splits.is_left_out(self.config, source.split, found.name):
                    continue
                refused.append(letter(self.config, posixpath.join(source.listed, found.name), found.offset,
                                      found.reason))
                continue
            split, item = self._item(source, found)
            packs[split].append(item)
            if len(packs[split]) == self.config.images_per_block:
                yield self._pack(split, packs[split])
                packs[split] = []
        yield from (self._pack(split, pack) for split, pack in packs.items() if pack)
        if refused:
            job.write_letters(self.folder, f'{source.split}-scan-{source.number:03d}', refused)
            yield beam.pvalue.TaggedOutput('refused', (source.split, len(refused)))

    def _pack(self, split, items):
        if split == BOXES:
            return beam.pvalue.TaggedOutput('boxes', annotations.pack(items))
        return split, (len(items), splits.pack(items))

    def _item(self, source, found):
        """Return a found item and its split: its source's, one split off from the training images, or `_LEFT_OUT`."""
        if isinstance(found, annotations.BoxRange):
            return BOXES, found
        (name, *where, _), label = found
        item = (*where, posixpath.join(source.listed, name), label)
        text = identity(label, name)
        split = splits.split_of(self.config, source.split, splits.order(text)[0])
        return _LEFT_OUT if splits.is_left_out(self.config, split, text) else split, item


def _synsets(config: Config) -> annotations.Synsets:
    path = config.path(config.synsets)
    return annotations.synsets(readers.read_small(path), path) if path else annotations.Synsets({}, {})


def _names(pack: Pack, config: Config) -> tuple[str, ...]:
    """Return a pack's classes if it comes from the training folders."""
    split, (_, items) = pack
    from_training = split in ('train', _LEFT_OUT) or splits.fraction(config, split)
    return tuple({label for *_, label in splits.unpack(items)}) if from_training else ()


def _is_kept(pack: Pack) -> bool:
    split, _ = pack
    return split != _LEFT_OUT


def _classes(folder: str, config: Config, names: list[tuple[str, ...]]) -> tuple[str, list[tuple[str, str]]]:
    """Return the problem of the classes, or nothing; and (id, description) of each, in the order of labels."""
    del folder
    try:
        ids = sorted(set(itertools.chain(*names)))
        if config.labels:
            ids = annotations.classes(readers.read_small(config.path(config.labels)), config.labels)
        words = _synsets(config).words
        if config.words:
            words |= annotations.words(readers.read_small(config.path(config.words)), config.words)
    except UserError as error:
        return str(error), []
    if len(set(ids)) < len(ids):
        return f'data.labels: {config.labels} names a class twice.', []
    if len(ids) < 2:
        return (f'data.{"labels" if config.labels else "train"} has {f"one class, {ids[0]}" if ids else "no image"}. '
                'Name the folder, or the one inside an archive, that holds the class folders.'), []
    return '', [(name, words.get(name, name)) for name in ids]


def _boxes(folder: str, parts: list) -> tuple[list[str], bytes]:
    del folder
    return annotations.merge(parts)


def _place(item: list) -> int:
    *_, name, label = item
    return splits.order(identity(label, name))[1]


def _hash_files(pack: Pack) -> Iterator[tuple[int, bytes]]:
    """Hash files, partitioned for comparison: (part, [(hash, split, class, name), …])."""
    split, (_, items) = pack
    parts: dict[int, list] = {}
    for item, digest in threads.in_order(_hash, map(Item._make, splits.unpack(items))):
        if digest:
            parts.setdefault(digest[0] % _PARTS, []).append((digest.hex(), split, item.label, item.name))
    yield from ((part, splits.pack(rows)) for part, rows in parts.items())


def _hash(item: Item) -> bytes:
    """Hash a file's content; empty for empty and unreadable files, which their shard reports."""
    try:
        content = files.read(*item[:3])
    except OSError:
        return b''
    return hashlib.blake2b(content, digest_size=16).digest() if content else b''


def _find_repeats(part: tuple[int, Iterable[bytes]]) -> Iterator:
    """Yield the files that occur more than once, in the form `shards.Shard` takes."""
    rows = sorted(itertools.chain(*map(splits.unpack, part[1])))
    for _, group in itertools.groupby(rows, key=lambda row: row[0]):
        same = list(group)
        held = {split for _, split, _, _ in same}
        for _, split, label, name in same:
            also = tuple(other for other in SPLITS[SPLITS.index(split) + 1:] if other in held)
            other = next((f'{theirs} as {file}' for _, there, theirs, file in same
                          if there == split and theirs != label), '')
            if also or other:
                yield (split, name), (also, other)


class _WriteShard(beam.DoFn):
    """Write a shard, ((split, shard), items); yield its manifest entry and counts, and its sums of training pixels."""

    def __init__(self, config: Config, folder: str):
        self.config, self.folder = config, folder

    def process(self, element, classes, boxes, repeats, problems):
        if not problems and not classes[0]:  # otherwise nothing will be committed
            yield from self._write(*element, classes[1], boxes, repeats)

    def _write(self, key, packs, pairs, boxes, repeats):
        split, number = key
        name = f'part-{number:05d}'
        writer = records.ShardWriter(os.path.join(self.folder, f'Split-{split}', f'{name}.tfrecord'))
        unpacked = {_scratch(self.folder, source): source.path for source in sources(self.config)}
        shard = Shard(self.config, split, {label: i for i, (label, _) in enumerate(pairs)}, boxes, repeats, unpacked)
        items = sorted(map(Item._make, itertools.chain(*map(splits.unpack, packs))),
                       key=lambda item: (_place(item), item.name, item))  # a tar may repeat a name
        try:
            for record in shard.records(items):
                writer.write(record)
            entry = writer.close()
        except BaseException:
            writer.abandon()
            raise
        job.write_letters(self.folder, f'{split}-{name}', sorted(shard.letters, key=lambda letter: [*letter.values()]))
        for key, value in shard.counts.items():
            Metrics.counter('images', f'{split}_{key}').inc(value)
        yield entry, split, shard.counts
        if split == 'train':
            yield beam.pvalue.TaggedOutput('sums', shard.sums)


def _commit(folder: str, config: Config, written: list, refused: list[tuple[str, int]], problems: list[str],
            classes: tuple[str, list[tuple[str, str]]], pixels: dict[str, np.ndarray]) -> None:
    """Write the manifest last, or the problems."""
    never_read = ((split, {'read': number, 'dead_letters': number}) for split, number in refused)
    totals = job.total({split: new_counts(split) for split in SPLITS},
                       itertools.chain((part[1:] for part in written), never_read))
    problem, pairs = classes
    problems = sorted(problems) or [problem] * bool(problem) or _refusals(totals, config)
    if problems:
        return job.refuse(folder, problems)
    arrays = io.BytesIO()
    np.savez(arrays, **pixels)
    files = {LABELS: json.dumps(pairs, ensure_ascii=False).encode(), PIXELS: arrays.getvalue()}
    for name, content in files.items():
        records.write_atomically(os.path.join(folder, name), content)
    job.commit(folder, [entry for entry, _, _ in written], (), totals, {
        'model': {'classes': len(pairs)}, 'categories': ['class', 'height', 'width'], 'binary': ['image'],
        'sha256': {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}})


def _refusals(totals: dict[str, dict[str, int]], config: Config) -> list[str]:
    for split, counts in totals.items():
        if job.too_many(counts, config.max_dead_letters):
            return [f'{counts["dead_letters"]:,} of the {counts["read"]:,} {split} images cannot be used, more than '
                    f'data.max_dead_letters {config.max_dead_letters} allows. See dead_letters/ for files and reasons.']
        if not counts['written']:
            return [f'data.{split} holds no usable image: {counts["read"]:,} read, '
                    f'{counts["filtered_duplicate"]:,} also held out, {counts["dead_letters"]:,} dead letters.']
    return []
