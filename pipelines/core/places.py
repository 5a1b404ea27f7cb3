"""Find where a configuration's artifacts and pushed versions lie, without importing its data and model modules."""
import dataclasses
import os
from collections.abc import Iterable

from pipelines.core import checking, commands, reading
from pipelines.core.sections import PushConfig


@dataclasses.dataclass(frozen=True)
class Place:
    """The folders of one configuration.

    Attributes:
      root: the pipeline root, which need not exist.
      destination: the folder that serving watches.
      flags: the user's --config, --set and --pipeline_root, for commands named in messages.
    """
    root: str
    destination: str
    flags: list[str]

    def command(self, stage: str) -> str:
        return commands.line(stage, self.flags)


@dataclasses.dataclass
class _Keys:
    """The keys that decide on the folders."""
    name: str = ''
    push: PushConfig = dataclasses.field(default_factory=PushConfig)


def find(config: str | None, overrides: Iterable[str], root: str | None, flags: list[str]) -> Place:
    """Return the folders of a configuration; its other keys are not checked.

    Args:
      config, overrides: see `reading.read`.
      root: the pipeline root; None is that of the configuration's name.
      flags: see `Place`.

    Raises:
      UserError: there is no such configuration, or one of these keys is unknown or has a wrong type.
    """
    raw = reading.read(config, overrides)
    values = {field.name: raw.values[field.name] for field in dataclasses.fields(_Keys) if field.name in raw.values}
    checking.check(raw.where, values, _Keys())
    checking.check_name(raw.where, values['name'])
    root = root or default_root(values['name'])
    return Place(root, PushConfig(**values.get('push', {})).folder(root, values['name']), flags)


def default_root(name: str) -> str:
    """Return the pipeline root of a configuration's name."""
    return os.path.join('runs', name)
