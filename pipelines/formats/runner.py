"""Run a folder that `export --to` wrote, by the program that is copied into it, as a SavedModel is run."""
import contextlib
import importlib
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from data_prep import UserError
from data_prep.core import files
from pipelines.core import artifacts, roles
from pipelines.formats.table import DESCRIPTION, FORMATS, KIT, answers
from pipelines.serving import hashes, published, saved_model


def load(folder: str) -> Any:
    """Load a format's folder after checking its files against the record.

    Returns:
      What the client's `load` returns, whose `predict(inputs)` is as `saved_model.run`, with its `description`.

    Raises:
      UserError: it is no such folder, its files differ from the recorded ones, or its engine is not installed.
    """
    version = os.path.dirname(os.path.dirname(folder.rstrip('/')))
    if tf.io.gfile.exists(os.path.join(version, published.SAVED_MODEL)):
        published.verify(version)
    else:
        hashes.check_artifact(folder)
    with tf.io.gfile.GFile(os.path.join(folder, DESCRIPTION)) as file:
        description = json.loads(file.read())
    if description.get('client') not in {names[0] for each in FORMATS.values() for names in each.clients.values()}:
        raise UserError(f'{folder}/{DESCRIPTION} names no program of this project. Export the model again.')
    client = importlib.import_module(f'{KIT}.{description["client"]}')
    try:
        with _local(folder) as here:
            model = client.load(here)
    except ModuleNotFoundError as error:
        needed = FORMATS[description['format']].requires.get(str(error.name), error.name)
        raise UserError(f'{folder} needs a package that is not installed. Run `python -m pip install "{needed}"` and '
                        'start again.') from error
    model.description, model.path = description, version
    return model


@contextlib.contextmanager
def _local(folder: str) -> Iterator[str]:
    """Give a folder on a local disk, the only kind that engines read, with the same files."""
    if '://' not in folder:
        yield folder
        return
    with tempfile.TemporaryDirectory() as here:
        files.copy(folder, here)
        yield here


def find(name: str, path: str) -> str:
    """Return the folder of a format in a pushed version, or in the newest of a folder of versions.

    Raises:
      UserError: that version was pushed without it, or no model of its kind has it.
    """
    version = next(reversed(artifacts.version_folders(path)), path)
    folder = os.path.join(version, published.FORMATS, name)
    if not tf.io.gfile.exists(folder):
        raise UserError(f'{version} was pushed without {name}. {_remedy(name, saved_model.description(version))}')
    return folder


def _remedy(name: str, description: dict) -> str:
    """Return what to do about a version without a format, given its SavedModel's description."""
    if description:
        spec = saved_model.spec_of(description)
        if answers(roles.data(description['data_module']), spec) not in FORMATS[name].clients or not spec.networks:
            return (f'No model of {description["model_module"]} for {description["data_module"]} has that format: '
                    'leave out --format.')
    return (f'Run `python -m pipelines.export --to {name}`, `python -m pipelines.evaluate --format {name}` and '
            '`python -m pipelines.push`.')
