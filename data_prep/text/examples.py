"""Serialize pairs of text as tf.Examples."""
from collections.abc import Callable

import tensorflow as tf

from data_prep.text.schema import LENGTHS


def serializer() -> Callable[..., bytes]:
    """Return the function that serializes a row's inputs and targets as a tf.Example.

    Reusing one message takes 3 microseconds per pair, a new one 8. A message never returns memory, so each function
    serves one block only.
    """
    example = tf.train.Example()
    feature = example.features.feature
    texts = [feature[name].bytes_list.value for name in ('source', 'target', 'kind')]
    numbers = [feature[name].int64_list.value for name in LENGTHS]

    def serialize(row: tuple[str, ...], *ids: list[int]) -> bytes:
        for value, text in zip(texts, (*row, '')):
            value[:] = [text.encode()]
        for value, those in zip(numbers, ids):
            value[:] = those
        return example.SerializeToString(deterministic=True)
    return serialize
