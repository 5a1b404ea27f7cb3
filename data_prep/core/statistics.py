"""Describe a data set with TensorFlow Data Validation: statistics of every split, a schema, and anomalies.

Whole sentences rarely repeat, so splits are compared by what does: subword ids, lengths of sequences, categories (for
images: class, height and width), and features with few values. Pixels are not examined. The distance is TFDV's drift
comparator for categories, the Jensen-Shannon divergence in bits (Lin 1991; Breck et al., "Data Validation for Machine
Learning", MLSys 2019): 0 for equal distributions, 1 for disjoint ones.
"""
import collections
import dataclasses
import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import tensorflow as tf
import tensorflow_data_validation as tfdv
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2
from tfx_bsl.coders import example_coder

from data_prep.core import records

# Statistics use at most this many records of a split, on this machine with any runner, because a second Dataflow job
# would take longer to start. With 1,000,000 pairs of 24 subwords a side on two cores, all of them through Beam took
# 112 s and 1.5 GiB above TFDV's own, the sample 5 s and 0.3 GiB; with 5,000,000 the sample took 4 s and 0.4 GiB.
SAMPLE = 50_000
_BYTES = 1 << 30  # and at most this many bytes of them: of ImageNet, 9,000 images
_RUN = 100  # adjacent records read together in one request, since object stores read ahead 512 KB

# A split gives a warning if its drift exceeds by this much that of random draws of as many training records. Two
# samples of one text are never at 0, and the fewer lines and the more subwords, the larger the drift: 1,000 captions
# (Multi30k) are at 0.03 with 4,000 subwords and at 0.10 with 16,000; 40 captions at 0.3. Measured above such draws, for
# subwords unless another feature is named:     -0.01 to 0.02  Multi30k's validation and test set, whole or 100 lines of
# it; a random tenth of news and web text     -0.19 to 0.04  lengths in 20 to 60 lines of the same text      0.00 to
# 0.01  the CLDR demo's validation and test split, which have other values but the same share of every kind      0.03 to
# 0.08  a single source of a mixed training set; captions with a tenth to a fifth news and web text      0.12 to 0.13
# captions with three tenths news and web text      0.18 to 0.21  trained on parliament, tested on hotels and software
# 0.22 to 0.42  trained on captions, tested on news and web text, from 40 lines up; their lengths 0.57 to 0.73      0.59
# lengths in the longest quarter of the captions
DRIFT = 0.1

_DRAWS, _DRAWN = 20, 5_000  # draws, and most records in all of them: large draws hardly differ
_VALUES = 1 << 16  # distinct values counted exactly: more than any vocabulary has
_FEW = 100  # TFDV treats strings with up to this many distinct values as categories
_LENGTH = '_length'
_CATEGORY = 'category'


@dataclasses.dataclass(frozen=True)
class Drift:
    """Drift of a split from the training split, as Jensen-Shannon divergence in bits."""
    feature: str
    value: float
    threshold: float

    @property
    def found(self) -> bool:
        return self.value > self.threshold


def describe(examples: str, statistics: str, schema: str, anomalies: str) -> list[str]:
    """Write the outputs of TFX's StatisticsGen, SchemaGen and ExampleValidator, in their layout.

    `Split-<name>/FeatureStats.pb` below `statistics`; `schema.pbtxt`, inferred from the `reference`, below `schema`;
    and for every other split `Split-<name>/SchemaDiff.pb` below `anomalies`: departures from the schema, and drift from
    the reference. Lengths of sequences are features of their own in the statistics, `<name>_length`, marked as derived.

    Args:
      examples: a finished data set.

    Returns:
      Sentences about it; warnings begin with that word.
    """
    manifest = records.read_manifest(examples)
    lengths, categories, said = manifest.lengths, manifest.categories, []
    train = declared = inferred = None
    first = reference(manifest)
    for split in sorted(manifest.splits, key=lambda name: name != first):
        whole = records.open_split(examples, split)
        if not len(whole):
            continue
        sample = read_sample(whole, manifest.binary)
        if len(sample) < len(whole):
            said.append(f'statistics of {split} use {len(sample):,} of its {len(whole):,} records.')
        declared = declared or _declare(sample, lengths, categories)
        found = _measure(sample, lengths, declared)
        _write(statistics, split, 'FeatureStats.pb', found)
        if train is None:
            train, inferred = (sample, found), _infer(found, declared)
            tfdv.write_schema_text(inferred, os.path.join(schema, 'schema.pbtxt'))
            continue
        usual = _usual_drift(*train, len(sample), lengths, declared, inferred)
        different = _compare(found, train[1], inferred, {name: DRIFT + value for name, value in usual.items()})
        _write(anomalies, split, 'SchemaDiff.pb', different)
        said += [f'warning: {split}: {words}.'
                 for words in [*departures(different), *drift_words(different, called(first))]]
    if any('drifted' in words for words in said):
        said.append(f'drift is 0 for equal distributions and 1 for disjoint ones; a value {DRIFT} above what '
                    f'random draws of as many {called(first)} records show by chance gives a warning.')
    return said


