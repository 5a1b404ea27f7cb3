"""Load an exported model after checking its files against the record, and run it."""
import json
import os
import re

import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the tokenizer's ops)

from data_prep import UserError
from keras_models.protocol import ModelSpec
from pipelines.core import artifacts, roles
from pipelines.serving.hashes import check_hashes
from pipelines.serving.layout import DESCRIPTION
from pipelines.training import strategy


def load(path: str):
    """Load an exported model.

    Args:
      path: a SavedModel, or a folder of integer versions, of which the highest is loaded, as serving does.

    Raises:
      UserError: there is no exported model, or its files differ from the record.
    """
    if not tf.io.gfile.exists(path):
        raise UserError(f'--model {path}: there is no such folder. Check the path.')
    if not tf.io.gfile.exists(os.path.join(path, 'saved_model.pb')):
        versions = artifacts.version_folders(path)
        if not versions:
            raise UserError(f'--model {path}: neither a SavedModel nor a folder of pushed versions. '
                            'Run `python -m pipelines.push` to make one.')
        path = versions[-1]
    check_hashes(path)
    try:
        model = _opened(path, description(path))
        model.path = path
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise UserError(f'--model {path} cannot be loaded ({str(error).splitlines()[0]}). '
                        'Remove it and push again.') from error
    return model


def load_version(path: str):
    """Load one pushed version for serving, by whichever program its SavedModel was written.

    Returns:
      The model; its `description` is empty if this project did not export it.

    Raises:
      UserError: its files differ from the pushed ones.
    """
    check_hashes(path)
    return _opened(path, description(path))


def description(path: str) -> dict:
    """Return what the export recorded of a SavedModel; empty if this project did not export it."""
    if not tf.io.gfile.exists(os.path.join(path, DESCRIPTION)):
        return {}
    with tf.io.gfile.GFile(os.path.join(path, DESCRIPTION)) as file:
        return json.loads(file.read())


def _opened(path: str, description: dict):
    """Load a SavedModel whose hashes were checked; `description` is empty if this project did not export it."""
    if description:
        strategy.share_cores(spec_of(description).max_concurrent_batches)
    model = tf.saved_model.load(path)  # noqa: TID251 (after check_hashes)
    model.description = description
    return model


def run(model, inputs: list, batch_size: int | None = None, jit: bool = False) -> list[dict]:
    """Run a loaded model on inputs and return results in order, batched as the model's module does by default.

    Args:
      model: as returned by `load`; or by `formats.runner.load`, which batches by itself and compiles nothing.
    """
    if hasattr(model, 'predict'):
        return model.predict(inputs)
    spec = spec_of(model.description)
    compiled = jit or model.description['config']['export']['jit']
    size = {'batch_size': batch_size} if batch_size else {}
    return spec.predict(model, inputs, **size, jit=compiled)


def labels(model) -> dict[str, str]:
    """Return the description of every class of a loaded model of images, by name."""
    if hasattr(model, 'predict'):
        return dict(model.labels)
    return {name.decode(): text.decode()
            for name, text in zip(model.classes().numpy(), model.descriptions().numpy())}


def gives_boxes(model) -> bool:
    """Return whether a loaded model of images gives boxes."""
    return spec_of(model.description).answers == 'boxes'


def spec_of(description: dict) -> ModelSpec:
    """Return the specification of an exported model's module."""
    name = description['model_module']
    if not re.fullmatch(r'keras_models(\.\w+)+', name):
        raise UserError(f'{DESCRIPTION} names {name!r}, which is not a model of this project.')
    return roles.model(name)
