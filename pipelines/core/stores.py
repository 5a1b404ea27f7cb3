"""Where lineage lies: a SQLite file on a disk or in Google Cloud Storage, or a MySQL database.

Any number of processes and machines may write, and none loses what another wrote: a file on a disk has SQLite's
locks, a database its transactions. An object has neither, but a generation: a writer fetches it, changes its copy and
uploads that only if the generation is still the one it fetched; otherwise it fetches and changes the newer one.
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

FILE = 'metadata.sqlite'
ADDRESS, PASSWORD, PASSWORD_FILE = (
    'LANDMARK_METADATA', 'LANDMARK_METADATA_PASSWORD', 'LANDMARK_METADATA_PASSWORD_FILE')
_FORM = 'mysql://USER@HOST:PORT/DATABASE'
_MAX_ATTEMPTS = 40  # at one object; its every refusal means that another writer got through
_MAX_WAIT_SECONDS = 8.0
_MAX_RETRIES = 10  # by ML Metadata, of a transaction that another one blocked

Result = TypeVar('Result')
Change = Callable[[metadata_store.MetadataStore], Result]


class Store(Protocol):
    """A place of lineage."""

    def read(self) -> metadata_store.MetadataStore:
        """Everything that was written until now. What is written to it may be lost: use `write`."""

    def write(self, change: Change[Result]) -> Result:
        """Applies a change. It may be applied again, to a newer state, and must give the same lineage then."""


def shared() -> str | None:
    """The store of all pipelines that the environment names; None if each root has its own."""
    return os.environ.get(ADDRESS) or None


def address(root: str) -> str:
    """Where the lineage of a pipeline root lies."""
    return shared() or os.path.join(root, FILE)


def open_store(address: str) -> Store:
    """The store at an address, made if need be.

    Raises:
      UserError: it cannot be opened, or several writers would lose lineage there.
    """
    scheme = address.partition('://')[0] if '://' in address else ''
    if scheme not in _KINDS:
        raise UserError(f'{address}: lineage cannot lie in {scheme}://, where writers may overwrite each other; set '
                        f'{ADDRESS} to {_FORM}, to a gs:// object, or to a file on a disk.')
    return _KINDS[scheme](address)


class _File:
    """A SQLite file on a disk."""

    def __init__(self, address: str):
        folder = os.path.dirname(os.path.abspath(address))
        try:
            os.makedirs(folder, exist_ok=True)
        except FileNotFoundError as error:  # of what is above it, as /proc, where no folder can be made
            raise UserError(f'{folder}: this folder cannot be made; choose another --pipeline_root.') from error
        self._connection = _sqlite(address, address)

    def read(self) -> metadata_store.MetadataStore:
        return self._connection

    def write(self, change: Change[Result]) -> Result:
        return change(self._connection)


class _Object:
    """A SQLite file in Google Cloud Storage, and a copy of it in a temporary folder."""

    def __init__(self, address: str):
        from google.auth import exceptions
        from google.cloud import storage
        bucket, _, self._name = address.removeprefix('gs://').partition('/')
        try:
            self._bucket = storage.Client().bucket(bucket)
        except exceptions.DefaultCredentialsError as error:
            raise UserError(f'{address}: there are no credentials for Google Cloud Storage; run '
                            '`gcloud auth application-default login`.') from error
        self._address, self._folder = address, tempfile.TemporaryDirectory(prefix='lineage-')
        self._generation: int | None = None  # of the copy; None where it is of none, 0 where there is no object
        self._fetch()

    def read(self) -> metadata_store.MetadataStore:
        self._fetch()
        return self._connection

    def write(self, change: Change[Result]) -> Result:
        from google.api_core import exceptions
        draw = random.Random()
        for attempt in range(_MAX_ATTEMPTS):
            self._fetch()
            expected, self._generation = self._generation, None  # should the change fail, its copy is dropped
            result = change(self._connection)
            blob = self._bucket.blob(self._name)
            try:
                blob.upload_from_filename(self._copy, if_generation_match=expected)
            except exceptions.PreconditionFailed:
                time.sleep(draw.uniform(0, min(0.1 * 2 ** attempt, _MAX_WAIT_SECONDS)))
                continue
            self._generation = blob.generation
            return result
        raise UserError(f'{self._address}: {_MAX_ATTEMPTS} attempts to write lineage met other writers; set {ADDRESS} '
                        f'to {_FORM}, which takes more of them at once.')

    def _fetch(self) -> None:
        """Makes the copy one of the newest generation."""
        from google.api_core import exceptions
        try:
            blob = self._bucket.get_blob(self._name)
            generation = blob.generation if blob else 0
            if generation == self._generation:
                return
            handle, self._copy = tempfile.mkstemp(suffix='.sqlite', dir=self._folder.name)
            os.close(handle)
            if blob:
                blob.download_to_filename(self._copy)  # if it is newer by now, its upload is refused
        except exceptions.GoogleAPICallError as error:
            raise UserError(f'{self._address} cannot be read ({error.message}); choose a bucket that exists and that '
                            'you may write, with --pipeline_root.') from error
        self._connection, self._generation = _sqlite(self._copy, self._address), generation


class _Database:
    """A MySQL database. Each use connects anew, in 3 ms: servers drop connections that idle while a model trains."""

    def __init__(self, address: str):
        self._address, self._config = address, mysql_config(address)
        self.read()

    def read(self) -> metadata_store.MetadataStore:
        return _connect(self._config, f'{self._address}: the database does not answer or does not let this user in; '
                        f'check host, port, user and database, and {PASSWORD}.')

    def write(self, change: Change[Result]) -> Result:
        return change(self.read())


_KINDS: dict[str, Callable[[str], Store]] = {'': _File, 'gs': _Object, 'mysql': _Database}


def mysql_config(address: str) -> mlmd.ConnectionConfig:
    """ML Metadata's configuration for an address, with the password of the environment or of the file it names.

    Raises:
      UserError: the address has another form or holds a password, which it would carry into process lists and logs.
    """
    try:
        parts = urllib.parse.urlsplit(address)
        host, port, password = parts.hostname, parts.port or 3306, parts.password
    except ValueError:
        host, port, password = None, 0, None
    if password is not None:
        raise UserError(f'{ADDRESS} holds a password; leave it out, and give it in {PASSWORD}, or in a file that '
                        f'{PASSWORD_FILE} names.')
    database, options = parts.path.strip('/'), dict(urllib.parse.parse_qsl(parts.query))
    if not host or not parts.username or not database or {*options} - {'ssl_ca', 'ssl_cert', 'ssl_key'}:
        raise UserError(f'{ADDRESS}={address}: it must have the form {_FORM}, with ?ssl_ca=FILE, ssl_cert or ssl_key '
                        'after it if need be.')
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
        raise UserError(f'{PASSWORD_FILE}={path}: {error.strerror}; name a file that holds the password.') from error


def _sqlite(path: str, address: str) -> metadata_store.MetadataStore:
    config = mlmd.ConnectionConfig()
    config.sqlite.filename_uri = path
    config.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
    return _connect(config, f'{address} cannot be opened as the metadata store; choose another --pipeline_root, or '
                    'move the damaged file away.')


def _connect(config: mlmd.ConnectionConfig, remedy: str) -> metadata_store.MetadataStore:
    config.retry_options.max_num_retries = _MAX_RETRIES
    try:
        return metadata_store.MetadataStore(config)
    except (errors.StatusError, RuntimeError) as error:
        raise UserError(remedy) from error
