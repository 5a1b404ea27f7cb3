"""Loads an exported model, if its files are those that were recorded, and runs it."""
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
    """Loads an exported model.

    Args:
      path: a SavedModel, or a folder of integer versions, of which the highest is taken as serving does.

    Raises:
      UserError: there is no exported model, or its files are not those that were recorded.
    """
    if not tf.io.gfile.exists(path):
        raise UserError(f'--model {path}: there is no such folder.')
    if not tf.io.gfile.exists(os.path.join(path, 'saved_model.pb')):
        versions = artifacts.version_folders(path)
        if not versions:
            raise UserError(f'--model {path}: neither a SavedModel nor a folder of pushed versions; '
                            'run `python -m pipelines.push` to make one.')
        path = versions[-1]
    check_hashes(path)
    try:
        model = _opened(path, _description(path))
        model.path = path
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise UserError(f'--model {path} cannot be loaded ({str(error).splitlines()[0]}); '
                        'remove it and push again.') from error
    return model


def load_version(path: str):
    """Loads one pushed version for serving, whatever wrote its SavedModel.

    Returns:
      The model; its `description` is empty where this project did not export it.

    Raises:
      UserError: its files are not those that were pushed.
    """
    check_hashes(path)
    return _opened(path, _description(path) if tf.io.gfile.exists(os.path.join(path, DESCRIPTION)) else {})


def _description(path: str) -> dict:
    with tf.io.gfile.GFile(os.path.join(path, DESCRIPTION)) as file:
        return json.loads(file.read())


def _opened(path: str, description: dict):
    """Loads a SavedModel whose hashes were checked; its description is empty where this project did not export it."""
    if description:
        strategy.share_cores(spec_of(description).max_concurrent_batches)
    model = tf.saved_model.load(path)  # noqa: TID251 (after check_hashes)
    model.description = description
    return model


def run(model, inputs: list, batch_size: int | None = None, jit: bool = False) -> list[dict]:
    """Answers of a loaded model, in order, by the batching of the system it is of, which knows a good size, too."""
    spec = spec_of(model.description)
    compiled = jit or model.description['config']['export']['jit']
    size = {'batch_size': batch_size} if batch_size else {}
    return spec.predict(model, inputs, **size, jit=compiled)


def spec_of(description: dict) -> ModelSpec:
    """The system a model is of."""
    name = description['model_module']
    if not re.fullmatch(r'keras_models(\.\w+)+', name):
        raise UserError(f'{DESCRIPTION} names {name!r}, which is no model of this project.')
    return roles.model(name)
