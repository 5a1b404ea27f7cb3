"""Push to and roll back in the folder TensorFlow Serving watches; a version appears there whole, in one step.

    <destination>/1763722800/                a version: saved_model.pb, variables/, assets/, assets.extra/
    <destination>/1763722800/landmark.json   hashes of its files, and its lineage
    <destination>/1763722800/formats/tflite/ the same model in another format, which serving ignores
    <destination>/.staging-<host>-<pid>-…    a push in progress; serving only considers integer names
    <destination>/.claim-<version>-…         claim of a process on that number, in an object store

Serving loads the highest number. A version never changes once it has its number: a rollback publishes the earlier
files again under a new, higher number. A canary, which is served only to those who ask for its label, takes a number
below the served version's; its promotion publishes its files again under a higher one.
"""
import contextlib
import datetime
import errno
import fcntl
import json
import os
import random
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator

import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from pipelines.core import artifacts
from pipelines.serving import published
from pipelines.serving.published import FORMAT, FORMATS, RECORD, SAVED_MODEL, Version

_STAGING = re.compile(r'\.staging-(.+)-[0-9]+-[0-9a-f]+')


def publish(saved_model_dir: str, destination: str, lineage: dict, formats: dict[str, str] | None = None,
            canary: bool = False) -> str:
    """Publish a SavedModel, and the same model in other formats, as the version to serve.

    Args:
      saved_model_dir: the folder with `saved_model.pb`.
      destination: the folder serving watches, on any path TensorFlow can write.
      lineage: the model's lineage, written to `landmark.json`.
      formats: the folder of every other format, by its name.
      canary: publish it beside the served version instead, see `Version.is_canary`.

    Returns:
      The version's folder.

    Raises:
      UserError: there is no SavedModel, no version beside which it could be a canary, or the destination cannot be
        created.
    """
    files, sources = published.hashes(saved_model_dir), {'': saved_model_dir}
    if SAVED_MODEL not in files:
        raise UserError(f'{saved_model_dir} has no {SAVED_MODEL}, so there is nothing to push. '
                        'Run `python -m pipelines.export` first.')
    for name, folder in (formats or {}).items():
        sources[f'{FORMATS}/{name}/'] = folder
        files |= {f'{FORMATS}/{name}/{file}': digest for file, digest in artifacts.file_hashes(folder).items()}
    found = published.versions(destination)
    same = bool(found) and found[-1].record.get('files') == files
    if not canary:
        if same and 'promoted_from' in found[-1].record and not found[-1].damage():
            return found[-1].path  # a promotion has pushed it already
        return _publish(sources, destination, {'files': files, 'lineage': lineage})
    if not found:
        raise UserError(f'{destination} holds no version beside which a canary could be tried. '
                        'Run `python -m pipelines.push` first.')
    if same:
        raise UserError(f'{found[-1].path} has the same files, so there is nothing to try. Train another model first.')
    return _publish(sources, destination, {'files': files, 'lineage': lineage, 'canary': True})


def rollback(destination: str) -> str:
    """Publish the previously served model again, under a new, higher number.

    Returns:
      The new version's folder.

    Raises:
      UserError: there is no earlier version, or it is damaged.
    """
    history = _history(destination)
    if not history:
        raise UserError(f'There is nothing to roll back: {destination} holds no version. '
                        'Run `python -m pipelines.push` first.')
    now = history[-1]
    others = [version for version in history if version.record.get('files') != now.record.get('files')]
    if not others:
        raise UserError(f'There is nothing to go back to: {destination} holds no other model that was served '
                        f'before version {now.number}. Push a better one instead.')
    target = others[-1]
    wrong = target.damage()
    if wrong:
        raise UserError(f'{target.path} is damaged and cannot be served again: {wrong}. Remove that folder, and '
                        '`python -m pipelines.push --rollback` goes to the version before it.')
    return _publish({'': target.path}, destination, {
        'files': target.record['files'], 'lineage': target.record['lineage'],
        'rolled_back_from': now.number, 'rolled_back_to': target.origin})


def promoted(destination: str, canary: Version) -> str | None:
    """Return the served version's folder if it is the promotion of this canary."""
    served = published.versions(destination)[-1]
    return served.path if served.record.get('promoted_from') == canary.number else None


def promote(destination: str, canary: Version, comparison: dict) -> str:
    """Publish a canary's files as the version to serve, unless a promotion that was killed already did.

    Args:
      comparison: with the version served until now, written to `landmark.json`.

    Returns:
      The new version's folder.
    """
    return promoted(destination, canary) or _publish({'': canary.path}, destination, {
        'files': canary.record['files'], 'lineage': canary.record['lineage'], 'promoted_from': canary.number,
        'comparison': comparison})


def _history(destination: str) -> list[Version]:
    """Return the served versions as a stack: a push adds one, a rollback removes those pushed after its files.

    The last one is served now, and a rollback returns to the one before it; so a second rollback goes one further back.
    """
    pile: list[Version] = []
    for version in published.versions(destination):
        if version.loadable and not version.is_canary:
            pile = [earlier for earlier in pile if earlier.origin < version.origin] + [version]
    return pile


