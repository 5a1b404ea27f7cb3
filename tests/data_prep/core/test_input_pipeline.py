"""Batches are a pure function of (seed, step)."""
import numpy as np
import pytest

from data_prep import UserError, wmt
from data_prep.core import input_pipeline, records


@pytest.fixture(scope='module')
def split(examples):
    return records.open_split(examples, 'train')


def batches(split, seed=3):
    return input_pipeline.Batches(split, [8, 16], [32, 16], seed)


def test_every_record_once_an_epoch_in_its_bucket(split):
    plan = batches(split)
    lengths = np.maximum(split.index['inputs'], split.index['targets'])
    orders = []
    for epoch in range(2):
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        found = [plan[step] for step in steps]
        for bucket, ids in found:
            assert len(ids) <= plan.rows[bucket]
            assert lengths[ids].max() <= plan.buckets[bucket]
            assert bucket == 0 or lengths[ids].min() > plan.buckets[bucket - 1]
        orders.append(np.concatenate([ids for _, ids in found]))
        assert sorted(orders[-1]) == list(range(len(split)))
    assert not np.array_equal(*orders)


def test_a_step_does_not_depend_on_how_it_was_reached(split):
    forward = [batches(split)[step] for step in range(50)]
    fresh = batches(split)
    for step in (49, 3, 27):
        bucket, ids = fresh[step]
        assert bucket == forward[step][0] and np.array_equal(ids, forward[step][1])
    assert any(not np.array_equal(batches(split, seed=4)[step][1], forward[step][1]) for step in range(3))


@pytest.mark.parametrize('replicas', [2, 4])
def test_replicas_share_a_batch(split, replicas):
    plan = batches(split)
    stop = plan.steps_per_epoch
    whole = list(input_pipeline.dataset(split, plan, wmt.decode, 0, stop).as_numpy_iterator())
    shares = list(input_pipeline.dataset(split, plan, wmt.decode, 0, stop, replicas=replicas).as_numpy_iterator())
    assert len(shares) == replicas * len(whole)
    for step, one in enumerate(whole):
        mine = shares[step * replicas:(step + 1) * replicas]
        rows, length = one['inputs'].shape
        assert {share['inputs'].shape for share in mine} == {(rows // replicas, length)}
        ids = np.concatenate([share['id'] for share in mine])
        assert sorted(ids) == sorted(one['id'])
        assert sum(int((share['targets'] != 0).sum()) for share in mine) == int((one['targets'] != 0).sum())


def test_a_worker_sees_only_its_replicas(split):
    plan = batches(split)
    both = list(input_pipeline.dataset(split, plan, wmt.decode, 0, 4, replicas=2).as_numpy_iterator())
    second = list(input_pipeline.dataset(split, plan, wmt.decode, 0, 4, 0, 2, 1, 1).as_numpy_iterator())
    assert [share['id'].tolist() for share in second] == [share['id'].tolist() for share in both[1::2]]


def test_evaluation_drops_nothing_however_long(split):
    plan = input_pipeline.Batches(split, [4], [64], None)
    assert len(plan.buckets) == 2 and plan.buckets[1] % 8 == 0 and plan.rows[1] % 8 == 0
    seen = np.concatenate([batch['id'] for batch in input_pipeline.dataset(
        split, plan, wmt.decode, 0, plan.steps_per_epoch).as_numpy_iterator()])
    assert sorted(seen[seen >= 0]) == list(range(len(split)))


def test_mistakes_are_sentences(split):
    with pytest.raises(UserError, match='rows of length 16'):
        input_pipeline.rows_per_bucket([8, 16], 100, None, 8)
    with pytest.raises(UserError, match='either tokens'):
        input_pipeline.rows_per_bucket([8], None, None, 8)
    with pytest.raises(UserError, match='ascending'):
        input_pipeline.rows_per_bucket([16, 8], 1000, None, 8)
    with pytest.raises(UserError, match='cannot be divided among 3 replicas'):
        input_pipeline.dataset(split, batches(split), wmt.decode, 0, 1, replicas=3)
    assert input_pipeline.rows_per_bucket([16, 24], 4096, None, 8) == [256, 168]
