"""Stores of lineage: a SQLite file on a disk or in Google Cloud Storage, or a MySQL database.

Any number of processes and machines may write, and none loses what another wrote. A file on a disk has SQLite's locks,
a database its transactions. An object has neither, but a generation: a writer downloads it, changes its copy, and
uploads that only if the object still has this generation; otherwise it starts again with the newer one.
"""
import os
import random
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from typing import Protocol, TypeVar

from ml_metadata import errors, metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from data_prep import UserError
from pipelines.core import objects

FILE = 'metadata.sqlite'
ADDRESS, PASSWORD, PASSWORD_FILE = (
    'LANDMARK_METADATA', 'LANDMARK_METADATA_PASSWORD', 'LANDMARK_METADATA_PASSWORD_FILE')
_FORM = 'mysql://USER@HOST:PORT/DATABASE'
_MAX_ATTEMPTS = 25  # about 40 s in all
_MAX_WAIT_SECONDS = 4.0
_MAX_RETRIES = 10  # by ML Metadata, of a transaction that another one blocked
_UNFINISHED = 'concurrent connection to the empty database'  # in ML Metadata's error while another creates the tables

Result = TypeVar('Result')
Change = Callable[[metadata_store.MetadataStore], Result]


class Store(Protocol):
    """A place of lineage."""

    def read(self) -> metadata_store.MetadataStore:
        """Return everything written until now. To write, use `write`: changes to this may be lost."""

    def write(self, change: Change[Result]) -> Result:
        """Apply a change. It may be applied again, to a newer state, and must then give the same lineage."""


class _Unreachable(UserError):
    """Raised when a database cannot be connected to."""


_TRANSIENT = (objects.Stale, _Unreachable, errors.AbortedError, errors.InternalError, errors.UnavailableError)


def shared() -> str | None:
    """Return the address of the store of all pipelines, from the environment; None if each root has its own."""
    found = os.environ.get(ADDRESS)
    return found if not found or '://' in found else os.path.abspath(found)


def environment() -> dict[str, str]:
    """Return the variables that name the store to a process elsewhere; the password itself is not among them."""
    return {name: os.environ[name] for name in (ADDRESS, PASSWORD_FILE) if name in os.environ}


def address(root: str) -> str:
    """Return the address of the lineage of a pipeline root."""
    return shared() or os.path.join(root, FILE)


def open_store(address: str) -> Store:
    """Open the store at an address, creating it if necessary.

    Raises:
      UserError: it cannot be opened, or several writers would lose lineage there.
    """
    scheme = address.partition('://')[0] if '://' in address else ''
    if scheme not in _KINDS:
        raise UserError(f'{address}: lineage cannot lie in {scheme}://, where one writer can overwrite another. Set '
                        f'{ADDRESS} to {_FORM}, to an object in gs://, or to a file on a disk.')
    return _KINDS[scheme](address)


class _File:
    """A SQLite file on a disk."""

    def __init__(self, address: str):
        folder = os.path.dirname(os.path.abspath(address))
        try:
            os.makedirs(folder, exist_ok=True)
        except FileNotFoundError as error:  # raised for a parent such as /proc, where no folder can be made
            raise UserError(f'{folder}: this folder cannot be made. Give another --pipeline_root or '
                            f'{ADDRESS}.') from error
        self._address, self._connection = address, _sqlite(address, address)

    def read(self) -> metadata_store.MetadataStore:
        return self._connection

    def write(self, change: Change[Result]) -> Result:
        return _persist(self._address, lambda: change(self._connection))


class _Object:
    """A SQLite file in Google Cloud Storage, and a copy of it in a temporary folder."""

    def __init__(self, address: str):
        self._address, self._object = address, objects.Object(address)
        self._folder = tempfile.TemporaryDirectory(prefix='lineage-')
        self._copy = os.path.join(self._folder.name, FILE)
        self._generation: int | None = None  # of the copy; None if it is of none, 0 if there is no object
        self._fetch()

    def read(self) -> metadata_store.MetadataStore:
        self._fetch()
        return self._connection

    def write(self, change: Change[Result]) -> Result:
        def attempt() -> Result:
            expected = self._fetch()
            self._generation = None  # if anything fails, the copy counts no more
            result = change(self._connection)
            with open(self._copy, 'rb') as file:
                self._generation = self._object.upload(file.read(), expected)
            return result
        return _persist(self._address, attempt)

    def _fetch(self) -> int:
        """Replace the copy unless it is of the newest generation, and return that."""
        generation, _ = self._object.state()
        if generation != self._generation:
            if os.path.exists(self._copy):
                os.remove(self._copy)
            if generation:
                self._object.download(self._copy)  # if this is a newer one already, its upload is refused
            self._connection, self._generation = _sqlite(self._copy, self._address), generation
        return generation


