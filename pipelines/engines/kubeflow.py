"""Compile the stages into a pipeline that Kubeflow Pipelines and Vertex AI run, each stage as a step of its own.

A step runs the stage's own command in the image. Steps share nothing but the pipeline root, where artifacts and lineage
lie, so the same file also runs on one machine (`kfp.local.SubprocessRunner`). Kubeflow's cache is off: its key is the
text of a step and its inputs, which would skip a stage whose raw files, source or destination changed. A stage that is
up to date finds that in the lineage and ends within seconds.
"""
import json
from collections.abc import Mapping
from typing import Any

from kfp import compiler, dsl

from data_prep import UserError
from pipelines.engines import cluster, dataflow
from pipelines.engines.cluster import Target

_ACCELERATORS = (1, 2, 4, 8, 16)  # the numbers that kfp accepts


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
    settings = config.cluster
    values = json.dumps(config.values, ensure_ascii=False)  # one line: the compiler repeats it in a comment

    @dsl.pipeline(name=cluster.name_of(config), display_name=config.name, description=config.model_spec.title)
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
    found = cluster.problems('--compile', path, config, target)
    if config.cluster.accelerators not in _ACCELERATORS:
        known = ', '.join(map(str, _ACCELERATORS))
        found.append(f'cluster.accelerators {config.cluster.accelerators} must be one of {known}')
    if config.train.strategy == 'multi_worker_mirrored':
        found.append('train.strategy multi_worker_mirrored needs several machines, and a step has one; use mirrored '
                     'here, or `python -m pipelines.train --manifest`')
    options = dataflow.read(beam)
    if options and not options.sdk_container_image:
        found.append('--sdk_container_image is missing; the image of a step has no setup.py to send to Dataflow')
    return found
