"""Gather the report's section on data: counts, duplicates, lengths, and TFDV's statistics, schema and drift."""
import os

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from markupsafe import Markup
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2, statistics_pb2

from data_prep.core import records, statistics
from pipelines.core.stage import Context
from pipelines.reporting import figures

SHOWN = 8  # most frequent values shown


def gather(context: Context, manifest: records.Manifest) -> dict:
    """Return what the templates show of a data set, by the names they use.

    Args:
      context: the evaluate stage's.
      manifest: the data set's.
    """
    config, examples, counts = context.config, context.inputs['examples'].uri, manifest.counts
    lengths = _lengths(examples, manifest)
    columns = {name for numbers in counts.values() for name in numbers if not name.startswith('in_')}
    splits = [split for split in config.data_spec.splits if split in counts]
    return {
        'counts': {split: counts[split] for split in splits},
        'columns': sorted(columns, key=lambda name: (name != 'read', name != 'written', name)),
        'duplicates': [words for split in splits for words in duplicates(split, counts[split], splits)],
        'lengths': {name: np.quantile(values, [0.5, 0.99, 1], method='inverted_cdf').tolist()
                    for name, values in lengths.items()},
        'histogram': lengths and Markup(  # noqa: S704 (figures escape)
            figures.histogram('records by length', lengths, config.input.buckets)),
        'statistics': _statistics(context, manifest) if 'statistics' in context.inputs else None,
    }


def duplicates(split: str, counts: dict[str, int], splits: list[str]) -> list[str]:
    """Describe which records of a split are also in others of `splits`; empty if duplicates were not counted."""
    also = {other: counts[f'in_{other}'] for other in splits if f'in_{other}' in counts}
    if not also:
        return []
    name = 'training' if split == 'train' else split
    if not any(also.values()):
        return [f'No {name} record is also in {" or ".join(also)}.']
    found = ' and '.join(f'{value:,} {"is" if value == 1 else "are"} also in {other}' for other, value in also.items())
    left_out = counts.get('filtered_duplicate', 0)
    what = f'; {left_out:,} were left out' if left_out else '; they were left in' if split == 'train' else ''
    return [f'Of the {name} records, {found}{what}.']


def _lengths(examples: str, manifest: records.Manifest) -> dict[str, np.ndarray]:
    """Return the training records' lengths, by each length's name in the data set's index."""
    if not manifest.lengths or not manifest.splits.get('train'):
        return {}
    index = records.open_split(examples, 'train').index
    return {name: index[name] for name in manifest.lengths} if len(index) else {}


def _statistics(context: Context, manifest: records.Manifest) -> dict:
    """Return TFDV's findings: table rows in `lengths`, `features`, `drift`; sentences in `warnings`, `samples`."""
    folders = {key: context.inputs[key].uri for key in ('statistics', 'schema', 'anomalies')}
    found, drifts, warnings, usual = {}, {}, [], statistics.reference(manifest)
    of = statistics.called(usual)
    for split in (name for name in context.config.data_spec.splits if name in manifest.splits):
        stored = _read(folders['statistics'], split, 'FeatureStats.pb', statistics_pb2.DatasetFeatureStatisticsList)
        if stored:
            found[split] = stored.datasets[0]
        different = _read(folders['anomalies'], split, 'SchemaDiff.pb', anomalies_pb2.Anomalies)
        if different:
            drifts[split] = {far.feature: far for far in statistics.drift(different)}
            warnings += [f'{split}: {words}.'
                         for words in [*statistics.departures(different), *statistics.drift_words(different, of)]]
    whole = {split: manifest.records(split) for split in found}
    with tf.io.gfile.GFile(os.path.join(folders['schema'], 'schema.pbtxt')) as file:
        schema = text_format.Parse(file.read(), schema_pb2.Schema())
    compared = list(dict.fromkeys(name for each in drifts.values() for name in each))
    return {
        'lengths': [{'split': split, 'feature': feature.validation_derived_source.source_path[0].step[0],
                     **_length(feature)} for split, dataset in found.items()
                    for feature in dataset.features if feature.HasField('validation_derived_source')],
        'of': of,
        'features': [_feature(context, feature, schema, found, usual, manifest) for feature in schema.feature
                     if not feature.HasField('validation_derived_source')],
        'drift': [{'name': statistics.in_words(name), 'splits': [each.get(name) for each in drifts.values()]}
                  for name in sorted(compared, key=lambda name: (statistics.in_words(name) != name, name))],
        'compared': list(drifts), 'margin': statistics.DRIFT, 'warnings': warnings,
        'samples': [f'{split}: {dataset.num_examples:,} of {whole[split]:,}' for split, dataset in found.items()
                    if dataset.num_examples < whole[split]],
        'files': {key: os.path.relpath(folder, context.pipeline.root) for key, folder in folders.items()},
    }


