"""Artifacts and their lineage: TFX's type names, content digests, and ML Metadata on SQLite."""
import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from ml_metadata import errors, metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from data_prep import UserError
from data_prep.core import files, records

STORE = 'metadata.sqlite'
_PACKAGES = ('pipelines', 'data_prep', 'keras_models')
# Modules excluded from every stage's source hash, each with the reason why it cannot change a stage's result.
FRAME = {
    **dict.fromkeys(('pipelines', 'pipelines.core.stage', 'pipelines.core.pipeline', 'pipelines.core.artifacts'),
                    'looks up, skips and records; a better message in it must not cost a training run'),
    **dict.fromkeys(('pipelines.core.cli', 'pipelines.engines.beam_flags', 'pipelines.engines.dataflow'),
                    'reads flags; the choice of a Beam runner changes no byte of a data set'),
    **dict.fromkeys(('pipelines.core.config', 'pipelines.core.renamed', 'pipelines.core.roles',
                     'pipelines.core.shipped', 'keras_models.protocol', 'data_prep.core.protocol'),
                    'resolves the configuration, whose values are in the fingerprint'),
    'pipelines.core.compatibility': 'only accepts or refuses data',
    **dict.fromkeys(('pipelines.core.commands', 'pipelines.core.explain', 'pipelines.core.flow',
                     'pipelines.core.machine', 'pipelines.core.progress'), 'prints'),
    'pipelines.training.teacher': 'interactive lessons, which no stage runs',
    **dict.fromkeys(('pipelines.reporting.report', 'pipelines.reporting.answers', 'pipelines.reporting.data_section',
                     'pipelines.reporting.figures', 'pipelines.reporting.pages', 'pipelines.reporting.reading',
                     'pipelines.reporting.strips'),
                    'renders results; the gate does not read it'),
    'pipelines.training.divergence': 'only explains why training stopped'}
# Files copied verbatim into outputs, so their comments and layout count.
_COPIED = 'pipelines.serving.kit'
_NO_CODE = ast.dump(ast.Module([], []))
_TYPES = ('Examples', 'ExampleStatistics', 'Schema', 'ExampleAnomalies', 'ModelRun', 'Model', 'ModelEvaluation',
          'ModelBlessing', 'InfraBlessing', 'PushedModel', 'Report')
_ARTIFACT_PROPERTIES = {'digest': mlmd.STRING, 'key': mlmd.STRING}
_EXECUTION_PROPERTIES = {'fingerprint': mlmd.STRING, 'source': mlmd.STRING, 'config': mlmd.STRING,
                         'process': mlmd.STRING, 'found': mlmd.STRING, 'commit': mlmd.STRING}


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
    for directory, _, names in tf.io.gfile.walk(folder):
        for file in names:
            path = os.path.join(directory, file)
            hashes[os.path.relpath(path, folder)] = files.sha256(path)[0]
    return hashes


def version_folders(folder: str) -> list[str]:
    """Return the integer-named folders of a serving destination, lowest first; empty if it does not exist."""
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    numbers = [name.rstrip('/') for name in names if re.fullmatch('[0-9]+/?', name)]
    paths = [os.path.join(folder, number) for number in sorted(numbers, key=int)]
    return [path for path in paths if tf.io.gfile.isdir(path)]


def digest(folder: str) -> str:
    """Return a content digest: of the manifest for a data set (it holds the shards' hashes), else of all files."""
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
    own = {name for name in found if name.split('.')[0] in _PACKAGES and _is_module(name)}
    if module == _COPIED:
        text = sha256({path: digest for path, digest in file_hashes(os.path.dirname(spec.origin)).items()
                       if not path.startswith('__pycache__')})
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
        return git('rev-parse', 'HEAD') + (' with changes' if git('status', '--porcelain', '--', *_PACKAGES) else '')
    except (OSError, subprocess.SubprocessError):
        return ''


