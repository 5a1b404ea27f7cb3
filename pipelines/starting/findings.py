"""Findings about the user's data: sentences, sizes, the baseline to beat, and keys for the configuration."""
import atexit
import dataclasses
import functools
import math
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import yaml

from data_prep import UserError
from pipelines.core import config

Keys = dict[str, tuple[Any, str]]  # key -> value, and the reason or an empty text
Sections = dict[str, Keys]
# Names of a split's files and folders; images and pairs each accept one more.
SPLIT_NAMES = {**dict.fromkeys(('train', 'training', 'trn'), 'train'), **dict.fromkeys(('test', 'tst'), 'test'),
               **dict.fromkeys(('val', 'valid', 'validation', 'dev', 'devel', 'development'), 'validation')}
DRIFT = 'most that another format of the model may lose (export --to)'
ORDER = ('data', 'input', 'model', 'inference', 'train', 'export', 'evaluate')


@dataclasses.dataclass
class Findings:
    """Findings about the user's data.

    Attributes:
      kind: images, pairs, trees or tryon.
      said: findings, one sentence each.
      examples: by split, `train`, `validation` and `test`; approximate, since splits are made by a hash.
      sections: keys that follow from the data alone.
      metric: the gate's metric.
      baseline: that metric's value without any learning.
      baseline_words: how the baseline predicts.
      make_small: writes a part of the data into an empty folder, and returns the keys of `data` that locate it.
      small: number of examples in that part.
      next_input: argument for `pipelines.predict`.
      facts: facts the recipes depend on.
    """
    kind: str
    said: list[str]
    examples: dict[str, int]
    sections: Sections
    metric: str
    baseline: float
    baseline_words: str
    make_small: Callable[[str], dict[str, Any]]
    small: int
    next_input: str
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A net and the shape of its input.

    Attributes:
      words: description of the net.
      sections: its keys, merged over those of the data.
      rows: examples, or padded tokens, per batch.
    """
    words: str
    sections: Sections
    rows: int


def say(sentence: str) -> None:
    """Print progress on standard error, since standard output is for the configuration."""
    print(f'init: {sentence}', file=sys.stderr, flush=True)


def merged(*parts: Sections) -> Sections:
    """Merge sections key by key, later ones over earlier ones, in a configuration's order."""
    names = dict.fromkeys(name for name in ORDER
                          if any(name in part for part in parts))
    return {name: {key: value for part in parts for key, value in part.get(name, {}).items()} for name in names}


def values(sections: Sections) -> dict[str, dict[str, Any]]:
    """Return the sections without their comments, as a configuration file holds them."""
    return {name: {key: value for key, (value, _) in keys.items()} for name, keys in sections.items()}


def held_out_fraction(examples: int) -> float:
    """Return the share of the data held out for validation, and as much again for the test.

    For two classes with an error of one half, a test of 20 examples has a standard error of 0.11, one of 100 has 0.05.
    """
    return 0.2 if examples < 500 else 0.15 if examples < 2_000 else 0.1 if examples < 20_000 else 0.05


def divided(lists: dict[str, list[str]], count: int, held: Callable[[str], int], fraction: float,
            by: str) -> tuple[dict[str, int], Keys]:
    """Return how many examples each split has, and the keys of the section `data` that define them.

    Args:
      lists: files given for each split; a split without files takes a fraction of the training data.
      count: training examples before that.
      held: returns the number of examples of a given split.
      by: name of the hashed value.
    """
    examples, keys = {'train': count}, Keys()
    for split in ('validation', 'test'):
        if lists[split]:
            keys[split], examples[split] = (lists[split], ''), held(split)
        else:
            keys[f'{split}_fraction'] = round(fraction, 5), f'split off by a hash of the {by}'
            examples[split] = round(count * fraction)
            examples['train'] -= examples[split]
    return examples, keys


