"""Checkpoints: which of a run's are whole; and weights by name: what they hold, whether they fit, and their mean.

    <run>/checkpoints/ckpt-20.index, ckpt-20.data-00000-of-00001    TensorFlow's own
    <run>/checkpoints/ckpt-20.sha256                                their hashes, written after them
    <run>/checkpoints/damaged-ckpt-30.…                             one that differs from its hashes, set aside

A checkpoint counts by its hashes: a write that was killed left none, and a byte that changed since then is found.
"""
import json
import os
import re
from collections.abc import Container, Sequence

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
_SUFFIXES = re.compile(r'\.index|\.data-[0-9]{5}-of-[0-9]{5}|\.sha256')


def write(checkpoint: tf.train.Checkpoint, folder: str, step: int, keep: int) -> str:
    """Writes `<folder>/ckpt-<step>`, then the hashes by which it counts; the newest `keep` stay, this one among them.

    Killed anywhere in between, or refused by a full disk, it leaves the one before as it was.

    Returns:
      The checkpoint's path, as TensorFlow names it.
    """
    path = os.path.join(folder, f'ckpt-{step}')
    _tidy(folder, keep)  # a killed write left what takes this one's room
    try:
        checkpoint.write(path)
        records.write_atomically(path + HASHES, json.dumps(_hashes(path), indent=1).encode())
    finally:
        _tidy(folder, keep)
    # Where TensorFlow's own tools look for the newest; here the hashes tell.
    records.write_atomically(os.path.join(folder, 'checkpoint'), f'model_checkpoint_path: "ckpt-{step}"\n'.encode())
    return path


def present(folder: str) -> list[str]:
    """The checkpoints in a folder that were written to the end, oldest first."""
    return sorted((path for path, suffix in _files(folder) if suffix == HASHES), key=step_of)


def step_of(path: str) -> int:
    return int(path.rsplit('-', 1)[1])


def newest_intact(folders: Sequence[str], count: int) -> list[str]:
    """The newest `count` checkpoints whose files are those that were written, oldest first.

    Each that is met on the way and is not is named in a printed line, with what is wrong, and set aside.
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
    print(f'{path} is not used: {wrong}; it is set aside as damaged-{name}, and the one before is used.', flush=True)
    for other, suffix in _files(folder):
        if other == path and _SUFFIXES.fullmatch(suffix):
            tf.io.gfile.rename(path + suffix, os.path.join(folder, f'damaged-{name}{suffix}'), overwrite=True)


def _damage(path: str) -> str | None:
    """What is wrong with a checkpoint's files, in words; reads all of them."""
    name = os.path.basename(path) + HASHES
    try:
        with tf.io.gfile.GFile(path + HASHES, 'rb') as file:
            written = dict(json.loads(file.read()))
    except tf.errors.NotFoundError:
        return f'there is no {name}, as it was not written to the end'
    except (ValueError, TypeError):
        return f'{name} cannot be read'
    found = _hashes(path)
    for file in sorted({*written, *found}):
        if file not in found:
            return f'{file} is missing'
        if written.get(file) != found[file]:
            return f'{file} is not the file that was written (SHA-256 differs)'
    return None


def _hashes(path: str) -> dict[str, str]:
    """SHA-256 of a checkpoint's files, by name."""
    return {os.path.basename(path) + suffix: files.sha256(path + suffix)[0]
            for other, suffix in sorted(_files(os.path.dirname(path)))
            if other == path and suffix != HASHES and _SUFFIXES.fullmatch(suffix)}


