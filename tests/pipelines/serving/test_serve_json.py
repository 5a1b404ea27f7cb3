"""Tensors in JSON: the cases of TensorFlow Serving's `json_tensor_test.cc` and the tables of its `api_rest.md`."""
import base64
import json

import numpy as np
import pytest
import tensorflow as tf

from pipelines.serving import json_tensors
from pipelines.serving.failure import Failure
from pipelines.serving.signatures import Signature, Tensor


def signature(**dtypes):
    return Signature('serving_default', {name: Tensor(tf.dtypes.as_dtype(dtype), None)
                                         for name, dtype in sorted(dtypes.items())}, {}, 'tensorflow/serving/predict')


def read(body, **dtypes):
    document = json_tensors.parse(body.encode() if isinstance(body, str) else body)
    json_tensors.signature_name(document)
    return json_tensors.inputs(document, signature(**dtypes))


def b64(data):
    return json.dumps({'b64': base64.b64encode(data).decode()})


@pytest.mark.parametrize('body, dtypes, expected', [
    ('{"instances": [[1,2],[3,4],[5,6]]}', {'default': 'int32'}, [[1, 2], [3, 4], [5, 6]]),
    ('{"instances": [1, 2]} and what follows', {'default': 'int64'}, [1, 2]),
    ('{"inputs": [[1.5], [-2]]}', {'default': 'float32'}, [[1.5], [-2]]),
    ('{"inputs": 7}', {'default': 'int32'}, 7),
    ('{"inputs": {"default": []}}', {'default': 'float32'}, []),
    ('{"instances": [true, false]}', {'default': 'bool'}, [True, False]),
    ('{"instances": [{"default": "foo"}, {"default": "bar"}]}', {'default': 'string'}, [b'foo', b'bar']),
    (f'{{"instances": [{b64(b"image bytes")}]}}', {'default': 'string'}, [b'image bytes']),
    (f'{{"inputs": {b64(bytes(range(256)))}}}', {'default': 'string'}, bytes(range(256))),
    ('{"inputs": {"default": [{"b64": "QQ"}, {"b64": " Q Q = = "}]}}', {'default': 'string'}, [b'A', b'A']),
    ('{"instances": [1.0, NaN, Infinity, -Infinity, 2e3]}', {'default': 'float64'}, [1, np.nan, np.inf, -np.inf, 2000]),
], ids=['rows', 'trailing', 'columns', 'scalar', 'empty', 'bool', 'object', 'b64', 'b64-scalar', 'padding', 'nan'])
def test_one_input(body, dtypes, expected):
    found, _ = read(body, **dtypes)
    kind = object if dtypes['default'] == 'string' else dtypes['default']
    np.testing.assert_array_equal(found['default'], np.array(expected, kind))
    assert found['default'].dtype == kind


def test_several_inputs_in_rows_and_columns():
    rows, as_rows = read('{"instances": [{"tag": "foo", "signal": [1, 2], "sensor": [[1, 2], [3, 4]]},'
                         '{"tag": "bar", "signal": [3, 4], "sensor": [[4, 5], [6, 8]]}]}',
                         tag='string', signal='int32', sensor='float32')
    columns, not_rows = read('{"inputs": {"tag": ["foo", "bar"], "signal": [[1, 2], [3, 4]],'
                             '"sensor": [[[1, 2], [3, 4]], [[4, 5], [6, 8]]]}}',
                             tag='string', signal='int32', sensor='float32')
    assert as_rows and not not_rows
    for name in columns:
        np.testing.assert_array_equal(rows[name], columns[name])
    assert rows['sensor'].shape == (2, 2, 2)


@pytest.mark.parametrize('body, error', [
    ('', 'JSON Parse error: The document is empty'),
    ('instances = [1, 2]', 'JSON Parse error: Invalid value. at offset: 0'),
    ('{"instances": [1', 'JSON Parse error: '), ('[' * 100_000, 'JSON Parse error: '),
    (b'{"instances": ["\xff"]}', 'JSON Parse error: Invalid encoding'),
    ('{"instances": [' + '9' * 5000 + ']}', 'Number too big'), ('[1]', 'Is not object'), ('{}', "Missing 'inputs' or"),
    ('{"signature_name": 5, "instances": [1]}', "'signature_name' key must be a string value."),
    ('{"instances": [1], "inputs": [1]}', "expecting only one of 'inputs' or 'instances'"),
    ('{"instances": 1}', "Expecting 'instances' to be an list/array"),
    ('{"instances": []}', "No values in 'instances'"),
    ('{"instances": ["x"]}', 'Type: String is not of expected type: float'),
    ('{"instances": [true]}', 'Type: True is not of expected type: float'),
    ('{"instances": [null]}', 'Type: Null is not of expected type: float'),
    ('{"instances": [[1], [2, 3]]}', 'Expecting tensor size: 1 but got: 2'),
    ('{"instances": [[[1, 2]], [[1], [2]]]}', 'Expecting shape [1,2] but got: [2,1]'),
    ('{"instances": [[1, [2]]]}', 'Encountered list at unexpected level'),
    ('{"inputs": [[1, 2], [3]]}', 'Encountered list at unexpected size: 1 at level: 1 expected size: 2'),
    ('{"inputs": [[1], 2]}', 'found at incorrect level'),
    ('{"instances": [{"x": 1}, 2]}', 'Expecting object but got list at item 1'),
    ('{"instances": [1, {"x": 2}]}', 'Expecting value/list but got object at item 1'),
    ('{"instances": [{"y": 1}]}', 'does not have named input: y'), ('{"instances": [{}]}', 'keys must be equal to: x'),
    ('{"inputs": {"y": 1}}', "Missing named input: x in 'inputs' object."),
], ids=lambda value: repr(value)[:30] if len(repr(value)) > 3 else None)
def test_errors_are_those_of_tensorflow_serving(body, error):
    with pytest.raises(Failure) as failure:
        read(body, x='float32')
    assert error in failure.value.message and failure.value.http_status == 400 and len(failure.value.message) < 1000


