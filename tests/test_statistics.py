"""TFDV's statistics and schema of a prepared data set."""
import tensorflow_data_validation as tfdv

from data_prep import statistics, wmt, wmt_job


def test_counts_are_right_and_a_new_kind_is_found(tmp_path):
    for split, kind in (('train', 'known'), ('test', 'new')):
        rows = [f'line {i} of text\tZeile {i} Text\t{kind}\n' for i in range(40)]
        (tmp_path / f'{split}.tsv').write_text(''.join(rows))
    config = wmt.Config(folder=str(tmp_path), train=['train.tsv'], validation=['train.tsv'], test=['test.tsv'],
                        vocab_size=40)
    folders = {name: tmp_path / name for name in ('examples', 'statistics', 'schema')}
    for folder in folders.values():
        folder.mkdir()
    wmt_job.run(config, str(folders['examples']), [])
    found = statistics.describe(*map(str, folders.values()), [])
    assert list(found) == ['test'] and 'kind: ' in found['test'][0] and 'new' in found['test'][0]
    loaded = tfdv.load_stats_binary(str(folders['statistics'] / 'Split-train' / 'FeatureStats.pb'))
    assert loaded.datasets[0].num_examples == 40
    schema = tfdv.load_schema_text(str(folders['schema'] / 'schema.pbtxt'))
    assert {feature.name for feature in schema.feature} == {'inputs', 'targets', 'source', 'target', 'kind'}
