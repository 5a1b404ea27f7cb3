"""Download one file with pooch, which retries, verifies and renames it; an interrupted download is resumed.

A file of another length than published is refused, and a file appears under its name only after verification.
"""
import contextlib
import logging
import os
import pathlib
import re
import sys
import time
from typing import Any

import pooch
import requests
import urllib3

from data_prep import UserError
from pipelines.fetching import checksums
from pipelines.fetching.catalogue import File, megabytes

RETRIES = 5  # retries after the first attempt
TIMEOUT = (30, 60)  # seconds to connect, and between two reads
LONGEST_WAIT = 120  # seconds longest Retry-After that is honoured
_CHUNK = 1 << 18
_LINES_EVERY = 30.0  # seconds between lines of progress outside a terminal
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


def fetch(file: File, folder: pathlib.Path) -> str:
    """Download a file into a folder, or verify the existing one; return a description of what was done.

    Raises:
      UserError: the existing file has another checksum, or the address cannot be read or serves another file.
    """
    path = folder / file.name
    recorded = checksums.read(folder).get(file.name)
    checksum = file.checksum or (f'sha256:{recorded["sha256"]}' if recorded else '')
    if path.exists():
        if checksum and not checksums.matches(path, checksum):
            whose = f'published by {file.published}' if file.checksum else 'recorded at the first download'
            raise UserError(f'{path}: its checksum is not the one {whose}. Remove the file and run the command again.')
        _record(file, path)
        return 'already there, checksum correct' if checksum else 'already there, no published checksum to compare with'
    _download(file, path, checksum)
    _record(file, path)
    if file.checksum:
        return f'checksum correct ({file.published})'
    if recorded:
        return 'same SHA-256 as at the first download; none is published'
    return f'no checksum is published; its SHA-256 is now recorded in {folder / checksums.RECORD}'


def size(file: File) -> int | None:
    """Return a file's size in bytes as published, else as its server reports it; None if unknown."""
    if file.bytes is not None:
        return file.bytes
    with contextlib.suppress(requests.RequestException, ValueError):
        answer = requests.head(file.url, allow_redirects=True, timeout=TIMEOUT, headers={'Accept-Encoding': 'identity'})
        if answer.ok:
            return int(answer.headers['Content-Length']) if 'Content-Length' in answer.headers else None
    return None


def part_of(path: pathlib.Path) -> pathlib.Path:
    """Return the path of a file's incomplete download."""
    return path.with_name(f'{path.name}.part')


def _record(file: File, path: pathlib.Path) -> None:
    if file.name in checksums.read(path.parent):
        return
    how = f'{file.checksum}, {file.published}' if file.checksum else 'recorded at the first download, not published'
    checksums.write(path.parent, file.name, url=file.url, bytes=path.stat().st_size, sha256=checksums.digest(path),
                    checksum=how)


def _download(file: File, path: pathlib.Path, checksum: str) -> None:
    pooch.get_logger().setLevel(logging.WARNING)  # its lines would repeat ours, without the cause
    begins = checksum.startswith('sha256-begins:')  # a kind that pooch does not know
    downloader = _Resuming(file, part_of(path), bool(checksum), checksum if begins else '')
    keeper = pooch.create(path=path.parent, base_url='', registry={file.name: None if begins else checksum or None},
                          urls={file.name: file.url}, retry_if_failed=RETRIES)
    try:
        keeper.fetch(file.name, downloader=downloader)
    except requests.RequestException as error:
        raise UserError(f'{file.url}: {_words(error)}. Run the command again; it continues where it stopped.'
                        ) from error
    except ValueError as error:
        whose = file.published or 'the first download'
        raise UserError(f'{file.url}: the download does not have the checksum of {whose}. It was removed; try '
                        f'again later, or get {file.name} elsewhere.') from error


def _words(error: BaseException) -> str:
    """Summarise a library's error, without its nested representations."""
    if isinstance(error, requests.ConnectTimeout | requests.ReadTimeout):
        return 'no answer in time'
    return 'the server cannot be reached' if '(' in str(error) else str(error)  # a library's nested message


