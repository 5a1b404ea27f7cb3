"""The end of every prep job."""
from data_prep.core import job, records


def test_nothing_is_left_of_a_worker_that_was_killed(tmp_path):
    records.ShardWriter(str(tmp_path / 'Split-train' / 'part-0.tfrecord')).write(b'record')  # and never closes
    whole = records.ShardWriter(str(tmp_path / 'Split-train' / 'part-0.tfrecord'))
    whole.write(b'record')
    records.write_manifest(str(tmp_path), [whole.close()], (), {'train': {'written': 1}}, {})
    assert job.finish(str(tmp_path)).counts == {'train': {'written': 1}}
    assert sorted(path.name for path in tmp_path.rglob('*.*')) == [
        'manifest.json', 'part-0.index.npy', 'part-0.tfrecord']
