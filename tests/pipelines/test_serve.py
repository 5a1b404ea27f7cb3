"""The conformance set: requests and responses as TensorFlow Serving 2.15 documents them, over REST and gRPC.

Requests are those of its `api_rest.md`, `http_rest_api_handler_test.cc` and protos; answers are compared with the same
SavedModel's own signatures.
"""
import base64
import http.client
import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import zlib

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from data_prep.people import pairs_files, sample_people
from pipelines import serve
from pipelines.serving import access, labels, models, pusher
from pipelines.serving import kit as serving_kit
from support import served, tiny_classifier, tiny_text_model
from support.commands import command

PREDICT = '/v1/models/half_plus_two:predict'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('serving')


@pytest.fixture(scope='module')
def pushed(folder):
    """Pushed models by name, and the folders of their versions."""
    half, mixed = served.HalfPlusTwo(), served.Mixed()
    versions = {'half_plus_two': served.push(half, str(folder / 'half_plus_two'), {'serving_default': half.serve}),
                'mixed': served.push(mixed, str(folder / 'mixed'), {'serving_default': mixed.serve,
                                                                   'single': mixed.single})}
    shouter = str(folder / 'shouter')
    versions['shouter'] = pusher.publish(tiny_text_model.save(str(folder), '!'), shouter, {})
    return versions


@pytest.fixture(scope='module')
def server(pushed):
    number = served.version_of(pushed['half_plus_two'])
    with served.running({name: os.path.dirname(path) for name, path in pushed.items()},
                        labels={'half_plus_two': {'stable': number}}) as running:
        yield running


@pytest.fixture(scope='module')
def channel(server):
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


@pytest.mark.parametrize('body, answer', [
    ({'instances': [1.0, 2.0, 5.0]}, {'predictions': [2.5, 3.0, 4.5]}),
    ({'instances': [{'x': 1.0}, {'x': 2}]}, {'predictions': [2.5, 3.0]}),
    ({'inputs': [3.0, 4.0]}, {'outputs': [3.5, 4.0]}),
    ({'inputs': {'x': [3.0, 4.0]}}, {'outputs': [3.5, 4.0]}),
    ({'signature_name': 'serving_default', 'instances': [3.0]}, {'predictions': [3.5]}),
    ({'signature_name': '', 'instances': [3.0]}, {'predictions': [3.5]}),
    ({'inputs': []}, {'outputs': []}),
], ids=['rows', 'named-rows', 'columns', 'named-columns', 'signature', 'default-signature', 'no-rows'])
def test_predict(server, pushed, body, answer):
    number = served.version_of(pushed['half_plus_two'])
    for version in ('', f'/versions/{number}', '/labels/stable'):
        assert served.ask(f'{server.rest}/v1/models/half_plus_two{version}:predict', body) == (200, answer)


def test_several_inputs_and_types_are_answered_as_by_the_saved_model(server, pushed, channel):
    inputs = {'pair': [[1.5, 2], [3, 4.25]], 'number': [7, 8], 'text': ['abc', 'größer']}
    model = tf.saved_model.load(pushed['mixed']).signatures['serving_default']
    expected = {name: value.numpy() for name, value in model(**{
        name: tf.constant(value) for name, value in inputs.items()}).items()}
    words = {'even': [False, True], 'double': [14, 16], 'total': [3.5, 7.25], 'text': ['ABC', 'GRößER'],
             'text_bytes': [{'b64': base64.b64encode(each.encode()).decode()} for each in inputs['text']]}
    assert served.ask(f'{server.rest}/v1/models/mixed:predict', {'inputs': inputs}) == (200, {'outputs': words})
    rows = [dict(zip(inputs, row)) for row in zip(*inputs.values())]
    assert served.ask(f'{server.rest}/v1/models/mixed:predict', {'instances': rows}) == (
        200, {'predictions': [dict(zip(words, row)) for row in zip(*words.values())]})
    request = predict_pb2.PredictRequest()
    request.model_spec.name = 'mixed'
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value, {'number': tf.int32}.get(name)))
    response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request)
    assert response.model_spec.name == 'mixed' and response.model_spec.signature_name == 'serving_default'
    assert response.model_spec.version.value == served.version_of(pushed['mixed'])
    assert {*response.outputs} == {*expected}
    for name, value in expected.items():
        np.testing.assert_array_equal(tf.make_ndarray(response.outputs[name]), value)
    assert response.outputs['total'].float_val and response.outputs['double'].int_val  # in fields, as there
    request.output_filter.append('total')
    assert [*prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request).outputs] == ['total']


