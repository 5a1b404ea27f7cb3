"""Export trained weights in another format: a folder that needs no TensorFlow, with a program that runs it.

Each format is a stage of its own, `export-tflite` and so on; its folder is run by the same code as the gate's.
"""
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import json
import os
import tempfile
import typing

from data_prep import UserError
from data_prep.core import files
from pipelines.core import stage
from pipelines.export import asked, watched
from pipelines.formats.table import DESCRIPTION, FORMATS, KIT, Format, answers

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.config import Config


@dataclasses.dataclass(frozen=True)
class Trained:
    """A training run's nets, its configuration, and the folder of its data set."""
    nets: dict
    config: 'Config'
    examples: str


def execute(format: Format, context: stage.Context) -> None:
    from pipelines.core.pipeline import fresh
    from pipelines.training import checkpoints
    config, examples, run = context.config, context.inputs['examples'].uri, context.inputs['model_run']
    nets = config.model_spec.build(config.model)
    checkpoints.restore(nets, os.path.join(run.uri, 'weights'))
    folder = fresh(context.outputs[format.name])
    with tempfile.TemporaryDirectory() as scratch:  # engines only read and write local disks
        facts = importlib.import_module(format.writer).write(format, Trained(nets, config, examples), scratch)
        client = _add_client(format, context, scratch)
        try:
            client.load(scratch)
        except ValueError as error:
            raise UserError(f'--to {format.name}: {error}') from error
        size = sum(map(os.path.getsize, files.walk_folder(scratch)))
        files.copy(scratch, folder)
    context.properties.update(facts, client=client.__name__.rpartition('.')[2], megabytes=round(size / 1e6, 1))
    print(f'export: {context.properties["megabytes"]} MB {format.name}', flush=True)


def _add_client(format: Format, context: stage.Context, folder: str):
    """Add what the networks need beside them: the client, a description, and the data set's own files.

    Returns:
      The client's module.
    """
    import tensorflow as tf

    from data_prep.core import records
    config, examples, run = context.config, context.inputs['examples'].uri, context.inputs['model_run']
    manifest, spec = records.read_manifest(examples), config.data_spec
    client, *imported = format.clients[answers(spec, config.model_spec)]
    description = {'name': config.name, 'format': format.name, 'client': client,
                   'model_module': config.values['model']['module'], 'model_run': run.digest,
                   'agnostic': manifest.properties.get('agnostic'), 'config': config.values,
                   'foreign': run.properties.get('foreign', {})}
    written = {f'{name}.py': inspect.getsource(importlib.import_module(f'{KIT}.{name}'))
               for name in (client, *imported)} | {DESCRIPTION: json.dumps(description, indent=1)}
    for name, text in written.items():
        records.write_atomically(os.path.join(folder, name), text.encode())
    for name in [*manifest.sha256, *filter(None, [spec.subwords])]:
        tf.io.gfile.copy(os.path.join(examples, name), os.path.join(folder, name))
    return importlib.import_module(f'{KIT}.{client}')


def check(format: Format, config: 'Config') -> None:
    """Refuse a model that the format cannot hold, and a missing package."""
    if answers(config.data_spec, config.model_spec) not in format.clients:
        raise UserError(f'--to {format.name} holds models of {", ".join(format.clients)}; data.module '
                        f'{config.data_spec.name} is for {config.data_spec.task}. Choose another format.')
    config.model_spec.check(config.model, config.inference)
    importlib.import_module(format.writer).check(format, config)
    missing = [needed for name, needed in format.requires.items() if importlib.util.find_spec(name) is None]
    if missing:
        packages = ' '.join(f'"{each}"' for each in missing)
        raise UserError(f'--to {format.name} needs packages that are not installed. Run '
                        f'`python -m pip install {packages}` and start again.')


def stage_of(name: str) -> stage.Stage:
    """Return the stage that exports a format."""
    format = FORMATS[name]
    return stage.Stage(
        f'export-{name}', functools.partial(execute, format), needs=('prepare', 'train'), outputs={name: 'Model'},
        check=functools.partial(check, format), extra_inputs=asked, watched=watched,
        sections=('data', 'input', 'model', 'inference', 'export'),
        roles=('data', 'model', 'serving'), modules=('pipelines.formats.export', *format.modules))
