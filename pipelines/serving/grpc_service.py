"""TensorFlow Serving's PredictionService and ModelService, on the server's event loop."""
import asyncio
import math
import time
from collections.abc import Mapping

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from pipelines.serving import guard, signatures, status
from pipelines.serving.failure import Failure, invalid, of_model
from pipelines.serving.models import Models, Version
from pipelines.serving.rest import Bounds

# Field that holds values of each type; int_val also holds the small integer types.
_FIELDS = {'float32': 'float_val', 'float64': 'double_val', 'int64': 'int64_val', 'uint32': 'uint32_val',
           'uint64': 'uint64_val', 'bool': 'bool_val', **dict.fromkeys(('int32', 'int16', 'int8', 'uint8', 'uint16'),
                                                                       'int_val')}


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata; Classify, Regress and MultiInference refuse signatures of other methods."""

    def __init__(self, models: Models, bounds: Bounds):
        self._models, self._bounds = models, bounds

    async def Predict(self, request, context):
        return await self._counted('predict', request.model_spec, context, self._predict(request, context))

    async def _predict(self, request, context) -> predict_pb2.PredictResponse:
        with self._models.use(*model_of(request.model_spec)) as version:
            signature = version.signature(request.model_spec.signature_name or signatures.DEFAULT,
                                          'FAILED_PRECONDITION')
            inputs = inputs_of(request.inputs, signature, self._bounds.body)
            wanted = outputs_of(request.output_filter, signature)
            guard.check(inputs, version.description)
            left = context.time_remaining()
            wait = self._bounds.wait if left is None else min(self._bounds.wait, left)
            outputs = await self._models.predict(version, signature.name, inputs, wait)
            response = predict_pb2.PredictResponse()
            fill_spec(response.model_spec, version, signature.name)
            for name in wanted:
                response.outputs[name].CopyFrom(proto_of(outputs[name]))
            return response

    async def GetModelMetadata(self, request, context):
        async def answer():
            if not request.HasField('model_spec'):
                raise invalid('Missing ModelSpec')
            if not request.metadata_field:
                raise invalid('GetModelMetadataRequest must specify at least one metadata_field')
            for field in request.metadata_field:
                if field != status.METADATA_FIELD:
                    raise invalid(f'Metadata field {field} is not supported')
            return status.metadata(self._models, *model_of(request.model_spec))
        return await self._counted('metadata', request.model_spec, context, answer())

    async def Classify(self, request, context):
        return await self._refused('classify', request, context)

    async def Regress(self, request, context):
        return await self._refused('regress', request, context)

    async def MultiInference(self, request, context):
        async def answer():
            if not request.tasks:
                raise invalid('Inference request must contain at least one InferenceTask')
            task = request.tasks[0]
            method = 'regress' if task.method_name.endswith('regress') else 'classify'
            with self._models.use(*model_of(task.model_spec)) as version:
                raise status.wrong_method(method, _signature(version, task.model_spec))
        spec = request.tasks[0].model_spec if request.tasks else None
        return await self._counted('multi_inference', spec, context, answer())

    async def _refused(self, method: str, request, context):
        async def answer():
            with self._models.use(*model_of(request.model_spec)) as version:
                raise status.wrong_method(method, _signature(version, request.model_spec))
        return await self._counted(method, request.model_spec, context, answer())

    async def _counted(self, api: str, spec, context, answer):
        return await counted(self._models, api, spec, context, answer)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus. Pushing decides what is served, so HandleReloadConfigRequest is not implemented."""

    def __init__(self, models: Models):
        self._models = models

    async def GetModelStatus(self, request, context):
        async def answer():
            if not request.HasField('model_spec'):
                raise invalid('Missing ModelSpec')
            name, number, _ = model_of(request.model_spec)
            return status.status(self._models, name, number)
        return await counted(self._models, 'status', request.model_spec, context, answer())