def _files(folder: str) -> list[tuple[str, str]]:
    """All that belongs to checkpoints in a folder, and what killed writes left of any, as (checkpoint, suffix)."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return [(os.path.join(folder, match[1]), match[2]) for name in names
            if (match := re.fullmatch(r'(ckpt-[0-9]+|checkpoint\.tmp)(.*)', name.rstrip('/')))]


def _tidy(folder: str, keep: int) -> None:
    """Removes what killed writes left, and all but the newest checkpoints: their hashes first, by which they count."""
    kept = present(folder)[-keep:]
    for path, suffix in sorted(_files(folder), key=lambda file: (file[1] != HASHES, file)):
        if path not in kept or not _SUFFIXES.fullmatch(suffix):
            remove = tf.io.gfile.rmtree if tf.io.gfile.isdir(path + suffix) else tf.io.gfile.remove
            remove(path + suffix)


def save(nets: dict[str, keras.Model], path: str) -> None:
    """Writes the nets' weights alone."""
    if tf.io.gfile.isdir(f'{path}_temp'):
        tf.io.gfile.rmtree(f'{path}_temp')  # a killed write left it
    tf.train.Checkpoint(nets=by_name(nets)).write(path)


def restore(nets: dict[str, keras.Model], path: str) -> None:
    """Reads the nets' weights from any checkpoint or SavedModel that holds them.

    Args:
      path: as `find` gives it.

    Raises:
      UserError: a variable is missing or has another shape: the checkpoint is of another model.
    """
    reader, keys = _reader(path), check(nets, path)
    for net, variables in by_name(nets).items():
        for name, variable in variables.items():
            variable.assign(_tensor(reader, path, keys[net, name]))


def start(nets: dict[str, keras.Model], paths: Sequence[str], learning: Container[str], model: ModelSpec,
          config) -> list[str]:
    """Sets the nets to the weights training begins with, each to those of the first of `paths` that holds it.

    Args:
      paths: as `find` gives them. Weights of other nets are taken as the paper's module knows how to: a file of its
        `weight_readers`, or a checkpoint of another net of the paper by its `warm_start`, where it may be called
        otherwise (`warm_start_names`).
      learning: the nets that may do without; the others cannot be of any use as they are.
      model: what the paper's module offers.
      config: the model's.

    Returns:
      The nets that nobody gave weights.

    Raises:
      UserError: as `restore`; the module says what does not fit; or there are no weights for a net that does not learn.
    """
    waiting, starts_as = dict(nets), model.warm_start_names
    for path in paths:
        held = waiting if _foreign(path, model) else {net for net, _ in _keys(_reader(path), path)}
        given = {name: waiting.pop(name) for name in [*waiting] if {name, starts_as.get(name)} & {*held}}
        if not given:
            raise UserError(f'train.init_from: {path} is a checkpoint of another model: it holds no '
                            f'{" and no ".join(waiting or nets)}; give the run that trained them, or another path.')
        _start(given, path, model, config)
    if lost := [name for name in waiting if name not in learning]:
        raise UserError(f'train.init_from: there are no weights of {" and ".join(lost)}, which do not learn here; name '
                        'the runs that trained them too, as [RUN, RUN].')
    return [*waiting]


def _foreign(path: str, model: ModelSpec):
    """What reads a file of that suffix, if the model's module can."""
    return model.weight_readers.get(os.path.splitext(path)[1])


def _start(nets: dict[str, keras.Model], path: str, model: ModelSpec, config) -> None:
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
    """All weights in a checkpoint: net -> variable's name -> value."""
    reader = _reader(path)
    found: dict[str, dict[str, np.ndarray]] = {}
    for (net, name), key in _keys(reader, path).items():
        found.setdefault(net, {})[name.replace(':', '/')] = _tensor(reader, path, key)
    return found


def fits(nets: dict[str, keras.Model], path: str) -> bool:
    """Whether a checkpoint holds every variable of the nets in its shape."""
    try:
        check(nets, path)
    except UserError:
        return False
    return True


def check(nets: dict[str, keras.Model], path: str) -> dict[tuple[str, str], str]:
    """Compares names and shapes without reading a weight; raises as `restore`.

    Returns:
      (net, variable) -> its key in the checkpoint.
    """
    reader = _reader(path)
    shapes, keys = reader.get_variable_to_shape_map(), _keys(reader, path)
    for net, variables in by_name(nets).items():
        for name, variable in variables.items():
            found = list(shapes[keys[net, name]]) if (net, name) in keys else None
            if found != variable.shape.as_list():
                has = 'has no such variable' if found is None else f'holds shape {found}'
                raise UserError(f'{path} is a checkpoint of another model: {net}/{name} has shape '
                                f'{variable.shape.as_list()} here, the checkpoint {has}; '
                                'give the configuration it was trained with, or another path.')
    return keys


