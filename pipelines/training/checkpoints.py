"""Write, verify and restore checkpoints; read, compare and average weights by name.

    <run>/checkpoints/ckpt-20.index, ckpt-20.data-00000-of-00001    TensorFlow's own files
    <run>/checkpoints/ckpt-20.sha256                                their hashes, written last
    <run>/checkpoints/damaged-ckpt-30.…                             a checkpoint that fails its hashes, set aside

A checkpoint is valid only with matching hashes: an interrupted write has none, and a later change is detected.
"""
import json
import os
import re
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow import keras
from tensorflow.core.protobuf import trackable_object_graph_pb2

from data_prep import UserError
from data_prep.core import files, records
from keras_models.core.layers import by_name
from keras_models.protocol import ModelSpec
from keras_models.weights import checkpoint_file
from pipelines.core import artifacts

HASHES = '.sha256'
AVERAGE = 'average/'  # begins the name of an optimizer's variable that is a weight's moving average
_SUFFIXES = re.compile(r'\.index|\.data-[0-9]{5}-of-[0-9]{5}|\.sha256')


def write(checkpoint: tf.train.Checkpoint, folder: str, step: int, keep: int) -> str:
    """Write `<folder>/ckpt-<step>`, then its hashes; keep the newest `keep` checkpoints, including this one.

    If this is killed at any point, or the disk is full, the previous checkpoint stays valid.

    Returns:
      The checkpoint's path prefix, as TensorFlow names it.
    """
    path = os.path.join(folder, f'ckpt-{step}')
    _tidy(folder, keep)  # free the space of interrupted writes
    try:
        checkpoint.write(path)
        records.write_atomically(path + HASHES, json.dumps(_hashes(path), indent=1).encode())
    finally:
        _tidy(folder, keep)
    # TensorFlow's own tools find the newest checkpoint here; this project goes by the hashes.
    records.write_atomically(os.path.join(folder, 'checkpoint'), f'model_checkpoint_path: "ckpt-{step}"\n'.encode())
    return path


def present(folder: str) -> list[str]:
    """Return the completely written checkpoints in a folder, oldest first."""
    return sorted((path for path, suffix in _files(folder) if suffix == HASHES), key=step_of)


def step_of(path: str) -> int:
    return int(path.rsplit('-', 1)[1])


def newest_intact(folders: Sequence[str], count: int) -> list[str]:
    """Return the newest `count` checkpoints whose files match their hashes, oldest first.

    Each damaged one found on the way is reported in a printed line and set aside.
    """
    paths = {path for folder in folders for path, suffix in _files(folder) if suffix in ('.index', HASHES)}
    found: list[str] = []
    for path in sorted(paths, key=step_of, reverse=True):
        if len(found) == count:
            break
        if wrong := _damage(path):
            _set_aside(path, wrong)
        else:
            found.append(path)
    return found[::-1]


def _set_aside(path: str, wrong: str) -> None:
    folder, name = os.path.split(path)
    print(f'{path} is damaged: {wrong}. It is set aside as damaged-{name}, and the one before is used.', flush=True)
    for other, suffix in _files(folder):
        if other == path and _SUFFIXES.fullmatch(suffix):
            tf.io.gfile.rename(path + suffix, os.path.join(folder, f'damaged-{name}{suffix}'), overwrite=True)


def _damage(path: str) -> str | None:
    """Describe what is wrong with a checkpoint's files, all of which are read; None if they are intact."""
    name = os.path.basename(path) + HASHES
    try:
        with tf.io.gfile.GFile(path + HASHES, 'rb') as file:
            written = dict(json.loads(file.read()))
    except tf.errors.NotFoundError:
        return f'{name} is missing, so the write was interrupted'
    except (ValueError, TypeError):
        return f'{name} cannot be read'
    found = _hashes(path)
    for file in sorted({*written, *found}):
        if file not in found:
            return f'{file} is missing'
        if written.get(file) != found[file]:
            return f'{file} has changed since it was written (its SHA-256 differs)'
    return None


