"""What looking at data leaves: sentences, sizes, the baseline to beat, and the keys of the configuration's sections."""
import dataclasses
import math
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import Any

Keys = dict[str, tuple[Any, str]]  # key -> value, and why in words or nothing
Sections = dict[str, Keys]
# What files and folders of a split are called; images and pairs know one more each.
SPLIT_NAMES = {'train': 'train', 'training': 'train', 'val': 'validation', 'valid': 'validation', 'dev': 'validation',
               'validation': 'validation', 'test': 'test'}
ORDER = ('data', 'input', 'model', 'inference', 'train', 'export', 'evaluate')


@dataclasses.dataclass
class Findings:
    """What was found in somebody's data.

    Attributes:
      kind: images, pairs, trees or tryon.
      said: what was found, a sentence each.
      examples: by split, `train`, `validation` and `test`; fractions are taken by a hash, so about.
      sections: what follows from the data alone.
      metric: that the gate judges by.
      baseline: what that metric is without any learning.
      baseline_words: how.
      make_small: writes a part of the data into an empty folder, and returns what of the section `data` names it.
      small: how many examples that part has.
      next_input: what `pipelines.predict` is called with.
      facts: what recipes choose by.
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
    """A net and how its input is cut.

    Attributes:
      words: the net in words.
      sections: its keys, over those of the data.
      rows: examples, or padded tokens, a batch.
    """
    words: str
    sections: Sections
    rows: int


def say(sentence: str) -> None:
    """Prints progress where the configuration does not go."""
    print(f'init: {sentence}', file=sys.stderr, flush=True)


def merged(*parts: Sections) -> Sections:
    """Later sections over earlier ones, key by key, in the order in which a configuration is read."""
    names = dict.fromkeys(name for name in ORDER
                          if any(name in part for part in parts))
    return {name: {key: value for part in parts for key, value in part.get(name, {}).items()} for name in names}


def values(sections: Sections) -> dict[str, dict[str, Any]]:
    """The sections without their comments, as a configuration file holds them."""
    return {name: {key: value for key, (value, _) in keys.items()} for name, keys in sections.items()}


def held_out_fraction(examples: int) -> float:
    """How much of the data is split off for validation, and as much for the test.

    A test of 20 examples has a standard error of 0.11 on an even error of two classes, one of 100 has 0.05.
    """
    return 0.2 if examples < 500 else 0.15 if examples < 2_000 else 0.1 if examples < 20_000 else 0.05


def divided(lists: dict[str, list[str]], count: int, held: Callable[[str], int], fraction: float,
            by: str) -> tuple[dict[str, int], Keys]:
    """How many examples each split has, and the keys of the section `data` that say so.

    Args:
      lists: what was given for each split; of one without anything a fraction of the training data is split off.
      count: training examples before that.
      held: how many a split that was given has.
      by: what is hashed to split.
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


def commonest(reasons: dict[str, list[str]]) -> tuple[str, str]:
    """The reason that most files cannot be used for, and the first of them."""
    reason, names = max(reasons.items(), key=lambda item: len(item[1]))
    return reason, names[0]


def resolved(sections: dict[str, dict[str, Any]]):
    """The configuration that a file with these sections is."""
    import yaml

    from pipelines.core import config
    with tempfile.TemporaryDirectory(prefix='landmark-init-') as scratch:
        path = pathlib.Path(scratch, 'planned.yaml')
        path.write_text(yaml.safe_dump(sections, sort_keys=False, allow_unicode=True))
        return config.load(str(path))


def better_than_chance(error: float, examples: int) -> float:
    """The largest error rate that on so many test examples is below a baseline's with 95% confidence."""
    return max(0.0, error - 1.645 * math.sqrt(max(error * (1 - error), 1 / examples) / examples))


def spread(items: list, count: int) -> list:
    """At most `count` of the items, evenly."""
    return [items[len(items) * n // count] for n in range(count)] if len(items) > count else items
