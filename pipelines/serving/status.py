"""TensorFlow Serving's answers about models: status, metadata and refused methods, for REST and gRPC."""
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from pipelines.serving.failure import Failure, invalid
from pipelines.serving.models import Models
from pipelines.serving.signatures import Signature

METADATA_FIELD = 'signature_def'
_METHODS = {'classify': 'classification', 'regress': 'regression'}
_UNKNOWN = 2  # code of errors without one of their own


def status(models: Models, name: str, number: int | None = None) -> get_model_status_pb2.GetModelStatusResponse:
    """Return the states of all versions, or of one, newest first."""
    versions = models.models[name].versions if name in models.models else {}
    if number is not None and number not in versions:
        raise Failure('NOT_FOUND', f'Could not find version {number} of model {name}')
    if not versions:
        raise Failure('NOT_FOUND', f'Could not find any versions of model {name}')
    response = get_model_status_pb2.GetModelStatusResponse()
    for each in sorted(versions, reverse=True) if number is None else [number]:
        version = versions[each]
        found = response.model_version_status.add(
            version=each, state=get_model_status_pb2.ModelVersionStatus.State.Value(version.state))
        found.status.error_code = _UNKNOWN if version.error else 0
        found.status.error_message = version.error
    return response


def metadata(models: Models, name: str, number: int | None = None,
             label: str | None = None) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Return the signatures of a version."""
    with models.use(name, number, label) as version:
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for each, definition in version.loaded.definitions.items():
            signatures.signature_def[each].CopyFrom(definition)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = name
        response.model_spec.version.value = version.number
        response.metadata[METADATA_FIELD].Pack(signatures)
        return response


def metadata_json(response: get_model_metadata_pb2.GetModelMetadataResponse) -> str:
    """Return metadata as the REST API's JSON, with the packed signatures written out."""
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata[METADATA_FIELD].Unpack(signatures)
    spec, defs = (json_format.MessageToJson(message, including_default_value_fields=True,
                                            preserving_proto_field_name=True)
                  for message in (response.model_spec, signatures))
    return f'{{\n"model_spec":{spec},\n"metadata": {{"signature_def": {defs}}}\n}}\n'


def wrong_method(method: str, signature: Signature) -> Failure:
    """Return why a signature cannot classify or regress; TensorFlow 2's exporter writes none that can."""
    if len(signature.inputs) != 1:
        return invalid('Expected one input Tensor.')
    if 'inputs' not in signature.inputs:
        return invalid(f'No {_METHODS[method]} inputs found in SignatureDef: {signature.name}')
    return invalid(f'Expected {_METHODS[method]} signature method_name to be tensorflow/serving/{method}. '
                   f'Was: {signature.method}')
