"""Labels of a destination's versions, in a configuration file that TensorFlow Serving and `pipelines.serve` read.

`<destination>.kit/models.config` names the versions to load. A push, a rollback or a promotion lets the label `stable`
point to the version to serve, and `canary` is the version on trial. Other labels are the operator's: they stay as long
as their versions exist.
"""
import os

import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from data_prep import UserError
from data_prep.core import records
from pipelines.serving import published

FILE = 'models.config'
STABLE, CANARY = 'stable', 'canary'


def path_of(destination: str) -> str:
    """Return the path of a destination's configuration file."""
    return os.path.join(f'{destination}.kit', FILE)


def read(destination: str) -> dict[str, int]:
    """Return the versions of a destination by label; empty without a configuration file.

    Raises:
      UserError: the file cannot be parsed.
    """
    path = path_of(destination)
    if not tf.io.gfile.exists(path):
        return {}
    with tf.io.gfile.GFile(path) as file:
        text = file.read()
    try:
        server = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    except text_format.ParseError as error:
        raise UserError(f'{path} cannot be read ({error}). Correct it, or remove it with the labels in it.') from error
    models = server.model_config_list.config
    return {label: number for model in models for label, number in model.version_labels.items()}


def write(destination: str, name: str, canary: int | None = None) -> None:
    """Let `stable` point to the newest version, keep other labels, and name the labelled versions to load.

    Args:
      destination: the folder serving watches.
      name: the model's name in requests.
      canary: the version that `canary` points to from now on; 0 takes the label away, None keeps it.
    """
    numbers = [version.number for version in published.versions(destination) if version.loadable]
    wanted = read(destination) | {STABLE: numbers[-1]} | ({} if canary is None else {CANARY: canary})
    labels = {label: number for label, number in wanted.items() if number in numbers}
    server = model_server_config_pb2.ModelServerConfig()
    model = server.model_config_list.config.add(
        name=name, model_platform='tensorflow',
        base_path=destination if '://' in destination else f'/models/{name}')  # where the kit's command mounts it
    model.model_version_policy.specific.versions.extend(sorted({*labels.values()}))
    for label in sorted(labels):
        model.version_labels[label] = labels[label]
    tf.io.gfile.makedirs(f'{destination}.kit')
    records.write_atomically(path_of(destination), text_format.MessageToString(server).encode())
