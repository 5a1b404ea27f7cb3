"""Write the serving kit, `<destination>.kit/`: a README, configuration files and clients for a server and its users.

`README.md.j2` is filled in from the SavedModel's signatures; the clients and two of the configuration files are copied
verbatim, and `labels` writes the third.
"""
import importlib.resources
import os
import posixpath
import re
import shlex

import jinja2
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from data_prep.core import records
from pipelines.serving import labels, published

# Requests that the clients support, by name: the inputs of `serving_default` they fill in, the outputs they read, and
# the client files.
ASKED = {'text': ({'text'}, {'text'}, ('rest_client.py', 'grpc_client.py')),
         'image': ({'image'}, {'labels', 'descriptions', 'probabilities'}, ('rest_client.py', 'grpc_client.py')),
         'try_on': ({'image', 'parse', 'pose_json', 'pose_image', 'cloth', 'cloth_mask'}, {'image_bytes'},
                    ('rest_client.py', 'try_on_client.py', 'pairs.py'))}
MONITORING, BATCHING = 'monitoring.config', 'batching.config'


def write(saved_model_dir: str, destination: str, command: str) -> str:
    """Write the kit of a destination, replacing that of an earlier push.

    Args:
      saved_model_dir: the model whose signatures the README shows.
      destination: the folder serving watches.
      command: the push command, with which the README explains rollback.

    Returns:
      The kit's folder.
    """
    folder = f'{destination}.kit'
    tf.io.gfile.makedirs(folder)
    signatures = _signatures(saved_model_dir)
    asked = _asked(**signatures.get('serving_default', {'inputs': {}, 'outputs': {}}))
    configs = (MONITORING, BATCHING) if _takes_rows(signatures) else (MONITORING,)
    files = {name: _template(name) for name in (*configs, *(ASKED[asked][2] if asked else ()))}
    files['README.md'] = _readme(destination, command, signatures, asked, published.Version(saved_model_dir).formats)
    for name, text in files.items():
        records.write_atomically(os.path.join(folder, name), text.encode())
    labels.write(destination, model_name(destination))
    return folder


def _asked(inputs: dict, outputs: dict) -> str:
    """Return the kind of request the clients can make with this signature, or nothing."""
    return next((name for name, (takes, answers, _) in ASKED.items() if {*inputs} == takes and answers <= {*outputs}),
                '')


def _takes_rows(signatures: dict) -> bool:
    """Return whether all inputs have rows; TensorFlow Serving refuses to batch any others."""
    return all(tensor.partition(' ')[2].startswith('[n') for sides in signatures.values()
               for tensor in sides['inputs'].values())


def _template(name: str) -> str:
    return (importlib.resources.files(__name__) / name).read_text('utf-8')


def _readme(destination: str, command: str, signatures: dict, asked: str, formats: list[str]) -> str:
    name, remote = model_name(destination), '://' in destination
    if not remote:
        destination = os.path.abspath(destination)  # Docker mounts need an absolute path
    template = jinja2.Template(_template('README.md.j2'), undefined=jinja2.StrictUndefined, trim_blocks=True,
                               lstrip_blocks=True, keep_trailing_newline=True)
    return template.render(
        name=name, destination=destination, remote=remote, signatures=signatures, asked=asked, monitoring=MONITORING,
        formats=formats, folder=published.FORMATS,
        batching=BATCHING if _takes_rows(signatures) else '', models=labels.FILE,
        kit=f'{destination}.kit' if remote else '/kit',
        mount_kit=shlex.quote(f'type=bind,source={destination}.kit,target=/kit,readonly'),
        tensorflow=tf.__version__, base_path=shlex.quote(f'MODEL_BASE_PATH={posixpath.dirname(destination)}'),
        mount=shlex.quote(f'type=bind,source={destination},target=/models/{name},readonly'),
        serve=shlex.quote(destination), push=f'{command} --set {shlex.quote(f"push.destination={destination}")}')


def model_name(destination: str) -> str:
    """Return the model name for requests: the destination folder's, in characters that URLs need not escape."""
    return re.sub(r'[^\w.-]', '_', posixpath.basename(destination), flags=re.ASCII)


def _signatures(saved_model_dir: str) -> dict[str, dict[str, dict[str, str]]]:
    """Return signature -> inputs and outputs -> tensor name -> type and shape; read without loading the model."""
    with tf.io.gfile.GFile(os.path.join(saved_model_dir, 'saved_model.pb'), 'rb') as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    return {name: {side: {key: _describe(tensor) for key, tensor in sorted(getattr(signature, side).items())}
                   for side in ('inputs', 'outputs')}
            for name, signature in sorted(model.meta_graphs[0].signature_def.items()) if not name.startswith('__')}


def _describe(tensor) -> str:
    shape = tensor.tensor_shape
    sizes = '…' if shape.unknown_rank else ', '.join('n' if dim.size < 0 else str(dim.size) for dim in shape.dim)
    return f'{tf.dtypes.as_dtype(tensor.dtype).name} [{sizes}]'
