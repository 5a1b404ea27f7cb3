"""Send lines of text, or images, to a served model over gRPC and print one line of output for each.

    python grpc_client.py 'A man rides a bicycle.'
    python grpc_client.py --address host:8500 < lines.txt > answers.txt
    python grpc_client.py --pictures photo.jpg folder/*.png

Needs grpcio, tensorflow and tensorflow-serving-api, and rest_client.py for flags, reading and printing.
"""
import os

from rest_client import Refused, parser, run


def predict_grpc(stub, model, name, values, timeout):
    """Call PredictionService.Predict with the values, strings or bytes, as one tensor."""
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = 'serving_default'
    request.inputs[name].CopyFrom(tf.make_tensor_proto(values, dtype=tf.string))
    try:
        response = stub.Predict(request, timeout=timeout)
    except grpc.RpcError as error:
        raise Refused(f'{error.code().name}: {error.details()}') from error
    return {key: decoded(tf.make_ndarray(tensor).tolist()) for key, tensor in response.outputs.items()}


def decoded(value):
    """Decode bytes to text in lists of any depth."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    return value.decode('utf-8', 'replace') if isinstance(value, bytes) else value


def main():
    flags = parser(__doc__)
    flags.add_argument('--address', default='localhost:8500', help='address of the server (default: %(default)s)')
    args = flags.parse_args()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    import grpc
    from tensorflow_serving.apis import prediction_service_pb2_grpc
    with grpc.insecure_channel(args.address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        run(args, lambda name, values: predict_grpc(stub, args.model, name, values, args.timeout))


if __name__ == '__main__':
    main()
