"""Compile the stages into a pipeline that Kubeflow Pipelines and Vertex AI run, each stage as a step of its own.

A step runs the stage's own command in the image. Steps share nothing but the pipeline root, where artifacts and lineage
lie, so the same file also runs on one machine (`kfp.local.SubprocessRunner`). Kubeflow's cache is off: its key is the
text of a step and its inputs, which would skip a stage whose raw files, source or destination changed. A stage that is
up to date finds that in the lineage and ends within seconds.

The forms of names: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/,
https://cloud.google.com/vertex-ai/docs/pipelines/machine-types and `google_names.py`.
"""
import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from kfp import compiler, dsl

from data_prep import UserError
from pipelines.engines import dataflow, google_names

_CPU, _MEMORY = r'\d*\.?\d+|\d+m', r'\d+([EPTGMK]i?)?'
_ACCELERATOR, _VERTEX_ACCELERATOR = r'[a-z0-9.-]+/[\w.-]+', r'[A-Z]+(_[A-Z0-9]+)+'
_ACCELERATORS = (1, 2, 4, 8, 16)
_MOUNTED = '/gcs/'  # where Vertex AI mounts buckets


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a pipeline will run.

    Attributes:
      image: container image of the steps.
      root: the pipeline root.
      project, region: Vertex AI's; empty for Kubeflow.
      environment: variables of the steps.
    """
    image: str
    root: str
    project: str = ''
    region: str = ''
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_vertex(self) -> bool:
        return bool(self.project or self.region)


def write(path: str, config: Any, stages: Mapping[str, Any], target: Target, beam: list[str]) -> None:
    """Write the pipeline's file. Root and configuration are its parameters, which a run may change.

    Args:
      path: the file, `*.yaml`.
      config: the resolved configuration.
      stages: the `Stage`s by name, in an order in which they can run.
      beam: flags of the step `prepare`.

    Raises:
      UserError: the steps cannot run with these names and values; the message holds all of them.
    """
    if found := problems(path, config, target, beam):
        raise UserError('; '.join(found) + '.')
    settings = config.kubeflow
    values = json.dumps(config.values, ensure_ascii=False)  # one line: the compiler repeats it in a comment

    @dsl.pipeline(name='landmark-' + re.sub('[^a-z0-9]+', '-', config.name.lower())[:64].strip('-'),
                  display_name=config.name, description=config.model_spec.title)
    def pipeline(root: str = target.root, config: str = values):
        tasks: dict[str, Any] = {}
        for name, stage in stages.items():
            step = dsl.component(run_stage, base_image=target.image, install_kfp_package=False)
            step.component_spec.name = name
            tasks[name] = step(command=stage.name, config=config, root=root, flags=beam if name == 'prepare' else [])
            tasks[name].after(*(tasks[need] for need in stage.needs))
            _set_up(tasks[name], settings, target.environment)
        if settings.accelerator:
            tasks['train'].set_accelerator_type(settings.accelerator).set_accelerator_limit(settings.accelerators)
    compiler.Compiler().compile(pipeline, path)


def run_stage(command: str, config: str, root: str, flags: list):
    """Run a stage's own command; its exit code is the step's. This function's source is part of the pipeline."""
    import pathlib
    import subprocess
    import sys
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, 'pipeline.yaml')
        file.write_text(config, encoding='utf-8')
        code = subprocess.call([sys.executable, '-m', f'pipelines.{command}', '--config', str(file),
                                '--pipeline_root', root, *flags])
    if code:
        sys.exit(code)


def _set_up(task: Any, settings: Any, environment: Mapping[str, str]) -> None:
    task.set_caching_options(False).set_retry(settings.retries)
    if settings.cpu:
        task.set_cpu_limit(str(settings.cpu))
    if settings.memory:
        task.set_memory_limit(settings.memory)
    for name, value in environment.items():
        task.set_env_variable(name, value)


def problems(path: str, config: Any, target: Target, beam: list[str]) -> list[str]:
    """Describe everything that keeps the file from being written or the steps from running, as far as names show it."""
    found = []
    if not path.endswith(('.yaml', '.yml')):
        found.append(f'--compile {path!r} must end in .yaml')
    if not os.path.isdir(os.path.dirname(path) or '.'):
        found.append(f'--compile {path!r}: there is no folder {os.path.dirname(path)}')
    found += _image(target) + _root(target)
    if target.is_vertex:
        found += google_names.project('--vertex_project', target.project)
        found += google_names.region('--vertex_region', target.region)
    found += _settings(config.kubeflow, target.is_vertex) + _paths(config, target.is_vertex)
    if config.train.strategy == 'multi_worker_mirrored':
        found.append('train.strategy multi_worker_mirrored needs several machines, and a step has one; use mirrored')
    options = dataflow.read(beam)
    if options and not options.sdk_container_image:
        found.append('--sdk_container_image is missing; the image of a step has no setup.py to send to Dataflow')
    return found


def _image(target: Target) -> list[str]:
    if not target.image:
        return ['--image is missing; give the container image of the steps']
    found = google_names.image('--image', target.image)
    if not found and target.is_vertex and not re.match(r'[^/]+\.[^/]+/', target.image):
        return [f'--image {target.image!r} names no registry for Vertex AI to pull it from; write it as '
                'REGION-docker.pkg.dev/PROJECT/REPOSITORY/landmark:1']
    return found


def _root(target: Target) -> list[str]:
    if not target.root:
        return ['--pipeline_root is missing; give a folder that all steps reach, such as gs://BUCKET/FOLDER']
    if target.is_vertex:
        return google_names.folder('--pipeline_root', target.root)
    if '://' not in target.root and not os.path.isabs(target.root):
        return [f'--pipeline_root {target.root!r} must be an address, or the full path of a folder all steps mount']
    return []


def _settings(settings: Any, is_vertex: bool) -> list[str]:
    """Check the section `kubeflow`."""
    forms = [('cpu', _CPU, '4 or 500m'), ('memory', _MEMORY, '16Gi'),
             ('accelerator', _VERTEX_ACCELERATOR, 'NVIDIA_TESLA_T4, as Vertex AI names them') if is_vertex else
             ('accelerator', _ACCELERATOR, 'nvidia.com/gpu')]
    found = [f'kubeflow.{key} {value!r} must be written like {example}' for key, form, example in forms
             if (value := getattr(settings, key)) and not re.fullmatch(form, str(value))]
    if settings.accelerators not in _ACCELERATORS:
        known = ', '.join(map(str, _ACCELERATORS))
        found.append(f'kubeflow.accelerators {settings.accelerators} must be one of {known}')
    return found


def _paths(config: Any, is_vertex: bool) -> list[str]:
    """Check the paths of the configuration: a step sees no file of this machine."""
    starts = config.train.init_from
    named = {'push.destination': [config.push.destination], 'train.init_from': [starts] if isinstance(starts, str) else
             starts, **{f'evaluate.networks.{name}': [path] for name, path in config.evaluate.networks.items()},
             **{f'data.{split}': config.data.files(split) for split in config.data_spec.splits}}
    form = rf'gs://.+|{_MOUNTED}.+' if is_vertex else r'[a-z0-9]+://.+|/.+'
    wanted = f'gs://BUCKET/FILE or {_MOUNTED}BUCKET/FILE' if is_vertex else 'an address, or a path mounted in all steps'
    wrong = {key: [path for path in paths if path and not re.fullmatch(form, path)] for key, paths in named.items()}
    return [f'{key} {paths[0]!r} is a file of this machine; give {wanted}' for key, paths in wrong.items() if paths]
