"""Find the splits of a treebank: sections of the Wall Street Journal, or words in names of its files and folders."""
import os
import pathlib
import re
from collections.abc import Callable

from data_prep.trees import tree_files
from pipelines.starting.findings import SPLIT_NAMES, by_name, say, split_of

_SECTION = re.compile(r'(?:wsj[_.-]?)?(\d\d)(?:-(\d\d))?(?=[._-]|$)')
_UNUSED = 'unused'


def layout(paths: list[str]) -> dict[str, list[str]]:
    """Return the files or folders of each split.

    Args:
      paths: files, folders, patterns or archives; in a single folder, its files are looked at.

    Raises:
      UserError: of several files, none is for training.
    """
    # The folder of each file, and the parts of its path below that may name its split.
    places: list[tuple[str, tuple[str, ...]]] = [(os.path.dirname(path), (os.path.basename(path),))
                                                 for path in (each.rstrip('/') for each in paths)]
    if inside := len(paths) == 1 and os.path.isdir(paths[0]):
        places = [(paths[0], pathlib.PurePath(os.path.relpath(file, paths[0])).parts)
                  for file in tree_files.outermost(paths[0])]
    if found := _divided(places, _of_section):
        say('sections 02 to 21 are for training, 22 for validation and 23 for the test, as is usual for the Wall '
            'Street Journal; others are not used.')
        return found
    if inside and (found := _divided(places, split_of)):
        say('; '.join(f'{split}: {", ".join(listed)}' for split, listed in found.items() if listed) + '.')
        return found
    return by_name(paths, SPLIT_NAMES) if len(paths) > 1 else {'train': paths, 'validation': [], 'test': []}


def _divided(places: list[tuple[str, tuple[str, ...]]], find: Callable[[str], str]) -> dict[str, list[str]] | None:
    """Return the listed paths by split, if there are some for training and for another."""
    found: dict[str, dict[str, None]] = {'train': {}, 'validation': {}, 'test': {}}
    for folder, parts in places:
        number, split = next(((n, split) for n, part in enumerate(parts) if (split := find(part))), (0, _UNUSED))
        if split != _UNUSED:
            found[split][os.path.join(folder, *parts[:number + 1])] = None
    lists = {split: [*listed] for split, listed in found.items()}
    return lists if lists['train'] and (lists['validation'] or lists['test']) else None


def _of_section(name: str) -> str:
    """Return the split of a section such as `22`, `02-21.clean` or `wsj_23.mrg`; empty if the name is none."""
    if not (match := _SECTION.match(name)):
        return ''
    first, last = int(match[1]), int(match[2] or match[1])
    if 2 <= first <= last <= 21:
        return 'train'
    return {(22, 22): 'validation', (23, 23): 'test'}.get((first, last), _UNUSED)
