"""Definition of a stage, the context it runs in, and the lookup of stages by name."""
import dataclasses
import importlib
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.config import Config

STAGES = ('prepare', 'train', 'export', 'evaluate', 'infra_validate', 'push')


@dataclasses.dataclass(frozen=True)
class Stage:
    """One step from raw data to a pushed model.

    Attributes:
      name: its command, `python -m pipelines.<name>`.
      execute: does the work: reads `context.inputs` and writes into the folders of `context.outputs`.
      needs: stages whose outputs it reads.
      takes: stages whose outputs it also reads if they are finished.
      outputs: output key -> artifact type, named as in TFX.
      sections: configuration sections its result depends on.
      roles: parts of data and model whose sources it depends on, see `roles.sources`.
      modules: modules whose sources it depends on as well; by default that of its command.
      extra_inputs: further values its result depends on, such as sizes and times of its raw files.
      watched: the files whose sizes and times, with the configuration, sources and lineage, decide the values of
        `extra_inputs`; None if more than that does.
      check: raises before any work if the stage cannot succeed.
      is_up_to_date: whether the outside world still matches these recorded outputs, by key.
      is_worker: whether this process only takes part in an execution that another process leads and records.
      seeded: whether it draws random numbers; if not, the seed does not affect it.
      takes_beam_flags: whether its command takes further flags, for a Beam runner.
    """
    name: str
    execute: Callable[['Context'], None]
    needs: tuple[str, ...]
    outputs: dict[str, str]
    sections: tuple[str, ...]
    roles: tuple[str, ...] = ()
    extra_inputs: Callable[..., dict] = lambda pipeline: {}
    watched: Callable[['Config'], Iterable[str] | None] = lambda config: ()
    check: Callable[['Config'], None] = lambda config: None
    is_up_to_date: Callable[[dict], bool] = lambda outputs: True
    is_worker: Callable[['Config'], bool] = lambda config: False
    seeded: bool = True
    takes_beam_flags: bool = False
    takes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()

    def __post_init__(self):
        if not self.modules:
            object.__setattr__(self, 'modules', (f'pipelines.{self.name}',))


@dataclasses.dataclass
class Context:
    """Give a running stage all that it has access to.

    Attributes:
      config: the resolved configuration.
      inputs: output key of an earlier stage -> its `artifacts.Artifact`.
      outputs: output key -> a folder to fill. All are renamed into place together once `execute` returns. After a kill
        their contents are still there when the same work starts again.
      argv: flags for the Beam runner, which the stage's parser did not know.
      properties: facts that the stage records in ML Metadata; reports show them.
      pipeline: for the few stages that look up earlier runs.
    """
    config: 'Config'
    inputs: dict[str, Any]
    outputs: dict[str, str]
    argv: list[str]
    properties: dict[str, Any]
    pipeline: Any


def say_skipped(name: str, outputs: dict[str, Any]) -> None:
    place = os.path.dirname(next(iter(outputs.values())).uri)
    print(f'{name}: nothing it depends on has changed since {place}; skipped.', flush=True)


def get(name: str, config: 'Config | None' = None) -> Stage:
    """Return the stage of this name, or the one that replaces it for a configuration.

    `export-tflite` is the stage `export` of the format `tflite`, which is in `pipelines/formats`.
    """
    command, _, format_name = name_of(name, config).partition('-')
    if format_name:
        return importlib.import_module(f'pipelines.formats.{command}').stage_of(format_name)
    return importlib.import_module(f'pipelines.{command}').STAGE


def name_of(name: str, config: 'Config | None') -> str:
    return config.model_spec.stages.get(name, name) if config else name
