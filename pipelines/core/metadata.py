"""Lineage: executions of stages and the artifacts they read and wrote, in ML Metadata with TFX's type names."""
import json
import os
from collections.abc import Iterable

from ml_metadata import errors, metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from data_prep import UserError
from data_prep.core import files, records
from pipelines.core import artifacts, locks, stores
from pipelines.core.artifacts import Artifact, Execution

_ARTIFACT_PROPERTIES = {'digest': mlmd.STRING, 'key': mlmd.STRING}
_EXECUTION_PROPERTIES = {'fingerprint': mlmd.STRING, 'source': mlmd.STRING, 'config': mlmd.STRING,
                         'process': mlmd.STRING, 'found': mlmd.STRING, 'commit': mlmd.STRING}
_PIPELINE, _ROOT = 'pipeline', 'pipeline_root'  # types of contexts
_SHARED = 'metadata.address'  # a root's file that names the shared store of its lineage


class Metadata:
    """Executions and artifacts of one pipeline root.

    Args:
      address: of the store, see `stores.open_store`.
      pipeline: the pipeline's name, MLMD's context.
      root: the root, if the store has several; then only its executions are returned.

    Raises:
      UserError: the store cannot be opened.
    """

    def __init__(self, address: str, pipeline: str, root: str | None = None):
        self._store, self._root = stores.open_store(address), root
        self._contexts = {_PIPELINE: pipeline, **({_ROOT: root} if root else {})}

    def begin(self, stage: str, fingerprint: str, source: str, config: str) -> mlmd.Execution:
        """Record a running execution and mark those that a killed process left running as failed.

        The caller holds the lock of this work, so no other process can still be running it.
        """
        texts = {'fingerprint': fingerprint, 'source': source, 'config': config, 'commit': artifacts.commit(),
                 'process': locks.process()}

        def change(store: metadata_store.MetadataStore) -> mlmd.Execution:
            for left in self._find(store, f'type = "{stage}" AND last_known_state = RUNNING'):
                same_work = left.properties['fingerprint'].string_value == fingerprint
                if same_work or not locks.alive(left.properties['process'].string_value):
                    left.last_known_state = mlmd.Execution.FAILED
                    store.put_executions([left])
            type_id = store.put_execution_type(
                mlmd.ExecutionType(name=stage, properties=_EXECUTION_PROPERTIES), can_add_fields=True)
            execution = mlmd.Execution(type_id=type_id, last_known_state=mlmd.Execution.RUNNING)
            for key, value in texts.items():
                execution.properties[key].string_value = value
            execution.id, _, _ = self._put(store, execution, [])
            return execution
        return self._store.write(change)

    def fail(self, execution: mlmd.Execution) -> None:
        execution.last_known_state = mlmd.Execution.FAILED
        self._store.write(lambda store: store.put_executions([execution]))

    def publish(self, execution: mlmd.Execution, inputs: Iterable[Artifact],
                outputs: dict[str, tuple[str, str, str]], properties: dict) -> None:
        """Mark an execution complete and record events and outputs (key -> type, uri, digest) in one transaction."""
        execution.last_known_state = mlmd.Execution.COMPLETE
        execution.properties['found'].string_value = json.dumps(properties, sort_keys=True)
        read = [artifact.id for artifact in inputs]

        def change(store: metadata_store.MetadataStore) -> None:
            [recorded] = store.get_executions_by_id([execution.id])
            if recorded.last_known_state == mlmd.Execution.COMPLETE:
                return  # by an earlier attempt whose answer was lost
            pairs = [(artifact, mlmd.Event(type=mlmd.Event.INPUT)) for artifact in store.get_artifacts_by_id(read)]
            for key, (type_name, uri, content) in outputs.items():
                type_id = store.put_artifact_type(
                    mlmd.ArtifactType(name=type_name, properties=_ARTIFACT_PROPERTIES), can_add_fields=True)
                artifact = mlmd.Artifact(type_id=type_id, uri=uri, state=mlmd.Artifact.LIVE)
                artifact.properties['digest'].string_value = content
                artifact.properties['key'].string_value = key
                pairs.append((artifact, mlmd.Event(type=mlmd.Event.OUTPUT)))
            self._put(store, execution, pairs)
        self._store.write(change)

    def completed(self, stage: str, fingerprint: str | None = None) -> list[tuple[int, str, dict[str, Artifact]]]:
        """Return completed executions, newest first: (id, source hash, outputs by key)."""
        query = f'type = "{stage}" AND last_known_state = COMPLETE'
        if fingerprint:
            query += f' AND properties.fingerprint.string_value = "{fingerprint}"'
        store = self._store.read()
        return [(execution.id, execution.properties['source'].string_value, _outputs(store, execution))
                for execution in self._find(store, query)]

    def unrecorded(self, stage: str, fingerprint: str) -> list[int]:
        """Return the ids of unfinished executions of the same work."""
        return [execution.id for execution in self._find(
            self._store.read(), f'type = "{stage}" AND last_known_state != COMPLETE AND '
            f'properties.fingerprint.string_value = "{fingerprint}"')]

    def inputs_of(self, execution_id: int) -> list[int]:
        """Return the ids of the artifacts an execution read."""
        return _artifact_ids(self._store.read(), execution_id, mlmd.Event.INPUT)

    def executions(self, key: str) -> list[Execution]:
        """Return the completed executions of any stage with an output of this key, newest first."""
        store = self._store.read()
        found = [_described(store, each) for each in self._find(store, 'last_known_state = COMPLETE')]
        return [execution for execution in found if key in execution.outputs]

    def made(self, artifacts: Iterable[int]) -> list[Execution]:
        """Return the executions that made these artifacts."""
        store = self._store.read()
        ids = {event.execution_id for event in store.get_events_by_artifact_ids([*artifacts])
               if event.type == mlmd.Event.OUTPUT}
        return [_described(store, execution) for execution in store.get_executions_by_id(sorted(ids))]

    def digests(self, type_name: str) -> list[tuple[int, str, str]]:
        """Return (id, path, content digest) of every artifact of a type, newest first."""
        store = self._store.read()
        return [(artifact.id, artifact.uri, artifact.properties['digest'].string_value)
                for artifact in self._query(store, store.get_artifacts, f'type = "{type_name}"')]

    def roots(self) -> list[str]:
        """Return the pipeline roots of a store that has several."""
        try:
            return sorted(context.name for context in self._store.read().get_contexts_by_type(_ROOT))
        except errors.NotFoundError:
            return []

    def _put(self, store: metadata_store.MetadataStore, execution: mlmd.Execution, pairs: list) -> tuple:
        """Write an execution with its artifacts, events and contexts in one transaction, and return their ids."""
        contexts = [mlmd.Context(type_id=store.put_context_type(mlmd.ContextType(name=kind)), name=name)
                    for kind, name in self._contexts.items()]
        return store.put_execution(execution, pairs, contexts, reuse_context_if_already_exist=True)

    def _find(self, store: metadata_store.MetadataStore, query: str) -> list[mlmd.Execution]:
        return self._query(store, store.get_executions, query)

    def _query(self, store: metadata_store.MetadataStore, get, query: str) -> list:
        """Return what `get` finds by a query in this root, newest first."""
        try:
            if self._root:
                context = store.get_context_by_type_and_name(_ROOT, self._root)
                if context is None:
                    return []
                query += f' AND contexts_root.id = {context.id}'
            return get(metadata_store.ListOptions(
                filter_query=query, order_by=metadata_store.OrderByField.ID, is_asc=False))
        except errors.NotFoundError:
            return []