def _publish(sources: dict[str, str], destination: str, record: dict) -> str:
    """Copy to a staging folder, check, and only then make the version visible.

    Args:
      sources: the folder of the files whose paths begin so; the longest beginning counts.
    """
    try:
        tf.io.gfile.makedirs(destination)
    except tf.errors.OpError as error:
        raise UserError(f'{destination} cannot be created ({error.message}). '
                        'Give another folder with --set push.destination=DIR.') from error
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    remote = '://' in destination
    staging = os.path.join(destination, f'.staging-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}')
    with contextlib.nullcontext() if remote else _working(destination):
        try:
            _copy(sources, staging, record['files'])
            commit = _commit_remote if remote else _commit_local
            return commit(staging, destination, {'format': FORMAT, 'pushed': now, **record})
        finally:
            with contextlib.suppress(tf.errors.OpError):  # normally it no longer exists
                tf.io.gfile.rmtree(staging)


def _commit_local(staging: str, destination: str, record: dict) -> str:
    """Flush to disk, then rename: even after a power cut there is a whole version or none."""
    while True:
        version = _number(destination, canary='canary' in record)
        path = os.path.join(destination, str(version))
        _write_record(staging, {**record, 'version': version})
        _flush(staging)
        try:
            os.rename(staging, path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            continue  # another process has just taken this number; try the next
        _flush_entry(destination)
        return path


def _commit_remote(staging: str, destination: str, record: dict) -> str:
    """Move file by file, as object stores rename no folders; `saved_model.pb`, needed for loading, goes last.

    The store itself moves the files, which shortens the time in which a server sees a number it cannot load yet:
    TensorFlow Serving retries for five minutes, then gives up on that version.
    """
    with _claimed(destination, canary='canary' in record) as version:
        path = os.path.join(destination, str(version))
        _write_record(staging, {**record, 'version': version})
        try:
            for file in sorted([RECORD, *record['files']], key=lambda file: file == SAVED_MODEL):
                tf.io.gfile.makedirs(os.path.dirname(os.path.join(path, file)))
                tf.io.gfile.rename(os.path.join(staging, file), os.path.join(path, file))
        except BaseException:
            if tf.io.gfile.exists(path):  # a server starting now would only try the highest number
                tf.io.gfile.rmtree(path)
            raise
        return path


@contextlib.contextmanager
def _claimed(destination: str, canary: bool) -> Iterator[int]:
    """Claim a version number in an object store, where no rename fails and any file can be overwritten.

    Each process writes a claim file of its own, then looks for others'. Of two rivals, the later writer sees the
    other's claim and takes another number. Needs a store that lists what has been written, as Google's and Amazon's do.
    """
    version = _number(destination, canary)
    while True:
        claim = f'.claim-{version}-{uuid.uuid4().hex}'
        try:
            with tf.io.gfile.GFile(os.path.join(destination, claim), 'wb') as file:
                file.write(b'')  # creates the file
            names = [name.rstrip('/') for name in tf.io.gfile.listdir(destination)]
            rivals = [name for name in names if name.startswith(f'.claim-{version}-') and name != claim]
            if not rivals and str(version) not in names:
                yield version
                return
        finally:
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.remove(os.path.join(destination, claim))
        step, found = random.randint(1, 9), _number(destination, canary)  # unlikely to be the rivals' next choice
        version = min(found, version - step) if canary else max(found, version + step)


def _number(destination: str, canary: bool) -> int:
    """Return a free number: above all versions, or for a canary the highest below the served one."""
    return _below(destination) if canary else _next(destination)


def _next(destination: str) -> int:
    """Return seconds since 1970, TFX's version numbers, or one more than the newest version if that is higher."""
    return max([int(time.time()), *(version.number + 1 for version in published.versions(destination))])


def _below(destination: str) -> int:
    taken = {version.number for version in published.versions(destination)}
    return next(number for number in range(max(taken) - 1, 0, -1) if number not in taken)


def _copy(sources: dict[str, str], target: str, files: dict[str, str]) -> None:
    """Copy files (path -> hash) and verify the copies."""
    for file in files:
        path, start = os.path.join(target, file), max(filter(file.startswith, sources), key=len)
        tf.io.gfile.makedirs(os.path.dirname(path))
        tf.io.gfile.copy(os.path.join(sources[start], file.removeprefix(start)), path)
    wrong = published.difference(files, published.hashes(target))
    if wrong:
        raise UserError(f'The copy of {sources[""]} in {target} differs: {wrong}. '
                        'Check that nothing else writes there and that the disk is healthy, then push again.')


def _write_record(path: str, record: dict) -> None:
    records.write_atomically(os.path.join(path, RECORD), json.dumps(record, indent=1, sort_keys=True).encode())


def _flush(folder: str) -> None:
    """Flush a folder's bytes and names to disk, before the rename that publishes them."""
    for directory, _, files in os.walk(folder):
        for name in [*files, '.']:
            _flush_entry(os.path.join(directory, name))


def _flush_entry(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _working(destination: str) -> Iterator[None]:
    """Share a lock with all processes pushing here; one that holds it alone removes what killed pushes left.

    The kernel releases the lock of a process that dies. Process ids would be unreliable: they differ between
    containers. Another machine's leftovers stay, because it may not see the lock.
    """
    folder = os.open(destination, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # other processes are pushing, or the file system has no locks
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(destination):
                match = _STAGING.fullmatch(name)
                if match and match[1] == socket.gethostname():
                    shutil.rmtree(os.path.join(destination, name), ignore_errors=True)
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_SH)
        yield
    finally:
        os.close(folder)
