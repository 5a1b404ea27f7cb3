"""Inspect images in class folders or of a table of classes: counts, sizes, balance, copies, and damaged files."""
import collections
import contextlib
import hashlib
import math
import pathlib
import time
from typing import Any, NamedTuple

import numpy as np

from data_prep import UserError
from data_prep.core import files
from data_prep.image import codec, listing, readers
from data_prep.image.schema import SPLITS
from pipelines.starting import labelled, recipes
from pipelines.starting.findings import (
    DRIFT,
    Findings,
    Sections,
    better_than_chance,
    commonest,
    dead_letters_of,
    divided,
    held_out_fraction,
    say,
    scratch,
    spread,
)

LOOKED_AT = 2000  # most files decoded; of more, an even sample, and a smaller one if it would take over half a minute
FIRST, LEAST, LONGEST = 20, 200, 30  # files decoded to see how long each takes; least files; seconds of them all
SMALL = 384  # images for the calibration
FEWEST, FEWEST_OF_A_CLASS = 20, 8  # least images for training and testing
MOST_DAMAGED = 0.2
FEW_TO_JUDGE = 10  # test images of a class
UNBALANCED = 10  # images of the most frequent class for each of the rarest, above which all classes count alike


class _Look(NamedTuple):
    """Facts from decoding a sample.

    Attributes:
      looked: files looked at.
      sides: shorter side of each image.
      grey: how many are grey.
      seconds: processor time per file.
      copies: files equal to an earlier one, and how many of those are of another class.
      reasons: why files cannot be read -> their names.
    """
    looked: int
    sides: list[int]
    grey: int
    seconds: float
    copies: int
    both_classes: int
    reasons: dict[str, list[str]]

    @property
    def damaged(self) -> int:
        return sum(map(len, self.reasons.values()))


def look(paths: list[str]) -> Findings:
    """Inspect folders or archives of class folders, or of images whose classes a table gives.

    Raises:
      UserError: nothing can be learned from them.
    """
    layout = labelled.layout(paths)
    lists, left_out = layout.lists, layout.said
    say(f'listing {", ".join(lists["train"])} …')
    found, loose = _listed('train', layout)
    counts = collections.Counter(picture.label for picture in found)
    _refuse_few(counts, lists['train'])
    held = _held_out(layout, counts)
    seen = _inspected(found)
    readable = round(len(found) * (1 - seen.damaged / seen.looked))
    examples, keys = divided(lists, readable, lambda split: len(held[split][0]), held_out_fraction(readable), 'name')
    sections: Sections = {'data': {
        'module': ('data_prep.imagenet', ''), 'train': (lists['train'], ''), **keys,
        'remove_duplicates': (True, 'leaves out training images of the test')}}
    sections['data'] |= {f'{split}_labels': (path, '') for split, path in layout.labels.items() if lists[split]}
    if layout.columns:
        sections['data']['columns'] = layout.columns, 'of the tables of classes'
    # Both copies of an image in two classes are left out; a sample holds few pairs of copies.
    unusable = (seen.damaged + 2 * seen.both_classes * len(found) / seen.looked) / seen.looked + len(loose) / len(found)
    limit = dead_letters_of({'train': (unusable, len(found))} | {
        split: _unusable(*each) for split, each in held.items()}, examples)
    if limit > 0.01:
        sections['data']['max_dead_letters'] = limit, (
            f'{seen.damaged:,} of {seen.looked:,} inspected files cannot be read' if seen.damaged else
            'some files cannot be used')
    least, common = min(counts.values()), counts.most_common(1)[0]
    unbalanced = common[1] > UNBALANCED * least
    metric, baseline, limit = _gate(counts, examples['test'], unbalanced)
    an_image = math.ceil(1000 / max(1, examples['test'])) / 1000
    sections['evaluate'] = {
        'thresholds': ({metric: {'max': round(limit, 3)}}, f'below the baseline\'s {baseline:.3g} by more than chance '
                       f'on about {examples["test"]:,} test images'),
        'drift': ({'top1_error': {'max_rise': max(0.01, an_image)}}, DRIFT)}
    side = int(np.median(seen.sides))
    if side > recipes.STORED:
        sections['data']['resize'] = recipes.STORED, 'shorter side of the stored images; no net here sees more'
    said = [f'{counts.total():,} images in {len(counts):,} classes, {least:,} to {common[1]:,} per class.',
            f'Shorter sides {min(seen.sides):,} to {max(seen.sides):,} pixels, median {side:,}.',
            *left_out, *_warnings(counts, seen, loose)]
    if unbalanced:
        said.append(_of_unbalanced(counts, examples['test']))
    return Findings(
        'images', said, examples, sections, metric, baseline, f'always predicting {common[0]!r}',
        lambda folder: _write_small(found, folder), SMALL, 'FOLDER_OR_IMAGE',
        {'side': side, 'grey': seen.grey == len(seen.sides), 'classes': len(counts), 'seconds': seen.seconds,
         'class_counts': [count for _, count in sorted(counts.items())] if unbalanced else []})


