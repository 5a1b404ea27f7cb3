"""What a paper's module offers the pipelines: all functions and names they ask for, and what absence stands for.

A paper is a module of plain functions. `ModelSpec` names them; it is filled in from the module once, when a
configuration is read (`pipelines/core/roles.py`), and nothing else looks into the module by name. `docs/adding-a-paper.md`
writes such a module from nothing.
"""
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

Task = Literal['text', 'tree', 'image', 'try_on', 'play']


def offered(attribute: str, part: str = 'module', **default) -> Any:
    """A field that is filled in from a part of the module.

    Args:
      attribute: its name there.
      part: the module itself, or the name by which it says where that part is.
      default: `default` or `default_factory`, for what a paper may leave out.
    """
    return dataclasses.field(metadata={'attribute': attribute, 'part': part}, **default)


def _none(config) -> dict:
    return {}


def _nothing(config) -> list:
    return []


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A paper, as the pipelines see it.

    The module says:
      name, title: the module, and the first line of its docstring, which names the paper.
      tasks: TASKS, the kinds of data whose batches it learns from.
      unit: THROUGHPUT_UNIT, what its rate counts, in the plural: that of the first loss's normaliser.
      config: Config, a dataclass of the keys of `model`. A key that is None by default takes the data's of that name.
      build: (config) -> nets by name.
      loss_fn: (nets, batch, seed, training, config) -> losses and metrics, each name -> (sum, normaliser). `losses[k]`
        moves the trainable variables of `nets[k]` alone. None for what `stages` has learn otherwise.
      optimizers: (config) -> optimizers by the names of the nets that learn. None likewise.
      metrics: METRICS, those of `pipelines/evaluation/metrics.py` that evaluation computes, the one shown by slice last; empty if
        the data or the scorer has its own.
      presets: PRESETS, values of several keys at once, by the value of the key `preset`.
      preset_values: (config) -> what the presets of several networks change, for `--explain`: preset or 'this run' ->
        key -> value; None where `presets` says it all.
      stages: STAGE_OVERRIDES, the stage that takes another's place: {'train': 'educate'}.
      discriminators: (config) -> nets that learn beside those of `build` and are neither exported nor asked.
      frozen: (config) -> nets that losses ask and nothing trains.
      files: (config) -> the files `frozen` reads, looked for before anything runs.
      notes: (config) -> sentences for the report about how this configuration differs from the paper.
      pictures: (nets, batch, config) -> uint8 images [B, H, W, 3] for TensorBoard; None draws nothing.
      parameters: (config) -> how many, in closed form; None leaves it out of `--explain`.
      flops_per_unit: (config) -> training operations a unit; None likewise.
      costs, macs: (config) -> layers with their operations, and their multiply-adds together; what plots of cost need.
      table: (config) -> header and rows of the paper's own table, for `--explain`; None if this is not its net.
      warm_start: warm_start, (nets, weights) sets nets from weights of another net of the paper; None takes none.
      warm_start_names: WARM_START_NAMES, what a net was called there.
      weight_readers: weight_readers, readers of others' files by suffix: (path, config) -> net -> name -> array.
      dense_layers_apart: ENDS_IN_DENSE_LAYERS, whether its nets are convolutions that end in dense layers, so that
        `train.dense_layers: one_device` can keep those on one device.
      check_game: (config, game, options) refuses another game than the data set's; for what plays.

    The module that `SERVING` names says how a trained model is asked:
      inference: Inference, a dataclass of the keys of `inference`, with `describe()` for the model card.
      serving: (nets, config, inference, assets, jit) -> the tf.Module that is exported, with `signatures()`.
      predict: (loaded model, inputs, batch_size, jit) -> a dict of answers an input.
      check: (config, inference) refuses what could not be exported or asked.
      exported_models: EXPORTED_MODELS, keys of `inference` that name exported models, which go into the one that is exported.
      max_concurrent_batches: MAX_CONCURRENT_BATCHES, batches that `predict` computes at the same time on a CPU.

    The module that `SCORER` names has a `Scorer` (see `Scorer`), for answers that no metric of
    `pipelines/evaluation/metrics.py` compares; empty for all others.
    """
    name: str
    title: str
    serving_module: str
    scorer_module: str
    config: type = offered('Config')
    tasks: tuple[Task, ...] = offered('TASKS')
    unit: str = offered('THROUGHPUT_UNIT')
    build: Callable[[Any], dict] = offered('build')
    inference: type = offered('Inference', 'SERVING')
    serving: Callable = offered('serving', 'SERVING')
    predict: Callable = offered('predict', 'SERVING')
    loss_fn: Callable = offered('loss_fn', default=None)
    optimizers: Callable[[Any], dict] = offered('optimizers', default=None)
    metrics: tuple[str, ...] = offered('METRICS', default=())
    presets: Mapping[str, dict] = offered('PRESETS', default_factory=dict)
    preset_values: Callable[[Any], dict] | None = offered('preset_values', default=None)
    stages: Mapping[str, str] = offered('STAGE_OVERRIDES', default_factory=dict)
    discriminators: Callable[[Any], dict] = offered('discriminators', default=_none)
    frozen: Callable[[Any], dict] = offered('frozen', default=_none)
    files: Callable[[Any], list[str]] = offered('files', default=_nothing)
    notes: Callable[[Any], list[str]] = offered('notes', default=_nothing)
    pictures: Callable | None = offered('pictures', default=None)
    parameters: Callable[[Any], int] | None = offered('parameters', default=None)
    flops_per_unit: Callable[[Any], int] | None = offered('flops_per_unit', default=None)
    costs: Callable[[Any], list] | None = offered('costs', default=None)
    macs: Callable[[Any], int] | None = offered('macs', default=None)
    table: Callable[[Any], tuple | None] = offered('table', default=lambda config: None)
    warm_start: Callable | None = offered('warm_start', default=None)
    warm_start_names: Mapping[str, str] = offered('WARM_START_NAMES', default_factory=dict)
    weight_readers: Mapping[str, Callable] = offered('weight_readers', default_factory=dict)
    dense_layers_apart: bool = offered('ENDS_IN_DENSE_LAYERS', default=False)
    check_game: Callable | None = offered('check_game', default=None)
    check: Callable[[Any, Any], None] = offered('check', 'SERVING', default=lambda config, inference: None)
    exported_models: tuple[str, ...] = offered('EXPORTED_MODELS', 'SERVING', default=())
    max_concurrent_batches: int = offered('MAX_CONCURRENT_BATCHES', 'SERVING', default=1)


class Scorer(Protocol):
    """Compares a model's answers with what is true, example by example: the `Scorer` of a module named by SCORER.

    Made of the files `evaluate.networks` names and the model's configuration.

    Attributes:
      CORPUS: the metrics of all examples together; the others are means over examples.
      names: the metrics it gives, the one shown by slice last.
      missing: those it cannot give, each with a sentence that says what it needs.
      pictures: of the first examples, what is shown of each: name -> PNG.
    """
    CORPUS: tuple[str, ...]
    names: tuple[str, ...]
    missing: dict[str, str]
    pictures: list[dict[str, bytes]]

    def __call__(self, model, inputs: list, rows: list[dict]) -> list[dict]:
        """Returns the metrics of each example, or its `error`."""

    def corpus(self) -> dict[str, float]:
        """Returns the metrics of `CORPUS`."""

    def slices(self) -> list[dict]:
        """Returns what each example belongs to by what the model made of it; empty for nothing."""

    def protocol(self) -> dict[str, str]:
        """Returns in words how each metric was computed."""
