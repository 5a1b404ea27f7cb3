"""The folder that serving watches: only complete versions whatever happens to the pusher, and rollback.

Versions are checked with hashlib alone, and answers come from the SavedModels themselves.
"""
import errno
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent import futures

import pytest
import tensorflow as tf

from benchmarks.robustness import push_sweep
from data_prep import UserError
from pipelines.serving import published, pusher
from support.killed_calls import killed_at
from support.tiny_text_model import WARMUP, answer, assert_whole, push_all, served


def change(version, how):
    """Damages a version; returns the file a message must name."""
    file = {'added': 'notes.txt', 'record': 'landmark.json'}.get(how, os.path.join('variables', 'variables.index'))
    path = os.path.join(version, file)
    if how in ('missing', 'record'):
        os.remove(path)
    else:
        with open(path, 'r+b' if how == 'altered' else 'wb') as stream:
            stream.write(b'\xff')
    return file


def test_versions_only_grow(models, destination):
    future = int(time.time()) + 1000
    os.makedirs(os.path.join(destination, str(future)))
    for name in ('.staging-elsewhere-1-00', 'temporary', '12.bak'):
        os.makedirs(os.path.join(destination, name))
    with open(os.path.join(destination, str(future + 9)), 'w'):
        pass  # a file is no version
    paths = push_all(models, destination, '!?')
    assert [os.path.basename(path) for path in paths] == [str(future + 1), str(future + 2)]
    assert [version.number for version in published.versions(destination)] == [future, future + 1, future + 2]
    assert [answer(path) for path in paths] == ['hi!', 'hi?']


def test_a_push_leaves_no_file_open(models, destination):
    before = len(os.listdir('/proc/self/fd'))
    push_all(models, destination, '!?')
    assert len(os.listdir('/proc/self/fd')) == before


def test_what_cannot_be_pushed_is_said(models, tmp_path):
    with pytest.raises(UserError, match=r'has no saved_model\.pb'):
        pusher.publish(str(tmp_path), str(tmp_path / 'destination'), {})
    assert not os.path.exists(tmp_path / 'destination')
    (tmp_path / 'file').write_text('')
    with pytest.raises(UserError, match=r'file/models cannot be created .* push\.destination'):
        pusher.publish(models['!'], str(tmp_path / 'file' / 'models'), {})


@pytest.mark.parametrize('how', ['altered', 'missing', 'added', 'record'])
def test_damage_is_named(models, destination, how):
    [good, bad] = push_all(models, destination, '!?')
    assert published.verify(bad)['version'] == int(os.path.basename(bad))
    file = change(bad, how)
    with pytest.raises(UserError, match=f'{re.escape(bad)} is damaged: {re.escape(file)} '):
        published.verify(bad)
    assert published.verify(good)
    assert answer(pusher.rollback(destination)) == 'hi!'  # away from a damaged version


@pytest.mark.parametrize('record', [
    '', '{', '[]', '"text"', '[' * 100_000, {'format': 2}, {'format': '1'}, {'version': '7'},
    {'version': None}, {'rolled_back_to': 1.5}, {'files': None}, {'files': []}, {'lineage': 'x'},
    {'lineage': None}, b'\xff'],
    ids=lambda record: str(record)[:20])
def test_a_record_of_another_form_is_none(models, destination, record):
    """And its version counts by its own number, whatever it says."""
    first, second = push_all(models, destination, '!?')
    path = os.path.join(second, 'landmark.json')
    if isinstance(record, dict):
        with open(path, encoding='utf-8') as file:
            record = json.dumps(json.load(file) | record)
    with open(path, 'wb') as file:
        file.write(record if isinstance(record, bytes) else record.encode())
    version = published.Version(second)
    assert version.record == {} and version.origin == version.number == int(os.path.basename(second))
    assert version.damage() == 'landmark.json is missing or cannot be read'
    assert answer(pusher.rollback(destination)) == 'hi!'
    assert published.verify(first)['lineage']


def test_what_is_no_rename_that_was_lost_is_not_tried_again(models, destination, monkeypatch):
    def denied(source, target):
        raise PermissionError(errno.EACCES, 'Permission denied', target)
    with monkeypatch.context() as patch, pytest.raises(PermissionError):
        patch.setattr(os, 'rename', denied)
        push_all(models, destination, '!')
    assert os.listdir(destination) == []