def _hashes(path: str) -> dict[str, str]:
    """Return the SHA-256 of a checkpoint's files by name."""
    return {os.path.basename(path) + suffix: files.sha256(path + suffix)[0]
            for other, suffix in sorted(_files(os.path.dirname(path)))
            if other == path and suffix != HASHES and _SUFFIXES.fullmatch(suffix)}


def _files(folder: str) -> list[tuple[str, str]]:
    """Return all files of checkpoints in a folder, including those of interrupted writes, as (checkpoint, suffix)."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return [(os.path.join(folder, match[1]), match[2]) for name in names
            if (match := re.fullmatch(r'(ckpt-[0-9]+|checkpoint\.tmp)(.*)', name.rstrip('/')))]


def _tidy(folder: str, keep: int) -> None:
    """Remove interrupted writes and all but the newest checkpoints; their hashes go first, so none looks intact."""
    kept = present(folder)[-keep:]
    for path, suffix in sorted(_files(folder), key=lambda file: (file[1] != HASHES, file)):
        if path not in kept or not _SUFFIXES.fullmatch(suffix):
            remove = tf.io.gfile.rmtree if tf.io.gfile.isdir(path + suffix) else tf.io.gfile.remove
            remove(path + suffix)


def save(nets: dict[str, keras.Model], path: str) -> None:
    """Write only the nets' weights."""
    if tf.io.gfile.isdir(f'{path}_temp'):
        tf.io.gfile.rmtree(f'{path}_temp')  # left by an interrupted write
    tf.train.Checkpoint(nets=by_name(nets)).write(path)


def restore(nets: dict[str, keras.Model], path: str) -> None:
    """Restore the nets' weights from any checkpoint or SavedModel that holds them.

    Args:
      path: as returned by `find`.

    Raises:
      UserError: a variable is missing or has another shape, so the checkpoint is of another model.
    """
    reader, keys = _reader(path), check(nets, path)
    for net, variables in by_name(nets).items():
        for name, variable in variables.items():
            variable.assign(_tensor(reader, path, keys[net, name]))


def start(nets: dict[str, keras.Model], paths: Sequence[str], learning: Container[str], model: ModelSpec,
          config: Any) -> list[str]:
    """Initialise the nets, each from the first of `paths` that holds it.

    Args:
      paths: as returned by `find`. Weights of other networks are converted by the paper's module: a foreign file by its
        `weight_readers`, a checkpoint of the paper's other network by its `warm_start`, possibly under other names
        (`warm_start_names`).
      learning: the nets that are trained, and so need no weights; the others do.
      model: specification of the paper's module.
      config: the model's section.

    Returns:
      The nets that received no weights.

    Raises:
      UserError: as `restore`; a conversion fails; or a net that is not trained has no weights.
    """
    waiting, starts_as = dict(nets), model.warm_start_names
    for path in paths:
        held = waiting if _foreign(path, model) else {net for net, _ in _keys(_reader(path), path)}
        given = {name: waiting.pop(name) for name in [*waiting] if {name, starts_as.get(name)} & {*held}}
        if not given:
            raise UserError(f'train.init_from: {path} is a checkpoint of another model: it holds no '
                            f'{" and no ".join(waiting or nets)}. Give the run that trained them, or another path.')
        _start(given, path, model, config)
    if lost := [name for name in waiting if name not in learning]:
        raise UserError(f'train.init_from: no weights for {" and ".join(lost)}, which this run does not train. Name '
                        'the runs that trained them too, as [RUN, RUN].')
    return [*waiting]


def _foreign(path: str, model: ModelSpec):
    """Return the module's reader for files of that suffix, or None."""
    return model.weight_readers.get(os.path.splitext(path)[1])


def _start(nets: dict[str, keras.Model], path: str, model: ModelSpec, config: Any) -> None:
    try:
        if reader_of := _foreign(path, model):
            for net, weights in reader_of(path, config).items():
                for name, value in weights.items():
                    by_name(nets)[net][name.replace('/', ':')].assign(value)
        elif model.warm_start and not fits(nets, path):
            model.warm_start(nets, read(path))
        else:
            restore(nets, path)
    except ValueError as error:
        raise UserError(f'train.init_from: {error}.') from error