def test_a_signature_without_rows(server):
    url = f'{server.rest}/v1/models/mixed:predict'
    assert served.ask(url, {'signature_name': 'single', 'inputs': 12}) == (200, {'outputs': {'squared': 144,
                                                                                             'text': '12'}})
    status, answer = served.ask(url, {'signature_name': 'single', 'instances': [1, 2]})
    assert status == 400 and 'n has shape [2]' in answer['error']


def test_status_and_metadata(server, pushed, channel):
    number = served.version_of(pushed['half_plus_two'])
    one = {'version': str(number), 'state': 'AVAILABLE', 'status': {'error_code': 'OK', 'error_message': ''}}
    for version in ('', f'/versions/{number}', '/labels/stable'):
        url = f'{server.rest}/v1/models/half_plus_two{version}'
        assert served.ask(url) == (200, {'model_version_status': [one]})
        status, found = served.ask(f'{url}/metadata')
        assert status == 200 and found['model_spec'] == {'name': 'half_plus_two', 'signature_name': '',
                                                         'version': str(number)}
        default = found['metadata']['signature_def']['signature_def']['serving_default']
        assert default['method_name'] == 'tensorflow/serving/predict'
        assert default['inputs']['x']['dtype'] == 'DT_FLOAT'
        assert default['inputs']['x']['tensor_shape'] == {'dim': [{'size': '-1', 'name': ''}], 'unknown_rank': False}
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = 'half_plus_two'
    [found] = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request).model_version_status
    assert (found.version, found.state, found.status.error_code) == (number, 30, 0)
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=['signature_def'])
    request.model_spec.name = 'half_plus_two'
    response = prediction_service_pb2_grpc.PredictionServiceStub(channel).GetModelMetadata(request)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata['signature_def'].Unpack(signatures) and response.model_spec.version.value == number
    with open(os.path.join(pushed['half_plus_two'], 'saved_model.pb'), 'rb') as file:
        from tensorflow.core.protobuf import saved_model_pb2
        [graph] = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
    assert dict(signatures.signature_def) == dict(graph.signature_def)


@pytest.mark.parametrize('method, path, body, status, error', [
    ('POST', PREDICT, b'', 400, 'JSON Parse error: The document is empty'),
    ('POST', PREDICT, b'instances = [1, 2]', 400, 'JSON Parse error: Invalid value'),
    ('POST', PREDICT, {'instances': ['x']}, 400, 'not of expected type: float'),
    ('POST', PREDICT, {'instances': [[1.0, 2.0]]}, 400, 'x has shape [1,2]'),
    ('POST', PREDICT, {'signature_name': 'other', 'instances': [1]}, 400, 'Serving signature name: "other" not found'),
    ('POST', '/v1/models/foo:predict', {'instances': [1]}, 404, 'Servable not found for request: Latest(foo)'),
    ('POST', '/v1/models/foo/versions/50:predict', {'instances': [1]}, 404, 'for request: Specific(foo, 50)'),
    ('POST', '/v1/models/half_plus_two/versions/99:predict', {'instances': [1]}, 404, 'Specific(half_plus_two, 99)'),
    ('POST', '/v1/models/half_plus_two/labels/x:predict', {'instances': [1]}, 400, 'Unrecognized servable version lab'),
    ('POST', '/v1/models/half_plus_two:classify', {'examples': [{'x': 1}]}, 400, 'No classification inputs found'),
    ('POST', '/v1/models/half_plus_two:regress', {'examples': [{'x': 1}]}, 400, 'No regression inputs found'),
    ('GET', '/v1/models', None, 400, 'Missing model name in request.'),
    ('GET', '/v1/models/foo', None, 404, 'Could not find any versions of model foo'),
    ('GET', '/v1/models/half_plus_two/versions/99', None, 404, 'Could not find version 99 of model half_plus_two'),
    ('GET', '/v1/models/foo/metadata', None, 404, 'Servable not found for request: Latest(foo)'),
    ('GET', '/v1/models/foo:predict', None, 400, 'Malformed request: GET /v1/models/foo:predict'),
    ('POST', '/v1/models/foo/version/50:predict', {}, 400, 'Malformed request'),
    ('POST', '/v1/models/foo/versions/HELLO:regress', {}, 400, 'Malformed request'),
    ('POST', f'/v1/models/foo/versions/{2**64}:regress', {}, 400, 'Failed to convert version'),
    ('POST', '/v1/models/foo/metadata', {}, 400, 'Malformed request'),
    ('PUT', PREDICT, {'instances': [1]}, 400, 'Malformed request'),
])
def test_errors_over_rest(server, method, path, body, status, error):
    found, answer, headers = served.ask_raw(server.rest + path, body, method=method)
    assert found == status and error in json.loads(answer)['error'] and headers['Content-Type'] == 'application/json'


