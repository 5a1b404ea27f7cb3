"""Read and write tensors in the JSON of TensorFlow Serving's REST API (its `util/json_tensor.cc`, `api_rest.md`).

Error messages are TensorFlow Serving's, so that clients can parse them alike.
"""
import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.serving.failure import Failure, invalid
from pipelines.serving.signatures import DEFAULT, Signature, Tensor

_PROBLEMS = {'Expecting value': 'Invalid value.', 'Expecting property name': 'Missing a name for object member.',
             'Illegal trailing comma': 'Missing a name for object member.',
             "Expecting ':'": 'Missing a colon after a name of object member.',
             "Expecting ','": 'Missing a comma or } after an object member.',
             'Unterminated string': 'Missing a closing quotation mark in string.',
             'Invalid \\escape': 'Invalid escape character in string.',
             'Invalid \\uXXXX': 'Incorrect hex digit after \\u escape in string.'}
_TYPES = {type(None): 'Null', dict: 'Object', list: 'Array', str: 'String', int: 'Number', float: 'Number'}
# Escapes in a string. A lone surrogate matches six characters, a pair twelve.
_ESCAPE = re.compile(r'\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|\\u[dD][89a-fA-F][\da-fA-F]{2}|\\.')
_SHOWN = 256  # characters of a value quoted in an error


def parse(body: bytes) -> dict:
    """Read a request's JSON object; text after it is ignored, as in TensorFlow Serving.

    Raises:
      Failure: it is not a JSON object.
    """
    if not body:
        raise invalid('JSON Parse error: The document is empty')
    try:
        text = body.decode('utf-8')
        document, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip()))
    except UnicodeDecodeError as error:
        raise invalid(f'JSON Parse error: Invalid encoding in string. at offset: {error.start}') from error
    except json.JSONDecodeError as error:
        said = next((said for start, said in _PROBLEMS.items() if error.msg.startswith(start)),
                    'Invalid encoding in string.')
        raise invalid(f'JSON Parse error: {said} at offset: {error.pos}') from error
    except RecursionError as error:
        raise invalid('JSON Parse error: Terminate parsing due to Handler error. at offset: 0') from error
    except ValueError as error:  # more digits than Python converts
        raise invalid('JSON Parse error: Number too big to be stored in double. at offset: 0') from error
    for escape in _ESCAPE.finditer(text, 0, end):
        if len(escape[0]) == 6:
            raise invalid(f'JSON Parse error: The surrogate pair in string is invalid. at offset: {escape.start()}')
    if not isinstance(document, dict):
        raise invalid(f'JSON Value: {_shown(document)} Is not object')
    return document


def signature_name(document: dict) -> str:
    """Return the signature a request names, or the default."""
    name = document.get('signature_name', '')
    if not isinstance(name, str):
        raise invalid(f"JSON Value: {_shown(document)} not formatted correctly. 'signature_name' key must be a string "
                      'value.')
    return name or DEFAULT


def inputs(document: dict, signature: Signature) -> tuple[dict[str, np.ndarray], bool]:
    """Read the tensors of a `:predict` request.

    Returns:
      The tensors by name, and whether they came as rows (`instances`) rather than columns (`inputs`).

    Raises:
      Failure: they do not match the signature.
    """
    if 'instances' in document and 'inputs' in document:
        raise invalid(f"JSON Value: {_shown(document)} Not formatted correctly expecting only one of 'inputs' or "
                      "'instances' keys to exist ")
    if 'instances' in document:
        instances = document['instances']
        if not isinstance(instances, list):
            raise invalid(f"JSON Value: {_shown(document)} Expecting 'instances' to be an list/array")
        if not instances:
            raise invalid(f"JSON Value: {_shown(document)} No values in 'instances' array")
        return _rows(instances, signature.inputs), True
    if 'inputs' in document:
        return _columns(document['inputs'], signature.inputs), False
    raise invalid("Missing 'inputs' or 'instances' key")


