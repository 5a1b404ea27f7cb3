"""The serving kit: its clients and its README's request, sent to servers that speak TensorFlow Serving's protocol.

Those servers answer by running the pushed SavedModel.
"""
import collections
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import types
import urllib.request
from concurrent import futures

import grpc
import pytest
import tensorflow as tf
import tiny_text_model
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from pipelines import pusher, serving_kit


class Thumbnail(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'image')])
    def serve(self, image):
        return {'png': image}


class Served:
    """A version as TensorFlow Serving serves it: under one name, by signature."""

    def __init__(self, version, name):
        self.name = name
        self.model = tf.saved_model.load(version)
        self.calls = collections.Counter()

    def predict(self, name, signature, inputs):
        if name != self.name:
            raise LookupError(f'Servable not found for request: Latest({name})')
        self.calls[len(inputs['text'])] += 1
        outputs = self.model.signatures[signature or 'serving_default'](text=tf.constant(inputs['text']))
        return {key: value.numpy() for key, value in outputs.items()}


class Rest(http.server.BaseHTTPRequestHandler):
    """TensorFlow Serving's REST predict, in both its formats."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        name = re.fullmatch('/v1/models/([^/:]+):predict', self.path)[1]
        rows = body.get('instances')
        inputs = body.get('inputs') or {'text': [row['text'] if isinstance(row, dict) else row for row in rows]}
        try:
            outputs = self.server.served.predict(name, body.get('signature_name'), inputs)
        except LookupError as error:
            self.respond(404, {'error': str(error)})
            return
        columns = {key: [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
                   for key, values in outputs.items()}
        if rows is None:
            self.respond(200, {'outputs': columns})
        else:
            self.respond(200, {'predictions': [{key: values[row] for key, values in columns.items()}
                                               for row in range(len(rows))]})

    def respond(self, status, value):
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.end_headers()
        self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_):
        pass


class Grpc(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, served):
        self.served = served

    def Predict(self, request, call):
        inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
        try:
            outputs = self.served.predict(request.model_spec.name, request.model_spec.signature_name, inputs)
        except LookupError as error:
            call.abort(grpc.StatusCode.NOT_FOUND, str(error))
        response = predict_pb2.PredictResponse()
        for key, value in outputs.items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response


@pytest.fixture
def kit(tmp_path):
    """A pushed model and its kit."""
    destination = str(tmp_path / 'serving' / 'shouter')
    version = pusher.publish(tiny_text_model.save(str(tmp_path), '!'), destination, {})
    folder = serving_kit.write(version, destination, 'python -m pipelines.push')
    return types.SimpleNamespace(destination=destination, folder=folder, served=Served(version, 'shouter'))


@pytest.fixture
def rest(kit):
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Rest)
    server.served = kit.served
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_port}'
    server.shutdown()
    server.server_close()


@pytest.fixture
def rpc(kit):
    server = grpc.server(futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Grpc(kit.served), server)
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    yield f'127.0.0.1:{port}'
    server.stop(None).wait()


def run_client(kit, *arguments, lines='', flags=()):
    environment = {**os.environ, 'no_proxy': '*', 'PYTHONPATH': ''}
    return subprocess.run([sys.executable, *flags, *arguments], cwd=kit.folder, env=environment,
                          input=lines.encode(), capture_output=True, timeout=60)


LINES = ['A man rides.', '', 'Zwei Hunde spielen im Schnee vor dem Haus.', 'größer', '한국어 "문장"']


def test_rest_client_lines_in_lines_out(kit, rest):
    run = run_client(kit, 'rest_client.py', '--url', rest, '--batch_size', '2', lines='\n'.join(LINES) + '\n')
    assert run.stdout.decode() == ''.join(f'{line}!\n' for line in LINES)
    assert run.stderr.decode() == 'line 3 is too long; only its beginning was read\n' and run.returncode == 0
    assert kit.served.calls == {2: 2, 1: 1}
    run = run_client(kit, 'rest_client.py', '--url', f'{rest}/', 'one', 'on two\nlines')
    assert run.stdout.decode() == 'one!\non two lines!\n'


def test_rest_client_needs_the_standard_library_only(kit, rest):
    run = run_client(kit, 'rest_client.py', '--url', rest, 'hi', flags=['-I', '-S'])
    assert run.stdout == b'hi!\n', run.stderr


def test_rest_client_says_what_is_wrong(kit, rest):
    run = run_client(kit, 'rest_client.py', '--url', rest, '--model', 'other', 'hi')
    assert run.returncode and run.stderr.decode() == (f'error: {rest}/v1/models/other answered 404: '
                                                      'Servable not found for request: Latest(other)\n')
    run = run_client(kit, 'rest_client.py', '--url', 'http://127.0.0.1:9', 'hi')
    assert run.returncode
    assert re.fullmatch(r'error: http://127\.0\.0\.1:9/\S* cannot be reached \(.*\n', run.stderr.decode())


def test_grpc_client_lines_in_lines_out(kit, rpc):
    run = run_client(kit, 'grpc_client.py', '--address', rpc, '--batch_size', '3', lines='\n'.join(LINES))
    assert run.stdout.decode() == ''.join(f'{line}!\n' for line in LINES), run.stderr
    assert run.stderr.decode().endswith('line 3 is too long; only its beginning was read\n')
    assert run.returncode == 0 and kit.served.calls == {3: 1, 2: 1}


def test_grpc_client_says_what_is_wrong(kit, rpc):
    run = run_client(kit, 'grpc_client.py', '--address', rpc, '--model', 'other', 'hi')
    assert run.returncode and run.stderr.decode().endswith(
        'error: NOT_FOUND: Servable not found for request: Latest(other)\n')


def test_readme_commands_fit_the_model(kit, rest):
    with open(os.path.join(kit.folder, 'README.md'), encoding='utf-8') as file:
        readme = file.read()
    for line in ('| input | `text` | string [n] |', '| output | `score` | float32 [n] |',
                 '| output | `truncated` | bool [n] |',
                 f'-e MODEL_NAME=shouter tensorflow/serving:{tf.__version__}',
                 f'--mount type=bind,source={kit.destination},target=/models/shouter,readonly',
                 f'python -m pipelines.push --set push.destination={kit.destination} --rollback'):
        assert line in readme
    arguments = re.search(r'curl -d \'(.*)\' \\\n  http://localhost:8501(\S+)', readme)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(rest + arguments[2], arguments[1].encode()) as response:
        assert json.load(response)['outputs']['text'] == ['A man rides a bicycle.!', 'Two dogs play.!']


def test_kit_on_an_object_store_and_of_another_model(tmp_path):
    bucket = f'ram://bucket/{os.getpid()}-{time.monotonic_ns()}/shouter'
    module, model = Thumbnail(), str(tmp_path / 'thumbnail')
    tf.saved_model.save(module, model, signatures={'serving_default': module.serve})
    kit = serving_kit.write(model, bucket, 'python -m pipelines.push')
    assert tf.io.gfile.listdir(kit) == ['README.md']  # the clients send text, this model takes pictures
    with tf.io.gfile.GFile(os.path.join(kit, 'README.md')) as file:
        readme = file.read()
    assert f'-e MODEL_BASE_PATH={os.path.dirname(bucket)} ' in readme and '--mount' not in readme
    assert '| input | `image` | string [n] |' in readme and 'rest_client' not in readme
