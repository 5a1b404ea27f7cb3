"""Inspect people and garments in VITON-HD's layout: who wears what, sizes, and missing files."""
import collections
import os
import pathlib
import re
from typing import Any

from data_prep import UserError
from data_prep.image import codec
from data_prep.people import pairs_files
from pipelines.starting.findings import Findings, Keys, commonest, divided, held_out_fraction, say, spread

FEWEST = 20
LOOKED_AT = 200  # most samples whose files are read
SMALL = 24
MOST_DAMAGED = 0.5


def look(paths: list[str]) -> Findings:
    """Inspect a folder of people and garments.

    Raises:
      UserError: nothing can be learned from them.
    """
    if len(paths) > 1:
        raise UserError('tryon takes one folder. Give the one that holds *_pairs.txt and the folders they refer to.')
    [root] = paths
    lists = _lists(root)
    say(f'reading {", ".join(lists["train"])} …')
    pairs = [pair for path in lists['train'] for pair in pairs_files.pairs(path)]
    listed = {pair.person for pair in pairs if not pair.reason}
    people = sorted({pair.person for pair in pairs
                     if not pair.reason and pairs_files.is_worn(pair.person, pair.garment)})
    if len(people) < FEWEST:
        others = (f' ({len(listed) - len(people):,} others are listed with garments they do not wear)'
                  if len(people) < len(listed) else '')
        raise UserError(f'{", ".join(lists["train"])}: {len(people):,} people{others} are too few to learn from. Give '
                        f'{FEWEST} or more, or use published weights, as docs/tasks/tryon.md says.')
    folders = pairs_files.folders(pairs_files.root(lists['train'][0]))
    sizes, reasons = _sizes(folders, spread(people, LOOKED_AT))
    bad, looked = sum(map(len, reasons.values())), min(LOOKED_AT, len(people))
    if bad > MOST_DAMAGED * looked:
        reason, name = commonest(reasons)
        raise UserError(f'{bad:,} of {looked:,} samples cannot be used; most of them, such as {name}: {reason}. See '
                        'docs/tasks/tryon.md for the layout of the folder.')
    size, _ = collections.Counter(sizes).most_common(1)[0]
    examples, keys = divided(lists, len(people), lambda split: sum(
        1 for path in lists[split] for _ in pairs_files.pairs(path)), held_out_fraction(len(people)), 'name')
    data: Keys = {'module': ('data_prep.tryon', ''), 'train': (lists['train'], ''), **keys}
    if bad:
        data['max_dead_letters'] = round(min(0.9, 2 * bad / looked + 0.05), 3), 'some are incomplete'
    said = [f'{len(people):,} people with a garment, most of {size[0]:,} x {size[1]:,} pixels.']
    if len(set(sizes)) > 1:
        said.append(f'{len(set(sizes)):,} sizes; all images must have the same size to be trained on together.')
    if bad:
        reason, name = commonest(reasons)
        said.append(f'{bad:,} of {looked:,} inspected samples are incomplete, such as {name}: {reason}.')
    if len(people) < 1_000:
        said.append('So few people only show whether everything works; learning faces and hands takes thousands.')
    return Findings(
        'tryon', said, examples,
        {'data': data, 'export': {'warmup_requests': (1, '')},
         'evaluate': {'batch_size': (1, ''), 'thresholds': (
             {'ssim': {'min': 0.5}}, "a first bound; the report has the pasted garment's own SSIM to beat")}},
        'ssim', 0.5, 'no baseline here: the report measures the pasted garment',
        lambda folder: _small(lists, people, folder), min(SMALL, len(people)), 'PAIRS_FILE',
        {'size': size, 'seconds': 0.05})


def _lists(root: str) -> dict[str, list[str]]:
    """Return the pairs files of a folder by split: of several, those with the split's name alone, or not unpaired."""
    found: dict[str, list[str]] = {'train': [], 'validation': [], 'test': []}
    for path in sorted(str(path) for path in pathlib.Path(root).glob('*pairs*.txt')):
        name = os.path.basename(path)
        found['test' if 'test' in name else 'validation' if 'val' in name else 'train'].append(path)
    if not found['train']:
        raise UserError(f'{root} has no train_pairs.txt, which names a person and a garment per line. Write one; '
                        'docs/tasks/tryon.md describes the layout of the folder.')
    for split, paths in found.items():
        plain = [path for path in paths if re.fullmatch(f'({split}|val)_pairs.txt', os.path.basename(path))]
        found[split] = plain or [path for path in paths if 'unpaired' not in os.path.basename(path)] or paths
        if unused := [path for path in paths if path not in found[split]]:
            say(f'{", ".join(unused)}: not used beside {", ".join(found[split])}.')
    return found


def _sizes(folders: dict[str, str], people: list[str]) -> tuple[list[tuple[int, int]], dict[str, list[str]]]:
    """Return height and width of people whose files are complete, and the reasons why others cannot be used."""
    sizes, reasons = list[tuple[int, int]](), dict[str, list[str]]()
    for person in people:
        try:
            found = pairs_files.read(folders, person, pairs_files.garment_of(folders, person))
            head = codec.header(found['image'].content, codec.MAX_PIXELS)
        except pairs_files.Refused as error:
            reasons.setdefault(f'{os.path.basename(os.path.dirname(error.path))}: {error}', []).append(person)
            continue
        except codec.Unreadable as error:
            reasons.setdefault(str(error), []).append(person)
            continue
        sizes.append((head.height, head.width))
    return sizes, reasons


def _small(lists: dict[str, list[str]], people: list[str], folder: str) -> dict[str, Any]:
    """Write a pairs file of some people beside links to the folders it refers to; return the keys of `data`."""
    real = pathlib.Path(pairs_files.root(lists['train'][0])).absolute()
    for entry in real.iterdir():
        if entry.is_dir():
            pathlib.Path(folder, entry.name).symlink_to(entry)
    found = pairs_files.folders(str(real))
    lines = (f'{person} {pairs_files.garment_of(found, person)}\n' for person in spread(people, SMALL))
    path = pathlib.Path(folder, 'pairs.txt')
    path.write_text(''.join(lines))
    return {'module': 'data_prep.tryon', 'train': [str(path)], 'validation_fraction': 0.2, 'test_fraction': 0.2,
            'max_dead_letters': 0.9}