def test_errors_over_grpc(channel):
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def refused(call, message):
        with pytest.raises(grpc.RpcError) as error:
            call(message)
        return error.value.code().name, error.value.details()

    def asked(name='half_plus_two', **changes):
        request = predict_pb2.PredictRequest(**changes)
        request.model_spec.name = name
        request.inputs['x'].CopyFrom(tf.make_tensor_proto([1.0]))
        return request
    assert refused(stub.Predict, asked('foo')) == ('NOT_FOUND', 'Servable not found for request: Latest(foo)')
    assert refused(stub.Predict, asked('')) == ('INVALID_ARGUMENT', 'ModelSpec has no name specified.')
    request = asked()
    request.model_spec.version.value = 99
    assert refused(stub.Predict, request)[1].endswith('Specific(half_plus_two, 99)')
    request = asked()
    request.model_spec.version_label = 'x'
    assert refused(stub.Predict, request) == ('INVALID_ARGUMENT', 'Unrecognized servable version label: x')
    request = asked()
    request.model_spec.signature_name = 'other'
    assert refused(stub.Predict, request) == ('FAILED_PRECONDITION', 'Serving signature key "other" not found.')
    request = asked()
    request.inputs['z'].CopyFrom(request.inputs['x'])
    code, said = refused(stub.Predict, request)
    assert code == 'INVALID_ARGUMENT' and said == ('input size does not match signature: 2!=1 len({x,z}) != len({x}). '
                                                   'Sent extra: {z}. Missing but required: {}.')
    code, said = refused(stub.Predict, asked(output_filter=['z']))
    assert code == 'INVALID_ARGUMENT' and said.startswith('output tensor alias not found in signature: z')
    assert refused(stub.Predict, asked(output_filter=['y', 'y']))[1] == 'duplicate output tensor alias: y'
    request = asked()
    request.inputs['x'].CopyFrom(tf.make_tensor_proto(['text']))
    assert refused(stub.Predict, request)[0] == 'INVALID_ARGUMENT'
    del request.inputs['x'].string_val[:]
    request.inputs['x'].dtype = 1
    request.inputs['x'].float_val.append(1.0)
    request.inputs['x'].tensor_shape.dim[0].size = 2 ** 40  # one value, which stands for four terabytes
    assert refused(stub.Predict, request)[0] == 'RESOURCE_EXHAUSTED'
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=['other'])
    request.model_spec.name = 'half_plus_two'
    assert refused(stub.GetModelMetadata, request) == ('INVALID_ARGUMENT', 'Metadata field other is not supported')
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = 'half_plus_two'
    assert refused(stub.Classify, request)[0] == 'INVALID_ARGUMENT'
    assert refused(stub.MultiInference, inference_pb2.MultiInferenceRequest())[0] == 'INVALID_ARGUMENT'
    models_stub = model_service_pb2_grpc.ModelServiceStub(channel)
    assert refused(models_stub.HandleReloadConfigRequest,
                   model_management_pb2.ReloadConfigRequest())[0] == 'UNIMPLEMENTED'
    assert refused(models_stub.GetModelStatus, get_model_status_pb2.GetModelStatusRequest())[1] == 'Missing ModelSpec'


