"""The folder TensorFlow Serving watches: whole versions appear in it in one step, and earlier ones come back.

    <destination>/1763722800/                a version: saved_model.pb, variables/, assets/, assets.extra/
    <destination>/1763722800/landmark.json   the hashes of its files, and where they came from
    <destination>/.staging-<host>-<pid>-…    a push under way; serving looks at integer names only
    <destination>/.claim-<version>-…         who is about to take that number, on an object store

Serving loads the highest number. A version is never changed once it has its number: a rollback publishes the
earlier files again under a new, higher one.
"""
import contextlib
import dataclasses
import datetime
import errno
import fcntl
import functools
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

FORMAT = 1
RECORD = 'landmark.json'
SAVED_MODEL = 'saved_model.pb'
_STAGING = re.compile(r'\.staging-(.+)-[0-9]+-[0-9a-f]+')


@dataclasses.dataclass(frozen=True)
class Version:
    """One integer folder of a destination; what is in it is read when it is asked for."""
    path: str

    @property
    def number(self) -> int:
        return int(os.path.basename(self.path))

    @functools.cached_property
    def record(self) -> dict:
        """Its `landmark.json`; empty where there is none that can be read."""
        try:
            with tf.io.gfile.GFile(os.path.join(self.path, RECORD), 'rb') as file:
                record = json.loads(file.read())
        except (tf.errors.OpError, ValueError, RecursionError):
            return {}
        good = isinstance(record, dict) and record.get('format') == FORMAT and all(
            type(record.get(key, 0)) is int for key in ('version', 'rolled_back_to'))
        return record if good and all(isinstance(record.get(key), dict) for key in ('files', 'lineage')) else {}

    @property
    def loadable(self) -> bool:
        """Whether serving can load it; on an object store a push under way shows, still without this file."""
        return tf.io.gfile.exists(os.path.join(self.path, SAVED_MODEL))

    @property
    def origin(self) -> int:
        """The number these files were first pushed under."""
        return self.record.get('rolled_back_to', self.record.get('version', self.number))

    def damage(self) -> str | None:
        """What is wrong with its files, in words; reads all of them."""
        if not self.record:
            return f'{RECORD} is missing or cannot be read'
        return _difference(self.record['files'], _hashes(self.path))


def publish(saved_model_dir: str, destination: str, lineage: dict) -> str:
    """Publishes a SavedModel as the version to serve.

    Args:
      saved_model_dir: the folder with `saved_model.pb`.
      destination: the folder serving watches, on any path TensorFlow can write.
      lineage: where the model came from, kept in `landmark.json`.

    Returns:
      The version's folder.

    Raises:
      UserError: there is no SavedModel, or the destination cannot be made.
    """
    files = _hashes(saved_model_dir)
    if SAVED_MODEL not in files:
        raise UserError(f'{saved_model_dir} has no {SAVED_MODEL}, so there is nothing to push; '
                        'run `python -m pipelines.export` first.')
    return _publish(saved_model_dir, destination, {'files': files, 'lineage': lineage})


def versions(destination: str) -> list[Version]:
    """All versions in a destination, oldest first; none where there is no such folder."""
    return list(map(Version, artifacts.version_folders(destination)))


def verify(version_path: str) -> dict:
    """Checks that a version's files are those that were pushed.

    Returns:
      Its `landmark.json`.

    Raises:
      UserError: names the first file that is missing, altered or not part of it.
    """
    version = Version(version_path)
    wrong = version.damage()
    if wrong:
        raise UserError(f'{version_path} is damaged: {wrong}; push the model again, or go back to the one before '
                        'it with `python -m pipelines.push --rollback`.')
    return version.record


def rollback(destination: str) -> str:
    """Publishes the model that was served before the present one again, under a new and higher number.

    Returns:
      The new version's folder.

    Raises:
      UserError: there is nothing to go back to, or it has been damaged.
    """
    history = _history(destination)
    if not history:
        raise UserError(f'There is nothing to roll back: {destination} holds no version; '
                        'run `python -m pipelines.push` first.')
    now = history[-1]
    others = [version for version in history if version.record.get('files') != now.record.get('files')]
    if not others:
        raise UserError(f'There is nothing to go back to: {destination} holds no other model that was served '
                        f'before version {now.number}; push a better one instead.')
    target = others[-1]
    wrong = target.damage()
    if wrong:
        raise UserError(f'{target.path} is damaged and cannot be served again: {wrong}; remove that folder, and '
                        '`python -m pipelines.push --rollback` goes to the version before it.')
    return _publish(target.path, destination, {
        'files': target.record['files'], 'lineage': target.record['lineage'],
        'rolled_back_from': now.number, 'rolled_back_to': target.origin})


def _history(destination: str) -> list[Version]:
    """What was served, as a pile: a push lays a version on top, a rollback takes off what came after its files.

    The last one is served now and the one below it is what a rollback returns to, so a second rollback goes one
    further down and never back up.
    """
    pile: list[Version] = []
    for version in versions(destination):
        if version.loadable:
            pile = [earlier for earlier in pile if earlier.origin < version.origin] + [version]
    return pile