class _Resuming:
    """Downloader for pooch that writes to a file beside the target, so that the next attempt requests only the rest.

    Args:
      part: file for incomplete bytes.
      checked: whether a checksum will verify the result; without one, a download is only resumed if the server's
        validator confirms that the file is unchanged.
      checksum: a checksum that pooch cannot verify, or nothing.
    """

    def __init__(self, file: File, part: pathlib.Path, checked: bool, checksum: str):
        self._file, self._part, self._checked, self._checksum = file, part, checked, checksum
        self._validator = part.with_name(f'{part.name}.validator')
        self._attempt, self._fault = 0, ''

    def __call__(self, url: str, output_file: str, keeper: Any) -> None:
        self._attempt += 1
        if self._attempt > 1:
            print(f'fetch: {self._file.name}: {self._fault}; attempt {self._attempt} of {RETRIES + 1}, '
                  f'{megabytes(self._have())} are kept', flush=True)
        self._fault = 'its checksum is wrong'  # the only possible error after this point
        try:
            self._get(url)
        except requests.RequestException as error:
            self._fault = _words(error)
            raise
        os.replace(self._part, output_file)
        self._validator.unlink(missing_ok=True)
        if self._checksum and not checksums.matches(pathlib.Path(output_file), self._checksum):
            raise ValueError('another checksum')  # pooch retries on this

    def _get(self, url: str) -> None:
        """Download the rest of the part."""
        try:
            with requests.get(url, headers=self._headers(), stream=True, timeout=TIMEOUT) as answer:
                self._check_answer(answer)
                self._take(answer)
        except urllib3.exceptions.HTTPError as error:
            raise requests.ConnectionError(f'the connection was cut after {self._have():,} bytes') from error
        except requests.TooManyRedirects as error:
            raise UserError(f'{url}: its redirects do not end. See its page for where the file is now.') from error
        except requests.exceptions.InvalidSchema as error:
            raise UserError(f'{url}: it redirects to an address that is not http or https. Report this.') from error

    def _have(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _headers(self) -> dict[str, str]:
        headers = {'Accept-Encoding': 'identity'}  # otherwise a .tgz might arrive unpacked
        validator = self._validator.read_text() if self._validator.exists() else ''
        if self._have() and (self._checked or validator):
            headers['Range'] = f'bytes={self._have()}-'
            if validator:
                headers['If-Range'] = validator
        return headers

    def _check_answer(self, answer: requests.Response) -> None:
        """Raise an error that pooch retries for a temporary fault, and `UserError` for a permanent one."""
        hops = [*answer.history, answer]
        if not self._checked and hops[0].url.startswith('https:') and not answer.url.startswith('https:'):
            raise UserError(f'{self._file.url}: it redirects to {answer.url}, which is not encrypted, and no checksum '
                            'is published. Get the file elsewhere.')
        if answer.status_code in _TRANSIENT:
            wait = answer.headers.get('Retry-After', '')
            time.sleep(min(int(wait), LONGEST_WAIT) if wait.isdecimal() else 0)
            raise requests.ConnectionError(f'the server answers {answer.status_code} {answer.reason}')
        if answer.status_code == 416:  # the part is longer than the file
            self._restart()
            raise requests.ConnectionError('the server has fewer bytes than are kept; starting again')
        if answer.status_code not in (200, 206):
            raise UserError(f'{self._file.url}: the server answers {answer.status_code} {answer.reason}. See its page '
                            'for where the file is now.')

    def _take(self, answer: requests.Response) -> None:
        start = self._start(answer)
        length = answer.headers.get('Content-Length', '')
        total = start + int(length) if length.isdecimal() else None
        published = self._file.bytes
        if published is not None and total is not None and total != published:
            self._restart()
            raise UserError(f'{self._file.url}: the server offers {total:,} bytes, but the published file has '
                            f'{published:,}. Get {self._file.name} elsewhere.')
        tag = answer.headers.get('ETag', '')
        strong = tag if tag and not tag.startswith('W/') else answer.headers.get('Last-Modified', '')
        self._validator.write_text(strong)
        limit = published if published is not None else total
        done = start
        with self._part.open('r+b' if start else 'wb') as target, _Bar(self._file.name, start, limit) as bar:
            target.seek(start)
            for chunk in answer.raw.stream(_CHUNK, decode_content=False):
                target.write(chunk)
                done += len(chunk)
                if limit is not None and done > limit:
                    break
                bar.show(done)
        if limit is not None and done > limit:
            self._restart()
            raise UserError(f'{self._file.url}: the server sends more than the {limit:,} bytes of the file. Get '
                            f'{self._file.name} elsewhere.')
        if limit is not None and done < limit:
            raise requests.ConnectionError(f'the connection was cut after {done:,} of {limit:,} bytes')

    def _start(self, answer: requests.Response) -> int:
        """Return the offset at which an answer's bytes belong."""
        if answer.status_code == 200:  # the whole file, even if a part was requested
            return 0
        found = re.fullmatch(r'bytes (\d+)-\d+/(?:\d+|\*)', answer.headers.get('Content-Range', ''))
        if found and int(found[1]) == self._have():
            return self._have()
        self._restart()
        raise requests.ConnectionError('the server sent another part than requested')

    def _restart(self) -> None:
        self._part.unlink(missing_ok=True)
        self._validator.unlink(missing_ok=True)


class _Bar:
    """Progress of one file: a bar on a terminal, a line every 30 s elsewhere."""

    def __init__(self, name: str, start: int, total: int | None):
        self._name, self._total, self._began, self._start = name, total, time.monotonic(), start
        self._line = self._began
        self._bar: Any = None

    def __enter__(self) -> '_Bar':
        if sys.stdout.isatty():
            from rich import progress
            self._bar = progress.Progress(progress.TextColumn('fetch: {task.description}'), progress.BarColumn(),
                                          progress.DownloadColumn(), progress.TransferSpeedColumn(),
                                          progress.TimeRemainingColumn())
            self._task = self._bar.add_task(self._name, total=self._total, completed=self._start)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, done: int) -> None:
        now = time.monotonic()
        if self._bar:
            self._bar.update(self._task, completed=done)
        elif now - self._line >= _LINES_EVERY:
            self._line = now
            rate = (done - self._start) / (now - self._began)
            of = f' of {megabytes(self._total)}' if self._total else ''
            print(f'fetch: {self._name}: {megabytes(done)}{of}, {megabytes(int(rate))}/s', flush=True)

