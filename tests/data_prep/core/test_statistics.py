"""TFDV's statistics, schema and drift of a prepared data set."""
import random
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2

from data_prep import imagenet, wmt
from data_prep.core import records, statistics
from data_prep.image import job as image_job
from data_prep.text import job as text_job
from support.text_data import WORDS, write_pairs

FOLDERS = ('examples', 'statistics', 'schema', 'anomalies')


def prepare(folder, vocab_size):
    config = wmt.Config(folder=str(folder), vocab_size=vocab_size, **{split: [f'{split}.tsv'] for split in wmt.SPLITS})
    for name in FOLDERS:
        (folder / name).mkdir()
    text_job.run(config, str(folder / 'examples'), [])


def describe(folder):
    return statistics.describe(*(str(folder / name) for name in FOLDERS))


def load(folder, split):
    """Feature -> its statistics, and the number of examples they are of."""
    found = tfdv.load_stats_binary(str(folder / 'statistics' / f'Split-{split}' / 'FeatureStats.pb')).datasets[0]
    return {feature.path.step[0]: feature for feature in found.features}, found.num_examples


def drifts(folder, split):
    path = folder / 'anomalies' / f'Split-{split}' / 'SchemaDiff.pb'
    return {far.feature: far for far in statistics.drift(anomalies_pb2.Anomalies.FromString(path.read_bytes()))}


def counts(examples, split, feature):
    """Value -> how often it occurs, by another reader."""
    rows = records.open_split(str(examples), split)
    values = tf.io.parse_example(rows.read(range(len(rows))), {feature: tf.io.RaggedFeature(tf.int64)})[feature]
    return dict(enumerate(np.bincount(values.flat_values)))


def divergence(one, other):
    """Jensen-Shannon divergence in bits of two counts, from its definition as entropies (Lin 1991, equation 4.1)."""
    keys = sorted(one | other)
    p, q = (np.array([values.get(key, 0) for key in keys]) / sum(values.values()) for values in (one, other))

    def entropy(x):
        return -np.sum(x[x > 0] * np.log2(x[x > 0]))
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
    """Number words; the validation split is drawn alike, the test split has long lines of few words and a new kind."""
    folder = tmp_path_factory.mktemp('corpus')
    write_pairs(folder, 'train', 1500, 0)
    write_pairs(folder, 'validation', 60, 1)
    draw = random.Random(2)
    rows = [draw.choices(['eight', 'nine'], k=draw.randint(9, 14)) for _ in range(60)]
    (folder / 'test.tsv').write_text(''.join(
        f'{" ".join(row)}\t{" ".join(WORDS[word] for word in row)}\tstrange\n' for row in rows))
    prepare(folder, 70)
    return folder, describe(folder)


@pytest.mark.parametrize('split', wmt.SPLITS)
def test_statistics_are_plain_counts(corpus, split):
    folder, _ = corpus
    features, examples = load(folder, split)
    index = records.open_split(str(folder / 'examples'), split).index
    assert examples == len(index)
    for name in wmt.LENGTHS:
        common = features[name].string_stats.common_stats
        assert common.num_missing == 0 and common.tot_num_values == index[name].sum()
        assert (common.min_num_values, common.max_num_values) == (index[name].min(), index[name].max())
        assert common.avg_num_values == pytest.approx(index[name].mean())
        for feature, expected in ((name, counts(folder / 'examples', split, name)),
                                  (f'{name}_length', dict(enumerate(np.bincount(index[name]))))):
            found = {int(bucket.label): bucket.sample_count
                     for bucket in features[feature].string_stats.rank_histogram.buckets}
            assert found == {key: value for key, value in expected.items() if value}
    assert not features['source'].string_stats.rank_histogram.buckets  # sentences are not counted one by one


def test_what_drifted_is_warned_about_and_what_did_not_is_not(corpus):
    folder, said = corpus
    assert [words[:14] for words in said] == ['warning: test:', 'warning: test:', 'drift is 0 for']
    text = '\n'.join(said)
    assert 'kind: Examples contain values missing from the schema: strange' in text
    for name in ('inputs', 'targets'):
        assert re.search(rf'drifted from the training split, .*\b{name} by 0.\d\d \(0.\d\d by chance\)', text)
        assert f'length of {name} by ' in text
    assert not any(far.found for far in drifts(folder, 'validation').values())
    assert all(drifts(folder, 'test')[name].found for name in ('inputs', 'targets', 'inputs_length', 'targets_length'))


