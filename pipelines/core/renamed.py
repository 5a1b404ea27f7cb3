"""Renamed keys of configurations; old names still work in this version, each with a one-line note."""
import functools
import sys

from data_prep import UserError

KEYS = {'input.deviation': 'input.standardise', 'model.learn': 'model.trainable_networks',
        'model.watch': 'model.monitor', 'model.drops': 'model.max_drops', 'model.decay': 'model.weight_decay',
        'model.deviation': 'model.stddev'}


def rename(raw: dict, source: str) -> set[str]:
    """Rename the old keys of one file in place and return the old names it used.

    Raises:
      UserError: a file gives a key by both names.
    """
    found = set()
    for old, new in KEYS.items():
        (section, before), after = old.split('.'), new.split('.')[1]
        keys = raw.get(section)
        if isinstance(keys, dict) and before in keys:
            if after in keys:
                raise UserError(f'{source}: {old} is the old name of {new}, which is also given. Keep {new}.')
            keys[after] = keys.pop(before)
            found.add(old)
    return found


def override(text: str) -> str:
    """Return a `section.key=value` with the key's current name."""
    key, equals, value = text.partition('=')
    return KEYS.get(key.strip(), key) + equals + value


def settle(raw: dict, asked: set[str], owned: dict[str, type], source: str) -> None:
    """Print a note for each old name used; undo the renaming where the user's own module has a key of that name.

    Args:
      raw: the sections, with new names.
      asked: the old names that were used.
      owned: section -> the dataclass of its keys.
    """
    for old in sorted(asked):
        (section, before), after = old.split('.'), KEYS[old].split('.')[1]
        fields = getattr(owned[section], '__dataclass_fields__', {})
        if after not in fields and before in fields:
            raw[section][before] = raw[section].pop(after)
        else:
            _report(source, old)


@functools.cache  # once per process, which may read its configuration repeatedly
def _report(source: str, old: str) -> None:
    print(f'note: {source}: {old} is now called {KEYS[old]}; the old name works in this version.', file=sys.stderr)