def reference(manifest: records.Manifest) -> str:
    """Return the reference split: the training split or, for data without one, the first split with records."""
    held = [split for split in sorted(manifest.splits) if manifest.records(split)]
    return 'train' if 'train' in held or not held else held[0]


def called(split: str) -> str:
    return 'training' if split == 'train' else split


def departures(found: anomalies_pb2.Anomalies) -> list[str]:
    """Return departures from the schema, except drift, in TFDV's words."""
    drifted = anomalies_pb2.AnomalyInfo.COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH
    return [f'{name}: {reason.description.strip(" .")}' for name, info in sorted(found.anomaly_info.items())
            for reason in info.reason if reason.type != drifted]


def drift(found: anomalies_pb2.Anomalies) -> list[Drift]:
    """Return the drift of every compared feature, in the features' order."""
    return [Drift('.'.join(info.path.step), measured.value, measured.threshold)
            for info in found.drift_skew_info for measured in info.drift_measurements]


def drift_words(found: anomalies_pb2.Anomalies, of: str) -> list[str]:
    """Describe excessive drift from the split `of` in one sentence; empty if there is none."""
    far = [f'{in_words(each.feature)} by {each.value:.2f} ({each.threshold - DRIFT:.2f} by chance)'
           for each in drift(found) if each.found]
    return [f'drifted from the {of} split, {", ".join(far)}'] if far else []


def in_words(feature: str) -> str:
    """Write `inputs_length` as `length of inputs`."""
    return f'length of {feature.removesuffix(_LENGTH)}' if feature.endswith(_LENGTH) else feature


