"""Record the file events of folders in order, as Linux reports them (inotify, which needs no privilege)."""
import ctypes
import os
import struct

_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _FOLDER = 0x2, 0x40, 0x80, 0x100, 0x200, 0x40000000
_HEAD = struct.Struct('iIII')  # of `struct inotify_event`: watch, mask, cookie, length of the name behind it


class Watch:
    """Records from `add` on."""

    def __init__(self):
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._queue = self._libc.inotify_init1(os.O_NONBLOCK)
        self._folders: dict[int, str] = {}

    def __enter__(self) -> 'Watch':
        return self

    def __exit__(self, *_) -> None:
        os.close(self._queue)

    def add(self, folder: str) -> None:
        mask = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
        watch = self._libc.inotify_add_watch(self._queue, os.fsencode(folder), mask)
        if watch < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), folder)
        self._folders[watch] = folder

    def calls(self) -> list[tuple[str, ...]]:
        """(call, path) of every change, or (`rename`, new path, old path); successive writes are one."""
        found: list[tuple[str, ...]] = []
        left: dict[int, str] = {}  # cookie -> where a file that is moved came from
        for watch, mask, cookie, name in self._events():
            path = os.path.join(self._folders[watch], name) if watch in self._folders else ''
            if mask & _MOVED_FROM:
                left[cookie] = path
            elif mask & _MOVED_TO:
                found.append(('rename', path, left[cookie]) if cookie in left else ('rename', path))
            elif mask & (_CREATE | _DELETE) and mask & _FOLDER:
                found.append(('mkdir' if mask & _CREATE else 'rmdir', path))
            elif mask & _DELETE:
                found.append(('unlink', path))
            elif mask & (_CREATE | _MODIFY) and (not found or found[-1] != ('write', path)):
                found.append(('write', path))
        return found

    def _events(self):
        data = b''
        while True:
            try:
                data += os.read(self._queue, 1 << 16)
            except BlockingIOError:
                break
        while data:
            watch, mask, cookie, length = _HEAD.unpack_from(data)
            yield watch, mask, cookie, data[_HEAD.size:_HEAD.size + length].rstrip(b'\0').decode()
            data = data[_HEAD.size + length:]
