"""The folder TensorFlow Serving watches: whole versions appear in it in one step, and earlier ones come back.

    <destination>/1763722800/                a version: saved_model.pb, variables/, assets/, assets.extra/
    <destination>/1763722800/landmark.json   the hashes of its files, and where they came from
    <destination>/.staging-<host>-<pid>-…    a push under way; serving looks at integer names only

Serving loads the highest number. A version is never changed once it has its number: a rollback publishes the
earlier files again under a new, higher one.
"""
import dataclasses
import datetime
import errno
import functools
import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterable

import tensorflow as tf

from data_prep import UserError, records
from pipelines import artifacts

FORMAT = 1
RECORD = 'landmark.json'
SAVED_MODEL = 'saved_model.pb'
_STAGING = re.compile(r'\.staging-(.+)-([0-9]+)-[0-9a-f]+')


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
        except (tf.errors.OpError, ValueError):
            return {}
        good = isinstance(record, dict) and record.get('format') == FORMAT
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
    try:
        tf.io.gfile.makedirs(destination)
    except tf.errors.OpError as error:
        raise UserError(f'{destination} cannot be made ({error.message}); '
                        'give another place with --set push.destination=DIR.') from error
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    put = _publish_remote if '://' in destination else _publish_local
    return put(source, destination, {'format': FORMAT, 'pushed': now, **record})


def _publish_local(source: str, destination: str, record: dict) -> str:
    """Copies beside, checks, sends to disk, renames: even after a power cut there is a whole version or none."""
    _remove_dead_staging(destination)
    staging = os.path.join(destination, f'.staging-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}')
    try:
        _copy(source, staging, record['files'])
        _check_copy(source, staging, record['files'])
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
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _publish_remote(source: str, destination: str, record: dict) -> str:
    """On an object store a rename is a copy, so the one file without which nothing loads is written last.

    Two pushers that choose the same second find each other's files in the check, and both give up.
    """
    version = _next(destination)
    path = os.path.join(destination, str(version))
    rest = {file: digest for file, digest in record['files'].items() if file != SAVED_MODEL}
    try:
        _copy(source, path, rest)
        _check_copy(source, path, rest)
        _write_record(path, {**record, 'version': version})
        _copy(source, path, [SAVED_MODEL])
        _check_copy(source, path, record['files'])
    except BaseException:
        if tf.io.gfile.exists(path):  # a server that starts now would try the highest number and nothing else
            tf.io.gfile.rmtree(path)
        raise
    return path


def _next(destination: str) -> int:
    """Seconds since 1970, by which TFX numbers versions too, unless the newest version is already there."""
    return max([int(time.time()), *(version.number + 1 for version in versions(destination))])


def _copy(source: str, target: str, files: Iterable[str]) -> None:
    for file in files:
        path = os.path.join(target, file)
        tf.io.gfile.makedirs(os.path.dirname(path))
        tf.io.gfile.copy(os.path.join(source, file), path)


def _check_copy(source: str, target: str, files: dict[str, str]) -> None:
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


def _remove_dead_staging(destination: str) -> None:
    """Removes what killed pushers left. Another machine's stays: only that one knows whether it still works."""
    for name in os.listdir(destination):
        match = _STAGING.fullmatch(name)
        if match and not artifacts.alive(f'{match[1]} {match[2]}'):
            shutil.rmtree(os.path.join(destination, name), ignore_errors=True)