def test_a_file_system_without_locks_takes_pushes_too(models, destination, monkeypatch):
    def refused(folder, how):
        raise OSError(errno.ENOLCK, 'No locks available')
    left = os.path.join(destination, f'.staging-{os.uname().nodename}-1-00ff')
    os.makedirs(left)
    monkeypatch.setattr(fcntl, 'flock', refused)
    [path] = push_all(models, destination, '!')
    assert_whole(path)
    # nobody knows whose it is
    assert {*os.listdir(destination)} == {os.path.basename(left), os.path.basename(path)}


def test_a_copy_that_differs_is_not_published(models, destination, monkeypatch):
    copy = tf.io.gfile.copy

    def short(source, target):
        copy(source, target)
        if target.endswith('variables.index'):
            os.truncate(target, 10)
    monkeypatch.setattr(tf.io.gfile, 'copy', short)
    with pytest.raises(UserError, match=r'variables\.index has changed since'):
        push_all(models, destination, '!')
    assert os.listdir(destination) == []


def test_everything_is_on_disk_before_the_rename(models, destination, monkeypatch):
    order, rename, fsync = [], os.rename, os.fsync

    def seen_fsync(descriptor):
        fsync(descriptor)
        order.append(os.readlink(f'/proc/self/fd/{descriptor}'))

    def seen_rename(source, target):
        wanted = {os.path.join(directory, name) for directory, _, files in os.walk(source) for name in files}
        assert wanted | {directory for directory, _, _ in os.walk(source)} <= set(order)
        order.append('rename')
        rename(source, target)
    monkeypatch.setattr(os, 'fsync', seen_fsync)
    monkeypatch.setattr(os, 'rename', seen_rename)
    push_all(models, destination, '!')
    assert order[-2:] == ['rename', destination]


def test_rollback_goes_back_and_never_forth(models, destination):
    first, second, third = push_all(models, destination, '!?.')
    once = pusher.rollback(destination)
    assert once == served(destination) and answer(once) == 'hi?'
    twice = pusher.rollback(destination)
    assert twice == served(destination) and answer(twice) == 'hi!'
    with pytest.raises(UserError, match='nothing to go back to'):
        pusher.rollback(destination)
    for version in (first, second, third, once, twice):
        assert_whole(version)
    numbers = {path: int(os.path.basename(path)) for path in (first, second, third, once, twice)}
    assert sorted(numbers.values()) == list(numbers.values())
    record = published.verify(once)
    assert (record['rolled_back_from'], record['rolled_back_to']) == (numbers[third], numbers[second])
    record = published.verify(twice)
    assert (record['rolled_back_from'], record['rolled_back_to']) == (numbers[once], numbers[first])
    assert record['lineage'] == published.verify(first)['lineage']


def test_rollback_after_a_rollback_and_a_push_is_what_was_served_between(models, destination):
    push_all(models, destination, '!?')
    pusher.rollback(destination)  # ! again: ? was bad
    push_all(models, destination, '.')
    assert answer(pusher.rollback(destination)) == 'hi!'  # not ?


def test_rollback_passes_over_the_same_model_pushed_again(models, destination):
    push_all(models, destination, '!??')
    assert answer(pusher.rollback(destination)) == 'hi!'


def test_rollback_survives_removal_of_old_versions(models, destination):
    _, second, _ = push_all(models, destination, '!?.')
    pusher.rollback(destination)
    shutil.rmtree(second)
    assert answer(pusher.rollback(destination)) == 'hi!'


def test_nothing_to_roll_back(models, destination):
    with pytest.raises(UserError, match=f'nothing to roll back: {destination} holds no version'):
        pusher.rollback(destination)
    push_all(models, destination, '!')
    with pytest.raises(UserError, match='nothing to go back to'):
        pusher.rollback(destination)


def test_a_damaged_version_is_not_served_again(models, destination):
    first, second, _ = push_all(models, destination, '!?.')
    file = change(second, 'altered')
    with pytest.raises(UserError, match=f'{second} is damaged and cannot be served again: {file}'):
        pusher.rollback(destination)
    assert len(os.listdir(destination)) == 3
    shutil.rmtree(second)  # the remedy
    assert answer(pusher.rollback(destination)) == 'hi!'


