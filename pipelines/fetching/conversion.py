"""Convert downloaded archives to the form that configurations read. No pickle is opened; no archive name is a path.

Outputs repeat to the byte: times, owners and the order of members are fixed.
"""
import contextlib
import gzip
import io
import os
import pathlib
import posixpath
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from data_prep import UserError
from data_prep.core import archives
from pipelines.fetching import checksums

_SIDE, _RECORD = 32, 1 + 3 * 32 * 32  # CIFAR-10: side in pixels; bytes of a label and three colour planes
_BATCHES = {'train': [f'data_batch_{number}.bin' for number in range(1, 6)], 'test': ['test_batch.bin']}
_CIFAR_FOLDER = 'cifar-10-batches-bin'
_LARGEST_MEMBER = 1 << 26  # bytes; the largest member read here is words.txt, 2.7 MB


def make(folder: pathlib.Path, name: str, source: str, by: str, **arguments: Any) -> str:
    """Make one file or folder, or verify the existing one; return a description of what was done.

    Args:
      folder: the data set's folder.
      name: name of the result.
      source: name of the downloaded file.
      by: the conversion, a key of `_CONVERSIONS`.
      arguments: arguments of the conversion.

    Raises:
      UserError: the source is damaged, or the existing result was not made here or has changed.
    """
    target, recorded = folder / name, checksums.read(folder).get(name)
    if target.exists():
        if recorded is None or _digest(target) != recorded['sha256']:
            raise UserError(f'{target}: it was changed or not made by this command. Remove it and run the command '
                            'again.')
        return 'already made'
    part = folder / f'{name}.part'
    _remove(part)
    with _whole(folder / source):
        _CONVERSIONS[by](folder / source, part, **arguments)
    os.replace(part, target)
    checksums.write(folder, name, made_of=source, by=by, sha256=_digest(target))
    return f'made of {source}'


def cifar10(source: pathlib.Path, target: pathlib.Path, split: str, room: int = 0) -> None:
    """Convert the binary version of CIFAR-10 to a tar of PNG images, `<split>/<class>/<number>.png`.

    A record is a label and 32 x 32 pixels of red, then green, then blue, row by row.
    """
    names = _cifar_classes(source)
    with source.open('rb') as stream, _Tar(target) as tar:
        wanted = {f'{_CIFAR_FOLDER}/{batch}' for batch in _BATCHES[split]}
        counts = dict.fromkeys(names, 0)
        for member, content in archives.members(stream, str(source), wanted):
            data = content.read(_LARGEST_MEMBER + 1)
            if not data or len(data) % _RECORD or len(data) > _LARGEST_MEMBER:
                raise UserError(f'{source}/{member}: {len(data):,} bytes are not whole records of {_RECORD:,}. Remove '
                                'the archive and run the command again.')
            for start in range(0, len(data), _RECORD):
                label = data[start]
                if label >= len(names):
                    raise UserError(f'{source}/{member}: label {label} of record {start // _RECORD} is not a class. '
                                    'Remove the archive and run the command again.')
                tar.add(f'{split}/{names[label]}/{counts[names[label]]:04d}.png',
                        _png(data[start + 1:start + _RECORD]))
                counts[names[label]] += 1


def class_folders(source: pathlib.Path, target: pathlib.Path, classes: dict[str, str] | None = None,
                  room: int = 0) -> None:
    """Convert Tiny ImageNet's zip to a tar of its training folders, images, boxes and lists of classes, unchanged.

    Args:
      classes: WordNet id -> name of the classes to keep; by default all classes and the validation images.
    """
    top = 'tiny-imagenet-200'
    with zipfile.ZipFile(source) as packed:
        members = dict(_members(packed))
        there = {name.split('/')[2] for name in members if name.startswith(f'{top}/train/') and name.count('/') > 2}
        if missing := sorted(set(classes or ()) - there) or ([] if there else [f'{top}/train']):
            raise UserError(f'{source}: it has no folder {missing[0]}. Remove the archive and run the command again.')
        kept = sorted(classes or there)
        folders = tuple(f'{top}/train/{wnid}/' for wnid in kept) + (() if classes else (f'{top}/val/',))
        with _Tar(target) as tar:
            tar.add(f'{top}/wnids.txt', ''.join(f'{wnid}\n' for wnid in kept).encode())
            for name in sorted(members):
                if name == f'{top}/words.txt' or name.startswith(folders):
                    tar.add(name, _content(packed, members[name]))


