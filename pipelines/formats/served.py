"""Answer requests for a version's SavedModel with another format of it, run as `predict --format` runs it."""
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.formats import runner
from pipelines.serving import saved_model, signatures
from pipelines.serving.failure import invalid
from pipelines.serving.loaded import Loaded
from pipelines.serving.signatures import DEFAULT, Signature

# Outputs of the SavedModel that have another name in a program's results.
RESULTS = {'labels': 'answers', 'image_bytes': 'image'}


def load(name: str, path: str) -> Loaded:
    """Load a version's format after checking the version's files.

    Its one signature is the SavedModel's `serving_default`; one batch runs at a time, because an interpreter of
    TensorFlow Lite serves one thread.

    Raises:
      UserError: the version was pushed without it, or its files differ from the pushed ones.
    """
    model = runner.load(runner.find(name, path))
    model.description = saved_model.description(path)  # which names the data's module, too
    definitions = {DEFAULT: signatures.definitions(path)[DEFAULT]}
    function = functools.partial(run, model, signatures.read(definitions)[DEFAULT])
    return Loaded(model, definitions, {DEFAULT: function}, name)


def run(model: Any, signature: Signature, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return a signature's outputs, computed by a format's program.

    Args:
      model: as returned by `runner.load`.
      inputs: [n] lines in UTF-8 or encoded images; or several inputs [n], such as the files of a try-on, of which the
        program takes rows by name.

    Raises:
      Failure: one of them cannot be read.
    """
    name, *others = inputs
    if others:
        rows: list = [dict(zip(inputs, row)) for row in zip(*inputs.values())]
    else:
        rows = [_line(value) if name == 'text' else value for value in inputs[name].tolist()]
    results = model.predict(rows)
    for error in filter(None, (result.get('error') for result in results)):
        raise invalid(error if others else f'{name}: {error}')
    return {output: _column([result[RESULTS.get(output, output)] for result in results], tensor)
            for output, tensor in signature.outputs.items()}


def _line(value: bytes) -> str:
    try:
        return value.decode('utf-8')
    except UnicodeDecodeError as error:
        raise invalid(f'text: not UTF-8 (byte 0x{value[error.start]:02x} at position {error.start}).') from error


def _column(values: list, tensor: signatures.Tensor) -> np.ndarray:
    """Return an output [n, …] of the signature's type, also for n = 0."""
    assert tensor.shape is not None
    return tf.constant(values, tensor.dtype, [len(values), *tensor.shape[1:]]).numpy()
