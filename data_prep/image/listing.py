"""List images with their classes: of class folders, of a table, or of the layouts of ImageNet and Tiny ImageNet."""
import posixpath
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from data_prep import UserError
from data_prep.core import files
from data_prep.image import annotations, class_tables, readers
from data_prep.image.class_tables import PICTURES

_FIRST_TWO: Mapping[str, str] = MappingProxyType({})


class Picture(NamedTuple):
    """A file with an image's name, and the id of its class."""
    found: readers.Found
    label: str


def is_hidden(path: str) -> bool:
    """Return whether a file, or a folder it lies in, is hidden or one that macOS adds to archives."""
    return any(part.startswith(('.', '__MACOSX')) for part in path.split('/'))


def scan(source: readers.Source, scratch: str, numbers: dict[str, str], columns: Mapping[str, str] = _FIRST_TWO
         ) -> Iterator[Picture | readers.Found | annotations.BoxRange]:
    """Yield every image with its class, every bounding-box annotation, and unusable files with a reason.

    If `source.labels` is a table, it gives the classes of images, and those it does not name are skipped. Otherwise an
    image's class is the first folder below the source; for images in none, a list gives it; for those in a folder
    `images`, the `_annotations.txt` beside it. Files without an image's name, and hidden files, are skipped.

    Args:
      scratch: an existing folder for unpacked files.
      numbers: ILSVRC's class numbers -> ids, or nothing.
      columns: of the table, as in `class_tables.read`.

    Raises:
      UserError: as `walk`; or images have no class folders and no labels, or another number of labels.
    """
    flat: list[readers.Found] = []
    said: dict[str, str] = {}
    in_folders = False
    given = _given(source, scratch, numbers, columns)
    for found in readers.walk(source, scratch):
        ending = posixpath.splitext(found.name)[1].lower()
        top, _, below = found.name.partition('/')
        if found.reason:
            yield found
        elif is_hidden(found.name):
            continue
        elif ending == '.xml':
            yield from annotations.box_ranges(*found[:4], None)
        elif found.name.endswith(('_boxes.txt', '_annotations.txt')):
            content = files.read(*found[1:4])
            yield from annotations.box_ranges(*found[:4], content)
            if found.name.endswith('_annotations.txt'):
                said |= annotations.annotations(content, f'{source.path}/{found.name}')
        elif ending in PICTURES and source.split != readers.BOXES:
            if below and top != 'images' and not isinstance(given, dict):
                yield Picture(found, top)
                in_folders = True
            else:
                flat.append(found)
    if given is None and not said and not in_folders and any('/' not in picture.name for picture in flat):
        raise UserError(f'data.{source.split}: the images of {source.path} lie in no class folders. Name the folder '
                        f'that holds class folders, or give a table of images and classes in data.{source.split}_'
                        'labels.')
    yield from _flat(source, sorted(flat, key=lambda found: found.name), said if given is None else given)


def _given(source: readers.Source, scratch: str, numbers: dict[str, str], columns: Mapping[str, str]
           ) -> dict[str, str] | list[str] | None:
    """Return the classes in the source's `labels`: by image, or in the order of the images; or None."""
    if not source.labels:
        return None
    if class_tables.is_table(source.labels):
        return class_tables.read(source.labels, columns, scratch)
    return annotations.labels(readers.read_small(source.labels), source.labels, numbers)


def _flat(source: readers.Source, pictures: list[readers.Found], classes: dict[str, str] | list[str]
          ) -> Iterator[Picture | readers.Found]:
    """Yield images, sorted by name, with the classes given for them."""
    if isinstance(classes, list):
        if len(classes) != len(pictures):
            raise UserError(f'{source.labels} has {len(classes):,} classes, but {source.path} has {len(pictures):,} '
                            'images in no class folder. It needs one class per image, in the order of their names.')
        yield from map(Picture, pictures, classes)
        return
    base = posixpath.join(source.path, source.inside)
    said = [(picture, class_tables.find(classes, f'{base}/{picture.name}')) for picture in pictures]
    if source.labels:
        said = [(picture, label) for picture, label in said if label is not None]
        if not said:
            raise UserError(f'data.{source.split}_labels: {source.labels} names no image of {source.path}. Name its '
                            "columns in data.columns, such as {image: '{file}', class: '{label}'}.")
    for picture, label in said:
        if not classes:
            label = posixpath.dirname(picture.name)  # here, `images` is a class
        if label:
            yield Picture(picture, label)
        else:
            yield picture._replace(reason=f'{source.labels} gives it two classes' if source.labels else
                                   'in no class folder, and nothing gives its class')