def read(path: str) -> dict[str, dict[str, np.ndarray]]:
    """Return all weights in a checkpoint: net -> variable's name -> value."""
    reader = _reader(path)
    found: dict[str, dict[str, np.ndarray]] = {}
    for (net, name), key in _keys(reader, path).items():
        found.setdefault(net, {})[name.replace(':', '/')] = _tensor(reader, path, key)
    return found


def fits(nets: dict[str, keras.Model], path: str) -> bool:
    """Return whether a checkpoint holds every variable of the nets with its shape."""
    try:
        check(nets, path)
    except UserError:
        return False
    return True


def check(nets: dict[str, keras.Model], path: str) -> dict[tuple[str, str], str]:
    """Compare names and shapes without reading weights; raises as `restore`.

    Returns:
      (net, variable) -> key in the checkpoint.
    """
    reader = _reader(path)
    shapes, keys = reader.get_variable_to_shape_map(), _keys(reader, path)
    for net, variables in by_name(nets).items():
        for name, variable in variables.items():
            found = list(shapes[keys[net, name]]) if (net, name) in keys else None
            if found != variable.shape.as_list():
                has = 'has no such variable' if found is None else f'holds shape {found}'
                raise UserError(f'{path} is a checkpoint of another model: {net}/{name} has shape '
                                f'{variable.shape.as_list()} here, but the checkpoint {has}. '
                                'Give the configuration it was trained with, or another path.')
    return keys


def _keys(reader, path: str) -> dict[tuple[str, str], str]:
    """Return (net, variable) -> key; checkpoints and SavedModels store the variables' names beside their keys."""
    return {(key.split('/')[1], name.replace('/', ':')): key for key, name in _names(reader, path).items()
            if key.startswith('nets/')}


def _moving(reader, path: str) -> dict[tuple[str, str], str]:
    """Return the keys of moving averages, as `_keys`."""
    return {(key.split('/')[1], name.removeprefix(AVERAGE).replace('/', ':')): key
            for key, name in _names(reader, path).items()
            if key.startswith('optimizers/') and name.startswith(AVERAGE)}


def _names(reader, path: str) -> dict[str, str]:
    """Return the key of every stored variable -> the name it had, such as `m/conv1/kernel` of an optimizer."""
    if not reader.has_tensor('_CHECKPOINTABLE_OBJECT_GRAPH'):
        return {}
    try:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
            _tensor(reader, path, '_CHECKPOINTABLE_OBJECT_GRAPH'))
    except message.DecodeError as error:
        raise UserError(_damaged(path, error)) from error
    return {attribute.checkpoint_key: attribute.full_name for node in graph.nodes for attribute in node.attributes
            if reader.has_tensor(attribute.checkpoint_key)}


def sources(init_from: str | Sequence[str], model: ModelSpec) -> list[str]:
    """Return the paths of the weights that `train.init_from` names, as returned by `find`."""
    named = [init_from] if isinstance(init_from, str) else init_from
    return [find(path, model) for path in named if path]


def find(path: str, model: ModelSpec) -> str:
    """Return the weights under a path the user named.

    It may be a checkpoint, a ModelRun, an exported model, a folder of pushed versions, a pipeline root (its newest
    training run), or a file that the model's module can read (`weight_readers`).

    Raises:
      UserError: there are none.
    """
    saved = os.path.join('variables', 'variables')
    places = [path, os.path.join(path, 'weights'), os.path.join(path, saved),
              os.path.join(path, 'Format-Serving', saved)]
    places += [os.path.join(version, saved) for version in artifacts.version_folders(path)[-1:]]
    places += [os.path.join(made, 'model_run', 'weights')
               for made in artifacts.version_folders(os.path.join(path, 'train'))[-1:]]
    for place in places:
        if tf.io.gfile.exists(f'{place}.index'):
            return place
    if _foreign(path, model) and tf.io.gfile.exists(path):
        return path
    raise UserError(f'{path} holds no weights. Give a checkpoint, a model_run folder, a pipeline root, an exported '
                    'model or the folder of its pushed versions.')