def test_a_bad_row_fails_its_request_alone_and_says_why(server):
    url = f'{server.rest}/v1/models/mixed:predict'
    good = {'pair': [[1, 2]], 'number': [1], 'text': ['a']}
    status, answer = served.ask(url, {'inputs': {**good, 'number': [-1]}})
    assert status == 400 and 'number is negative' in answer['error']
    assert served.ask(url, {'inputs': good})[0] == 200


def test_metrics_are_prometheus_text(server):
    served.ask(server.rest + PREDICT, {'instances': [1.0]})
    served.ask(f'{server.rest}/v1/models/foo')
    status, page, headers = served.ask_raw(f'{server.rest}/monitoring/prometheus/metrics')
    assert status == 200 and headers['Content-Type'].startswith('text/plain')
    lines = page.decode().splitlines()
    assert all(re.fullmatch(r'# TYPE [\w:]+ (counter|gauge|histogram)|[\w:]+\{.*\} [\d.e+-]+', line) for line in lines)
    counts = [line for line in lines if line.startswith(':tensorflow:serving:request_count{')]
    assert any('model_name="half_plus_two",status="OK"' in line for line in counts)
    assert any('model_name="",status="NOT_FOUND"' in line for line in counts)
    buckets = [float(line.split()[-1]) for line in lines if 'request_latency_bucket{model_name="half_plus_two",API="pr'
               in line]
    assert len(buckets) == 34 and buckets == sorted(buckets) and buckets[-1] > 0


# The serving kit's clients, unchanged.

@pytest.fixture(scope='module')
def clients():
    folder = os.path.dirname(serving_kit.__file__)
    sys.path.insert(0, folder)  # where they find each other
    try:
        import grpc_client
        import rest_client
        yield rest_client, grpc_client
    finally:
        sys.path.remove(folder)


def test_clients_of_the_kit_read_lines(server, channel, clients):
    rest, rpc = clients
    lines = ['A man rides.', '', 'Zwei Hunde spielen im Schnee vor dem Haus.', '한국어 "문장"']
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    found = (rest.predict_rest(f'{server.rest}/v1/models/shouter', {'text': lines}, 60),
             rpc.predict_grpc(stub, 'shouter', 'text', lines, 60))
    for outputs in found:
        assert outputs['text'] == [f'{line}!' for line in lines] and outputs['truncated'] == [False, False, True, False]
    with pytest.raises(rest.Refused, match=r'/v1/models/other answered 404: Servable not found for request'):
        rest.predict_rest(f'{server.rest}/v1/models/other', {'text': lines}, 60)


def png_of(width, height):
    """The head of a PNG file that says how large it is, and no pixels."""
    head = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    return (b'\x89PNG\r\n\x1a\n' + struct.pack('>I', 13) + b'IHDR' + head
            + struct.pack('>I', zlib.crc32(b'IHDR' + head)))


