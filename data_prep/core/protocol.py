"""Interface of a data module: every function and name the pipelines use.

`data.module` names such a module. A `DataSpec` is filled in from it once, when a configuration is read
(`pipelines/core/roles.py`); nothing else looks up names in the module.
"""
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

Task = Literal['text', 'tree', 'image', 'try_on', 'play']


def offered(attribute: str, part: str = 'module', **default) -> Any:
    """Return a field that is filled in from this attribute of a part of the module; see `DataSpec`."""
    return dataclasses.field(metadata={'attribute': attribute, 'part': part}, **default)


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """Specification of a kind of data.

    Attributes:
      name: the module.
      job_module: JOB, the module of its Beam job: `run(config, folder, argv)` returns the manifest, and
        `build(pipeline, config, folder)` adds the steps without accessing files.
      task: TASK, the task it is for; a model lists in its TASKS those it supports.
      config: Config, a dataclass of the keys of `data`, with `files(split)`.
      input: Input, a dataclass of the keys of `input`: how records become batches.
      splits: SPLITS.
      unit: UNIT, the noun for records, in the plural.
      decoder: (folder, input, training) -> function that decodes a batch of serialized records.
      assets: (folder, input) -> the parts of the data set a served model needs.
      examples: (serialized records) -> inputs of a model, and columns of text.
      metrics: METRICS, replaces the model's; if empty, the model's apply.
      subwords: SUBWORDS, the data set's file of subwords, which is exported with a model.
      subword_model: (folder) -> that file's content, verified; None without one.
    """
    name: str
    job_module: str
    config: type = offered('Config')
    task: Task = offered('TASK')
    input: type = offered('Input')
    splits: tuple[str, ...] = offered('SPLITS')
    unit: str = offered('UNIT')
    decoder: Callable = offered('decoder')
    assets: Callable = offered('assets')
    examples: Callable = offered('examples')
    metrics: tuple[str, ...] = offered('METRICS', default=())
    subwords: str = offered('SUBWORDS', default='')
    subword_model: Callable[[str], bytes] | None = offered('subword_model', default=None)