def test_the_loser_of_a_number_takes_the_next(models, destination, monkeypatch):
    number = int(time.time()) + 100
    choose = pusher._next

    def overtaken(folder):
        chosen = max(number, choose(folder))
        if chosen == number:
            shutil.copytree(models['?'], os.path.join(folder, str(number)))
        return chosen
    monkeypatch.setattr(pusher, '_next', overtaken)
    [path] = push_all(models, destination, '!')
    assert os.path.basename(path) == str(number + 1) and answer(path) == 'hi!'
    assert_whole(path)
    assert answer(os.path.join(destination, str(number))) == 'hi?'


def test_many_pushers_at_once(models, destination):
    with futures.ThreadPoolExecutor(4) as pool:
        paths = [path for paths in pool.map(lambda suffix: push_all(models, destination, suffix * 5), '!?.!')
                 for path in paths]
    assert len(set(paths)) == 20
    assert {os.path.join(destination, name) for name in os.listdir(destination)} == set(paths)
    for path in paths:
        assert_whole(path)


def test_only_dead_pushers_leftovers_are_removed(models, destination):
    host = os.uname().nodename
    # A living process has the second's id, here; where it was written it may have been another's.
    gone = {f'.staging-{host}-{2 ** 22 + 1}-00ff', f'.staging-{host}-1-00ff'}
    kept = '.staging-elsewhere-1-00ff'
    for name in (*gone, kept):
        os.makedirs(os.path.join(destination, name, 'variables'))
    at_work = os.open(destination, os.O_RDONLY)
    fcntl.flock(at_work, fcntl.LOCK_SH)  # as another pusher has it, of whom these might be
    push_all(models, destination, '!')
    assert {*gone, kept} == {name for name in os.listdir(destination) if name.startswith('.')}
    os.close(at_work)
    push_all(models, destination, '!')
    assert {kept} == {name for name in os.listdir(destination) if name.startswith('.')}


def test_what_is_being_copied_is_not_swept_away(models, destination, monkeypatch):
    copy, both = tf.io.gfile.copy, threading.Barrier(2)

    def together(source, target):
        if target.endswith('saved_model.pb'):
            both.wait(60)  # each has its folder when the other ends, and neither may take it for a dead one's
        copy(source, target)
    monkeypatch.setattr(tf.io.gfile, 'copy', together)
    with futures.ThreadPoolExecutor(2) as pool:
        paths = [path for paths in pool.map(lambda suffix: push_all(models, destination, suffix), '!?')
                 for path in paths]
    assert {os.path.basename(path) for path in paths} == {*os.listdir(destination)} and len({*paths}) == 2
    for path in paths:
        assert_whole(path)


@pytest.mark.parametrize('work', ['push', 'rollback'])
def test_a_pusher_that_dies_at_any_call_leaves_whole_versions_and_the_next_removes_the_rest(
        models, destination, monkeypatch, work):
    kept, appeared = push_all(models, destination, '!?'), 0
    do = {'push': lambda: push_all(models, destination, '.'),
          'rollback': lambda: pusher.rollback(destination)}[work]
    number = 0
    while killed_at(number, do):
        versions = [os.path.join(destination, name) for name in os.listdir(destination) if name.isdecimal()]
        assert {*kept} <= {*versions} and len(versions) <= 3
        for version in versions:
            assert_whole(version)
        for version in {*versions} - {*kept}:
            shutil.rmtree(version)
            appeared += 1
        number += 1
    # after the rename comes a flush, and the removal of what is no longer there
    assert number > 20 and appeared > 1
    assert {*os.listdir(destination)} == {os.path.basename(path) for path in [*kept, served(destination)]}


