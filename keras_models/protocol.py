"""Interface of a paper's module: every function and name the pipelines use, and the defaults of optional ones.

A paper is a module of plain functions. `ModelSpec` names them; it is filled in from the module once, when a
configuration is read (`pipelines/core/roles.py`), and nothing else looks up names in the module.
`docs/adding-a-paper.md` writes such a module step by step.
"""
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

Task = Literal['text', 'tree', 'image', 'try_on', 'play']


def offered(attribute: str, part: str = 'module', formerly: str = '', **default) -> Any:
    """Return a field that is filled in from an attribute of a part of the module.

    Args:
      attribute: its name there.
      part: the module itself, or the attribute that names another module.
      formerly: its previous name, which is refused.
      default: `default` or `default_factory`, for optional attributes.
    """
    return dataclasses.field(metadata={'attribute': attribute, 'part': part, 'formerly': formerly}, **default)


@dataclasses.dataclass(frozen=True)
class Part:
    """One network of a model, as a file of another format holds it.

    Attributes:
      function: a tf.function of arrays, whose input signature names them -> arrays by name.
      variables: what it reads, which a file keeps.
      samples: (inputs of the model, as the data set's `examples` gives them) -> inputs of the function, from which the
        ranges of 8-bit integers are chosen; None if only its weights stand 8 bits.
      fixed: inputs that are the same in every call, which a file beside the network holds.
    """
    function: Any
    variables: Any
    samples: Callable[[Sequence], Iterator[dict]] | None = None
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def _none(config) -> dict:
    return {}


