"""Convert a network for TensorFlow Lite, which runs on phones and small machines, with its own operations alone."""
import contextlib
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Literal

import tensorflow as tf

from keras_models import ModelError
from keras_models.protocol import Part


def convert(part: Part, weights: Literal['float32', 'float16', 'int8'] = 'float32',
            inputs: Sequence = ()) -> bytes:
    """Return a network's TFLite file, with one signature of its function's names.

    Args:
      weights: how the file holds them. float16 computes in float32. int8 computes in 8-bit integers, with ranges for
        each channel of a kernel; operations without such a form, as local response normalisation, stay in float32, and
        so does all but the products with weights in a part without `samples`, where each input's own range is taken.
      inputs: of the model, examples from which int8 chooses the ranges of what is computed.

    Raises:
      ModelError: the network computes in float64.
    """
    function = part.function.get_concrete_function()
    if any(tensor.dtype == tf.float64 for tensor in function.inputs):
        raise ModelError('TensorFlow Lite has no float64, in which this data set\'s rules are computed. Export the '
                         'model with --to onnx.')
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], part.variables)
    if weights != 'float32':
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if weights == 'float16':
        converter.target_spec.supported_types = [tf.float16]
    if weights == 'int8' and part.samples:
        converter.representative_dataset = functools.partial(part.samples, inputs)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.lite.OpsSet.TFLITE_BUILTINS]
    with _quiet():
        return converter.convert()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the converter, which writes a summary past Python's standard error; its errors are exceptions."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