def of_root(root: str, pipeline: str) -> Metadata:
    """Open the lineage of a pipeline root, creating it if necessary; a root in a shared store keeps its address.

    Raises:
      UserError: the root's lineage lies in another store than the one the environment names.
    """
    recorded, address = _address(root), stores.address(root)
    if recorded and recorded != address.partition('?')[0]:
        is_own = recorded == os.path.join(root, stores.FILE)
        remedy = f'Unset {stores.ADDRESS}' if is_own else f'Set {stores.ADDRESS} to the former'
        raise UserError(f'{root} has its lineage in {recorded}, not in {address}. {remedy}, or give another '
                        '--pipeline_root.')
    found = Metadata(address, pipeline, _absolute(root) if stores.shared() else None)
    if stores.shared() and not recorded:
        files.gfile().makedirs(root)
        records.write_atomically(os.path.join(root, _SHARED), address.partition('?')[0].encode())
    return found


def opened(root: str) -> Metadata:
    """Open the lineage of a pipeline root that has one.

    Raises:
      UserError: it has none, or it lies in another store than the one the environment names.
    """
    if not _address(root):
        raise UserError(f'{root} has no {stores.FILE}, so no record of its runs exists. Give another --pipeline_root.')
    return of_root(root, '')


def root_of(path: str) -> str | None:
    """Return the nearest folder above `path` that is a pipeline root with lineage, or None."""
    above = _absolute(path)
    while os.path.dirname(above) not in (above, ''):
        above = os.path.dirname(above)
        if _address(above):
            return above
    return None


def roots() -> list[str]:
    """Return all pipeline roots of the shared store, or those in `runs/`."""
    if shared := stores.shared():
        return Metadata(shared, '').roots()
    return sorted(map(os.path.dirname, files.matching(os.path.join('runs', '*', stores.FILE))))


def _address(root: str) -> str | None:
    """Return the address of a root's lineage as the root itself knows it; None if it has none.

    Nothing ever connects to an address only because a folder names it: that would hand the password to its owner.
    """
    path = os.path.join(root, _SHARED)
    if files.exists(path):
        return files.content(path).decode()
    path = os.path.join(root, stores.FILE)
    return path if files.exists(path) else None


def _absolute(path: str) -> str:
    return path.rstrip('/') if '://' in path else os.path.abspath(path)


def _described(store: metadata_store.MetadataStore, execution: mlmd.Execution) -> Execution:
    text = {key: execution.properties[key].string_value for key in ('config', 'source', 'commit', 'found')}
    return Execution(execution.id, execution.type, text['config'], text['source'], text['commit'],
                     execution.create_time_since_epoch / 1000, execution.last_update_time_since_epoch / 1000,
                     json.loads(text['found'] or '{}'), _artifact_ids(store, execution.id, mlmd.Event.INPUT),
                     _outputs(store, execution))


def _outputs(store: metadata_store.MetadataStore, execution: mlmd.Execution) -> dict[str, Artifact]:
    found = json.loads(execution.properties['found'].string_value or '{}')
    return {artifact.properties['key'].string_value: Artifact(
        artifact.id, artifact.type, artifact.uri, artifact.properties['digest'].string_value, found)
        for artifact in store.get_artifacts_by_id(_artifact_ids(store, execution.id, mlmd.Event.OUTPUT))}


def _artifact_ids(store: metadata_store.MetadataStore, execution_id: int, kind: int) -> list[int]:
    return [event.artifact_id for event in store.get_events_by_execution_ids([execution_id]) if event.type == kind]