def test_clients_of_the_kit_classify_pictures(tmp_path, clients):
    rest, rpc = clients
    assets, config = tiny_classifier.Assets(), tiny_classifier.Config()
    module = tiny_classifier.serving(tiny_classifier.randomised(config), config, tiny_classifier.Inference(), assets,
                                     jit=False)
    module_folder = str(tmp_path / 'saved')
    tf.saved_model.save(module, module_folder, signatures=module.signatures())
    os.makedirs(os.path.join(module_folder, 'assets.extra'))
    with open(os.path.join(module_folder, 'assets.extra', 'landmark.json'), 'w') as file:
        json.dump({'name': 'classifier', 'model_module': 'keras_models.vgg',
                   'config': {'export': {'jit': False}, 'data': {'max_pixels': 10_000}}}, file)
    version = pusher.publish(module_folder, str(tmp_path / 'classifier'), {})
    pictures = [tiny_classifier.jpeg(seed=1), tiny_classifier.png(seed=2), tiny_classifier.jpeg(seed=3)]
    expected = tf.saved_model.load(version).signatures['serving_default'](image=tf.constant(pictures))
    with served.running({'classifier': str(tmp_path / 'classifier')}) as server:
        url = f'{server.rest}/v1/models/classifier'
        with grpc.insecure_channel(server.grpc) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            for outputs in (rest.predict_rest(url, {'image': pictures}, 60),
                            rpc.predict_grpc(stub, 'classifier', 'image', pictures, 60)):
                assert outputs['labels'] == rpc.decoded(expected['labels'].numpy().tolist())
                np.testing.assert_allclose(outputs['probabilities'], expected['probabilities'], atol=1e-5)
        for picture, status, said in ((b'no picture', 400, 'Unknown image file format'), (b'', 400, 'Unknown image'),
                                      (pictures[0][:100], 400, ''), (png_of(200, 200), 413, 'pixels'),
                                      (png_of(60_000, 60_000), 413, 'pixels')):
            body = {'inputs': [{'b64': base64.b64encode(each).decode()} for each in (pictures[0], picture)]}
            found, answer = served.ask(f'{url}:predict', body)
            assert found == status and said in answer['error'], answer
        example = tf.train.Example()
        example.features.feature['image'].bytes_list.value.append(png_of(60_000, 60_000))
        body = {'signature_name': 'tf_examples', 'inputs': [{'b64': base64.b64encode(
            example.SerializeToString()).decode()}]}
        assert served.ask(f'{url}:predict', body)[0] == 413


class Pasted(tf.Module):
    """Inputs and output of an exported try-on model; answers with the garment."""
    FILES = ('image', 'parse', 'pose_json', 'pose_image', 'cloth', 'cloth_mask')

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name) for name in FILES])
    def serve(self, image, parse, pose_json, pose_image, cloth, cloth_mask):
        read = tf.strings.length(parse) * tf.strings.length(pose_json) * tf.strings.length(cloth_mask)
        with tf.control_dependencies([tf.debugging.assert_positive(read, 'a file is empty')]):
            return {'image_bytes': tf.identity(cloth)}


