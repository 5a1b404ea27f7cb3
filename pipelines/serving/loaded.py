"""Load what answers for one version of a model, whichever engine computes it."""
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from pipelines.serving import saved_model, signatures

COMPILED_SIZES = (1, 8, 64)  # batch sizes for models compiled by XLA, which would compile anew for any other

Function = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Loaded:
    """Hold a version that can answer.

    Attributes:
      model: the SavedModel, or what runs another format; with its `description`, which is empty if this project did not
        export it.
      definitions: the signatures it has, as TensorFlow Serving's metadata describes them.
      functions: by signature, what computes its outputs.
      format: the format that answers; empty for the SavedModel.
      workers, sizes: for batches, see `Limits`.
    """
    model: Any
    definitions: Mapping[str, meta_graph_pb2.SignatureDef]
    functions: Mapping[str, Function]
    format: str = ''
    workers: int = 1
    sizes: tuple[int, ...] = ()


NOTHING = Loaded(None, {}, {})


def load(path: str) -> Loaded:
    """Load a version's SavedModel.

    Raises:
      UserError: its files differ from the pushed ones.
    """
    model = saved_model.load_version(path)
    jit, workers = False, 1
    if model.description:
        jit = model.description['config']['export']['jit']
        workers = saved_model.spec_of(model.description).max_concurrent_batches
    functions = {name: functools.partial(run_signature, each) for name, each in model.signatures.items()}
    return Loaded(model, signatures.definitions(path), functions, workers=workers, sizes=COMPILED_SIZES if jit else ())


def run_signature(function, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Call a SavedModel's signature with arrays of its types."""
    specs = function.structured_input_signature[1]
    outputs = function(**{name: tf.constant(value, specs[name].dtype) for name, value in inputs.items()})
    return {name: value.numpy() if value.shape.rank else np.array(value.numpy(), object if value.dtype == tf.string
                                                                  else None) for name, value in outputs.items()}