def test_errors_of_strings_and_of_several_inputs():
    for body, dtypes, error in (
            ('{"instances": [{"b64": "*"}]}', {'x': 'string'}, 'Unable to base64 decode'),
            ('{"instances": [{"x": {"b": "QQ"}}]}', {'x': 'string'}, 'not formatted correctly for base64 data'),
            ('{"instances": ["\\ud800"]}', {'x': 'string'}, 'surrogate pair in string is invalid. at offset: 16'),
            ('"\\ud83d\\ude00\\udc00"', {'x': 'string'}, 'surrogate pair in string is invalid. at offset: 13'),
            ('{"instances": [3000000000]}', {'x': 'int32'}, 'not of expected type: int32'),
            ('{"instances": [1.5]}', {'x': 'int32'}, 'not of expected type: int32'),
            ('{"instances": [1]}', {'x': 'int32', 'y': 'int32'}, 'instances is a plain list, but expecting list'),
            ('{"inputs": [1]}', {'x': 'int32', 'y': 'int32'}, 'inputs is a plain value/list, but expecting an object'),
            ('{"instances": [{"x": 1}]}', {'x': 'int32', 'y': 'int32'}, 'keys must be equal to: x,y')):
        with pytest.raises(Failure, match=error.replace('(', r'\(')):
            read(body, **dtypes)


def test_a_whole_surrogate_pair_and_an_escaped_backslash_are_text():
    found = read('{"instances": ["\\ud83d\\ude00", "\\\\ud800"]}', x='string')[0]['x']
    assert [*found] == ['😀'.encode(), rb'\ud800']


def test_outputs_in_both_formats():
    one, two = {'y': np.array([1, 2], np.int32)}, {'a': np.array([[1], [2]], np.int64), 'b': np.array([True, False])}
    for outputs, as_rows, expected in (
            (one, True, {'predictions': [1, 2]}), (one, False, {'outputs': [1, 2]}),
            (two, True, {'predictions': [{'a': [1], 'b': True}, {'a': [2], 'b': False}]}),
            (two, False, {'outputs': {'a': [[1], [2]], 'b': [True, False]}})):
        assert json.loads(json_tensors.response(outputs, as_rows)) == expected
    for outputs, error in (({'y': np.array(1)}, 'no shape information'),
                           ({'a': np.zeros(1), 'b': np.zeros(2)}, 'inconsistent batch size: 2 expecting: 1'),
                           ({'y': np.zeros(1, complex)}, 'Failed to write JSON value')):
        with pytest.raises(Failure, match=error):
            json_tensors.response(outputs, True)


def test_bytes_are_base64_by_their_name_and_else_written_as_they_are():
    data = b'\x89PNG"\\\n\x00\xff'
    outputs = {'image_bytes': np.array([data], object), 'text': np.array(['größer'.encode()], object)}
    found = json.loads(json_tensors.response(outputs, False))['outputs']
    assert base64.b64decode(found['image_bytes'][0]['b64']) == data and found['text'] == ['größer']
    raw = json_tensors.response({'image': np.array([data], object)}, False)
    assert json.loads(raw.decode('latin-1'))['outputs'][0].encode('latin-1') == data  # what its own server sends


def test_numbers_read_back_as_they_were():
    draw = np.random.default_rng(0)
    values = np.concatenate([draw.normal(size=500) * 10.0 ** draw.integers(-30, 30, 500), [0.2, 1 / 3, 16777217, np.inf,
                                                                                            -np.inf, 0]])
    for dtype in (np.float32, np.float64):
        written = json_tensors.response({'y': values.astype(dtype)}, False)
        np.testing.assert_array_equal(np.array(json.loads(written)['outputs'], dtype), values.astype(dtype))
    odd = np.array([0.2, 1, np.nan], np.float32)
    assert json_tensors.response({'y': odd}, True) == b'{"predictions":[0.2,1.0,NaN]}'