def _keys(reader, path: str) -> dict[tuple[str, str], str]:
    """(net, variable) -> key. Checkpoints and SavedModels keep the variables' names beside keys of their own."""
    if not reader.has_tensor('_CHECKPOINTABLE_OBJECT_GRAPH'):
        return {}
    try:
        graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
            _tensor(reader, path, '_CHECKPOINTABLE_OBJECT_GRAPH'))
    except message.DecodeError as error:
        raise UserError(_damaged(path, error)) from error
    found = {}
    for node in graph.nodes:
        for attribute in node.attributes:
            part, _, rest = attribute.checkpoint_key.partition('/')
            if part == 'nets' and reader.has_tensor(attribute.checkpoint_key):
                found[rest.split('/')[0], attribute.full_name.replace('/', ':')] = attribute.checkpoint_key
    return found


def sources(init_from: str | Sequence[str], model: ModelSpec) -> list[str]:
    """Where the weights are that `train.init_from` names, as `find` gives them."""
    named = [init_from] if isinstance(init_from, str) else init_from
    return [find(path, model) for path in named if path]


def find(path: str, model: ModelSpec) -> str:
    """The weights in what a user may name: a checkpoint, a ModelRun, an exported model, a folder of pushed versions, a
    pipeline root, whose newest training run it is, or a file that the model's module can read (`weight_readers`).

    Raises:
      UserError: there is none.
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
    raise UserError(f'{path} holds no weights; give a checkpoint, a model_run folder, a pipeline root, an exported '
                    'model or the folder of its pushed versions.')


def recorded(weights: str) -> dict:
    """What a training run, an export or an import said of the weights it left, as `find` names them; else nothing."""
    folder = os.path.dirname(weights)
    above = os.path.dirname(folder)
    for path in (os.path.join(folder, 'run.json'), os.path.join(above, 'run.json'),
                 os.path.join(above, 'assets.extra', 'landmark.json'), os.path.join(folder, 'weights.json')):
        if tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                return json.load(file)
    return {}


def foreign(init_from: str | Sequence[str], model: ModelSpec) -> dict:
    """Whose weights, under which licence, `train.init_from` names, if not ours: it stays with all that comes of it."""
    found = [given for path in sources(init_from, model) if (given := recorded(path).get('foreign'))]
    several = {key: [*dict.fromkeys(each[key] for each in found)] for key in ('source', 'licence')}
    return {**found[0], 'files': [file for each in found for file in each['files']],
            **{key: ' and '.join(words) for key, words in several.items()}} if found else {}


def assign_mean(nets: dict[str, keras.Model], paths: Sequence[str]) -> None:
    """Sets every weight to its arithmetic mean over checkpoints (Vaswani et al. 6.1)."""
    readers = [(_reader(path), path) for path in paths]
    keys = _keys(*readers[0])
    for net, variables in by_name(nets).items():
        for name, variable in variables.items():
            mean = np.mean([_tensor(*reader, keys[net, name]) for reader in readers], axis=0, dtype=np.float64)
            variable.assign(mean.astype(variable.dtype.as_numpy_dtype))


def resume(checkpoint: tf.train.Checkpoint, nets: dict[str, keras.Model], path: str) -> None:
    """Restores weights, optimizers and step.

    Raises:
      UserError: the checkpoint is of another model or optimizer, or damaged.
    """
    check(nets, path)
    try:
        checkpoint.read(path).assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:  # a variable is missing, or is of another shape
        raise UserError(f'{path} is of another optimizer ({str(error).splitlines()[0]}); give the configuration it was '
                        'trained with, or another --pipeline_root.') from error
    except (tf.errors.OpError, IndexError) as error:
        raise UserError(_damaged(path, error)) from error


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
    return (f'{path} cannot be read as a checkpoint ({str(error).splitlines()[0]}); remove {os.path.basename(path)}.* '
            f'from {os.path.dirname(path)} to go on from the one before.')
