"""Check images before a model decodes them: file type and number of pixels."""
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from data_prep.image import codec
from pipelines.serving.failure import Failure, invalid

INPUTS = {'image', 'parse', 'pose_image', 'cloth', 'cloth_mask'}  # inputs of exported models that hold encoded images
EXAMPLES = 'examples'  # input of serialized tf.Examples with features of those names


def check(inputs: Mapping[str, np.ndarray], description: dict) -> None:
    """Refuse images that are not JPEG or PNG, or too large, before anything decodes them.

    Args:
      inputs: a request's.
      description: the model's; empty for a model this project did not export, whose inputs are not checked.
    """
    limit = description.get('config', {}).get('data', {}).get('max_pixels')
    if limit is None:
        return
    for name, value in inputs.items():
        if name in INPUTS and value.dtype == object:
            _check(name, value.reshape(-1), limit)
        elif name == EXAMPLES and value.dtype == object:
            for serialized in value.reshape(-1):
                for feature, pictures in _features(serialized):
                    _check(feature, pictures, limit)


def _features(serialized: bytes) -> Iterable[tuple[str, Iterable[bytes]]]:
    try:
        features = tf.train.Example.FromString(serialized).features.feature
    except Exception as error:  # the parser's own exception type is not public
        raise invalid('examples: a value is not a serialized tf.Example') from error
    return [(name, features[name].bytes_list.value) for name in INPUTS & features.keys()]


def _check(name: str, pictures: Iterable[bytes], limit: int) -> None:
    for number, data in enumerate(pictures):
        if not data and name != 'image':  # one of try-on's files is optional; the model checks which
            continue
        try:
            codec.header(data, limit)
        except codec.Unreadable as error:
            reason = str(error)
            large = ' pixels' in reason or 'scans' in reason
            raise Failure('TOO_LARGE' if large else 'INVALID_ARGUMENT',
                          f'{name} {number}: {reason}' if large else
                          f'{name} {number}: Unknown image file format: {reason}') from error