class _Database:
    """A MySQL database. Each use connects anew, in 3 ms: servers drop connections that idle while a model trains."""

    def __init__(self, address: str):
        self._address, self._config = address, mysql_config(address)
        self.read()

    def read(self) -> metadata_store.MetadataStore:
        try:
            return _connect(self._config)
        except (errors.StatusError, RuntimeError) as error:
            raise _Unreachable(f'{self._address}: the database does not answer, or refuses this user. Check host, '
                               f'port, user, database and {PASSWORD}.') from error

    def write(self, change: Change[Result]) -> Result:
        return _persist(self._address, lambda: change(self.read()))


_KINDS: dict[str, Callable[[str], Store]] = {'': _File, 'gs': _Object, 'mysql': _Database}


def mysql_config(address: str) -> mlmd.ConnectionConfig:
    """Return ML Metadata's configuration for an address, with the password from the environment.

    Raises:
      UserError: the address has another form, or holds a password, which would show in lists of processes and logs.
    """
    try:
        parts = urllib.parse.urlsplit(address)
        host, port, password = parts.hostname, parts.port or 3306, parts.password
    except ValueError:
        host, port, password = None, 0, None
    if password is not None:
        raise UserError(f'{ADDRESS} holds a password. Leave it out, and give it in {PASSWORD}, or in a file that '
                        f'{PASSWORD_FILE} names.')
    database, options = parts.path.strip('/'), dict(urllib.parse.parse_qsl(parts.query))
    if not host or not parts.username or not database or {*options} - {'ssl_ca', 'ssl_cert', 'ssl_key'}:
        raise UserError(f'{ADDRESS}={address}: this is not an address of the form {_FORM}, to which ?ssl_ca=FILE, '
                        'ssl_cert and ssl_key may be added. Correct it.')
    config = mlmd.ConnectionConfig()
    for key, value in {'host': host, 'port': port, 'database': database, 'password': _password(),
                       'user': urllib.parse.unquote(parts.username)}.items():
        setattr(config.mysql, key, value)
    for key, value in options.items():
        setattr(config.mysql.ssl_options, key.removeprefix('ssl_'), value)
    return config


def _password() -> str:
    if not (path := os.environ.get(PASSWORD_FILE)):
        return os.environ.get(PASSWORD, '')
    try:
        with open(path, encoding='utf-8') as file:
            return file.read().rstrip('\r\n')
    except OSError as error:
        raise UserError(f'{PASSWORD_FILE}={path}: {error.strerror}. Name a file that holds the password.') from error


def _sqlite(path: str, address: str) -> metadata_store.MetadataStore:
    config = mlmd.ConnectionConfig()
    config.sqlite.filename_uri = path
    config.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
    try:
        return _connect(config)
    except (errors.StatusError, RuntimeError) as error:
        raise UserError(f'{address} cannot be opened as the metadata store ({str(error).splitlines()[0]}). Choose '
                        'another --pipeline_root, or move the damaged file away.') from error


def _connect(config: mlmd.ConnectionConfig) -> metadata_store.MetadataStore:
    config.retry_options.max_num_retries = _MAX_RETRIES
    for wait in _waits():
        try:
            return metadata_store.MetadataStore(config)
        except RuntimeError as error:
            if _UNFINISHED not in str(error):
                raise
            time.sleep(wait)
    return metadata_store.MetadataStore(config)


def _persist(address: str, attempt: Callable[[], Result]) -> Result:
    """Return the result of `attempt`, repeated while other writers or a broken connection make it fail."""
    failure: Exception | None = None
    for wait in _waits():
        try:
            return attempt()
        except _TRANSIENT as error:
            failure = error
            time.sleep(wait)
    raise UserError(f'{address}: {_MAX_ATTEMPTS} attempts to write lineage failed ({str(failure).splitlines()[0]}). '
                    'Run the same command again; it resumes where it stopped.') from failure


def _waits() -> list[float]:
    """Return the seconds to wait after each failed attempt; random, so that two writers do not meet again."""
    draw = random.Random()
    return [draw.uniform(0, min(0.1 * 2 ** attempt, _MAX_WAIT_SECONDS)) for attempt in range(_MAX_ATTEMPTS)]