def _inspected(pictures: list[listing.Picture]) -> _Look:
    """Decode an even sample of the training images, which takes half a minute at most."""
    some = spread(pictures, LOOKED_AT)
    if len(some) > LEAST:
        some = spread(some, max(LEAST, int(LONGEST / _decode(spread(some, FIRST)).seconds)))
    say(f'decoding {len(some):,} of {len(pictures):,} images …')
    seen = _decode(some)
    if seen.damaged > MOST_DAMAGED * seen.looked:
        reason, name = commonest(seen.reasons)
        raise UserError(f'{seen.damaged:,} of {seen.looked:,} inspected files cannot be read; most of them, such as '
                        f'{name}: {reason}. Convert them to JPEG or PNG, or remove them.')
    return seen


def _unusable(pictures: list[listing.Picture], others: int) -> tuple[float, int]:
    """Return the share of a given split's files that cannot be used, as `others` cannot, and the number of all."""
    seen, count = _decode(spread(pictures, LEAST)), len(pictures) + others
    return (seen.damaged / seen.looked * len(pictures) + others) / count, count


def _held_out(layout: labelled.Layout, counts: collections.Counter
              ) -> dict[str, tuple[list[listing.Picture], int]]:
    """Return the images of the classes in the given validation and test splits, and how many other files each has.

    A split of which at most half are of the classes is not used: its list is emptied, and a sentence says so.

    Args:
      layout: where the images are.
      counts: images of each class in training.
    """
    lists, said = layout.lists, layout.said
    found: dict[str, tuple[list[listing.Picture], int]] = {}
    for split in ('validation', 'test'):
        if not lists[split]:
            continue
        pictures, loose = _listed(split, layout)
        known, where = [each for each in pictures if each.label in counts], ', '.join(lists[split])
        if len(known) <= len(pictures) / 2:
            said.append(f'{where} is not used: {len(known):,} of its {len(pictures):,} images are of the training '
                        f'classes. A part of the training images is the {split} instead.')
            lists[split] = []
            continue
        found[split] = known, len(pictures) - len(known) + len(loose)
        if found[split][1]:
            said.append(f'{where}: {found[split][1]:,} files are of no class of the training images, and become '
                        'dead letters.')
    return found


def _listed(split: str, layout: labelled.Layout) -> tuple[list[listing.Picture], list[readers.Found]]:
    """Return the images of a split, and files that cannot be used, each with its reason."""
    found, loose = list[listing.Picture](), list[readers.Found]()
    for source in readers.sources(split, '', layout.lists[split], layout.labels.get(split, '')):
        readers.look_for(source)
        for each in listing.scan(source, scratch(), {}, layout.columns):
            if isinstance(each, listing.Picture):
                found.append(each)
            elif isinstance(each, readers.Found):
                loose.append(each)
    return found, loose


def _refuse_few(counts: collections.Counter, paths: list[str]) -> None:
    where = ', '.join(paths)
    if not counts:
        raise UserError(f'{where}: no image was found. Give a folder with one folder of JPEG or PNG files per '
                        'class, such as photos/cat/1.jpg, or an archive of it.')
    if len(counts) == 1:
        raise UserError(f'{where}: all {counts.total():,} images are of one class, {next(iter(counts))!r}, so there is '
                        'nothing to distinguish. Put the images of each class into a folder of its own.')
    usable = [count for count in counts.values() if count >= FEWEST_OF_A_CLASS]
    if counts.total() < FEWEST or len(usable) < 2:
        raise UserError(f'{where}: {counts.total():,} images in {len(counts):,} classes are too few to train '
                        f'and test with. Give {FEWEST_OF_A_CLASS} or more of each of two classes, {FEWEST} in all; a '
                        'hundred of each is a good start.')