async def counted(models: Models, api: str, spec, context, answer):
    """Await an answer, count it, and turn a failure into its gRPC status."""
    start, code = time.monotonic(), 'OK'
    try:
        return await answer
    except Exception as error:
        failure = of_model(error)
        code = failure.code
        if failure.retry_after is not None:
            context.set_trailing_metadata((('retry-after', failure.headers()['Retry-After']),))
        await context.abort(grpc.StatusCode[failure.grpc_name], failure.message)
    except asyncio.CancelledError:
        code = 'CANCELLED'
        raise
    finally:
        name = spec.name if spec is not None and spec.name in models.models else ''
        models.monitor.request(name, code, api, 'GRPC', time.monotonic() - start)


def model_of(spec) -> tuple[str, int | None, str | None]:
    """Return name, version and label of a ModelSpec."""
    if not spec.name:
        raise invalid('ModelSpec has no name specified.')
    choice = spec.WhichOneof('version_choice')
    return (spec.name, spec.version.value if choice == 'version' else None,
            spec.version_label if choice == 'version_label' else None)


def fill_spec(spec, version: Version, signature: str) -> None:
    spec.name, spec.signature_name, spec.version.value = version.name, signature, version.number


def _signature(version: Version, spec) -> signatures.Signature:
    name = spec.signature_name or signatures.DEFAULT
    if name not in version.signatures:
        raise invalid(f'No signature was found with the name: {name}')
    return version.signatures[name]


def inputs_of(protos: Mapping[str, tensor_pb2.TensorProto], signature: signatures.Signature,
              most: int) -> dict[str, np.ndarray]:
    """Convert a request's tensors to arrays.

    Raises:
      Failure: names, types or sizes do not match the signature.
    """
    if {*protos} != {*signature.inputs}:
        sent, wanted = {*protos}, {*signature.inputs}
        raise invalid(f'input size does not match signature: {len(sent)}!={len(wanted)} len({{{_listed(sent)}}}) != '
                      f'len({{{_listed(wanted)}}}). Sent extra: {{{_listed(sent - wanted)}}}. Missing but required: '
                      f'{{{_listed(wanted - sent)}}}.')
    return {name: array_of(name, proto, signature.inputs[name], most) for name, proto in protos.items()}


def array_of(name: str, proto: tensor_pb2.TensorProto, tensor: signatures.Tensor, most: int) -> np.ndarray:
    """Convert a tensor to an array, checking its size first: a shape may claim terabytes for a single value."""
    if proto.dtype != tensor.dtype.as_datatype_enum:
        found = types_pb2.DataType.Name(proto.dtype)
        raise invalid(f'Input {name} has type {found}, but the signature takes {tensor.dtype.name}.')
    sizes = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        raise invalid(f'Input {name} has an unknown shape.')
    if math.prod(sizes) * max(1, tensor.dtype.size) > most:
        raise Failure('TOO_LARGE', f'Input {name} would be larger than {most:,} bytes.')
    try:
        return tf.make_ndarray(proto)
    except (ValueError, TypeError) as error:
        raise invalid(f'Input {name} cannot be read: {error}') from error


def outputs_of(wanted, signature: signatures.Signature) -> list[str]:
    """Return the names of the requested outputs; all if the request names none."""
    for number, name in enumerate(wanted):
        if name not in signature.outputs:
            raise invalid(f'output tensor alias not found in signature: {name} Outputs expected to be in the set '
                          f'{{{_listed(signature.outputs)}}}.')
        if name in wanted[:number]:
            raise invalid(f'duplicate output tensor alias: {name}')
    return list(wanted) or list(signature.outputs)


def proto_of(value: np.ndarray) -> tensor_pb2.TensorProto:
    """Return a tensor with its values in fields, as TensorFlow Serving does; `tf.make_tensor_proto` packs bytes."""
    if value.dtype == object:
        proto = tensor_pb2.TensorProto(dtype=tf.string.as_datatype_enum, string_val=value.reshape(-1).tolist())
    elif value.dtype.name in _FIELDS:
        proto = tensor_pb2.TensorProto(dtype=tf.dtypes.as_dtype(value.dtype).as_datatype_enum)
        getattr(proto, _FIELDS[value.dtype.name]).extend(value.reshape(-1).tolist())
    else:
        return tf.make_tensor_proto(value)
    for size in value.shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def _listed(names) -> str:
    return ','.join(sorted(names))
