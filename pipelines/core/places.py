"""Find where a configuration's artifacts and pushed versions lie, without importing its data and model modules."""
import dataclasses
import os
from collections.abc import Iterable

from pipelines.core import checking, commands, reading
from pipelines.core.sections import SECTIONS, PushConfig


@dataclasses.dataclass(frozen=True)
class Place:
    """The folders of one configuration.

    Attributes:
      root: the pipeline root, which need not exist.
      destination: the folder that serving watches.
      flags: the user's --config, --set and --pipeline_root, for commands named in messages.
      raw: the configuration as its user wrote it.
    """
    root: str
    destination: str
    flags: list[str]
    raw: reading.Raw

    def command(self, stage: str) -> str:
        return commands.line(stage, self.flags)


# All keys but those of the data and model modules.
_Keys = dataclasses.make_dataclass('_Keys', [
    ('name', str, ''), ('seed', int, 1), ('is_demo', bool, False),
    *((section, dict, dataclasses.field(default_factory=dict)) for section in ('data', 'input', 'model', 'inference')),
    *((section, keys, dataclasses.field(default_factory=keys)) for section, keys in SECTIONS.items())])


def find(config: str | None, overrides: Iterable[str], root: str | None, flags: list[str]) -> Place:
    """Return the folders of a configuration; the keys of its data and model modules are not checked.

    Args:
      config, overrides: see `reading.read`.
      root: the pipeline root; None is that of the configuration's name.
      flags: see `Place`.

    Raises:
      UserError: there is no such configuration, or a key is unknown or has a wrong type.
    """
    raw = reading.read(config, overrides)
    checking.check(raw.where, raw.values, _Keys())
    name, push = raw.values['name'], PushConfig(**raw.values.get('push', {}))
    checking.check_name(raw.where, name)
    root = root or default_root(name)
    return Place(root, push.folder(root, name), flags, raw)


def default_root(name: str) -> str:
    """Return the pipeline root of a configuration's name."""
    return os.path.join('runs', name)
