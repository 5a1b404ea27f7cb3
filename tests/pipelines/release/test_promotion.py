"""A canary beside the served version: its number and label, what its promotion compares, and kills within it."""
import os
import time

import pytest
import tensorflow as tf

from data_prep import UserError
from pipelines.release import promotion
from pipelines.serving import kit, labels, published, pusher, recorded
from support.killed_calls import killed_at
from support.tiny_text_model import WARMUP, answer, assert_whole, push_all, served


def canary(models, destination, suffix) -> published.Version:
    """Pushes a model as the canary."""
    version = published.Version(pusher.publish(models[suffix], destination, {'pipeline': 'shouter'}, canary=True))
    labels.write(destination, kit.model_name(destination), canary=version.number)
    return version


def number(path) -> int:
    return int(os.path.basename(path))


def test_a_canary_is_served_by_its_label_alone(models, destination):
    """Its number lies below the served version's, which serving without labels goes on to take for the newest."""
    [first] = push_all(models, destination, '!')
    one, other = canary(models, destination, '?'), canary(models, destination, '.')
    assert (one.number, other.number) == (number(first) - 1, number(first) - 2)
    assert served(destination) == first
    assert labels.read(destination) == {'stable': number(first), 'canary': other.number}
    assert_whole(other.path)
    assert one.is_canary and not published.Version(first).is_canary
    with pytest.raises(UserError, match='nothing to go back to'):
        pusher.rollback(destination)
    [second] = push_all(models, destination, '?')
    labels.write(destination, 'shouter')
    assert labels.read(destination) == {'stable': number(second), 'canary': other.number}
    assert answer(pusher.rollback(destination)) == 'hi!'


def test_a_canary_needs_another_version(models, destination):
    with pytest.raises(UserError, match='holds no version beside which a canary'):
        canary(models, destination, '!')
    push_all(models, destination, '!')
    with pytest.raises(UserError, match='has the same files, so there is nothing to try'):
        canary(models, destination, '!')
    assert len(os.listdir(destination)) == 1


def test_canaries_of_an_object_store_take_numbers_of_their_own(models):
    bucket = f'ram://bucket/{os.getpid()}-{time.monotonic_ns()}/shouter'
    [first] = push_all(models, bucket, '!')
    with tf.io.gfile.GFile(os.path.join(bucket, f'.claim-{number(first) - 1}-0000'), 'w') as file:
        file.write('')
    version = canary(models, bucket, '?')
    assert version.number < number(first) - 1 and answer(version.path) == 'hi?'
    assert published.versions(bucket)[-1].path == first


def test_a_promotion_is_a_new_version_that_can_be_rolled_back(models, destination):
    [first] = push_all(models, destination, '!')
    tried = canary(models, destination, '?')
    path = promotion.complete(destination, tried, {'served': number(first)})
    assert path == served(destination) and number(path) > number(first) and answer(path) == 'hi?'
    record = published.verify(path)
    assert record['promoted_from'] == tried.number and record['comparison'] == {'served': number(first)}
    assert labels.read(destination) == {'stable': number(path)}
    assert pusher.publish(models['?'], destination, {}) == path  # `run` pushes the same model next
    assert answer(pusher.rollback(destination)) == 'hi!'
    assert answer(pusher.publish(models['?'], destination, {})) == 'hi?'  # pushed again, since it was rolled back


def test_a_promotion_killed_at_any_call_is_made_whole_by_the_next(models, destination):
    """Readers of labels and of numbers each find the version before or the one after, whole."""
    [first] = push_all(models, destination, '!')
    tried, calls, between = canary(models, destination, '?'), 0, 0
    before = {'stable': number(first), 'canary': tried.number}
    while killed_at(calls, lambda: promotion.complete(destination, tried, {})):
        newest = served(destination)
        assert labels.read(destination) in (before, {'stable': number(newest)})
        assert_whole(newest)
        assert newest == first or pusher.promoted(destination, tried) == newest
        if newest != first:
            between += labels.read(destination) == before
            assert promotion.complete(destination, tried, {}) == newest  # no second version
            assert labels.read(destination) == {'stable': number(newest)}
            tf.io.gfile.rmtree(newest)
            labels.write(destination, kit.model_name(destination), canary=tried.number)
        calls += 1
    assert calls > 20 and between > 1


def loaded(models, canary, served) -> dict:
    return {'canary': tf.saved_model.load(models[canary]), 'served': tf.saved_model.load(models[served])}


def clock(*seconds):
    """A clock that lets each run take its given time."""
    now, times = 0.0, []
    for each in seconds:
        times += [now, now + each]
        now += each
    return iter(times).__next__


def test_latency_is_the_median_of_requests_in_turn(models):
    """The first to answer alternates: served 2, canary 3; canary 30, served 2; served 20, canary 3."""
    requests = [('serving_default', {'text': [b'hi']}), ('serving_default', {'text': [b'']})]
    found = promotion.replay(requests, loaded(models, '?', '!'), 3, clock(2, 3, 30, 2, 20, 3))
    assert (found.served, found.canary, found.slowdown) == (2, 3, 1.5)
    assert (found.requests, found.same) == (2, 0)
    assert promotion.replay(requests, loaded(models, '!', '!'), 1, clock(1, 1)).same == 2


def test_a_canary_that_fails_where_the_served_version_answers_is_refused(models):
    class Deaf(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'sound')])
        def serve(self, sound):
            return {'text': sound}

        @property
        def signatures(self):
            return {'serving_default': self.serve.get_concrete_function()}
    good = ('serving_default', {'text': [b'hi']})
    with pytest.raises(UserError, match='it fails on recorded request 2, which the served version answers'):
        promotion.replay([('another', {}), good], {**loaded(models, '!', '!'), 'canary': Deaf()}, 5)
    with pytest.raises(UserError, match='answers none of the recorded requests'):
        promotion.replay([('another', {})], loaded(models, '!', '!'), 5)


def test_recorded_requests_are_read_or_refused(models, destination, tmp_path):
    [path] = push_all(models, destination, '!')
    version = published.Version(path)
    [(signature, inputs)] = recorded.read(os.path.join(path, WARMUP))
    assert signature == 'serving_default' and inputs['text'].tolist() == [b'a request']
    assert len(promotion._requests(None, version)) == 1
    (tmp_path / 'damaged').write_bytes(b'no record' * 9)
    for name in ('nowhere', 'damaged'):
        with pytest.raises(UserError, match=f'--requests {tmp_path / name}: this file cannot be read'):
            promotion._requests(str(tmp_path / name), version)
    with tf.io.TFRecordWriter(str(tmp_path / 'empty')) as writer:
        writer.write(b'')
    with pytest.raises(UserError, match='holds no Predict requests'):
        promotion._requests(str(tmp_path / 'empty'), version)
