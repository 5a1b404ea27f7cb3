"""Read an evaluation's file of predictions, TFRecords of tf.train.Example, without TensorFlow."""
import struct
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from data_prep import UserError
from data_prep.core.tfrecord import FOOTER, HEADER, masked_crc
from pipelines.evaluation import corpus

Features = dict[str, list]
WEIGHT = 'weight'  # name of the feature; see `corpus.Row`


def read(path: str, opened: Callable = open) -> Iterator[Features]:
    """Yield the features of every row: name -> texts or numbers.

    Args:
      opened: (path, mode) -> a file, such as TensorFlow's for an object store.

    Raises:
      UserError: the file is missing, cut off, or its bytes do not match their checksums.
    """
    try:
        with opened(path, 'rb') as file:
            yield from map(_features, _records(path, file.read()))
    except OSError as error:
        raise UserError(f'{path} cannot be read ({error.strerror}). Give the report of an evaluation that is whole.'
                        ) from error


def _records(path: str, data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        try:
            length, crc = HEADER.unpack_from(data, start)
            body = data[start + HEADER.size:start + HEADER.size + length]
            [body_crc] = FOOTER.unpack_from(data, start + HEADER.size + length)
        except struct.error:
            length, body, crc, body_crc = 0, b'', -1, -1
        if crc != masked_crc(data[start:start + 8]) or body_crc != masked_crc(body):
            raise UserError(f'{path} is damaged at byte {start:,}: its checksum does not match. Evaluate again.')
        yield body
        start += HEADER.size + length + FOOTER.size


def _message() -> Any:
    """Return the message tf.train.Example; its module cannot be imported without all of TensorFlow."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name='example.proto', package='predictions', syntax='proto3')

    def add(to, name: str, *fields: tuple[str, int, int, str]):
        message = to.add(name=name)
        for number, (each, label, kind, of) in enumerate(fields, 1):
            message.field.add(name=each, number=number, label=label, type=kind, type_name=of or None)
        return message
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    add(file.message_type, 'BytesList', ('value', many, field.TYPE_BYTES, ''))
    add(file.message_type, 'FloatList', ('value', many, field.TYPE_FLOAT, ''))
    add(file.message_type, 'Int64List', ('value', many, field.TYPE_INT64, ''))
    add(file.message_type, 'Feature', *((f'{kind.lower()}_list', one, field.TYPE_MESSAGE, f'.predictions.{kind}List')
                                        for kind in ('Bytes', 'Float', 'Int64')))
    features = add(file.message_type, 'Features',
                   ('feature', many, field.TYPE_MESSAGE, '.predictions.Features.FeatureEntry'))
    entry = add(features.nested_type, 'FeatureEntry', ('key', one, field.TYPE_STRING, ''),
                ('value', one, field.TYPE_MESSAGE, '.predictions.Feature'))
    entry.options.map_entry = True
    add(file.message_type, 'Example', ('features', one, field.TYPE_MESSAGE, '.predictions.Features'))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName('predictions.Example'))


_Example = _message()


def _features(record: bytes) -> Features:
    found = {}
    for name, feature in _Example.FromString(record).features.feature.items():
        texts, *numbers = feature.bytes_list.value, feature.float_list.value, feature.int64_list.value
        found[name] = [text.decode('utf-8', 'replace') for text in texts] or [*numbers[0], *numbers[1]]
    return found


def of_model(row: Features, model: str) -> corpus.Row:
    """Return what one model, `candidate` or `baseline`, answered to an example."""
    [target] = row.get('target') or ['']
    [well_formed] = row.get(f'{model}_well_formed') or [None]
    [weight] = row.get(WEIGHT) or [1.0]
    return corpus.Row(row.get(model, []), target, well_formed, weight)
