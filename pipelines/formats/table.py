"""Formats in which a trained model is handed over beside the SavedModel, one row each."""
import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

if typing.TYPE_CHECKING:
    from data_prep.core.protocol import DataSpec
    from keras_models.protocol import ModelSpec

KIT = 'pipelines.serving.kit'
DESCRIPTION = 'landmark.json'  # in a format's folder


@dataclasses.dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
      name: as `--to` and `--format` take it.
      writer: the module with `check(config, format)` and `write(format, trained, folder)`.
      clients: by what a model answers, modules of the serving kit that are copied into the folder: the first runs it
        without TensorFlow, the others are what it imports. What is missing cannot be handed over so.
      converter: for networks, the module whose `convert` writes the content of a file.
      suffix: of these files.
      options: further arguments of `convert`.
      is_calibrated: whether `convert` takes `inputs`, training examples from which it chooses ranges of 8-bit integers.
      requires: package to import -> requirement to install, beyond those of training.
    """
    name: str
    writer: str
    clients: Mapping[str, tuple[str, ...]]
    converter: str = ''
    suffix: str = ''
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    is_calibrated: bool = False
    requires: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules whose sources decide what its folder holds."""
        kit = {name for names in self.clients.values() for name in names}
        return (self.writer, *filter(None, [self.converter]), *(f'{KIT}.{name}' for name in sorted(kit)))


def answers(data: 'DataSpec', model: 'ModelSpec') -> str:
    """Return what a model answers, the key of a format's `clients`: its data's task, or something of its own."""
    return model.answers or data.task


_NETWORKS = 'pipelines.formats.networks'
_TFLITE, _ONNX = 'keras_models.formats.tflite_file', 'keras_models.formats.onnx_file'
_CLIENTS = {'image': ('classify', 'networks', 'resampling'),
            'boxes': ('localise', 'classify', 'networks', 'resampling'),
            'text': ('translate', 'search', 'networks'),
            'tree': ('parse', 'translate', 'search', 'networks'),
            'try_on': ('try_on', 'networks', 'pairs', 'people', 'resampling')}
_OF_8_BITS = {task: names for task, names in _CLIENTS.items() if task != 'try_on'}
FORMATS = {each.name: each for each in (
    Format('tflite', _NETWORKS, _CLIENTS, _TFLITE, '.tflite'),
    Format('tflite_float16', _NETWORKS, _CLIENTS, _TFLITE, '.tflite', {'weights': 'float16'}),
    Format('tflite_int8', _NETWORKS, _OF_8_BITS, _TFLITE, '.tflite', {'weights': 'int8'}, is_calibrated=True),
    Format('onnx', _NETWORKS, _CLIENTS, _ONNX, '.onnx', requires={
        'tf2onnx': 'tf2onnx>=1.17,<2', 'onnx': 'onnx>=1.18,<1.19', 'onnxruntime': 'onnxruntime>=1.20,<2'}),
    Format('ctranslate2', 'pipelines.formats.ctranslate2', {'text': ('translate',), 'tree': ('parse', 'translate')},
           requires={'ctranslate2': 'ctranslate2>=4.8,<5'}))}

# The stages that export and evaluate them.
STAGES = tuple(f'{command}-{name}' for name in FORMATS for command in ('export', 'evaluate'))