def _publish(source: str, destination: str, record: dict) -> str:
    """Copies beside, checks, and only then lets the version appear."""
    try:
        tf.io.gfile.makedirs(destination)
    except tf.errors.OpError as error:
        raise UserError(f'{destination} cannot be made ({error.message}); '
                        'give another place with --set push.destination=DIR.') from error
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    remote = '://' in destination
    staging = os.path.join(destination, f'.staging-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}')
    with contextlib.nullcontext() if remote else _working(destination):
        try:
            _copy(source, staging, record['files'])
            commit = _commit_remote if remote else _commit_local
            return commit(staging, destination, {'format': FORMAT, 'pushed': now, **record})
        finally:
            with contextlib.suppress(tf.errors.OpError):  # as a rule it is no longer there
                tf.io.gfile.rmtree(staging)


def _commit_local(staging: str, destination: str, record: dict) -> str:
    """Sends to disk, then renames: even after a power cut there is a whole version or none."""
    while True:
        version = _next(destination)
        path = os.path.join(destination, str(version))
        _write_record(staging, {**record, 'version': version})
        _flush(staging)
        try:
            os.rename(staging, path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            continue  # another pusher has just taken this number; the next one is ours
        _flush_entry(destination)
        return path


def _commit_remote(staging: str, destination: str, record: dict) -> str:
    """File by file, for an object store renames no folder: the one file without which nothing loads goes last.

    The store itself moves them, which keeps the time short in which a server sees a number it cannot load yet:
    TensorFlow Serving tries that for five minutes, and then never again.
    """
    with _claimed(destination) as version:
        path = os.path.join(destination, str(version))
        _write_record(staging, {**record, 'version': version})
        try:
            for file in sorted([RECORD, *record['files']], key=lambda file: file == SAVED_MODEL):
                tf.io.gfile.makedirs(os.path.dirname(os.path.join(path, file)))
                tf.io.gfile.rename(os.path.join(staging, file), os.path.join(path, file))
        except BaseException:
            if tf.io.gfile.exists(path):  # a server that starts now would try the highest number and nothing else
                tf.io.gfile.rmtree(path)
            raise
        return path


@contextlib.contextmanager
def _claimed(destination: str) -> Iterator[int]:
    """A number that nobody else takes, where no rename fails and any file can be written over.

    Whoever wants a number says so in a file of its own, then looks for others'. Of two, the one that wrote later sees
    the other's and wants another number. Needs a store that lists what has been written, as Google's and Amazon's do.
    """
    version = _next(destination)
    while True:
        claim = f'.claim-{version}-{uuid.uuid4().hex}'
        try:
            with tf.io.gfile.GFile(os.path.join(destination, claim), 'wb') as file:
                file.write(b'')  # which creates it
            names = [name.rstrip('/') for name in tf.io.gfile.listdir(destination)]
            rivals = [name for name in names if name.startswith(f'.claim-{version}-') and name != claim]
            if not rivals and str(version) not in names:
                yield version
                return
        finally:
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.remove(os.path.join(destination, claim))
        version = max(_next(destination), version + random.randint(1, 9))  # not what all the others want next


def _next(destination: str) -> int:
    """Seconds since 1970, by which TFX numbers versions too, unless the newest version is already there."""
    return max([int(time.time()), *(version.number + 1 for version in versions(destination))])


def _copy(source: str, target: str, files: dict[str, str]) -> None:
    """Copies files, hash by name, and reads them back."""
    for file in files:
        path = os.path.join(target, file)
        tf.io.gfile.makedirs(os.path.dirname(path))
        tf.io.gfile.copy(os.path.join(source, file), path)
    wrong = _difference(files, _hashes(target))
    if wrong:
        raise UserError(f'The copy of {source} in {target} is not the same: {wrong}; '
                        'see that nobody else writes there and that the disk is sound, then push again.')


def _hashes(folder: str) -> dict[str, str]:
    """SHA-256 of a SavedModel's files; a version's own record is not one of them."""
    return {file: digest for file, digest in sorted(artifacts.file_hashes(folder).items()) if file != RECORD}


def _difference(expected: dict[str, str], found: dict[str, str]) -> str | None:
    """The first file in which two sets of hashes differ, in words."""
    for file in sorted({*expected, *found}):
        if file not in found:
            return f'{file} is missing'
        if file not in expected:
            return f'{file} was never pushed'
        if expected[file] != found[file]:
            return f'{file} is not the file that was pushed (SHA-256 differs)'
    return None


def _write_record(path: str, record: dict) -> None:
    records.write_atomically(os.path.join(path, RECORD), json.dumps(record, indent=1, sort_keys=True).encode())


def _flush(folder: str) -> None:
    """Sends a folder's bytes and names to the disk, before the rename that makes them count."""
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
    """Shares a lock with all who push here. Who has it alone removes what killed pushers left.

    The kernel frees the lock of whoever dies. Process ids would not tell: in another container they are others. Another
    machine's leftovers stay, for it may not see the lock.
    """
    folder = os.open(destination, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # others are at work, or the file system has no locks
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