def _rows(instances: list, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Convert a list of rows, each a value or an object of values by name."""
    named = _is_object(instances[0])
    if not isinstance(instances[0], dict) and len(tensors) > 1:
        raise invalid('instances is a plain list, but expecting list of objects as multiple input tensors required as '
                      'per tensorinfo_map')
    values: dict[str, list] = {name: [] for name in tensors}
    shapes: dict[str, tuple] = {}
    for number, element in enumerate(instances):
        if named and not _is_object(element):
            raise invalid(f'Expecting object but got list at item {number} of input list')
        if not named and _is_object(element):
            raise invalid(f'Expecting value/list but got object at item {number} of input list')
        items = element if named else {next(iter(tensors)): element}
        for name, value in items.items():
            try:
                if name not in tensors:
                    raise invalid(f'JSON object: does not have named input: {name}')
                flat, shape = _flat(value, tensors[name].dtype)
                first = shapes.setdefault(name, shape)
                if np.prod(first) != np.prod(shape):
                    raise invalid(f'Expecting tensor size: {np.prod(first):.0f} but got: {np.prod(shape):.0f}')
                if first != shape:
                    raise invalid(f'Expecting shape {_sizes(first)} but got: {_sizes(shape)}')
            except Failure as error:
                key = f' key: {name}' if named else ''
                raise invalid(f"Failed to process element: {number}{key} of 'instances' list. Error: INVALID_ARGUMENT: "
                              f'{error.message}') from error
            values[name] += flat
        if named and items.keys() != tensors.keys():
            raise invalid(f"Failed to process element: {number} of 'instances' list. JSON object: {_shown(element)} "
                          f'keys must be equal to: {",".join(sorted(tensors))}')
    return {name: _array(flat, (len(instances), *shapes[name]), tensors[name].dtype)
            for name, flat in values.items()}


def _columns(value: Any, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Convert one value, or an object of values by name."""
    if not _is_object(value):
        if len(tensors) > 1:
            raise invalid('inputs is a plain value/list, but expecting an object as multiple input tensors required as '
                          'per tensorinfo_map')
        value = {next(iter(tensors)): value}
    for name in tensors:
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    flat = {name: _flat(value[name], tensor.dtype) for name, tensor in tensors.items()}
    return {name: _array(*flat[name], tensors[name].dtype) for name in tensors}


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get('b64'), str)


def _flat(value: Any, dtype: tf.DType) -> tuple[list, tuple[int, ...]]:
    """Return all values of nested lists in order, and the lists' shape."""
    shape, inner = [], value
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
    flat: list = []
    _fill(value, 0, tuple(shape), dtype, flat)
    return flat, tuple(shape)


def _fill(value: Any, level: int, shape: tuple[int, ...], dtype: tf.DType, flat: list) -> None:
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(f'JSON Value: {_shown(value)} found at incorrect level: {level + 1} in the JSON DOM. '
                          f'Expected at level: {len(shape)}')
        flat.append(_value(value, dtype))
        return
    if level >= len(shape):
        raise invalid(f'Encountered list at unexpected level: {level} expected < {len(shape)}')
    if len(value) != shape[level]:
        raise invalid(f'Encountered list at unexpected size: {len(value)} at level: {level} expected size: '
                      f'{shape[level]}')
    for each in value:
        _fill(each, level + 1, shape, dtype, flat)


def _value(value: Any, dtype: tf.DType) -> Any:
    """Convert one value to the type of a tensor."""
    if dtype == tf.string:
        if isinstance(value, str):
            return value.encode('utf-8')
        if isinstance(value, dict):
            return _decoded(value)
    elif dtype == tf.bool:
        if isinstance(value, bool):
            return value
    elif dtype.is_floating:
        if type(value) in (int, float):
            return value
    elif dtype.is_integer:
        if type(value) is int and dtype.min <= value <= dtype.max:
            return value
    else:
        raise Failure('UNIMPLEMENTED', f'Conversion of JSON Value: {_shown(value)} to type: {dtype.name}')
    kind = str(value) if isinstance(value, bool) else _TYPES[type(value)]
    raise invalid(f'JSON Value: {_shown(value)} Type: {kind} is not of expected type: {_name(dtype)}')


