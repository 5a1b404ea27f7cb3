"""Parse annotation files of images: classes, descriptions of classes, and bounding boxes.

Formats are those of ILSVRC (development kit, bounding boxes) and Tiny ImageNet.
"""
import hashlib
import io
import math
import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from scipy import io as matlab

from data_prep import UserError

_WNID = re.compile(r'n\d{8}\b')
_BOX = np.dtype([('stem', '<u8'), ('folder', '<u4'), ('file', '<u4'), ('offset', '<u8'), ('length', '<i4')])


class Synsets(NamedTuple):
    """ILSVRC's class numbers -> ids, and ids -> descriptions."""
    ids: dict[str, str]
    words: dict[str, str]


def _lines(content: bytes, path: str) -> list[str]:
    try:
        return [line.strip() for line in content.decode('utf-8-sig').splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise UserError(f'{path} is not UTF-8 text (byte {error.start}). Save it as UTF-8.') from error


def classes(content: bytes, path: str) -> list[str]:
    """Return class ids, one per line; of a line that begins with a WordNet id, only that."""
    return [match[0] if (match := _WNID.match(line)) else line for line in _lines(content, path)]


def words(content: bytes, path: str) -> dict[str, str]:
    """Return class id -> description, from lines like `n01440764<tab>tench, Tinca tinca`; a space also separates."""
    rows = [re.split('[\t ]', line, maxsplit=1) for line in _lines(content, path)]
    return {row[0]: row[1].strip() for row in rows if len(row) == 2}


def synsets(content: bytes, path: str) -> Synsets:
    """Parse the development kit's meta.mat, or lines of a WordNet id, a number and optionally a name (map_clsloc.txt).

    Raises:
      UserError: it is neither.
    """
    rows = []
    if path.endswith('.mat'):
        try:
            table = matlab.loadmat(io.BytesIO(content), squeeze_me=True)['synsets']  # noqa: TID251 (no code)
            number, wnid, called = table.dtype.names[:3]
            rows = [(str(int(row[number])), str(row[wnid]), str(row[called])) for row in table]
        except Exception as error:  # scipy raises various errors for a damaged file
            raise UserError(f'data.synsets: {path} cannot be read as ILSVRC\'s meta.mat ({error}), which needs scipy. '
                            'Or give a text with a WordNet id and its number per line.') from error
    else:
        for line in _lines(content, path):
            wnid, number = _WNID.search(line), re.search(r'(?<!\S)\d+(?!\S)', line)
            if wnid and number:
                rest = [part for part in line.split() if part not in (wnid[0], number[0])]
                rows.append((number[0], wnid[0], ' '.join(rest).replace('_', ' ')))
    if not rows:
        raise UserError(f'data.synsets: {path} has no line with a WordNet id and a number.')
    return Synsets({number: wnid for number, wnid, _ in rows}, {wnid: called for _, wnid, called in rows if called})


def labels(content: bytes, path: str, numbers: dict[str, str]) -> list[str]:
    """Parse the classes of images, one per line in the order of the images' names: ids, or ILSVRC's numbers.

    Args:
      content: the text.
      path: its name.
      numbers: `Synsets.ids`, or nothing.

    Raises:
      UserError: it is not UTF-8, or a number is not one of `numbers`.
    """
    found = classes(content, path)
    for line, label in enumerate(found, 1):
        if numbers and label.isdigit() and label not in numbers:
            raise UserError(f'{path}, line {line}: there is no class {label} in data.synsets.')
    return [numbers.get(label, label) for label in found]


def annotations(content: bytes, path: str) -> dict[str, str]:
    """Parse Tiny ImageNet's val_annotations.txt: image names -> class ids."""
    rows = [line.split() for line in _lines(content, path)]
    return {row[0]: row[1] for row in rows if len(row) == 6}


class BoxRange(NamedTuple):
    """Location of one bounding-box annotation.

    It is a Pascal VOC XML file, or a line of Tiny ImageNet's `_boxes.txt` or `_annotations.txt`. `stem` and `folder`
    are hashes of the image's name without ending and of the folder's name.
    """
    stem: int
    folder: int
    file: str
    offset: int
    length: int


def box_ranges(name: str, file: str, offset: int, length: int, text: bytes | None) -> Iterator[BoxRange]:
    """Yield the annotations in a file of boxes.

    Args:
      name: its path, whose last folder counts.
      file, offset, length: location of its bytes.
      text: the bytes, if the file has one line per image; an XML file is a single annotation.
    """
    near = _hash(posixpath.basename(posixpath.dirname(name)), 4)
    if text is None:
        yield BoxRange(_stem(name), near, file, offset, length)
        return
    for line in text.splitlines(keepends=True):
        if line.strip():
            yield BoxRange(_stem(line.split()[0].decode(errors='replace')), near, file, offset, len(line))
        offset += len(line)


def pack(ranges: Iterable[BoxRange]) -> tuple[list[str], bytes]:
    """Pack annotations into 28 bytes each, so that every worker can hold all of them; return their files too."""
    files: dict[str, int] = {}
    rows = [(*each[:2], files.setdefault(each.file, len(files)), *each[3:]) for each in ranges]
    return list(files), np.array(rows, _BOX).tobytes()


def merge(parts: Iterable[tuple[list[str], bytes]]) -> tuple[list[str], bytes]:
    """Merge packs, in an order that does not depend on theirs."""
    files: list[str] = []
    arrays = [np.empty(0, _BOX)]
    for names, rows in sorted(parts):
        arrays.append(np.frombuffer(rows, _BOX).copy())
        arrays[-1]['file'] += len(files)
        files += names
    return files, np.sort(np.concatenate(arrays), order=['stem', 'file', 'offset']).tobytes()


class Boxes:
    """Find the annotations of an image.

    Args:
      merged: as returned by `merge`.
    """

    def __init__(self, merged: tuple[list[str], bytes]):
        self._files, self._rows = merged[0], np.frombuffer(merged[1], _BOX)
        self._stems = np.ascontiguousarray(self._rows['stem'])

    def find(self, name: str, label: str) -> list[tuple[str, int, int]]:
        """Return file, offset and length of every annotation of an image.

        If images of the same name are annotated in several folders, the folder named like the image's class counts.
        """
        stem = np.uint64(_stem(name))
        rows = self._rows[np.searchsorted(self._stems, stem):np.searchsorted(self._stems, stem, 'right')]
        own = rows[rows['folder'] == _hash(label, 4)]
        if not len(own) and len(np.unique(rows['folder'])) > 1:
            return []
        return [(self._files[row['file']], int(row['offset']), int(row['length']))
                for row in (own if len(own) else rows)]


def fractions(text: bytes, height: int, width: int) -> list[tuple[float, float, float, float]]:
    """Return an annotation's boxes as (xmin, ymin, xmax, ymax), in fractions of width and height, without empty ones.

    Args:
      text: the annotation's bytes.
      height, width: the image's, for an annotation without its own.

    Raises:
      ValueError: the text is in neither format.
    """
    if text.lstrip().startswith(b'<'):
        try:
            root = ElementTree.fromstring(text)  # noqa: S314 (expat bounds its entities)
        except ElementTree.ParseError as error:
            raise ValueError(f'not XML: {error}') from error
        width = int(root.findtext('size/width') or 0) or width
        height = int(root.findtext('size/height') or 0) or height
        found: list = [[box.findtext(side) for side in ('xmin', 'ymin', 'xmax', 'ymax')] for box in root.iter('bndbox')]
    else:
        found = [text.decode().split()[1:][-4:]]
        if len(found[0]) < 4:
            raise ValueError('not four numbers')
    result = []
    for box in found:
        try:
            x, y = (sorted(min(1., max(0., _place(at) / side)) for at in ends)
                    for ends, side in ((box[::2], width), (box[1::2], height)))
        except (ValueError, OverflowError) as error:
            raise ValueError(f'{error}'[:200]) from error
        if x[0] < x[1] and y[0] < y[1]:
            result.append((x[0], y[0], x[1], y[1]))
    return result


def _place(text: str | None) -> float:
    if not math.isfinite(place := float(text or '')):
        raise ValueError(f'{text} is not a position')
    return place


def _stem(name: str) -> int:
    return _hash(posixpath.splitext(posixpath.basename(name))[0], 8)


def _hash(text: str, size: int) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest(), 'little')