def test_the_try_on_client_of_the_kit(tmp_path):
    sample_people.write_people(str(tmp_path / 'people'), 1, 2, (64, 48))
    destination, module = str(tmp_path / 'try_on'), Pasted()
    version = served.push(module, destination, {'serving_default': module.serve})
    kit = serving_kit.write(version, destination, 'python -m pipelines.push')
    assert {*os.listdir(kit)} == {'README.md', 'rest_client.py', 'try_on_client.py', 'pairs.py', labels.FILE,
                                  serving_kit.MONITORING, serving_kit.BATCHING}
    pairs = tmp_path / 'people' / 'test_pairs.txt'
    folders = pairs_files.folders(pairs_files.root(str(pairs)))
    with served.running({'try_on': destination}) as server:
        main = 'import sys; sys.path.insert(0, "."); import try_on_client; try_on_client.main()'
        run = subprocess.run([sys.executable, '-I', '-c', main, '--url', server.rest, '--model', 'try_on', '--out',
                              str(tmp_path / 'out'), str(pairs)], cwd=kit, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    listed = list(pairs_files.pairs(str(pairs)))
    assert len(listed) == 2 == len(run.stdout.splitlines())
    for pair, line in zip(listed, run.stdout.splitlines()):
        with open(line, 'rb') as file:
            assert file.read() == pairs_files.read(folders, pair.person, pair.garment)['cloth'].content
    with open(os.path.join(kit, 'README.md'), encoding='utf-8') as file:
        assert f'python -m pipelines.serve {destination}' in file.read()


# Versions.

def test_versions_change_on_push_and_rollback(tmp_path):
    destination = str(tmp_path / 'half')

    def push_one(more):
        module = served.HalfPlusTwo(more)
        return served.version_of(served.push(module, destination, {'serving_default': module.serve}))
    first = push_one(2.0)
    with served.running({'half': destination}) as server:
        def now():
            status, answer = served.ask(f'{server.rest}/v1/models/half:predict', {'instances': [0.0]})
            return answer['predictions'][0] if status == 200 else status
        assert now() == 2
        second = push_one(3.0)
        server.look()
        assert now() == 3
        pusher.rollback(destination)
        server.look()
        assert now() == 2
        states = {int(each['version']): each['state'] for each in served.ask(
            f'{server.rest}/v1/models/half')[1]['model_version_status']}
        assert states[max(states)] == 'AVAILABLE' and states[first] in ('UNLOADING', 'END') and len(states) == 3
        assert served.ask(f'{server.rest}/v1/models/half/versions/{first}:predict', {'instances': [0.0]})[0] == 404
        damaged = push_one(4.0)
        with open(os.path.join(destination, str(damaged), 'saved_model.pb'), 'ab') as file:
            file.write(b'\0')
        server.look()
        assert now() == 2  # what is damaged is not loaded, and what was served before is
        status = next(each for each in served.ask(f'{server.rest}/v1/models/half')[1]['model_version_status']
                      if int(each['version']) == damaged)
        assert status['state'] == 'END' and 'saved_model.pb has changed since the push' in status[
            'status']['error_message']
    assert second > first


def test_labels_of_the_configuration_file_are_honoured_and_read_again(tmp_path, capfd):
    destination, numbers = str(tmp_path / 'half'), []
    for more in (2.0, 3.0):
        module = served.HalfPlusTwo(more)
        numbers.append(served.version_of(served.push(module, destination, {'serving_default': module.serve})))
    labels.write(destination, 'half')
    path = pathlib.Path(labels.path_of(destination))
    written = path.read_text()
    path.write_text(written.replace('"stable"', '"new"'))
    with served.running({'half': destination}, labels={'half': {'flag': numbers[1]}}) as server:
        def ask(label):
            status, answer = served.ask(f'{server.rest}/v1/models/half/labels/{label}:predict', {'instances': [0.0]})
            return answer['predictions'][0] if status == 200 else status
        assert [ask(label) for label in ('new', 'flag', 'stable')] == [3, 3, 400]
        path.write_text(written.replace(str(numbers[1]), str(numbers[0])))
        server.look()
        assert [ask(label) for label in ('new', 'flag', 'stable')] == [400, 3, 2]
        path.write_text('model_config_list {')
        for _ in range(2):
            server.look()
        assert ask('stable') == 2 and capfd.readouterr().out.count('models.config cannot be read') == 1


def test_a_start_beside_a_damaged_version_serves_the_one_before(tmp_path):
    destination, module = str(tmp_path / 'half'), served.HalfPlusTwo(5.0)
    served.push(module, destination, {'serving_default': module.serve})
    with open(os.path.join(served.push(served.HalfPlusTwo(), destination, {}), 'landmark.json'), 'w') as file:
        file.write('{}')
    with served.running({'half': destination}) as server:
        assert served.ask(f'{server.rest}/v1/models/half:predict', {'instances': [0.0]})[1] == {'predictions': [5.0]}


# Who may ask, and how much.

@pytest.mark.parametrize('headers, status', [
    ({}, 200), ({'Host': 'localhost:1'}, 200), ({'Host': 'evil.example'}, 403), ({'Host': 'localhost.evil.org'}, 403),
    ({'Origin': 'http://evil.example'}, 403), ({'Origin': 'null'}, 403), ({'Sec-Fetch-Site': 'cross-site'}, 403),
    ({'Sec-Fetch-Site': 'same-origin'}, 200), ({'Host': ''}, 403),
], ids=repr)
def test_pages_of_other_sites_may_not_ask(server, headers, status):
    assert served.ask(server.rest + PREDICT, {'instances': [1.0]}, headers.items())[0] == status


def test_the_page_of_this_server_may_ask(server):
    host = server.rest.removeprefix('http://')
    assert served.ask(server.rest + PREDICT, {'instances': [1.0]}, {'Origin': server.rest}.items())[0] == 200
    assert served.ask(server.rest + PREDICT, {'instances': [1.0]}, {'Origin': f'http://{host}0'}.items())[0] == 403


def test_hosts_of_a_server_for_others():
    open_ = access.Access('192.168.1.2', ['models.example'])
    assert [open_.allows_host(name) for name in ('10.0.0.7:8501', '[fe80::1]:8501', 'Models.Example', 'evil.example',
                                                 '10.0.0.7.evil.example', 'a b')] == [True] * 3 + [False] * 3
    assert not access.Access('127.0.0.1').allows_host('10.0.0.7')


def test_bounds_of_bodies_and_time(tmp_path):
    destination, module = str(tmp_path / 'half'), served.HalfPlusTwo()
    served.push(module, destination, {'serving_default': module.serve})
    from pipelines.serving.rest import Bounds
    with served.running({'half': destination}, bounds=Bounds(body=1000, read=0.5)) as server:
        host, port = server.rest.removeprefix('http://').split(':')
        url = f'{server.rest}/v1/models/half:predict'
        assert served.ask(url, b' ' * 1001)[0] == 413
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.request('POST', '/v1/models/half:predict', iter([b' ' * 600] * 2), encode_chunked=True,
                           headers={'Transfer-Encoding': 'chunked'})  # says nothing of its size
        assert connection.getresponse().status == 413
        with socket.create_connection((host, int(port)), timeout=30) as half_sent:
            half_sent.sendall(b'POST /v1/models/half:predict HTTP/1.1\r\nHost: localhost\r\n'
                              b'Content-Length: 500\r\n\r\n{')
            assert half_sent.recv(1000).startswith(b'HTTP/1.1 408 ')
        assert served.ask(url, {'instances': [1.0]})[0] == 200


def test_the_end_answers_what_was_asked_before(tmp_path):
    destination, module = str(tmp_path / 'half'), served.HalfPlusTwo()
    served.push(module, destination, {'serving_default': module.serve})
    with served.running({'half': destination}) as server:
        host, port = server.rest.removeprefix('http://').split(':')
        body = b'{"instances": [1.0]}'
        with socket.create_connection((host, int(port)), timeout=30) as early:
            early.sendall(b'POST /v1/models/half:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n'
                          % len(body))
            served.ask(f'{server.rest}/v1/models/half')  # so the server has read the headers above
            server.stop()
            import time
            deadline = time.monotonic() + 30
            while not server.server.draining and time.monotonic() < deadline:
                time.sleep(0.01)
            early.sendall(body)
            answer = early.recv(4000)
            while b'predictions' not in answer and (more := early.recv(4000)):
                answer += more
        assert answer.startswith(b'HTTP/1.1 200 ') and b'"predictions":[2.5]' in answer
        with pytest.raises(OSError):
            socket.create_connection((host, int(port)), timeout=5)


# The command.

def test_without_a_pushed_model_the_command_says_how_to_make_one(tmp_path):
    run = command('pipelines.serve', cwd=tmp_path)
    assert run.returncode == 2 and run.stderr == (
        'error: Nothing has been pushed below runs/. Run `python -m pipelines.run`, which trains the demo and pushes '
        'it, or name the folder of a pushed model.\n')
    run = command('pipelines.serve', 'other', cwd=tmp_path)
    assert run.returncode == 2 and 'MODEL other: neither a pushed model nor a folder of versions.' in run.stderr


def test_pushed_models_are_found_where_pipelines_pushed_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = served.HalfPlusTwo()
    for destination in ('runs/one/serving/one', 'elsewhere/two'):
        served.push(module, destination, {'serving_default': module.serve})
    record = tmp_path / 'runs' / 'two' / 'push' / '7' / 'pushed_model' / 'pushed_model.json'
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({'destination': 'elsewhere/two', 'version': 1, 'path': ''}))
    (tmp_path / 'runs' / 'one' / 'serving' / 'one.kit').mkdir()
    assert models.pushed() == {'one': 'runs/one/serving/one', 'two': 'elsewhere/two'}
    assert serve._destination('two', 'runs') == serve._destination('elsewhere/two/', 'runs') == 'elsewhere/two'
    served.push(module, 'runs/three/serving/one', {'serving_default': module.serve})
    with pytest.raises(models.UserError, match='would both be served as one'):
        models.pushed()
    assert serve._labels(['one:stable=7', 'one:new=8']) == {'one': {'stable': 7, 'new': 8}}
    for wrong in ('one', 'one:stable', 'one:stable=x', ':a=1'):
        with pytest.raises(models.UserError, match='--label'):
            serve._labels([wrong])
