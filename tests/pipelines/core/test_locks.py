"""Locks of one piece of work: refused, taken over and given up; in an object store, on two machines."""
import os
import socket
import time
import urllib.parse

import pytest

from data_prep import UserError
from pipelines.core import locks
from support import object_server

PARTIAL = 'gs://bucket/root/train/.partial-abc'
KEY = f'/b/bucket/o/{urllib.parse.quote("root/train/.lock-abc", safe="")}'


@pytest.fixture
def objects(monkeypatch):
    """An object store with nothing in it; heartbeats follow each other at once."""
    monkeypatch.setattr(locks, '_HEARTBEAT_SECONDS', 0.02)
    monkeypatch.setattr(locks, '_POLL_SECONDS', 0.01)
    with object_server.serving() as served:
        monkeypatch.setenv('STORAGE_EMULATOR_HOST', served.url)
        yield served


def leave(objects, process: str) -> None:
    """Leave a lease as a process does that dies while it holds it."""
    objects.stored[KEY] = object_server.Stored(7, b'', {'process': process, 'id': 'x'})


def test_work_that_another_machine_does_is_refused_and_the_machine_named(objects, capfd):
    with locks.held(PARTIAL, 'train'):
        with pytest.raises(UserError, match=rf'{locks.process()} \(host, process\) is running train'):
            with locks.held(PARTIAL, 'train'):
                pass
        with locks.held(PARTIAL.replace('abc', 'def'), 'train'):
            pass
    assert not objects.stored
    with locks.held(PARTIAL, 'train'):
        pass
    assert 'may be running it; waiting at most 120 s' in capfd.readouterr().out


@pytest.mark.parametrize('process', [f'{socket.gethostname()} 999999999', 'another_host 1'])
def test_the_lease_of_a_dead_process_is_taken_over(objects, monkeypatch, process):
    """At once if it was on this machine; another machine's, when it has given no sign for a time."""
    leave(objects, process)
    if process.startswith('another'):
        monkeypatch.setattr(locks, '_EXPIRY_SECONDS', 0.1)
    with locks.held(PARTIAL, 'train'):
        assert objects.stored[KEY].metadata['process'] == locks.process()
    assert not objects.stored


def test_answers_that_are_lost_cost_no_lease(objects):
    objects.unanswered = 1
    with locks.held(PARTIAL, 'train'):
        objects.unanswered = 2
        while objects.unanswered:
            time.sleep(0.01)
        generation = objects.stored[KEY].generation
        while objects.stored[KEY].generation < generation + 2:
            time.sleep(0.01)
    assert not objects.stored


def test_work_whose_lease_was_taken_over_is_not_published(objects, monkeypatch):
    """After a machine slept, say, before its next heartbeat."""
    monkeypatch.setattr(locks, '_HEARTBEAT_SECONDS', 60)
    with locks.held(PARTIAL, 'train') as confirm:
        confirm()
        leave(objects, 'another_host 1')
        with pytest.raises(UserError, match='another machine has taken over train'):
            confirm()
    assert objects.stored[KEY].metadata['process'] == 'another_host 1'


@pytest.mark.parametrize('what, said', [
    ('taken over', 'another machine has taken over train, because this one gave no sign of life'),
    ('unreachable', 'Google Cloud Storage refused a request')])
def test_a_process_that_loses_its_lease_ends_before_it_writes(objects, monkeypatch, tmp_path, capfd, what, said):
    monkeypatch.setattr(locks, '_GIVE_UP_SECONDS', 0.1)
    if not (child := os.fork()):
        with locks.held(PARTIAL, 'train'):
            (tmp_path / 'holds').touch()
            while True:
                time.sleep(1)
    while not (tmp_path / 'holds').exists():
        time.sleep(0.01)
    if what == 'unreachable':
        objects.error = 403
    else:
        with objects.lock:
            objects.stored[KEY] = object_server.Stored(objects.stored[KEY].generation + 9, b'', {'id': 'another'})
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert said in capfd.readouterr().err
