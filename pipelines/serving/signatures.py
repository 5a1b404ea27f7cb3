"""Signatures of a SavedModel, read as TensorFlow Serving does: from its MetaGraph, without running it."""
import dataclasses
import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from pipelines.serving.failure import invalid

DEFAULT = 'serving_default'


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One input or output. `shape` has None for any size, and is None for any rank."""
    dtype: tf.DType
    shape: tuple[int | None, ...] | None

    @property
    def has_rows(self) -> bool:
        """Whether the first axis is a variable number of rows."""
        return bool(self.shape) and self.shape is not None and self.shape[0] is None


@dataclasses.dataclass(frozen=True)
class Signature:
    """Inputs and outputs by name, and TensorFlow Serving's method name."""
    name: str
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    method: str

    @property
    def takes_rows(self) -> bool:
        """Whether rows of several requests can be batched."""
        return bool(self.inputs) and all(
            tensor.has_rows for tensor in (*self.inputs.values(), *self.outputs.values()))


    def check(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Refuse arrays whose shapes do not match."""
        for name, value in inputs.items():
            shape = self.inputs[name].shape
            fits = shape is None or len(shape) == value.ndim and all(
                size in (None, given) for size, given in zip(shape, value.shape))
            if not fits:
                raise invalid(f'Input {name} has shape {_written(value.shape)}, but signature {self.name} takes '
                              f'{_written(shape or ())}.')


def _written(shape: tuple[int | None, ...]) -> str:
    return f'[{",".join("?" if size is None else str(size) for size in shape)}]'


def definitions(saved_model: str) -> Mapping[str, meta_graph_pb2.SignatureDef]:
    """Read the SignatureDefs of a SavedModel, by name."""
    with tf.io.gfile.GFile(os.path.join(saved_model, 'saved_model.pb'), 'rb') as file:
        graphs = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    return dict(next(graph for graph in graphs if 'serve' in graph.meta_info_def.tags).signature_def)


def read(found: Mapping[str, meta_graph_pb2.SignatureDef]) -> dict[str, Signature]:
    """Return the signatures that can be called."""
    return {name: Signature(name, _tensors(each.inputs), _tensors(each.outputs), each.method_name)
            for name, each in found.items() if not name.startswith('__')}


def _tensors(infos) -> dict[str, Tensor]:
    return {name: Tensor(tf.dtypes.as_dtype(info.dtype), _shape(info.tensor_shape))
            for name, info in sorted(infos.items())}


def _shape(shape) -> tuple[int | None, ...] | None:
    return None if shape.unknown_rank else tuple(None if dim.size < 0 else dim.size for dim in shape.dim)


def rows(inputs: Mapping[str, np.ndarray]) -> int | None:
    """Return the number of rows of all inputs, or None if they disagree."""
    sizes = {value.shape[0] if value.ndim else None for value in inputs.values()}
    return sizes.pop() if len(sizes) == 1 else None