def _read(folder: str, split: str, name: str, message):
    path = os.path.join(folder, f'Split-{split}', name)
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, 'rb') as file:
        return message.FromString(file.read())


def _by_name(dataset: statistics_pb2.DatasetFeatureStatistics) -> dict[str, statistics_pb2.FeatureNameStatistics]:
    return {'.'.join(feature.path.step): feature for feature in dataset.features}


def _common(feature: statistics_pb2.FeatureNameStatistics) -> statistics_pb2.CommonStatistics:
    return getattr(feature, feature.WhichOneof('stats')).common_stats


def _length(feature: statistics_pb2.FeatureNameStatistics) -> dict[str, float]:
    """Summarise a derived feature of lengths, whose histogram has every value."""
    values, counts = np.array(sorted((int(bucket.label), bucket.sample_count)
                                     for bucket in feature.string_stats.rank_histogram.buckets)).T
    half, most = values[np.searchsorted(np.cumsum(counts), np.multiply([0.5, 0.99], counts.sum()))]
    return {'least': values[0], 'mean': np.average(values, weights=counts), 'half': half, 'most': most,
            'longest': values[-1]}


def _feature(context: Context, feature: schema_pb2.Feature, schema: schema_pb2.Schema,
             found: dict[str, statistics_pb2.DatasetFeatureStatistics], usual: str, manifest: records.Manifest) -> dict:
    """Return one row: a feature's schema, where it is missing, and its most frequent values in one split."""
    by_split = {split: _by_name(dataset).get(feature.name) for split, dataset in found.items()}
    missing = [f'missing in {_common(stored).num_missing:,} of {split}' if stored else f'missing in {split}'
               for split, stored in by_split.items() if not stored or _common(stored).num_missing]
    domains = {domain.name: domain for domain in schema.string_domain}
    stored = by_split.get(usual)
    histogram = stored.string_stats.rank_histogram.buckets if stored else []
    if feature.domain in domains:
        values = len(domains[feature.domain].value)
        domain = f'{values:,} value' + 's' * (values != 1)
    elif feature.int_domain.is_categorical:
        domain = f'{len(histogram):,} ids'
    else:
        domain = 'text' if feature.type == schema_pb2.BYTES else 'any'
    count = 'one' if feature.shape.dim else f'{feature.value_count.min} or more'
    return {'name': feature.name, 'type': f'{schema_pb2.FeatureType.Name(feature.type)}, {count}',
            'missing': ', '.join(missing), 'domain': domain,
            'frequent': _frequent(context, feature.name, histogram, manifest)}


def _frequent(context: Context, name: str, histogram, manifest: records.Manifest) -> list[tuple[str, float]]:
    """Return (value, fraction) of the most frequent values; subwords become text, and special ones are left out."""
    total = sum(bucket.sample_count for bucket in histogram)
    shown = [(bucket.label, bucket.sample_count / total) for bucket in histogram[:SHOWN + 4]]
    if shown and name in manifest.lengths and manifest.vocabulary:
        tokenizer = context.config.data_spec.assets(context.inputs['examples'].uri)
        texts = tokenizer.detokenize(tf.constant([[int(label)] for label, _ in shown], tf.int32)).numpy()
        shown = [(text.decode(errors='replace'), fraction) for text, (_, fraction) in zip(texts, shown)]
    return [(text, fraction) for text, fraction in shown if text.strip()][:SHOWN]