def recorded(weights: str) -> dict:
    """Return the facts recorded beside weights by a training run, an export or an import; empty if there are none."""
    folder = os.path.dirname(weights)
    above = os.path.dirname(folder)
    for path in (os.path.join(folder, 'run.json'), os.path.join(above, 'run.json'),
                 os.path.join(above, 'assets.extra', 'landmark.json'), os.path.join(folder, 'weights.json')):
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                return json.load(file)
    return {}


def foreign(init_from: str | Sequence[str], model: ModelSpec) -> dict:
    """Return source, licence and files of weights of others that `train.init_from` names; passed on to all outputs."""
    found = [given for path in sources(init_from, model) if (given := recorded(path).get('foreign'))]
    several = {key: [*dict.fromkeys(each[key] for each in found)] for key in ('source', 'licence')}
    return {**found[0], 'files': [file for each in found for file in each['files']],
            **{key: ' and '.join(words) for key, words in several.items()}} if found else {}


def assign_mean(nets: dict[str, keras.Model], paths: Sequence[str], moving: bool) -> None:
    """Set each weight to its arithmetic mean over checkpoints (Vaswani et al. 6.1).

    Args:
      moving: whether to take a weight's moving average, where a checkpoint has one, and not the weight.
    """
    readers = [(_reader(path), path) for path in paths]
    keys = _keys(*readers[0]) | (_moving(*readers[0]) if moving else {})
    for net, variables in by_name(nets).items():
        for name, variable in variables.items():
            mean = np.mean([_tensor(*reader, keys[net, name]) for reader in readers], axis=0, dtype=np.float64)
            variable.assign(mean.astype(variable.dtype.as_numpy_dtype))


def resume(checkpoint: tf.train.Checkpoint, nets: dict[str, keras.Model], path: str) -> None:
    """Restore weights, optimizers and step.

    Raises:
      UserError: the checkpoint is damaged, or of another model or optimizer.
    """
    check(nets, path)
    try:
        _check_optimizers(checkpoint, path)
        checkpoint.read(path).assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:  # a variable is missing or has another name or shape
        raise UserError(f'{path} is of another optimizer ({str(error).splitlines()[0]}). Give the configuration it was '
                        'trained with, or another --pipeline_root.') from error
    except (tf.errors.OpError, IndexError) as error:
        raise UserError(_damaged(path, error)) from error


def _check_optimizers(checkpoint: tf.train.Checkpoint, path: str) -> None:
    """Compare the names of the optimizers' slots: TensorFlow would restore Adagrad's sums from SGD's velocities."""
    names = _names(_reader(path), path)
    for net, optimizer in getattr(checkpoint, 'optimizers', {}).items():
        slots = {variable.name.split(':')[0] for variable in optimizer.variables
                 if variable is not optimizer.iterations}
        stored = {name for key, name in names.items() if key.startswith(f'optimizers/{net}/_variables/')}
        if missing := slots - stored:
            raise ValueError(f'it has no {min(missing)} for {net}')
        if unknown := stored - slots:
            raise ValueError(f'its {min(unknown)} for {net} belongs to no optimizer here')


def _reader(path: str):
    try:
        return checkpoint_file.Reader(path)
    except ValueError as error:
        raise UserError(_damaged(path, error)) from error


def _tensor(reader, path: str, key: str):
    try:
        return reader.get_tensor(key)
    except ValueError as error:
        raise UserError(_damaged(path, error)) from error


def _damaged(path: str, error: Exception) -> str:
    return (f'{path} cannot be read as a checkpoint ({str(error).splitlines()[0]}). Remove {os.path.basename(path)}.* '
            f'from {os.path.dirname(path)} to resume from the one before.')