def read_sample(split: records.Split, binary: Sequence[str] = ()) -> list[bytes]:
    """Return all records of a split in order, or a sample of at most about `SAMPLE` of them, the same every time.

    Args:
      binary: names of features to leave out.
    """
    size = min(SAMPLE, _BYTES // max(1, int(np.mean(split.index['length']))))
    ids = np.arange(len(split))
    if len(split) > size:
        runs = np.random.default_rng(0).permutation(len(split) // _RUN)[:max(1, size // _RUN)]
        ids = (np.sort(runs)[:, np.newaxis] * _RUN + np.arange(_RUN)).ravel()
    if not binary:
        return split.read(ids)
    return [_leave_out(record, binary) for start in range(0, len(ids), _RUN)
            for record in split.read(ids[start:start + _RUN])]


def _leave_out(record: bytes, names: Sequence[str]) -> bytes:
    example = tf.train.Example.FromString(record)
    for name in names:
        example.features.feature.pop(name, None)
    return example.SerializeToString(deterministic=True)


def _declare(sample: list[bytes], lengths: list[str], categories: list[str]) -> schema_pb2.Schema:
    """Declare to TFDV that sequences hold categories, not quantities, and that values of text are not counted."""
    numbers = schema_pb2.IntDomain(is_categorical=True)
    text = schema_pb2.StringDomain(is_categorical=schema_pb2.StringDomain.CATEGORICAL_NO)
    declared = schema_pb2.Schema()
    for name in lengths:
        for feature in (name, name + _LENGTH):
            declared.feature.add(name=feature, type=schema_pb2.INT, int_domain=numbers)
    some = sample[::-(-len(sample) // 1000)]
    values: dict[str, set] = collections.defaultdict(set)
    for record in some:
        for name, feature in tf.train.Example.FromString(record).features.feature.items():
            values[name].update(feature.bytes_list.value)
    for name in sorted(values):
        if len(values[name]) > min(_FEW, len(some) / 2):
            if name in categories:  # no domain: a class missing from the sample is not an anomaly
                declared.feature.add(name=name, type=schema_pb2.BYTES, annotation={'tag': [_CATEGORY]})
            else:
                declared.feature.add(name=name, type=schema_pb2.BYTES, string_domain=text)
        elif name in categories and not values[name]:
            declared.feature.add(name=name, type=schema_pb2.INT, int_domain=numbers)
    return declared


def _measure(sample: list[bytes], lengths: list[str],
             declared: schema_pb2.Schema) -> statistics_pb2.DatasetFeatureStatisticsList:
    batch = example_coder.ExamplesToRecordBatchDecoder().DecodeBatch(sample)
    columns = dict(zip(batch.schema.names, batch.columns))
    for name in (name for name in lengths if name in columns):
        values = columns[name].value_lengths().fill_null(0).cast(pa.int64())
        columns[name + _LENGTH] = pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32), values)
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    found = stats_impl.generate_statistics_in_memory(batch, tfdv.StatsOptions(
        schema=declared, num_rank_histogram_buckets=_VALUES))
    for feature in found.datasets[0].features:
        name = feature.path.step[0].removesuffix(_LENGTH)
        if name in lengths and name != feature.path.step[0]:
            feature.validation_derived_source.deriver_name = 'num_values'
            feature.validation_derived_source.source_path.add(step=[name])
    return found


def _infer(found: statistics_pb2.DatasetFeatureStatisticsList, declared: schema_pb2.Schema) -> schema_pb2.Schema:
    """Return TFDV's inferred schema plus the declarations; a length or id that training lacks is not an anomaly."""
    schema = tfdv.infer_schema(found, max_string_domain_size=_FEW)
    known = {feature.name: feature for feature in declared.feature}
    domains = [domain for domain in schema.string_domain if domain.name not in known]
    del schema.string_domain[:]
    schema.string_domain.extend(domains)
    for feature in schema.feature:
        if feature.name in known:
            feature.ClearField(feature.WhichOneof('domain_info') or 'domain')
            feature.MergeFrom(known[feature.name])
    return schema


def _compare(found: statistics_pb2.DatasetFeatureStatisticsList, train: statistics_pb2.DatasetFeatureStatisticsList,
             schema: schema_pb2.Schema, thresholds: dict[str, float]) -> anomalies_pb2.Anomalies:
    """Return TFDV's anomalies of a split, with its drift from the training split for every feature of categories."""
    with_comparators = schema_pb2.Schema.FromString(schema.SerializeToString())
    for feature in with_comparators.feature:
        if feature.int_domain.is_categorical or feature.domain or _CATEGORY in feature.annotation.tag:
            feature.drift_comparator.jensen_shannon_divergence.threshold = thresholds.get(feature.name, DRIFT)
    return tfdv.validate_statistics(found, with_comparators, previous_statistics=train)


def _usual_drift(sample: list[bytes], found: statistics_pb2.DatasetFeatureStatisticsList, size: int,
                 lengths: list[str], declared: schema_pb2.Schema, schema: schema_pb2.Schema) -> dict[str, float]:
    """Return the largest drift of random draws of `size` training records from the others, by feature: chance.

    Args:
      sample: training records.
      found: their statistics.
      size: records per draw; at most half of the sample is drawn.
    """
    size = min(size, len(sample) // 2)
    farthest: dict[str, float] = collections.defaultdict(float)
    for seed in range(max(1, min(_DRAWS, _DRAWN // max(1, size)))):
        chosen = np.random.default_rng(seed).permutation(len(sample))[:size]
        if len(chosen):
            draw = _measure([sample[i] for i in chosen], lengths, declared)
            for far in drift(_compare(draw, _without(found, draw), schema, {})):
                farthest[far.feature] = max(farthest[far.feature], far.value)
    return farthest


def _without(whole: statistics_pb2.DatasetFeatureStatisticsList,
             part: statistics_pb2.DatasetFeatureStatisticsList) -> statistics_pb2.DatasetFeatureStatisticsList:
    """Subtract the part's values from the whole's histograms, which count exactly."""
    counts = {feature.path.step[0]: {bucket.label: bucket.sample_count
                                     for bucket in feature.string_stats.rank_histogram.buckets}
              for feature in part.datasets[0].features}
    result = statistics_pb2.DatasetFeatureStatisticsList.FromString(whole.SerializeToString())
    for feature in result.datasets[0].features:
        taken, histogram = counts.get(feature.path.step[0], {}), feature.string_stats.rank_histogram
        left = [(bucket.label, bucket.sample_count - taken.get(bucket.label, 0)) for bucket in histogram.buckets]
        del histogram.buckets[:]
        for label, count in left:
            if count > 0:
                histogram.buckets.add(label=label, sample_count=count)
    return result


def _write(folder: str, split: str, name: str, message) -> None:
    path = os.path.join(folder, f'Split-{split}', name)
    tf.io.gfile.makedirs(os.path.dirname(path))
    records.write_atomically(path, message.SerializeToString(deterministic=True))
