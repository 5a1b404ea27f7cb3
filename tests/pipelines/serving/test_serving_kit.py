"""The serving kit: its clients and its README's request, against servers that speak TensorFlow Serving's protocol.

Those servers answer by running the pushed SavedModel.
"""
import base64
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
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
from tensorflow_serving.config import model_server_config_pb2

from pipelines.serving import kit as serving_kit
from pipelines.serving import monitoring, pusher
from pipelines.serving.batching import Limits
from support import tiny_classifier, tiny_text_model


class Thumbnail(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'image')])
    def serve(self, image):
        return {'png': image}


class Served:
    """A version as TensorFlow Serving serves it: under one name, by signature."""

    def __init__(self, version, name):
        self.name, self.number = name, int(os.path.basename(version))
        self.model = tf.saved_model.load(version)
        self.calls = collections.Counter()

    def predict(self, name, signature, inputs):
        if name != self.name:
            raise LookupError(f'Servable not found for request: Latest({name})')
        (key, values), = inputs.items()
        self.calls[len(values)] += 1
        outputs = self.model.signatures[signature or 'serving_default'](**{key: tf.constant(values)})
        return {key: value.numpy() for key, value in outputs.items()}


def from_json(found):
    """An object with the one key `b64` is bytes to TensorFlow Serving."""
    return base64.b64decode(found['b64'], validate=True) if found.keys() == {'b64'} else found