def _decoded(value: dict) -> bytes:
    if not _is_base64(value):
        raise invalid(f'JSON Value: {_shown(value)} not formatted correctly for base64 data')
    text = re.sub(r'\s', '', value['b64']).rstrip('=')  # padding is optional in TensorFlow Serving
    try:
        return base64.b64decode(text + '=' * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid('Unable to base64 decode') from error


def _array(flat: list, shape: tuple[int, ...], dtype: tf.DType) -> np.ndarray:
    try:
        with np.errstate(over='ignore'):
            array = np.empty(len(flat), object) if dtype == tf.string else np.array(flat, dtype.as_numpy_dtype)
    except OverflowError as error:
        raise invalid('JSON Parse error: Number too big to be stored in double. at offset: 0') from error
    if dtype == tf.string:
        array[:] = flat
    return array.reshape(shape)


def _name(dtype: tf.DType) -> str:
    return {'float32': 'float', 'float64': 'double'}.get(dtype.name, dtype.name)


def _sizes(shape: tuple[int, ...]) -> str:
    return f'[{",".join(map(str, shape))}]'


def _shown(value: Any) -> str:
    """Return a value's JSON, truncated if it is long."""
    if isinstance(value, str):
        value = value[:_SHOWN]
    return ''.join(_pieces(value, _SHOWN))[:_SHOWN]


def _pieces(value: Any, room: int) -> list[str]:
    """Return the first pieces of a value's JSON, about `room` characters, since a body may have megabytes."""
    found, left = [], room
    for piece in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        found.append(piece[:left])
        left -= len(piece)
        if left <= 0:
            break
    return found


def response(outputs: Mapping[str, np.ndarray], as_rows: bool) -> bytes:
    """Write a `:predict` response, in the format of its request.

    Outputs named `…_bytes` become base64 objects; other strings are written unchanged, even if they are not UTF-8.
    """
    if not as_rows:
        columns = {name: _json(name, value) for name, value in sorted(outputs.items())}
        return encoded({'outputs': next(iter(columns.values())) if len(columns) == 1 else columns})
    sizes: dict[int, str] = {}
    for name, value in sorted(outputs.items()):
        if not value.ndim:
            raise invalid(f'Tensor name: {name} has no shape information ')
        sizes[len(value)] = name
        if len(sizes) > 1:
            raise invalid(f'Tensor name: {name} has inconsistent batch size: {len(value)} expecting: '
                          f'{next(iter(sizes))}')
    columns = {name: _json(name, value) for name, value in sorted(outputs.items())}
    if len(columns) == 1:
        return encoded({'predictions': next(iter(columns.values()))})
    return encoded({'predictions': [dict(zip(columns, row)) for row in zip(*columns.values())]})


def encoded(value: dict) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(',', ':')).encode('utf-8', 'surrogateescape')


def _json(name: str, value: np.ndarray) -> Any:
    """Return a tensor as nested lists that `json` writes as TensorFlow Serving does."""
    if value.dtype == object:
        if name.endswith('_bytes'):
            return _nested(value.tolist(), lambda each: {'b64': base64.b64encode(each).decode()})
        return _nested(value.tolist(), lambda each: each.decode('utf-8', 'surrogateescape'))
    if value.dtype.kind == 'f':
        value = value.astype(np.float32) if value.dtype.itemsize < 4 else value
        return _nested(value.tolist(), _decimal if value.dtype == np.float32 else lambda each: each)
    if value.dtype.kind not in 'biu':
        raise invalid(f'Failed to write JSON value for tensor type: {value.dtype.name}')
    return value.tolist()


def _nested(value: Any, change) -> Any:
    return [_nested(each, change) for each in value] if isinstance(value, list) else change(value)


def _decimal(value: float) -> float:
    """Return a float32's shortest decimal, of 6 or 9 digits, that converts back to it: 0.2, not 0.20000000298023224."""
    short = float(f'{value:.6g}')
    return short if np.float32(short) == value or value != value else float(f'{value:.9g}')