def root_of(path: str) -> str | None:
    """Return the nearest folder above `path` that has a metadata store, or None."""
    above = path.rstrip('/') if '://' in path else os.path.abspath(path)
    while os.path.dirname(above) not in (above, ''):
        above = os.path.dirname(above)
        if tf.io.gfile.exists(os.path.join(above, STORE)):
            return above
    return None


@contextlib.contextmanager
def opened(root: str) -> Iterator['Metadata']:
    """Open the metadata store of a pipeline root; from an object store, a local copy, since SQLite needs a local file.

    Raises:
      UserError: the root has no metadata store.
    """
    path = os.path.join(root, STORE)
    if not tf.io.gfile.exists(path):
        raise UserError(f'{root} has no {STORE}, so no record of its runs exists. Give another '
                        '--pipeline_root.')
    with tempfile.TemporaryDirectory() as scratch:
        if '://' in root:
            path = os.path.join(scratch, STORE)
            tf.io.gfile.copy(os.path.join(root, STORE), path)
        yield Metadata(path, '')


class Metadata:
    """Executions and artifacts of one pipeline root.

    Args:
      path: the SQLite file.
      pipeline: the pipeline's name, MLMD's context.

    Raises:
      UserError: the file cannot be opened as a metadata store.
    """

    def __init__(self, path: str, pipeline: str):
        connection = mlmd.ConnectionConfig()
        connection.sqlite.filename_uri = path
        connection.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
        connection.retry_options.max_num_retries = 10
        try:
            self._store = metadata_store.MetadataStore(connection)
            self._artifact_types = {name: self._store.put_artifact_type(
                mlmd.ArtifactType(name=name, properties=_ARTIFACT_PROPERTIES), can_add_fields=True) for name in _TYPES}
            context_type = self._store.put_context_type(mlmd.ContextType(name='pipeline'))
        except (errors.StatusError, RuntimeError) as error:
            raise UserError(f'{path} cannot be opened as the metadata store ({str(error).splitlines()[0]}). '
                            'Choose another --pipeline_root, or move the damaged file away.') from error
        self._context = mlmd.Context(type_id=context_type, name=pipeline)

    def begin(self, stage: str, fingerprint: str, source: str, config: str) -> mlmd.Execution:
        """Record a running execution and mark those that a killed process left running as failed.

        The caller holds the lock of this work, so no other process can still be running it.
        """
        type_id = self._store.put_execution_type(
            mlmd.ExecutionType(name=stage, properties=_EXECUTION_PROPERTIES), can_add_fields=True)
        for execution in self._find(f'type = "{stage}" AND last_known_state = RUNNING'):
            same_work = execution.properties['fingerprint'].string_value == fingerprint
            if same_work or not alive(execution.properties['process'].string_value):
                execution.last_known_state = mlmd.Execution.FAILED
                self._store.put_executions([execution])
        execution = mlmd.Execution(type_id=type_id, last_known_state=mlmd.Execution.RUNNING)
        for key, value in {'fingerprint': fingerprint, 'source': source, 'config': config, 'commit': commit(),
                           'process': f'{socket.gethostname()} {os.getpid()}'}.items():
            execution.properties[key].string_value = value
        [execution.id] = self._store.put_executions([execution])
        return execution

    def fail(self, execution: mlmd.Execution) -> None:
        execution.last_known_state = mlmd.Execution.FAILED
        self._store.put_executions([execution])

    def publish(self, execution: mlmd.Execution, inputs: Iterable[Artifact],
                outputs: dict[str, tuple[str, str, str]], properties: dict) -> None:
        """Mark an execution complete and record events and outputs (key -> type, uri, digest) in one transaction."""
        execution.last_known_state = mlmd.Execution.COMPLETE
        execution.properties['found'].string_value = json.dumps(properties, sort_keys=True)
        stored = self._store.get_artifacts_by_id([artifact.id for artifact in inputs])
        pairs = [(artifact, mlmd.Event(type=mlmd.Event.INPUT)) for artifact in stored]
        for key, (type_name, uri, content) in outputs.items():
            artifact = mlmd.Artifact(type_id=self._artifact_types[type_name], uri=uri, state=mlmd.Artifact.LIVE)
            artifact.properties['digest'].string_value = content
            artifact.properties['key'].string_value = key
            pairs.append((artifact, mlmd.Event(type=mlmd.Event.OUTPUT)))
        self._store.put_execution(execution, pairs, [self._context], reuse_context_if_already_exist=True)

    def completed(self, stage: str, fingerprint: str | None = None) -> list[tuple[int, str, dict[str, Artifact]]]:
        """Return completed executions, newest first: (id, source hash, outputs by key)."""
        query = f'type = "{stage}" AND last_known_state = COMPLETE'
        if fingerprint:
            query += f' AND properties.fingerprint.string_value = "{fingerprint}"'
        return [(execution.id, execution.properties['source'].string_value, self._outputs(execution))
                for execution in self._find(query)]

    def unrecorded(self, stage: str, fingerprint: str) -> list[int]:
        """Return the ids of unfinished executions of the same work."""
        return [execution.id for execution in self._find(
            f'type = "{stage}" AND last_known_state != COMPLETE AND '
            f'properties.fingerprint.string_value = "{fingerprint}"')]

    def inputs_of(self, execution_id: int) -> list[int]:
        """Return the ids of the artifacts an execution read."""
        return [event.artifact_id for event in self._store.get_events_by_execution_ids([execution_id])
                if event.type == mlmd.Event.INPUT]

    def executions(self, key: str) -> list[Execution]:
        """Return the completed executions of any stage with an output of this key, newest first."""
        found = map(self._described, self._find('last_known_state = COMPLETE'))
        return [execution for execution in found if key in execution.outputs]

    def made(self, artifacts: Iterable[int]) -> list[Execution]:
        """Return the executions that made these artifacts."""
        ids = {event.execution_id for event in self._store.get_events_by_artifact_ids([*artifacts])
               if event.type == mlmd.Event.OUTPUT}
        return [self._described(execution) for execution in self._store.get_executions_by_id(sorted(ids))]

    def digests(self, type_name: str) -> list[tuple[int, str, str]]:
        """Return (id, path, content digest) of every artifact of a type, newest first."""
        found = self._store.get_artifacts_by_type(type_name)
        return sorted(((artifact.id, artifact.uri, artifact.properties['digest'].string_value)
                       for artifact in found), reverse=True)

    def _described(self, execution: mlmd.Execution) -> Execution:
        text = {key: execution.properties[key].string_value for key in ('config', 'source', 'commit', 'found')}
        return Execution(execution.id, execution.type, text['config'], text['source'], text['commit'],
                         execution.create_time_since_epoch / 1000,
                         execution.last_update_time_since_epoch / 1000, json.loads(text['found'] or '{}'),
                         self.inputs_of(execution.id), self._outputs(execution))

    def _find(self, query: str) -> list[mlmd.Execution]:
        try:
            return self._store.get_executions(metadata_store.ListOptions(
                filter_query=query, order_by=metadata_store.OrderByField.ID, is_asc=False))
        except errors.NotFoundError:
            return []

    def _outputs(self, execution: mlmd.Execution) -> dict[str, Artifact]:
        ids = [event.artifact_id for event in self._store.get_events_by_execution_ids([execution.id])
               if event.type == mlmd.Event.OUTPUT]
        found = json.loads(execution.properties['found'].string_value or '{}')
        return {artifact.properties['key'].string_value: Artifact(
            artifact.id, artifact.type, artifact.uri, artifact.properties['digest'].string_value, found)
            for artifact in self._store.get_artifacts_by_id(ids)}


def alive(process: str) -> bool:
    """Return whether the process `<host> <pid>` is still running, as far as this host can tell."""
    host, _, pid = process.rpartition(' ')
    if host != socket.gethostname():
        return True  # on another host, so assume that it runs
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True