def to_json(value):
    """Strings are JSON strings there, unless an output is called `…_bytes`."""
    if isinstance(value, list):
        return [to_json(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


class Rest(http.server.BaseHTTPRequestHandler):
    """TensorFlow Serving's REST predict, in both its formats."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])), object_hook=from_json)
        name = re.fullmatch('/v1/models/([^/:]+):predict', self.path)[1]
        rows = body.get('instances')
        inputs = body.get('inputs') or {'text': [row['text'] if isinstance(row, dict) else row for row in rows]}
        try:
            outputs = self.server.served.predict(name, body.get('signature_name'), inputs)
        except LookupError as error:
            self.respond(404, {'error': str(error)})
            return
        except tf.errors.InvalidArgumentError as error:
            self.respond(400, {'error': error.message})
            return
        columns = {key: to_json(values.tolist()) for key, values in outputs.items()}
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
        except tf.errors.InvalidArgumentError as error:
            call.abort(grpc.StatusCode.INVALID_ARGUMENT, error.message)
        response = predict_pb2.PredictResponse()
        for key, value in outputs.items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return response


@pytest.fixture
def kit(request, tmp_path):
    """A pushed model and its kit."""
    name = getattr(request, 'param', 'shouter')
    destination = str(tmp_path / 'serving' / name)
    model = request.getfixturevalue(name) if name == 'classifier' else tiny_text_model.save(str(tmp_path), '!')
    version = pusher.publish(model, destination, {})
    folder = serving_kit.write(version, destination, 'python -m pipelines.push')
    return types.SimpleNamespace(destination=destination, folder=folder, served=Served(version, name))


@pytest.fixture(scope='module')
def classifier(tmp_path_factory):
    """A model of images. Every other class has a description, as ImageNet's have; folders of classes give none."""
    assets, config = tiny_classifier.Assets(), tiny_classifier.Config()
    assets.descriptions = [f'größtes Ding {name}' if number % 2 else name for number, name in enumerate(assets.names)]
    module = tiny_classifier.serving(tiny_classifier.randomised(config), config, tiny_classifier.Inference(), assets,
                                     jit=False)
    folder = str(tmp_path_factory.mktemp('classifier') / '1')
    tf.saved_model.save(module, folder, signatures=module.signatures())
    return folder


of_pictures = pytest.mark.parametrize('kit', ['classifier'], indirect=True)


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
    limit = [('grpc.max_receive_message_length', 2**31 - 1)]  # as TensorFlow Serving sets it
    server = grpc.server(futures.ThreadPoolExecutor(2), options=limit)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Grpc(kit.served), server)
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    yield f'127.0.0.1:{port}'
    server.stop(None).wait()


def run_client(kit, *arguments, lines='', flags=()):
    environment = {**os.environ, 'no_proxy': '*', 'PYTHONPATH': ''}
    return subprocess.run([sys.executable, *flags, *arguments], cwd=kit.folder, env=environment,
                          input=os.fsencode(lines), capture_output=True, timeout=60)


LINES = ['A man rides.', '', 'Zwei Hunde spielen im Schnee vor dem Haus.', 'größer', '한국어 "문장"']


def test_rest_client_lines_in_lines_out(kit, rest):
    run = run_client(kit, 'rest_client.py', '--url', rest, '--batch_size', '2', lines='\n'.join(LINES) + '\n')
    assert run.stdout.decode() == ''.join(f'{line}!\n' for line in LINES)
    assert run.stderr.decode() == 'line 3 is too long; only its beginning was used\n' and run.returncode == 0
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
    assert run.stderr.decode().endswith('line 3 is too long; only its beginning was used\n')
    assert run.returncode == 0 and kit.served.calls == {3: 1, 2: 1}


def test_grpc_client_says_what_is_wrong(kit, rpc):
    run = run_client(kit, 'grpc_client.py', '--address', rpc, '--model', 'other', 'hi')
    assert run.returncode and run.stderr.decode().endswith(
        'error: NOT_FOUND: Servable not found for request: Latest(other)\n')


def save_pictures(folder):
    """A folder of pictures, one of them, with zeros behind it, over gRPC's usual 4 MB; name -> content."""
    os.makedirs(folder)
    contents = [tiny_classifier.jpeg(seed=1) + b'\0' * 5_000_000, tiny_classifier.png(seed=2),
                tiny_classifier.jpeg(seed=3), tiny_classifier.png(seed=10)]
    names = ['large.jpg', 'ein Bild.png', '그림.jpeg', os.fsdecode(b'gr\xfcn.png')]  # the last is not UTF-8
    pictures = {os.path.join(folder, name): content for name, content in zip(names, contents)}
    for path, content in pictures.items():
        with open(path, 'wb') as file:
            file.write(content)
    return pictures


def assert_best(served, pictures, output):
    """Lines of file, label, probability and, of every other class, description."""
    posteriors = served.model.posteriors(tf.constant([*pictures.values()])).numpy()
    lines = [line.split('\t') for line in output.decode(errors='surrogateescape').splitlines()]
    assert [line[0] for line in lines] == [*pictures]
    assert {len(line) for line in lines} == {3, 4}
    for (_, label, probability, *description), p in zip(lines, posteriors):
        number = p.argmax()
        assert label == f'n{number:04}' and float(probability) == pytest.approx(p[number], abs=1e-4)
        assert description == ([f'größtes Ding {label}'] if number % 2 else [])


@of_pictures
def test_rest_client_classifies_pictures(kit, rest, tmp_path):
    pictures = save_pictures(tmp_path / 'pictures')
    run = run_client(kit, 'rest_client.py', '--url', rest, '--pictures', *pictures)
    assert_best(kit.served, pictures, run.stdout)
    assert not run.stderr and run.returncode == 0 and kit.served.calls == {1: 4}
    run = run_client(kit, 'rest_client.py', '--url', rest, '--pictures', '--batch_size', '3', lines='\n'.join(pictures))
    assert_best(kit.served, pictures, run.stdout)
    assert kit.served.calls == {1: 5, 3: 1}


@of_pictures
def test_clients_name_a_picture_the_server_refuses(kit, rest, rpc, tmp_path):
    pictures, text = save_pictures(tmp_path / 'pictures'), tmp_path / 'text.jpg'
    text.write_text('not a picture')
    for server, status in ((['rest_client.py', '--url', rest], f'{rest}/v1/models/classifier answered 400'),
                           (['grpc_client.py', '--address', rpc], 'INVALID_ARGUMENT')):
        run = run_client(kit, *server, '--pictures', *pictures, str(text), *pictures)
        assert_best(kit.served, pictures, run.stdout)  # those before it
        assert f'error: {text}: {status}: ' in run.stderr.decode() and run.returncode == 1
        assert 'Unknown image file format' in run.stderr.decode()


@of_pictures
def test_a_picture_that_cannot_be_read_is_one_sentence(kit):
    for name, why in (('none.jpg', 'No such file or directory'), ('.', 'Is a directory'),
                      ('', 'No such file or directory'), ('a\0b', 'embedded null byte')):
        run = run_client(kit, 'rest_client.py', '--pictures', lines=f'{name}\n')
        assert run.stderr.decode() == f'error: {name} cannot be read ({why}). Give names of JPEG or PNG files.\n'
        assert run.returncode == 1 and not run.stdout


def read_readme(kit):
    with open(os.path.join(kit.folder, 'README.md'), encoding='utf-8') as file:
        return file.read()


@of_pictures
def test_readme_of_an_image_model(kit, rest, tmp_path):
    pictures, readme = save_pictures(tmp_path / 'pictures'), read_readme(kit)
    for line in ('| input | `image` | string [n] |', '| output | `labels` | string [n, 5] |',
                 '| output | `descriptions` | string [n, 5] |', '| output | `probabilities` | float32 [n, 5] |',
                 'python rest_client.py --pictures photo.jpg', 'python grpc_client.py --pictures photo.jpg'):
        assert line in readme
    assert '"text"' not in readme and 'lines.txt' not in readme
    command = re.search(r'\(printf .*\n.*:predict', readme)[0]
    for path, content in pictures.items():
        os.replace(path, tmp_path / 'photo.jpg')
        run = subprocess.run(['sh', '-c', command.replace('http://localhost:8501', rest)], cwd=tmp_path,
                             env={**os.environ, 'no_proxy': '*'}, capture_output=True, timeout=60)
        expected = kit.served.model.signatures['serving_default'](image=tf.constant([content]))
        assert json.loads(run.stdout)['outputs']['labels'] == to_json(expected['labels'].numpy().tolist()), run.stderr


def test_readme_commands_fit_the_model(kit, rest):
    readme = read_readme(kit)
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


def messages() -> dict:
    """TensorFlow Serving 2.15's messages that its Python package lacks, by name, with the fields of our files."""
    file = descriptor_pb2.FileDescriptorProto(name='kit.proto', package='kit', syntax='proto3',
                                              dependency=[wrappers_pb2.DESCRIPTOR.name])
    for name, fields in {
            'BatchingParameters': dict.fromkeys(('max_batch_size', 'batch_timeout_micros', 'max_enqueued_batches'),
                                                '.google.protobuf.Int64Value'),
            'PrometheusConfig': {'enable': 'TYPE_BOOL', 'path': 'TYPE_STRING'},
            'MonitoringConfig': {'prometheus_config': '.kit.PrometheusConfig'}}.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            given = {'type_name': kind} if kind.startswith('.') else {'type': kind}
            message.field.add(name=field, number=number, label='LABEL_OPTIONAL', **given)
    pool = descriptor_pool.DescriptorPool()
    for each in (descriptor_pb2.FileDescriptorProto.FromString(wrappers_pb2.DESCRIPTOR.serialized_pb), file):
        pool.Add(each)
    return {message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f'kit.{message.name}'))()
            for message in file.message_type}


