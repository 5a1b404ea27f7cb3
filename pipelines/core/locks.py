"""Locks that keep two processes from the same piece of work: of the file system, or leases in Google Cloud Storage.

A lease is an object that its holder writes again every few seconds, so that its generation changes. Another machine
watches the generation: if it changes, the holder is alive, and the other is refused; if it stays the same for long
enough, the holder is dead, and the other takes the lease over. Clocks of two machines are never compared.
"""
import contextlib
import fcntl
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator

from data_prep import UserError
from pipelines.core import objects

_HEARTBEAT_SECONDS = 15.0
_REQUEST_SECONDS = 10.0  # one heartbeat; requests and their repetition both have this limit
_EXPIRY_SECONDS = 120.0
# A holder that cannot renew its lease ends before another may take it: one heartbeat and one request may follow this.
_GIVE_UP_SECONDS = _EXPIRY_SECONDS - _HEARTBEAT_SECONDS - 2 * _REQUEST_SECONDS - 5
_POLL_SECONDS = 1.0


@contextlib.contextmanager
def held(partial: str, stage: str) -> Iterator[Callable[[], None]]:
    """Hold the lock of the work in the folder `partial` while the block runs and this process lives.

    In an object store other than Google Cloud Storage there is no lock.

    Yields:
      A function to call before the work is published. It raises UserError if the lock was lost meanwhile.

    Raises:
      UserError: another process is doing the same work.
    """
    path = partial.replace('.partial-', '.lock-')
    if path.startswith('gs://'):
        with _Lease(path, stage).held() as confirm:
            yield confirm
        return
    if '://' in path:
        yield lambda: None
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # Never removed: if the name could vanish, two processes could hold the lock.
    with open(path, 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _refusal('Another process', stage) from error
        yield lambda: None


def process() -> str:
    """Return the name of this process among all machines: `<host> <pid>`."""
    return f'{socket.gethostname()} {os.getpid()}'


def alive(name: str) -> bool:
    """Return whether the process `<host> <pid>` is still running, as far as this host can tell."""
    host, _, pid = name.rpartition(' ')
    if host != socket.gethostname():
        return True  # on another host, so assume that it runs
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True


def _refusal(who: str, stage: str) -> UserError:
    return UserError(f'{who} is running {stage} with this configuration in the same pipeline root. '
                     'Wait for it, stop it, or give another --pipeline_root.')


class _Lost(UserError):
    """Raised when another process holds the lease."""


class _Lease:
    """The lease of one piece of work, at an address in Google Cloud Storage."""

    def __init__(self, address: str, stage: str):
        self._object, self._address, self._stage = objects.Object(address, _REQUEST_SECONDS), address, stage
        # The id tells this holder's own generations, whose answers may have been lost, from those of others.
        self._holder = {'process': process(), 'id': uuid.uuid4().hex}
        self._generation, self._renewing, self._released = 0, threading.Lock(), threading.Event()

    @contextlib.contextmanager
    def held(self) -> Iterator[Callable[[], None]]:
        self._acquire()
        thread = threading.Thread(target=self._keep, daemon=True)
        thread.start()
        try:
            yield self._renew
        finally:
            self._released.set()
            thread.join()
            with contextlib.suppress(objects.Stale, UserError):  # then it expires
                self._object.delete(self._generation)

    def _acquire(self) -> None:
        seen, since = 0, time.monotonic()
        while True:
            generation, holder = self._object.state()
            if generation and holder == self._holder:
                self._generation = generation  # of an upload whose answer was lost
                return
            name = holder.get('process', 'an unknown process')
            expired = generation == seen and time.monotonic() - since > _EXPIRY_SECONDS
            if not generation or expired or not alive(name):
                with contextlib.suppress(objects.Stale):  # another one was faster: look again
                    self._generation = self._object.upload(b'', generation, self._holder)
                    return
            elif not seen:
                seen = generation
                print(f'{self._stage}: {name} (host, process) may be running it; waiting at most '
                      f'{_EXPIRY_SECONDS:.0f} s for a sign of life.', flush=True)
            elif generation != seen:
                raise _refusal(f'{name} (host, process)', self._stage)
            time.sleep(_POLL_SECONDS)

    def _keep(self) -> None:
        """Renew the lease until it is released; end this process if it cannot be renewed."""
        renewed = time.monotonic()
        while not self._released.wait(_HEARTBEAT_SECONDS):
            started = time.monotonic()
            try:
                self._renew()
                renewed = started
            except UserError as error:
                if isinstance(error, _Lost) or time.monotonic() - renewed > _GIVE_UP_SECONDS:
                    # As if killed, which every stage survives: the other machine may be writing to the same files.
                    print(f'error: {error}', file=sys.stderr, flush=True)
                    os._exit(2)

    def _renew(self) -> None:
        with self._renewing:
            try:
                self._generation = self._object.upload(b'', self._generation, self._holder)
            except objects.Stale as error:
                generation, holder = self._object.state()
                if holder != self._holder:
                    raise _Lost(f'{self._address}: another machine has taken over {self._stage}, because this one gave '
                                f'no sign of life for {_EXPIRY_SECONDS:.0f} s. Let it finish.') from error
                self._generation = generation  # of an upload whose answer was lost
