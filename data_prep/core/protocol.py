"""What a module of data offers the pipelines: every function and every name they ask for.

`data.module` names such a module. `DataSpec` is filled in from it once, when a configuration is read
(`pipelines/core/roles.py`), and nothing else looks into the module by name.
"""
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

Task = Literal['text', 'tree', 'image', 'try_on', 'play']


def offered(attribute: str, part: str = 'module', **default) -> Any:
    """A field that is filled in from a part of the module, which calls it so; see `DataSpec`."""
    return dataclasses.field(metadata={'attribute': attribute, 'part': part}, **default)


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """A kind of data, as the pipelines see it.

    Attributes:
      name: the module.
      job_module: JOB, the module of its Beam job: `run(config, folder, argv)` returns the manifest, and
        `build(pipeline, config, folder)` adds the steps and looks at no file.
      task: TASK, what is learned from it; a model says by its TASKS which it takes.
      config: Config, a dataclass of the keys of `data`, with `files(split)`.
      input: Input, a dataclass of the keys of `input`: how records become batches.
      splits: SPLITS.
      unit: UNIT, what a record is, in the plural.
      decoder: (folder, input, training) -> what makes a batch of serialized records.
      assets: (folder, input) -> what a served model needs of the data set.
      examples: (serialized records) -> inputs of a model, and columns of text.
      metrics: METRICS, in place of the model's; empty takes those.
      subwords: SUBWORDS, the file of the data set with its subwords, which goes with an exported model.
      subword_model: (folder) -> that file's content, checked; None without one.
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
