"""Inspect images in class folders: counts, sizes, balance, copies, and damaged files with the reason."""
import atexit
import collections
import hashlib
import math
import os
import pathlib
import shutil
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np

from data_prep import UserError
from data_prep.core import files
from data_prep.image import codec, readers
from pipelines.starting import recipes
from pipelines.starting.findings import (
    DRIFT,
    SPLIT_NAMES,
    Findings,
    Sections,
    better_than_chance,
    commonest,
    divided,
    held_out_fraction,
    say,
    spread,
)

LOOKED_AT = 2000  # most files decoded; of more, an even sample, and a smaller one if it would take over half a minute
FIRST, LEAST, LONGEST = 20, 200, 30  # files decoded to see how long each takes; least files; seconds of them all
SMALL = 384  # images for the calibration
FEWEST, FEWEST_OF_A_CLASS = 20, 8  # least images for training and testing
MOST_DAMAGED = 0.2
FEW_TO_JUDGE = 10  # test images of a class
UNBALANCED = 10  # images of the most frequent class for each of the rarest, above which all classes count alike
# Folders that are splits rather than classes.
_SPLITS = {**SPLIT_NAMES, 'testing': 'test'}


class _Look(NamedTuple):
    """Facts from decoding a sample: shorter sides, whether grey, seconds per file, copies, reasons of failure."""
    sides: list[int]
    grey: int
    seconds: float
    copies: int
    both_classes: int
    reasons: dict[str, list[str]]


def look(paths: list[str]) -> Findings:
    """Inspect folders or archives of class folders.

    Raises:
      UserError: nothing can be learned from them.
    """
    lists = _splits(paths)
    say(f'listing {", ".join(lists["train"])} …')
    found = {split: _listed(split, listed) for split, listed in lists.items() if listed}
    counts = collections.Counter(picture.label for picture in found['train'])
    _refuse_few(counts, lists['train'])
    some = spread(found['train'], LOOKED_AT)
    if len(some) > LEAST:
        some = spread(some, max(LEAST, int(LONGEST / _decode(spread(some, FIRST)).seconds)))
    say(f'decoding {len(some):,} of {len(found["train"]):,} images …')
    seen = _decode(some)
    damaged = sum(map(len, seen.reasons.values()))
    if damaged > MOST_DAMAGED * len(some):
        reason, name = commonest(seen.reasons)
        raise UserError(f'{damaged:,} of {len(some):,} inspected files cannot be read; most of them, such as {name}: '
                        f'{reason}. Convert them to JPEG or PNG, or remove them.')
    share = damaged / len(some)
    readable = round(len(found['train']) * (1 - share))
    examples, keys = divided(lists, readable, lambda split: len(found[split]), held_out_fraction(readable), 'name')
    sections: Sections = {'data': {
        'module': ('data_prep.imagenet', ''), 'train': (lists['train'], ''), **keys,
        'remove_duplicates': (True, 'leaves out training images of the test')}}
    sections['data'] |= {'max_dead_letters': (round(min(0.5, 2 * share + 0.01), 3), f'{damaged:,} of {len(some):,} '
                                              'inspected files cannot be read')} if damaged else {}
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
            *_warnings(counts, seen, damaged, len(some))]
    if unbalanced:
        said.append(_of_unbalanced(counts, examples['test']))
    return Findings(
        'images', said, examples, sections, metric, baseline, f'always predicting {common[0]!r}',
        lambda folder: _write_small(found['train'], folder), SMALL, 'FOLDER_OR_IMAGE',
        {'side': side, 'grey': seen.grey == len(seen.sides), 'classes': len(counts), 'seconds': seen.seconds,
         'class_counts': [count for _, count in sorted(counts.items())] if unbalanced else []})


def _splits(paths: list[str]) -> dict[str, list[str]]:
    """Return the files of training, validation and test, by folders of those names; without them, all train."""
    if len(paths) == 1 and os.path.isdir(paths[0]):
        inside = sorted(entry.name for entry in os.scandir(paths[0]) if entry.is_dir()
                        and not entry.name.startswith('.'))
        meant = [_SPLITS.get(name.lower()) for name in inside]
        if 'train' in meant and all(meant) and len(set(meant)) == len(meant):
            lists = {split: [os.path.join(paths[0], name)] for name, split in zip(inside, meant) if split}
            return {split: lists.get(split, []) for split in ('train', 'validation', 'test')}
    return {'train': paths, 'validation': [], 'test': []}


def _listed(split: str, listed: list[str]) -> list[readers.Picture]:
    found = list[readers.Picture]()
    # Archives are unpacked there and stay as long as the program runs.
    scratch = tempfile.mkdtemp(prefix='landmark-init-')
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    for source in readers.sources(split, '', listed):
        readers.look_for(source)
        found += [each for each in readers.scan(source, scratch, {}) if isinstance(each, readers.Picture)]
    return found


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


def _decode(pictures: list[readers.Picture]) -> _Look:
    sides, grey, copies, both, seconds = list[int](), 0, 0, 0, 0.0
    reasons: dict[str, list[str]] = {}
    classes: dict[bytes, str] = {}
    for picture in pictures:
        data = files.read(picture.found.file, picture.found.offset, picture.found.length)
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
        grey += bool((np.ptp(square.astype(np.int16), axis=-1) <= 4).all())
    if not sides:
        raise UserError(f'none of {len(pictures):,} inspected files is a readable image: '
                        f'{next(iter(reasons))}. Convert them to JPEG or PNG.')
    return _Look(sides, grey, seconds / len(sides), copies, both, reasons)


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


def _warnings(counts: collections.Counter, seen: _Look, damaged: int, looked: int) -> list[str]:
    said = []
    if damaged:
        reason, name = commonest(seen.reasons)
        said.append(f'{damaged:,} of {looked:,} inspected files cannot be read, such as {name}: {reason}. They become '
                    'dead letters.')
    if seen.copies:
        said.append(f'{seen.copies:,} of {looked:,} are exact copies of another'
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


def _write_small(pictures: list[readers.Picture], folder: str) -> dict[str, Any]:
    """Write an even sample of the images into class folders; return the keys of `data`."""
    ordered = sorted(pictures, key=lambda picture: picture.label)
    for number, picture in enumerate(spread(ordered, SMALL)):
        path = pathlib.Path(folder, picture.label, f'{number}{pathlib.PurePath(picture.found.name).suffix}')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files.read(picture.found.file, picture.found.offset, picture.found.length))
    return {'module': 'data_prep.imagenet', 'train': [folder], 'validation_fraction': 0.2, 'test_fraction': 0.2,
            'max_dead_letters': 0.9}