def trees(source: pathlib.Path, target: pathlib.Path, within: str, room: int = 0) -> None:
    """Extract the `.mrg` files of one folder of a zip."""
    target.mkdir()
    with zipfile.ZipFile(source) as packed:
        found = {posixpath.basename(name): info for name, info in _members(packed)
                 if posixpath.dirname(name) == within and name.endswith('.mrg')}
        if not found:
            raise UserError(f'{source}: it has no .mrg file in {within}. Remove the archive and run the command again.')
        for name, info in sorted(found.items()):
            (target / name).write_bytes(_content(packed, info))


def member(source: pathlib.Path, target: pathlib.Path, within: str, room: int = 0) -> None:
    """Extract one file of a zip, for example of a Python wheel."""
    with zipfile.ZipFile(source) as packed:
        found = dict(_members(packed)).get(within)
        if found is None:
            raise UserError(f'{source}: it has no {within}. Remove the archive and run the command again.')
        target.write_bytes(_content(packed, found))


_CONVERSIONS: dict[str, Callable[..., None]] = {
    'cifar10': cifar10, 'class_folders': class_folders, 'trees': trees, 'member': member}


def _cifar_classes(source: pathlib.Path) -> list[str]:
    with source.open('rb') as stream:
        [text] = [content.read(_LARGEST_MEMBER).decode('ascii')
                  for _, content in archives.members(stream, str(source), {f'{_CIFAR_FOLDER}/batches.meta.txt'})]
    names = text.split()
    if len(names) != 10 or not all(name.isalpha() for name in names):
        raise UserError(f'{source}: batches.meta.txt does not name ten classes. Remove the archive and run the '
                        'command again.')
    return names


def _png(planes: bytes) -> bytes:
    import numpy as np
    from PIL import Image
    pixels = np.frombuffer(planes, np.uint8).reshape(3, _SIDE, _SIDE).transpose(1, 2, 0)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, 'PNG')
    return out.getvalue()


def _members(packed: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yield the plain files of a zip whose names stay inside the target folder."""
    for info in packed.infolist():
        name = info.filename
        inside = not name.startswith('/') and '..' not in name.split('/') and '\\' not in name and '\0' not in name
        if inside and not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16):
            yield name, info


def _content(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.file_size > _LARGEST_MEMBER:
        raise zipfile.BadZipFile(f'{info.filename} would be {info.file_size:,} bytes')
    return packed.read(info)  # reads at most file_size, and checks the checksum


class _Tar:
    """A compressed tar without times and owners."""

    def __init__(self, path: pathlib.Path):
        self._path = path

    def __enter__(self) -> '_Tar':
        self._stack = contextlib.ExitStack()
        file = self._stack.enter_context(self._path.open('wb'))
        # Images are compressed already; levels above 1 gain little.
        packed = self._stack.enter_context(gzip.GzipFile('', 'wb', 1, file, mtime=0))
        self._tar = self._stack.enter_context(tarfile.open(fileobj=packed, mode='w', format=tarfile.GNU_FORMAT))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def add(self, name: str, content: bytes) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        self._tar.addfile(entry, io.BytesIO(content))


def _digest(path: pathlib.Path) -> str:
    """Return the SHA-256 of a file, or of a folder's names and files in order."""
    if path.is_file():
        return checksums.digest(path)
    return checksums.digest_of_lines(f'{checksums.digest(file)} {file.name}' for file in _files(path))


def _files(path: pathlib.Path) -> Iterable[pathlib.Path]:
    return sorted(file for file in path.iterdir() if file.is_file())


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _whole(source: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError) as error:
        raise UserError(f'{source}: it is damaged ({error}). Remove it and run the command again.') from error