@pytest.mark.slow  # kills at random moments of a clock
def test_readers_find_whole_versions_only_however_pushers_die(models, tmp_path):
    out = tmp_path / 'sweep'
    done = subprocess.run([sys.executable, push_sweep.__file__, '--models', models['!'], models['?'], '--pushes', '20',
                           '--out', str(out)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((out / 'push_sweep.json').read_text())
    killed = sum(count for what, count in found['push'].items() if what.startswith('killed'))
    assert killed > 3 and found['push']['pushes'] >= 20
    versions = [str(path) for path in (out / 'serving' / 'sweep').iterdir()]
    assert 21 - killed <= len(versions) == found['poll']['versions'] == found['serve']['loads']
    assert found['serve']['models'] == 2 and found['serve']['answers'] > len(versions)
    for version in versions:
        assert_whole(version)


@pytest.mark.parametrize('how', ['altered', 'missing', 'added', 'record'])
def test_a_reader_of_the_sweep_sees_damage(models, destination, how):
    [path] = push_all(models, destination, '!')
    assert push_sweep.flaw(path) is None
    change(path, how)
    assert push_sweep.flaw(path).startswith(f'{path}: ')


@pytest.fixture
def bucket():
    """An object store: TensorFlow's file system in memory, which is none of the operating system's."""
    path = f'ram://bucket/{os.getpid()}-{time.monotonic_ns()}/shouter'
    yield path
    tf.io.gfile.rmtree(os.path.dirname(path))


def test_object_store_gets_the_saved_model_last(models, bucket, monkeypatch):
    moved, rename = [], tf.io.gfile.rename

    def seen(source, target, overwrite=False):
        rename(source, target, overwrite)
        moved.append(target)
    monkeypatch.setattr(tf.io.gfile, 'rename', seen)
    [path] = push_all(models, bucket, '!')
    moved = [os.path.relpath(name, path) for name in moved if name.startswith(f'{path}/')]
    assert moved[0] == 'landmark.json' and moved[-1] == 'saved_model.pb' and len(moved) == len({*moved}) > 4
    assert path.startswith(f'{bucket}/') and answer(path) == 'hi!'
    assert tf.io.gfile.exists(os.path.join(path, WARMUP))
    published.verify(path)
    assert [name.rstrip('/') for name in tf.io.gfile.listdir(bucket)] == [os.path.basename(path)]


@pytest.mark.parametrize('call', ['copy', 'rename'])
def test_object_store_keeps_nothing_of_a_failed_push(models, bucket, monkeypatch, call):
    work = getattr(tf.io.gfile, call)

    def full(source, target, **kwargs):
        if 'variables.index' in target:
            raise tf.errors.ResourceExhaustedError(None, None, 'No space left on device')
        work(source, target, **kwargs)
    [path] = push_all(models, bucket, '!')
    with monkeypatch.context() as patched, pytest.raises(tf.errors.ResourceExhaustedError):
        patched.setattr(tf.io.gfile, call, full)
        push_all(models, bucket, '?')
    assert [name.rstrip('/') for name in tf.io.gfile.listdir(bucket)] == [os.path.basename(path)]
    assert answer(path) == 'hi!'


def test_object_store_gives_each_of_many_pushers_a_number(models, bucket):
    with futures.ThreadPoolExecutor(4) as pool:
        paths = [path for paths in pool.map(lambda suffix: push_all(models, bucket, suffix * 3), '!?.!')
                 for path in paths]
    assert len({*paths}) == 12 and {version.path for version in published.versions(bucket)} == {*paths}
    for path in paths:
        published.verify(path)
    assert all(name.rstrip('/').isdecimal() for name in tf.io.gfile.listdir(bucket))


def test_object_store_number_that_is_claimed_or_taken_is_left_alone(models, bucket, monkeypatch):
    number = int(time.time()) + 100
    tf.io.gfile.makedirs(bucket)
    dead = os.path.join(bucket, f'.claim-{number}-0000')
    with tf.io.gfile.GFile(dead, 'w') as file:
        file.write('')
    monkeypatch.setattr(pusher, '_next', lambda folder: number)  # as one that chose before the other was seen
    paths = push_all(models, bucket, '!?')
    assert len({*paths}) == 2 and all(int(os.path.basename(path)) > number for path in paths)
    assert [answer(path) for path in paths] == ['hi!', 'hi?']
    assert tf.io.gfile.exists(dead)


def test_object_store_rollback_passes_over_an_unfinished_version(models, bucket):
    push_all(models, bucket, '!?')
    unfinished = os.path.join(bucket, str(published.versions(bucket)[-1].number + 7))
    tf.io.gfile.makedirs(os.path.join(unfinished, 'variables'))
    with pytest.raises(UserError, match=f'{unfinished} is damaged: landmark.json is missing'):
        published.verify(unfinished)
    path = pusher.rollback(bucket)
    assert answer(path) == 'hi!' and path == published.versions(bucket)[-1].path
