"""A MariaDB server of the tests' own, in a folder, for as long as a block runs."""
import contextlib
import dataclasses
import itertools
import os
import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

INSTALLED = all(map(shutil.which, ('mariadbd', 'mariadb-install-db', 'mariadb')))
_START_SECONDS = 60


@dataclasses.dataclass
class Server:
    """A running server with one user, who may use every database.

    Attributes:
      password: the user's.
    """
    folder: pathlib.Path
    port: int
    password: str = 'correct horse; battery'
    _numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def sql(self, statements: str) -> str:
        """Run statements as the administrator. Returns what they print, as text."""
        return subprocess.run(['mariadb', '--no-defaults', f'--socket={self.folder}/socket', '--user=root'],
                              input=statements, capture_output=True, text=True, check=True, timeout=60).stdout

    def create(self) -> str:
        """Make an empty database. Returns its address."""
        name = f'lineage_{next(self._numbers)}'
        self.sql(f'create database {name}')
        return f'mysql://landmark@127.0.0.1:{self.port}/{name}'


    def dump(self, address: str) -> str:
        """Return all rows of a database, as text."""
        name = address.rpartition('/')[2]
        tables, rows = self.sql(f'show tables from {name}').split()[1:], 'select * from'
        return self.sql(f'use {name};' + ''.join(f'{rows} {table};' for table in tables))

    def let_in(self, user: bool) -> None:
        """Let the user connect, or refuse every new connection."""
        self.sql(f"alter user landmark@'127.0.0.1' account {'unlock' if user else 'lock'}")


@contextlib.contextmanager
def serving(folder: pathlib.Path) -> Iterator[Server]:
    """Start a server that keeps its data in `folder`; stop it when the block ends."""
    data, user = folder / 'data', [] if os.getuid() else ['--user=root']  # it serves as root only if it is told to
    subprocess.run(['mariadb-install-db', '--no-defaults', f'--datadir={data}', *user,
                    '--auth-root-authentication-method=normal'], check=True, stdout=subprocess.DEVNULL, timeout=120)
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        server = Server(folder, free.getsockname()[1])
    with open(folder / 'log', 'wb') as log, subprocess.Popen(
            ['mariadbd', '--no-defaults', f'--datadir={data}', f'--socket={folder}/socket', *user,
             '--bind-address=127.0.0.1', f'--port={server.port}'], stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not (folder / 'socket').exists():
                assert process.poll() is None and time.monotonic() < deadline, (folder / 'log').read_text()
                time.sleep(0.05)
            server.sql(f"create user landmark@'127.0.0.1' identified by '{server.password}';"
                       "grant all on *.* to landmark@'127.0.0.1';")
            yield server
        finally:
            process.terminate()
