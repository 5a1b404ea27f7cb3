"""Artifacts, the executions that made them, and hashes of what both depend on."""
import ast
import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from data_prep.core import files, records

_PACKAGES = ('pipelines', 'data_prep', 'keras_models')
# Modules that no stage's hash contains, each with the reason why it cannot change what a stage computes.
FRAME = {
    **dict.fromkeys(('pipelines', 'pipelines.core.stage', 'pipelines.core.pipeline', 'pipelines.core.artifacts',
                     'pipelines.core.metadata', 'pipelines.core.stores'),
                    'looks up, skips and records; a better message in it must not cost a training run'),
    **dict.fromkeys(('pipelines.core.cli', 'pipelines.engines.beam_flags', 'pipelines.engines.dataflow'),
                    'reads flags; which runner a job has changes no byte of a data set'),
    **dict.fromkeys(('pipelines.core.config', 'pipelines.core.renamed', 'pipelines.core.roles',
                     'pipelines.core.shipped', 'keras_models.protocol', 'data_prep.core.protocol'),
                    'resolves the configuration, whose values are in the fingerprint'),
    'pipelines.core.compatibility': 'refuses data, and changes nothing of what is made of them',
    **dict.fromkeys(('pipelines.core.commands', 'pipelines.core.explain', 'pipelines.core.flow',
                     'pipelines.core.machine', 'pipelines.core.progress'), 'prints'),
    'pipelines.training.teacher': 'a person\'s lessons, which no stage gives',
    **dict.fromkeys(('pipelines.reporting.report', 'pipelines.reporting.answers', 'pipelines.reporting.data_section',
                     'pipelines.reporting.figures', 'pipelines.reporting.pages', 'pipelines.reporting.reading',
                     'pipelines.reporting.strips'),
                    'draws what was found; the gate does not look at it'),
    'pipelines.training.divergence': 'says why training stopped, and changes nothing of what is trained'}
# Files that are copied into outputs as they are, so that their comments and layout count.
_COPIED = 'pipelines.serving.kit'
_NO_CODE = ast.dump(ast.Module([], []))


@dataclasses.dataclass(frozen=True)
class Artifact:
    """One output of one execution.

    Attributes:
      properties: what the stage that made it found out.
    """
    id: int
    type: str
    uri: str
    digest: str
    properties: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Execution:
    """A completed run of a stage.

    Attributes:
      config: all of its configuration, as YAML.
      source: hash of the modules that did it, see `source_hash`.
      commit: see `commit`.
      started, finished: when, in seconds since 1970.
      properties: what the stage found out.
      inputs: ids of the artifacts it read.
      outputs: by key.
    """
    id: int
    stage: str
    config: str
    source: str
    commit: str
    started: float
    finished: float
    properties: dict[str, Any]
    inputs: list[int]
    outputs: dict[str, Artifact]


def sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def file_hashes(folder: str) -> dict[str, str]:
    """SHA-256 of every file below `folder`, by path relative to it."""
    hashes = {}
    for directory, _, names in tf.io.gfile.walk(folder):
        for file in names:
            path = os.path.join(directory, file)
            hashes[os.path.relpath(path, folder)] = files.sha256(path)[0]
    return hashes


def version_folders(folder: str) -> list[str]:
    """The integer folders of a place serving watches, lowest first; none where there is no such place."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    numbers = [name.rstrip('/') for name in names if re.fullmatch('[0-9]+/?', name)]
    paths = [os.path.join(folder, number) for number in sorted(numbers, key=int)]
    return [path for path in paths if tf.io.gfile.isdir(path)]


def digest(folder: str) -> str:
    """Content digest: of a data set its manifest, which holds the shards' hashes; else of all files."""
    manifest = os.path.join(folder, records.MANIFEST)
    if tf.io.gfile.exists(manifest):
        with tf.io.gfile.GFile(manifest, 'rb') as file:
            return hashlib.sha256(file.read()).hexdigest()
    return sha256(file_hashes(folder))


def _text(path: str) -> str:
    with open(path, encoding='utf-8') as file:
        return file.read()


@functools.cache
def _imports(module: str) -> tuple[str, frozenset[str]]:
    """What of a module's source counts, as text, and the project's modules it imports."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return '', frozenset()
    text = _text(spec.origin)
    tree = ast.parse(text)
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update([node.module, *(f'{node.module}.{alias.name}' for alias in node.names)])
    own = {name for name in found if name.split('.')[0] in _PACKAGES and _is_module(name)}
    if module == _COPIED:
        text = sha256({path: digest for path, digest in file_hashes(os.path.dirname(spec.origin)).items()
                       if not path.startswith('__pycache__')})
    return text if module.startswith(_COPIED) else _tree(tree), frozenset(own)


def _tree(tree: ast.Module) -> str:
    """A syntax tree as text, without docstrings: neither they nor comments nor layout change what is computed."""
    def is_text(line: ast.stmt) -> bool:
        return (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
                and isinstance(line.value.value, str))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [line for line in node.body if not is_text(line)]
    return ast.dump(tree)


def _packages(module: str) -> Iterator[str]:
    """Those a module is in, which are imported before it."""
    while module := module.rpartition('.')[0]:
        yield module


def _is_module(name: str) -> bool:
    """Whether this is a module; of what may also be something within one, without importing that one."""
    if above := name.rpartition('.')[0]:
        package = importlib.util.find_spec(above) if _is_module(above) else None
        if package is None or not package.submodule_search_locations:
            return False
    return importlib.util.find_spec(name) is not None


def closure(modules: Iterable[str]) -> dict[str, str]:
    """These modules and every module of the project they import, also inside functions, less `FRAME` and packages
    that hold a docstring alone.

    Returns:
      Module -> what of its source counts.
    """
    seen: dict[str, str] = {}
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module not in seen and module not in FRAME:
            seen[module], imported = _imports(module)
            todo.extend([*imported, *_packages(module)])
    return {module: text for module, text in seen.items() if text != _NO_CODE}


def source_hash(modules: Iterable[str]) -> str:
    """Hash of the sources in the `closure` of these modules."""
    return sha256(closure(modules))


@functools.cache
def commit() -> str:
    """The commit this source is of, and whether its packages differ from it; empty where it is no git checkout."""
    here = str(pathlib.Path(__file__).resolve().parents[2])

    def git(*words: str) -> str:
        return subprocess.run(['git', '--no-optional-locks', '-C', here, *words], capture_output=True, text=True,
                              check=True, timeout=60).stdout.strip()
    try:
        git('ls-files', '--error-unmatch', os.path.relpath(__file__, here))  # or the repository is somebody else's
        return git('rev-parse', 'HEAD') + (' with changes' if git('status', '--porcelain', '--', *_PACKAGES) else '')
    except (OSError, subprocess.SubprocessError):
        return ''
