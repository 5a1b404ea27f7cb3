"""Sends lines of text to a served model over gRPC and prints its answers, one line for each.

    python grpc_client.py 'A man rides a bicycle.'
    python grpc_client.py --address host:8500 < lines.txt > answers.txt

Needs grpcio, tensorflow and tensorflow-serving-api, and rest_client.py for the flags and the reading of lines.
"""
import os
import sys

from rest_client import parser, run


def predict_grpc(stub, model, lines, timeout):
    """Calls PredictionService.Predict with the lines as one tensor."""
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = 'serving_default'
    request.inputs['text'].CopyFrom(tf.make_tensor_proto(lines, dtype=tf.string))
    try:
        response = stub.Predict(request, timeout=timeout)
    except grpc.RpcError as error:
        sys.exit(f'error: {error.code().name}: {error.details()}')
    outputs = {name: tf.make_ndarray(tensor).tolist() for name, tensor in response.outputs.items()}
    return {**outputs, 'text': [text.decode('utf-8', 'replace') for text in outputs['text']]}


def main():
    flags = parser(__doc__)
    flags.add_argument('--address', default='localhost:8500', help='the server (default: %(default)s)')
    args = flags.parse_args()
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    import grpc
    from tensorflow_serving.apis import prediction_service_pb2_grpc
    with grpc.insecure_channel(args.address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        run(args, lambda lines: predict_grpc(stub, args.model, lines, args.timeout))


if __name__ == '__main__':
    main()