def test_drift_is_the_jensen_shannon_divergence(corpus):
    folder, _ = corpus
    for split in ('validation', 'test'):
        for name in wmt.LENGTHS:
            expected = divergence(*(counts(folder / 'examples', each, name) for each in ('train', split)))
            assert drifts(folder, split)[name].value == pytest.approx(expected, abs=1e-6)


def test_chance_is_what_draws_of_training_records_show(corpus):
    """Taking a draw's counts out of the whole's gives the divergence of two disjoint parts, counted apart."""
    folder, _ = corpus
    train = records.open_split(str(folder / 'examples'), 'train')
    found = []
    for seed in range(20):
        chosen = np.random.default_rng(seed).permutation(len(train))[:60]
        other = np.setdiff1d(np.arange(len(train)), chosen)
        found.append(divergence(*(dict(enumerate(np.bincount(train.index['inputs'][rows])))
                                  for rows in (chosen, other))))
    threshold = drifts(folder, 'validation')['inputs_length'].threshold
    assert threshold == pytest.approx(statistics.DRIFT + max(found), abs=1e-6) and min(found) < max(found) / 2


def test_chance_alone_is_no_drift(tmp_path):
    """Ten lines of many words are far from any text; it is the distance of ten lines of the same text."""
    draw = random.Random(3)
    words = [''.join(draw.choices('bcdfghklmnprstvwz', k=5)) for _ in range(250)]
    for split, n in (('train', 400), ('validation', 10), ('test', 10)):
        rows = [' '.join(draw.choices(words, k=6)) for _ in range(n)]
        (tmp_path / f'{split}.tsv').write_text(''.join(f'{row}\t{row}\n' for row in rows))
    prepare(tmp_path, 300)
    assert describe(tmp_path) == []
    assert drifts(tmp_path, 'test')['inputs'].value > 2 * statistics.DRIFT


def test_the_schema_is_of_the_examples(corpus):
    folder, _ = corpus
    schema = tfdv.load_schema_text(str(folder / 'schema' / 'schema.pbtxt'))
    features = {feature.name: feature for feature in schema.feature}
    derived = {name for name, feature in features.items() if feature.HasField('validation_derived_source')}
    assert derived == {'inputs_length', 'targets_length'}
    assert features.keys() - derived == {'inputs', 'targets', 'source', 'target', 'kind'}
    assert [domain.name for domain in schema.string_domain] == ['kind']
    assert list(schema.string_domain[0].value) == ['long', 'short']
    assert features['inputs'].int_domain.is_categorical and not features['inputs'].HasField('drift_comparator')


def test_a_large_split_is_sampled(corpus, tmp_path, monkeypatch):
    """The sample is as large as it says, its records are of the split, and no run of neighbours comes twice."""
    folder, _ = corpus
    monkeypatch.setattr(statistics, 'SAMPLE', 500)
    (tmp_path / 'examples').symlink_to(folder / 'examples')
    for name in FOLDERS[1:]:
        (tmp_path / name).mkdir()
    assert describe(tmp_path)[0] == 'statistics of train use 500 of its 1,500 records.'
    assert load(tmp_path, 'train')[1] == 500 and load(tmp_path, 'test')[1] == 60
    train = records.open_split(str(folder / 'examples'), 'train')
    train.read = lambda numbers: list(numbers)
    numbers = statistics.read_sample(train)
    assert len(set(numbers)) == 500 and numbers == sorted(numbers) and 0 <= numbers[0] <= numbers[-1] < 1500
    assert numbers == statistics.read_sample(train) != list(range(500))


