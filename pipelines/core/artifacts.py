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

from data_prep.core import files, records

PACKAGES = ('pipelines', 'data_prep', 'keras_models')
# Modules excluded from every stage's source hash, each with the reason why it cannot change a stage's result.
FRAME = {
    **dict.fromkeys(('pipelines', 'pipelines.core.stage', 'pipelines.core.pipeline', 'pipelines.core.artifacts',
                     'pipelines.core.children', 'pipelines.core.locks', 'pipelines.core.metadata',
                     'pipelines.core.objects', 'pipelines.core.settled', 'pipelines.core.stores'),
                    'looks up, skips and records; a better message in it must not cost a training run'),
    **dict.fromkeys(('pipelines.core.cli', 'pipelines.engines.beam_flags', 'pipelines.engines.dataflow',
                     'pipelines.engines.google_names'),
                    'reads flags; the choice of a Beam runner changes no byte of a data set'),
    **dict.fromkeys(('pipelines.engines.cluster', 'pipelines.engines.jobset'), 'writes a manifest; no stage does'),
    **dict.fromkeys(('pipelines.core.checking', 'pipelines.core.config', 'pipelines.core.places',
                     'pipelines.core.reading', 'pipelines.core.renamed', 'pipelines.core.roles',
                     'pipelines.core.sections', 'pipelines.core.shipped', 'keras_models.protocol',
                     'data_prep.core.protocol'),
                    'resolves the configuration, whose values are in the fingerprint'),
    'pipelines.core.compatibility': 'only accepts or refuses data',
    'pipelines.formats.table': 'lists formats; a format\'s own modules are in the hash of its stages',
    **dict.fromkeys(('pipelines.core.commands', 'pipelines.core.explain', 'pipelines.core.flow',
                     'pipelines.core.machine', 'pipelines.core.progress'), 'prints'),
    'pipelines.release.promotion': 'compares a canary with the served version, which no stage does',
    'pipelines.training.teacher': 'interactive lessons, which no stage runs',
    **dict.fromkeys(('pipelines.reporting.report', 'pipelines.reporting.answers', 'pipelines.reporting.data_section',
                     'pipelines.reporting.figures', 'pipelines.reporting.learning_curve', 'pipelines.reporting.pages',
                     'pipelines.reporting.reading', 'pipelines.reporting.strips'),
                    'renders results; the gate does not read it'),
    'pipelines.training.divergence': 'only explains why training stopped'}
# Files copied verbatim into outputs, so their comments and layout count.
_COPIED = 'pipelines.serving.kit'
_NO_CODE = ast.dump(ast.Module([], []))


@dataclasses.dataclass(frozen=True)
class Artifact:
    """One output of one execution.

    Attributes:
      properties: facts recorded by the stage that made it.
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
      config: its whole configuration as YAML.
      source: hash of its modules' sources, see `source_hash`.
      commit: see `commit`.
      started, finished: times in seconds since 1970.
      properties: facts recorded by the stage.
      inputs: ids of its input artifacts.
      outputs: its output artifacts by key.
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
    """Return the SHA-256 of every file below `folder`, by relative path."""
    hashes = {}
    for directory, _, names in files.walk(folder):
        for file in names:
            path = os.path.join(directory, file)
            hashes[os.path.relpath(path, folder)] = files.sha256(path)[0]
    return hashes


def source_hashes(folder: str) -> dict[str, str]:
    """Return `file_hashes` without the files that Python compiled."""
    return {path: digest for path, digest in file_hashes(folder).items() if '__pycache__' not in path}


def version_folders(folder: str) -> list[str]:
    """Return the integer-named folders of a serving destination, lowest first; empty if it does not exist."""
    names = files.names(folder) if files.is_folder(folder) else []
    numbers = [name for name in names if re.fullmatch('[0-9]+', name)]
    paths = [os.path.join(folder, number) for number in sorted(numbers, key=int)]
    return [path for path in paths if files.is_folder(path)]


def digest(folder: str) -> str:
    """Return a content digest: of the manifest for a data set (it holds the shards' hashes), else of all files."""
    manifest = os.path.join(folder, records.MANIFEST)
    if files.exists(manifest):
        return files.sha256(manifest)[0]
    return sha256(file_hashes(folder))


def _text(path: str) -> str:
    with open(path, encoding='utf-8') as file:
        return file.read()


@functools.cache
def _imports(module: str) -> tuple[str, frozenset[str]]:
    """Return the part of a module's source that counts, as text, and the project's modules it imports."""
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
    own = {name for name in found if name.split('.')[0] in PACKAGES and _is_module(name)}
    if module == _COPIED:
        text = sha256(source_hashes(os.path.dirname(spec.origin)))
    return text if module.startswith(_COPIED) else _tree(tree), frozenset(own)


def _tree(tree: ast.Module) -> str:
    """Return a syntax tree as text, without docstrings; like comments and layout, they do not change results."""
    def is_text(line: ast.stmt) -> bool:
        return (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
                and isinstance(line.value.value, str))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [line for line in node.body if not is_text(line)]
    return ast.dump(tree)


def _packages(module: str) -> Iterator[str]:
    """Yield the packages that contain a module; Python imports them first."""
    while module := module.rpartition('.')[0]:
        yield module


def _is_module(name: str) -> bool:
    """Return whether `name` is a module rather than an attribute of one, without importing it."""
    if above := name.rpartition('.')[0]:
        package = importlib.util.find_spec(above) if _is_module(above) else None
        if package is None or not package.submodule_search_locations:
            return False
    return importlib.util.find_spec(name) is not None


def closure(modules: Iterable[str]) -> dict[str, str]:
    """Return the modules and all project modules they import, including imports inside functions.

    `FRAME` and packages that contain only a docstring are left out.

    Returns:
      Module -> the part of its source that counts.
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
    """Return the hash of all sources in the `closure` of these modules."""
    return sha256(closure(modules))


@functools.cache
def commit() -> str:
    """Return the source's git commit, noting uncommitted changes in the packages; empty outside a git checkout."""
    here = str(pathlib.Path(__file__).resolve().parents[2])

    def git(*words: str) -> str:
        return subprocess.run(['git', '--no-optional-locks', '-C', here, *words], capture_output=True, text=True,
                              check=True, timeout=60).stdout.strip()
    try:
        git('ls-files', '--error-unmatch', os.path.relpath(__file__, here))  # fails inside another project's repository
        return git('rev-parse', 'HEAD') + (' with changes' if git('status', '--porcelain', '--', *PACKAGES) else '')
    except (OSError, subprocess.SubprocessError):
        return ''
