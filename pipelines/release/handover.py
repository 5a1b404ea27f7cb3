"""Check and record every push: both blessings are there, and nothing has changed since."""
import json
import os
import typing
from collections.abc import Iterable

import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from pipelines.core.artifacts import Artifact, digest
from pipelines.formats.table import FORMATS

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.stage import Context

CHECKED = ('model', 'blessing', 'infra_blessing')  # inputs of a push


def checked(context: 'Context') -> tuple[dict, dict[str, str]]:
    """Check the inputs of a push.

    Returns:
      The lineage of the version it makes; and the folders of the formats that are blessed, too, by their names.

    Raises:
      UserError: a blessing is missing, with the reasons given by evaluation and infra validation; or an input was
        changed since.
    """
    inputs = {key: context.inputs[key] for key in CHECKED}
    _check_blessings(inputs)
    formats = _blessed_formats(context.inputs)
    inputs |= {key: context.inputs[key] for name in formats for key in (name, f'{name}_blessing')}
    for key, artifact in inputs.items():
        _check_unchanged(key, artifact)
    lineage = {'pipeline': context.config.name, 'artifacts': {
        key: {'id': artifact.id, 'digest': artifact.digest} for key, artifact in inputs.items()}}
    return lineage, {name: inputs[name].uri for name in formats}


def record(context: 'Context', output: str, path: str, formats: Iterable[str]) -> None:
    """Write which version was pushed into an output of the stage, and among its properties.

    Args:
      output: its key.
      path: the version's folder.
      formats: other formats in it.
    """
    pushed = {'destination': os.path.dirname(path), 'version': int(os.path.basename(path)), 'path': path,
              'formats': [*formats]}
    records.write_atomically(os.path.join(context.outputs[output], 'pushed_model.json'),
                             json.dumps(pushed, indent=1).encode())
    context.properties.update(pushed)


def _check_blessings(inputs: dict[str, Artifact]) -> None:
    """Refuse a model that lacks either blessing.

    Raises:
      UserError: with the reasons given by evaluation and infra validation.
    """
    objections = [*_objections('blessed by evaluation', inputs['blessing'].uri, 'BLESSED', 'NOT_BLESSED',
                               'train it further or change evaluate.thresholds'),
                  *_objections('blessed by infra validation', inputs['infra_blessing'].uri, 'INFRA_BLESSED',
                               'INFRA_NOT_BLESSED', 'fix what keeps it from being served and export it again')]
    if objections:
        raise UserError(f'not pushed: {"; and ".join(objections)}.')


def _blessed_formats(inputs: dict[str, Artifact]) -> list[str]:
    """Return the evaluated formats that are blessed, and print why others are not."""
    blessed = []
    for name in FORMATS:
        if blessing := inputs.get(f'{name}_blessing'):
            objections = _objections('blessed by evaluation', blessing.uri, 'BLESSED', 'NOT_BLESSED',
                                     'choose another format or change evaluate.drift')
            if objections:
                print(f'push: without {name}: {objections[0]}.', flush=True)
            else:
                blessed.append(name)
    return blessed


def _objections(what: str, folder: str, positive: str, negative: str, remedy: str) -> list[str]:
    yes, no = (tf.io.gfile.exists(os.path.join(folder, name)) for name in (positive, negative))
    if yes and not no:
        return []
    if not no:
        return [f'the model is not {what}: {folder} has neither {positive} nor {negative}, so remove that folder '
                'and run the pipeline again']
    with tf.io.gfile.GFile(os.path.join(folder, negative), 'rb') as file:
        lines = file.read().decode('utf-8', 'replace').splitlines()
    reasons = ', '.join(line.strip().rstrip('.') for line in lines if line.strip())
    both = f', though {positive} is there too' if yes else ''
    return [f'the model is not {what} ({reasons or f"{folder} gives no reason"}){both}: {remedy}']


def _check_unchanged(key: str, artifact: Artifact) -> None:
    """Refuse a model or blessing edited since the check, which covered other bytes."""
    if digest(artifact.uri) != artifact.digest:
        raise UserError(f'not pushed: {artifact.uri} was changed after the pipeline wrote it, so this {key} is '
                        'not the one that was checked. Remove that folder and run the pipeline again.')