def test_the_files_do_not_change(corpus, tmp_path):
    """Stages downstream are skipped by digests: the same data must give the same bytes."""
    folder, _ = corpus
    (tmp_path / 'examples').symlink_to(folder / 'examples')
    for name in FOLDERS[1:]:
        (tmp_path / name).mkdir()
    describe(tmp_path)
    files = [path.relative_to(folder) for name in FOLDERS[1:] for path in (folder / name).rglob('*.pb*')]
    assert len(files) == 3 + 1 + 2
    for path in files:
        assert (folder / path).read_bytes() == (tmp_path / path).read_bytes(), path


def test_a_split_without_a_feature_departs_from_the_schema(tmp_path):
    """Drift of what is not there cannot be told, and is no error."""
    shards = []
    for split, present in (('train', wmt.LENGTHS), ('test', ('targets',))):
        writer = records.ShardWriter(str(tmp_path / 'examples' / f'Split-{split}' / 'part-0.tfrecord'), wmt.LENGTHS)
        for i in range(30):
            ids = tf.train.Feature(int64_list=tf.train.Int64List(value=[4 + i % 7, 2]))
            example = tf.train.Example(features=tf.train.Features(feature=dict.fromkeys(present, ids)))
            writer.write(example.SerializeToString(), **{name: 2 * (name in present) for name in wmt.LENGTHS})
        shards.append(writer.close())
    records.write_manifest(str(tmp_path / 'examples'), shards, wmt.LENGTHS, {}, {})
    (tmp_path / 'schema').mkdir()
    assert 'warning: test: inputs: Column is completely missing.' in describe(tmp_path)
    assert drifts(tmp_path, 'test').keys() == {'targets', 'targets_length'}


def write_photos(folder, counts, size=(24, 16), boxes=False):
    """Class folders with so many pictures each, all different."""
    draw = np.random.default_rng(len(str(folder)))
    for label, count in counts.items():
        (folder / label).mkdir(parents=True)
        for i in range(count):
            noise = draw.integers(0, 256, (*size, 3), np.uint8)
            (folder / label / f'{i}.jpg').write_bytes(tf.io.encode_jpeg(noise).numpy())
            if boxes:
                (folder / label / f'{i}.xml').write_text(
                    '<a><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></a>')


@pytest.mark.parametrize('classes, each', [(3, 80), (120, 6)])
def test_pictures_are_described_without_their_pixels(tmp_path, classes, each):
    """Classes and sizes are compared, also of more classes than TFDV takes for a domain; boxes may be in one split."""
    names = [f'class{i:03}' for i in range(classes)]
    write_photos(tmp_path / 'train', dict.fromkeys(names, each), boxes=True)
    write_photos(tmp_path / 'alike', dict.fromkeys(names, each // 2))
    write_photos(tmp_path / 'other', dict.fromkeys(names[:classes // 3], each), size=(30, 16))
    for name in FOLDERS:
        (tmp_path / name).mkdir()
    image_job.run(imagenet.Config(folder=str(tmp_path), train=['train'], validation=['alike'], test=['other']),
                     str(tmp_path / 'examples'), [])
    said = '\n'.join(describe(tmp_path))
    assert 'warning: validation' not in said, said
    assert re.search(r'warning: test: drifted from the training split, class by .* height by 1.00', said)
    assert said.count('warning: ') == 1 and 'width' not in said
    for split, heights in (('train', {24: classes * each}), ('test', {30: classes // 3 * each})):
        found, number = load(tmp_path, split)
        assert 'image' not in found and number == sum(heights.values())
        buckets = found['height'].string_stats.rank_histogram.buckets
        counted = {int(bucket.label): bucket.sample_count for bucket in buckets}
        assert counted == heights
    far = drifts(tmp_path, 'test')
    assert far.keys() == {'class', 'height', 'width'} and far['width'].value == 0
    given = dict.fromkeys(names, each), dict.fromkeys(names[:classes // 3], each)
    assert far['class'].value == pytest.approx(divergence(*given), abs=1e-6)


def test_of_large_records_fewer_are_read(corpus, monkeypatch):
    folder, _ = corpus
    train = records.open_split(str(folder / 'examples'), 'train')
    monkeypatch.setattr(statistics, '_BYTES', int(301 * train.index['length'].mean()))
    train.read = lambda numbers: list(numbers)
    assert len(statistics.read_sample(train)) == 300