def test_configuration_files_are_of_tensorflow_servings_messages(kit):
    def parsed(name, message):
        with open(os.path.join(kit.folder, name), encoding='utf-8') as file:
            return text_format.Parse(file.read(), message)
    version = kit.served.number
    [model] = parsed('models.config', model_server_config_pb2.ModelServerConfig()).model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ('shouter', '/models/shouter', 'tensorflow')
    assert [*model.model_version_policy.specific.versions] == [version] and dict(model.version_labels) == {
        'stable': version}
    batching, limits = parsed('batching.config', messages()['BatchingParameters']), Limits()
    assert batching.max_batch_size.value == limits.rows and batching.batch_timeout_micros.value == limits.delay * 1e6
    assert batching.max_enqueued_batches.value * limits.rows == limits.queue
    found = parsed('monitoring.config', messages()['MonitoringConfig']).prometheus_config
    assert found.enable and found.path == monitoring.PATH
    readme = read_readme(kit)
    for line in (f'--mount type=bind,source={kit.destination}.kit,target=/kit,readonly',
                 '--model_config_file=/kit/models.config', '--batching_parameters_file=/kit/batching.config',
                 '--monitoring_config_file=/kit/monitoring.config', '/v1/models/shouter/labels/stable:predict'):
        assert line in readme


def test_kit_on_an_object_store_and_of_another_model(tmp_path):
    bucket = f'ram://bucket/{os.getpid()}-{time.monotonic_ns()}/shouter'
    module, model = Thumbnail(), str(tmp_path / 'thumbnail')
    tf.saved_model.save(module, model, signatures={'serving_default': module.serve})
    kit = serving_kit.write(pusher.publish(model, bucket, {}), bucket, 'python -m pipelines.push')
    names = sorted(tf.io.gfile.listdir(kit))  # no client: it takes pictures, but answers what the clients cannot print
    assert names == ['README.md', 'batching.config', 'models.config', 'monitoring.config']
    with tf.io.gfile.GFile(os.path.join(kit, 'README.md')) as file:
        readme = file.read()
    assert f'-e MODEL_BASE_PATH={os.path.dirname(bucket)} ' in readme and '--mount' not in readme
    assert f'--model_config_file={bucket}.kit/models.config' in readme
    assert '| input | `image` | string [n] |' in readme and 'rest_client' not in readme
