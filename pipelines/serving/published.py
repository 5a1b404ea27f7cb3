"""Read the versions in a folder that TensorFlow Serving watches: their numbers, records and hashes.

    <destination>/1763722800/                a version: saved_model.pb, variables/, assets/, assets.extra/
    <destination>/1763722800/landmark.json   hashes of its files, and its lineage

`pusher.py` writes them.
"""
import dataclasses
import functools
import json
import os

from data_prep import UserError
from data_prep.core import files
from pipelines.core import artifacts

FORMAT = 1
RECORD = 'landmark.json'
SAVED_MODEL = 'saved_model.pb'
FORMATS = 'formats'  # the folder of other formats


@dataclasses.dataclass(frozen=True)
class Version:
    """One integer-named folder of a destination; its contents are read on access."""
    path: str

    @property
    def number(self) -> int:
        return int(os.path.basename(self.path))

    @functools.cached_property
    def record(self) -> dict:
        """Its `landmark.json`; empty if it is missing or cannot be read."""
        try:
            record = json.loads(files.content(os.path.join(self.path, RECORD)))
        except (OSError, ValueError, RecursionError):
            return {}
        good = isinstance(record, dict) and record.get('format') == FORMAT and all(
            type(record.get(key, 0)) is int for key in ('version', 'rolled_back_to'))
        return record if good and all(isinstance(record.get(key), dict) for key in ('files', 'lineage')) else {}

    @property
    def loadable(self) -> bool:
        """Whether serving can load it; in an object store a push in progress is visible but lacks this file."""
        return files.exists(os.path.join(self.path, SAVED_MODEL))

    @property
    def formats(self) -> list[str]:
        """Other formats in it."""
        listed = self.record.get('files', {})
        return sorted({file.split('/')[1] for file in listed if file.startswith(f'{FORMATS}/')})

    @property
    def is_canary(self) -> bool:
        """Whether it was pushed to be tried beside the served version."""
        return self.record.get('canary') is True

    @property
    def origin(self) -> int:
        """Number these files were first pushed under."""
        return self.record.get('rolled_back_to', self.record.get('version', self.number))

    def damage(self) -> str | None:
        """Describe what is wrong with its files, all of which are read; None if they are intact."""
        if not self.record:
            return f'{RECORD} is missing or cannot be read'
        return difference(self.record['files'], hashes(self.path))


def versions(destination: str) -> list[Version]:
    """Return all versions in a destination, oldest first; empty if the folder does not exist."""
    return list(map(Version, artifacts.version_folders(destination)))


def verify(version_path: str) -> dict:
    """Check that a version's files are the pushed ones.

    Returns:
      Its `landmark.json`.

    Raises:
      UserError: a file is missing, altered or not part of it; the message names the first.
    """
    version = Version(version_path)
    wrong = version.damage()
    if wrong:
        raise UserError(f'{version_path} is damaged: {wrong}. Push the model again, or go back to the one before '
                        'it with `python -m pipelines.push --rollback`.')
    return version.record


def hashes(folder: str) -> dict[str, str]:
    """Return the SHA-256 of a SavedModel's files, without a version's own record."""
    return {file: digest for file, digest in sorted(artifacts.file_hashes(folder).items()) if file != RECORD}


def difference(expected: dict[str, str], found: dict[str, str]) -> str | None:
    """Describe the first file in which two sets of hashes differ."""
    for file in sorted({*expected, *found}):
        if file not in found:
            return f'{file} is missing'
        if file not in expected:
            return f'{file} was never pushed'
        if expected[file] != found[file]:
            return f'{file} has changed since the push (its SHA-256 differs)'
    return None
