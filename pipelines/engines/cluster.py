"""Check what containers in a cluster need: an image, a root that all reach, paths that exist there, limits.

Names are checked offline, since a cluster reports a wrong one only after it has scheduled something. Their forms:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/,
https://cloud.google.com/vertex-ai/docs/pipelines/machine-types and `google_names.py`.
"""
import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from pipelines.engines import google_names

_CPU, _MEMORY = r'\d*\.?\d+|\d+m', r'\d+([EPTGMK]i?)?'
_ACCELERATOR, _VERTEX_ACCELERATOR = r'[a-z0-9.-]+/[\w.-]+', r'[A-Z]+(_[A-Z0-9]+)+'
_MOUNTED = '/gcs/'  # where Vertex AI mounts buckets


@dataclasses.dataclass(frozen=True)
class Target:
    """Where containers will run.

    Attributes:
      image: the containers' image.
      root: the pipeline root.
      project, region: Vertex AI's; empty elsewhere.
      environment: the containers' variables.
    """
    image: str
    root: str
    project: str = ''
    region: str = ''
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def is_vertex(self) -> bool:
        return bool(self.project or self.region)


def name_of(config: Any) -> str:
    """Return a name for a cluster's objects: letters, digits and hyphens, short enough for the names made from it."""
    return 'landmark-' + re.sub('[^a-z0-9]+', '-', config.name.lower())[:32].strip('-')


def problems(flag: str, path: str, config: Any, target: Target) -> list[str]:
    """Describe everything that keeps a file from being written or its containers from running, as far as names show it.

    Args:
      flag: names the file, `path`.
    """
    found = []
    if not path.endswith(('.yaml', '.yml')):
        found.append(f'{flag} {path!r} must end in .yaml')
    if not os.path.isdir(os.path.dirname(path) or '.'):
        found.append(f'{flag} {path!r}: there is no folder {os.path.dirname(path)}')
    found += _image(target) + _root(target)
    if target.is_vertex:
        found += google_names.project('--vertex_project', target.project)
        found += google_names.region('--vertex_region', target.region)
    return found + _limits(config.cluster, target.is_vertex) + _paths(config, target.is_vertex)


def _image(target: Target) -> list[str]:
    if not target.image:
        return ['--image is missing; give the container image of the project']
    found = google_names.image('--image', target.image)
    if not found and target.is_vertex and not re.match(r'[^/]+\.[^/]+/', target.image):
        return [f'--image {target.image!r} names no registry for Vertex AI to pull it from; write it as '
                'REGION-docker.pkg.dev/PROJECT/REPOSITORY/landmark:1']
    return found


def _root(target: Target) -> list[str]:
    if not target.root:
        return ['--pipeline_root is missing; give a folder that all containers reach, such as gs://BUCKET/FOLDER']
    if target.is_vertex:
        return google_names.folder('--pipeline_root', target.root)
    if '://' not in target.root and not os.path.isabs(target.root):
        return [f'--pipeline_root {target.root!r} must be an address, or the full path of a folder that all mount']
    return []


def _limits(settings: Any, is_vertex: bool) -> list[str]:
    """Check the section `cluster`."""
    forms = [('cpu', _CPU, '4 or 500m'), ('memory', _MEMORY, '16Gi'),
             ('accelerator', _VERTEX_ACCELERATOR, 'NVIDIA_TESLA_T4, as Vertex AI names them') if is_vertex else
             ('accelerator', _ACCELERATOR, 'nvidia.com/gpu')]
    return [f'cluster.{key} {value!r} must be written like {example}' for key, form, example in forms
            if (value := getattr(settings, key)) and not re.fullmatch(form, str(value))]


def _paths(config: Any, is_vertex: bool) -> list[str]:
    """Check the paths of the configuration: a container sees no file of this machine."""
    starts = config.train.init_from
    named = {'push.destination': [config.push.destination], 'train.init_from': [starts] if isinstance(starts, str) else
             starts, **{f'evaluate.networks.{name}': [path] for name, path in config.evaluate.networks.items()},
             **{f'data.{split}': config.data.files(split) for split in config.data_spec.splits}}
    form = rf'gs://.+|{_MOUNTED}.+' if is_vertex else r'[a-z0-9]+://.+|/.+'
    wanted = f'gs://BUCKET/FILE or {_MOUNTED}BUCKET/FILE' if is_vertex else 'an address, or a path that all mount'
    wrong = {key: [path for path in paths if path and not re.fullmatch(form, path)] for key, paths in named.items()}
    return [f'{key} {paths[0]!r} is a file of this machine; give {wanted}' for key, paths in wrong.items() if paths]
