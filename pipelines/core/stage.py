"""What a stage is, what it sees while it runs, and which module it is in."""
import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

STAGES = ('prepare', 'train', 'export', 'evaluate', 'infra_validate', 'push')


@dataclasses.dataclass(frozen=True)
class Stage:
    """One step from raw data to a pushed model.

    Attributes:
      name: its command, `python -m pipelines.<name>`.
      execute: does the work, reading `context.inputs` and writing into the folders of `context.outputs`.
      needs: the stages whose outputs it reads.
      outputs: output key -> artifact type, by TFX's names.
      sections: the configuration sections its result depends on.
      roles: the parts of data and model whose sources it depends on, see `roles.sources`.
      extra_inputs: further values its result depends on, such as its raw files' sizes and times.
      check: refuses at once, before any work, what cannot succeed.
      is_up_to_date: whether the world outside still holds what these outputs, by key, say was done.
      is_worker: whether this process only takes part in an execution that another one leads and records.
      seeded: whether it draws anything; what does not is the same for every seed.
    """
    name: str
    execute: Callable[['Context'], None]
    needs: tuple[str, ...]
    outputs: dict[str, str]
    sections: tuple[str, ...]
    roles: tuple[str, ...] = ()
    extra_inputs: Callable[..., dict] = lambda pipeline: {}
    check: Callable[[Any], None] = lambda config: None
    is_up_to_date: Callable[[dict], bool] = lambda outputs: True
    is_worker: Callable[[Any], bool] = lambda config: False
    seeded: bool = True

    @property
    def module(self) -> str:
        return f'pipelines.{self.name}'


@dataclasses.dataclass
class Context:
    """What a running stage sees.

    Attributes:
      config: the resolved configuration.
      inputs: output key of an earlier stage -> its `artifacts.Artifact`.
      outputs: output key -> a folder to fill; all are renamed into place together once `execute` returns. What a
        killed run left there is still there when the same work is started again.
      argv: flags the stage did not know, which are the Beam runner's.
      properties: what the stage found out, recorded in ML Metadata and shown in reports.
      pipeline: for the few stages that look up earlier runs.
    """
    config: Any
    inputs: dict[str, Any]
    outputs: dict[str, str]
    argv: list[str]
    properties: dict[str, Any]
    pipeline: Any


def get(name: str, config=None) -> Stage:
    """The stage of this name, or the one that takes its place for what a configuration trains."""
    return importlib.import_module(f'pipelines.{name_of(name, config)}').STAGE


def name_of(name: str, config) -> str:
    return config.model_spec.stages.get(name, name) if config else name