def _nothing(config) -> list:
    return []


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """Specification of a paper.

    Attributes of the module:
      name, title: the module, and the first line of its docstring, which names the paper.
      tasks: TASKS, the kinds of data it can be trained on.
      unit: THROUGHPUT_UNIT, what its rate counts, in the plural: the unit of the first loss's normaliser.
      config: Config, a dataclass of the keys of `model`. A key with default None takes the data's value of that name.
      build: (config) -> nets by name.
      loss_fn: (nets, batch, seed, training, config) -> losses and metrics, each name -> (sum, normaliser). `losses[k]`
        updates only the trainable variables of `nets[k]`. None if a stage of `stages` trains the model.
      optimizers: (config) -> optimizers by the names of the trained nets. None likewise.
      metrics: METRICS, names of `pipelines/evaluation/metrics.py` to evaluate, the one shown by slice last; empty if
        the data or the scorer has its own.
      presets: PRESETS, values of several keys at once, by the value of the key `preset`.
      preset_values: (config) -> what the presets of several networks change, for `--explain`: preset or 'this run' ->
        key -> value; None if `presets` is complete.
      stages: STAGE_OVERRIDES, stages that replace others: {'train': 'educate'}.
      discriminators: (config) -> nets trained beside those of `build`, but neither exported nor served.
      frozen: (config) -> nets that losses use and nothing trains.
      files: (config) -> the files `frozen` reads, checked before anything runs.
      notes: (config) -> sentences for the report on how this configuration differs from the paper.
      pictures: (nets, batch, config) -> uint8 images [B, H, W, 3] for TensorBoard; None draws nothing.
      parameters: (config) -> number of parameters, in closed form; None leaves it out of `--explain`.
      flops_per_unit: (config) -> training operations per unit; None likewise.
      costs, macs: (config) -> layers with their operations, and the sum of their multiply-adds; for plots of cost.
      table: (config) -> header and rows of the paper's own table, for `--explain`; None if this is not its net.
      warm_start: warm_start, (nets, weights) starts nets from weights of another net of the paper; None if unsupported.
      warm_start_names: WARM_START_NAMES, a net's name in those weights.
      weight_readers: weight_readers, readers of foreign files by suffix: (path, config) -> net -> name -> array.
      any_size: ANY_SIZE, whether its nets train on images of any size, which `train.curriculum` may change.
      dense_layers_apart: ENDS_IN_DENSE_LAYERS, whether its nets are convolutions that end in dense layers, so that
        `train.dense_layers: one_device` can keep those on one device.
      check_game: (config, game, options) refuses a game other than the data set's; for models that play.

    Attributes of the module that `SERVING` names:
      inference: Inference, a dataclass of the keys of `inference`, with `describe()` for the model card.
      serving: (nets, config, inference, assets, jit) -> the exported tf.Module, with `signatures()`.
      predict: (loaded model, inputs, batch_size, jit) -> a dict of outputs per input.
      check: (config, inference) refuses settings that cannot be exported or served.
      answers: ANSWERS, what it answers if its task does not say so; other formats have a program of their own for it.
      exported_models: EXPORTED_MODELS, keys of `inference` that name exported models; they become parts of the export.
      networks: (nets, config, inference, assets) -> the networks that files of other formats hold, by name; None if its
        model cannot be taken apart so.
      max_concurrent_batches: MAX_CONCURRENT_BATCHES, batches that `predict` computes concurrently on a CPU.

    The module that `SCORER` names has a `Scorer` (see `Scorer`), for outputs that no metric of
    `pipelines/evaluation/metrics.py` compares; empty otherwise.
    """
    name: str
    title: str
    serving_module: str
    scorer_module: str
    config: type = offered('Config')
    tasks: tuple[Task, ...] = offered('TASKS')
    unit: str = offered('THROUGHPUT_UNIT', formerly='UNIT')
    build: Callable[[Any], dict] = offered('build')
    inference: type = offered('Inference', 'SERVING')
    serving: Callable = offered('serving', 'SERVING')
    predict: Callable = offered('predict', 'SERVING')
    loss_fn: Callable = offered('loss_fn', default=None)
    optimizers: Callable[[Any], dict] = offered('optimizers', default=None)
    metrics: tuple[str, ...] = offered('METRICS', default=())
    presets: Mapping[str, dict] = offered('PRESETS', default_factory=dict)
    preset_values: Callable[[Any], dict] | None = offered('preset_values', default=None)
    stages: Mapping[str, str] = offered('STAGE_OVERRIDES', formerly='INSTEAD', default_factory=dict)
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
    warm_start: Callable | None = offered('warm_start', formerly='start_from', default=None)
    warm_start_names: Mapping[str, str] = offered('WARM_START_NAMES', formerly='STARTS_AS', default_factory=dict)
    weight_readers: Mapping[str, Callable] = offered('weight_readers', formerly='foreign_weights',
                                                     default_factory=dict)
    any_size: bool = offered('ANY_SIZE', default=False)
    dense_layers_apart: bool = offered('ENDS_IN_DENSE_LAYERS', default=False)
    check_game: Callable | None = offered('check_game', default=None)
    check: Callable[[Any, Any], None] = offered('check', 'SERVING', default=lambda config, inference: None)
    answers: str = offered('ANSWERS', 'SERVING', default='')
    exported_models: tuple[str, ...] = offered('EXPORTED_MODELS', 'SERVING', formerly='MODELS', default=())
    networks: Callable[..., dict[str, Part]] | None = offered('networks', 'SERVING', default=None)
    max_concurrent_batches: int = offered('MAX_CONCURRENT_BATCHES', 'SERVING', formerly='AT_ONCE', default=1)


class Scorer(Protocol):
    """Compare a model's outputs with the ground truth, example by example: the `Scorer` of the module SCORER names.

    It is created from the files of `evaluate.networks` and the model's configuration.

    Attributes:
      CORPUS: metrics over all examples together; the others are means over examples.
      names: all its metrics, the one shown by slice last.
      missing: metrics it cannot compute, each with a sentence on what it needs.
      pictures: images of the first examples: name -> PNG.
    """
    CORPUS: tuple[str, ...]
    names: tuple[str, ...]
    missing: dict[str, str]
    pictures: list[dict[str, bytes]]

    def __call__(self, model, inputs: list, rows: list[dict]) -> list[dict]:
        """Return the metrics of each example, or its `error`."""

    def corpus(self) -> dict[str, float]:
        """Return the metrics of `CORPUS`."""

    def slices(self) -> list[dict]:
        """Return the slices of each example that depend on the model's outputs; empty if there are none."""

    def protocol(self) -> dict[str, str]:
        """Describe how each metric was computed."""