def _decode(pictures: list[listing.Picture]) -> _Look:
    sides, grey, copies, both, seconds = list[int](), 0, 0, 0, 0.0
    reasons: dict[str, list[str]] = {}
    classes, seen = dict[bytes, str](), set[int]()
    for picture in pictures:
        try:
            data = files.read(picture.found.file, picture.found.offset, picture.found.length)
        except OSError as error:  # such as a link to a file that is gone
            reasons.setdefault(f'it cannot be read ({error.strerror})', []).append(picture.found.name)
            continue
        digest = hashlib.blake2b(data, digest_size=16).digest()
        copies += digest in classes
        both += classes.setdefault(digest, picture.label) != picture.label
        began = time.process_time()  # other work does not count
        try:
            head = codec.header(data, codec.MAX_PIXELS)
            square = codec.load(data, head, recipes.STORED, square=True).square
        except codec.Unreadable as error:
            reasons.setdefault(str(error), []).append(picture.found.name)
            continue
        seconds += time.process_time() - began
        sides.append(min(head.height, head.width))
        assert square is not None
        seen.add(hash(square.tobytes()))
        grey += bool((np.ptp(square.astype(np.int16), axis=-1) <= 4).all())
    if not sides:
        raise UserError(f'none of {len(pictures):,} inspected files is a readable image: '
                        f'{next(iter(reasons))}. Convert them to JPEG or PNG.')
    if len(seen) == 1 < len(classes):
        raise UserError(f'the pixels of all {len(sides):,} inspected images are equal, so there is nothing to learn. '
                        'If they differ in transparency only, which is dropped, give them a background.')
    return _Look(len(pictures), sides, grey, seconds / len(sides), copies, both, reasons)


def _gate(counts: collections.Counter, tested: int, unbalanced: bool) -> tuple[str, float, float]:
    """Return the gate's metric, its value if one class is always predicted, and its largest value beyond chance."""
    if not unbalanced:
        baseline = 1 - counts.most_common(1)[0][1] / counts.total()
        return 'top1_error', baseline, better_than_chance(baseline, tested)
    baseline = 1 - 1 / len(counts)
    # A mean of errors, each measured on a class's images, varies as one error measured on so many images.
    equivalent = len(counts) ** 2 / sum(1 / max(1, tested * count / counts.total()) for count in counts.values())
    return 'mean_class_error', baseline, better_than_chance(baseline, equivalent)


def _of_unbalanced(counts: collections.Counter, tested: int) -> str:
    rarest, count = min(counts.items(), key=lambda item: item[1])
    held = max(1, round(tested * count / counts.total()))
    few = ', which are few to judge by' if held < FEW_TO_JUDGE else ''
    return (f'The classes are unbalanced, more than {UNBALANCED} to 1, so training and the gate count every class '
            f'alike (model.class_counts, mean_class_error). The test will have about {held:,} images of the rarest, '
            f'{rarest!r}{few}.')


def _warnings(counts: collections.Counter, seen: _Look, loose: list[readers.Found]) -> list[str]:
    said = []
    if seen.damaged:
        reason, name = commonest(seen.reasons)
        said.append(f'{seen.damaged:,} of {seen.looked:,} inspected files cannot be read, such as {name}: {reason}. '
                    'They become dead letters.')
    if loose:
        said.append(f'{len(loose):,} files cannot be used, such as {loose[0].name}: {loose[0].reason}.')
    if seen.copies:
        said.append(f'{seen.copies:,} of {seen.looked:,} are exact copies of another'
                    + (f', {seen.both_classes:,} of them in two classes, which prepare leaves out' if seen.both_classes
                       else '') + '.')
    few = [name for name, count in counts.items() if count < FEWEST_OF_A_CLASS]
    if few:
        said.append(f'{len(few):,} classes have fewer than {FEWEST_OF_A_CLASS} images, such as {few[0]!r}; do not '
                    'expect them to be learned.')
    if seen.grey == len(seen.sides):
        said.append('All images are grey, so colours are not altered; they are not mirrored either, because mirrored '
                    'drawings and letters look different.')
    return said


def _write_small(pictures: list[listing.Picture], folder: str) -> dict[str, Any]:
    """Write an even sample of the images into class folders; return the keys of `data`."""
    ordered = sorted(pictures, key=lambda picture: picture.label)
    places = {label: str(number) for number, label in enumerate(dict.fromkeys(each.label for each in ordered))}
    for number, picture in enumerate(spread(ordered, SMALL)):  # a table's class may be no name of a folder
        path = pathlib.Path(folder, places[picture.label], f'{number}{pathlib.PurePath(picture.found.name).suffix}')
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # a link to a file that is gone
            path.write_bytes(files.read(picture.found.file, picture.found.offset, picture.found.length))
    return {'module': 'data_prep.imagenet', 'train': [folder], 'validation_fraction': 0.2, 'test_fraction': 0.2,
            'max_dead_letters': 0.9, 'columns': {}, **{f'{split}_labels': '' for split in SPLITS}}