@functools.cache
def scratch() -> str:
    """Return a folder for unpacked files, which is removed when the program ends."""
    folder = tempfile.mkdtemp(prefix='landmark-init-')
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def split_of(name: str, names: dict[str, str] = SPLIT_NAMES) -> str:
    """Return the split that a word of a name means, or nothing."""
    return next((names[word] for word in re.findall('[a-z]+', name.lower()) if word in names), '')


def by_name(paths: list[str], names: dict[str, str]) -> dict[str, list[str]]:
    """Sort files into training, validation and test by a word of their names; those without one are for training.

    Where no file's name has such a word, and they lie in several folders, those of the folders decide.

    Raises:
      UserError: none is for training.
    """
    lists: dict[str, list[str]] = {'train': [], 'validation': [], 'test': []}
    pure = [pathlib.PurePath(path) for path in paths]
    said, of_folders = ([split_of(part.name, names) for part in parts] for parts in (
        pure, [path.parent for path in pure]))
    if not any(said) and len({path.parent.name for path in pure}) > 1:
        said = of_folders
    for path, split in zip(paths, said):
        lists[split or 'train'].append(path)
    if not lists['train']:
        raise UserError(f'{", ".join(paths)}: by name all are for validation or the test. Give training files '
                        'too, such as train.en train.de.')
    return lists


def dead_letters(share: float, total: int, smallest: int) -> float:
    """Return `data.max_dead_letters` for `total` records, a `share` of which cannot be used.

    Every split is held to it by itself. Of the `smallest` one's examples, `share` are unusable on average, and by the
    hash three standard deviations more, but never more than all there are.
    """
    expected = share * smallest
    most = min(share * total, expected + 3 * math.sqrt(expected) + 1)
    return math.ceil(1000 * min(0.5, max(2 * share + 0.01, most / max(1, smallest)))) / 1000


def dead_letters_of(unusable: dict[str, tuple[float, int]], examples: dict[str, int]) -> float:
    """Return `data.max_dead_letters` for all splits.

    Args:
      unusable: given split -> share of its records that cannot be used, and the number of all.
      examples: by split; those that are not given are split off from training.
    """
    own = min(count for split, count in examples.items() if split == 'train' or split not in unusable)
    return max(dead_letters(share, total, own if split == 'train' else total)
               for split, (share, total) in unusable.items())


def refuse_empty(lists: dict[str, list[str]], usable: dict[str, int], none: str, all_of_them: str) -> None:
    """Refuse a given split in which nothing can be used.

    Args:
      usable: examples of each given split.
      none, all_of_them: such as `no tree` and `trees`, for the message.
    """
    if empty := next((split for split, count in usable.items() if not count), ''):
        raise UserError(f'{", ".join(lists[empty])}: {none}. Leave it out, and a part of the training {all_of_them} '
                        f'is the {empty}.')


def remaining(keys: Keys) -> float:
    """Return the share of the training examples that these keys of `data` split nothing off from."""
    return 1 - sum(keys.get(f'{split}_fraction', (0, ''))[0] for split in ('validation', 'test'))


def commonest(reasons: dict[str, list[str]]) -> tuple[str, str]:
    """Return the most frequent reason why files cannot be used, and the first such file."""
    reason, names = max(reasons.items(), key=lambda item: len(item[1]))
    return reason, names[0]


def resolved(sections: dict[str, dict[str, Any]]):
    """Load the configuration with these sections."""
    with tempfile.TemporaryDirectory(prefix='landmark-init-') as scratch:
        path = pathlib.Path(scratch, 'planned.yaml')
        path.write_text(yaml.safe_dump(sections, sort_keys=False, allow_unicode=True))
        return config.load(str(path))


def better_than_chance(error: float, examples: float) -> float:
    """Return the largest error rate on this many test examples that is below a baseline's with 95% confidence."""
    return max(0.0, error - 1.645 * math.sqrt(max(error * (1 - error), 1 / examples) / examples))


def spread(items: list, count: int) -> list:
    """Return at most `count` of the items, evenly spaced."""
    return [items[len(items) * n // count] for n in range(count)] if len(items) > count else items
