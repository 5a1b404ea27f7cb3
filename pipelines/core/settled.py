"""Remember that a command had nothing to do, so that the next time it says so without TensorFlow.

Looking a stage up needs the resolved configuration, and so the data and model modules, which import TensorFlow: 3 s of
CPU. Everything such a look-up reads is compared here instead: the configuration as its user wrote it, all sources, the
lineage, and the files that stages watch. If any of it differs, the stages are looked up.
"""
import contextlib
import dataclasses
import importlib.util
import io
import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from data_prep.core import files
from pipelines.core import artifacts, places, stores
from pipelines.core.artifacts import Artifact
from pipelines.core.stage import get, say_skipped

if TYPE_CHECKING:  # imports TensorFlow
    from pipelines.core.pipeline import Pipeline

_FILE = 'settled.json'  # of a pipeline root


@dataclasses.dataclass(frozen=True)
class Settled:
    """Stages that are up to date.

    Attributes:
      results: outputs by key, by stage, in the order of the stages.
      example: input to try the model on, if they are those of a whole run, see `pipelines/run.py`.
    """
    results: dict[str, dict[str, Artifact]]
    example: dict[str, str]

    def say(self) -> None:
        for name, outputs in self.results.items():
            say_skipped(name, outputs)


class Memory:
    """The stages of a configuration that were found to be up to date in a pipeline root.

    Args:
      place: of the configuration.
    """

    def __init__(self, place: places.Place):
        self.place, self._path = place, os.path.join(place.root, _FILE)
        self._key = artifacts.sha256([place.raw.values, place.root, os.getcwd(), _sources()])

    def recall(self, stages: Sequence[str] = ()) -> Settled | None:
        """Return the outputs of stages, or None if they must be looked up.

        Args:
          stages: their names; by default, those of the last whole run.
        """
        known = self._known()
        if not known or not (names := stages or known['run']) or not {*names} <= {*known['results']}:
            return None
        results = {name: {key: Artifact(**each) for key, each in known['results'][name].items()} for name in names}
        whole = all(files.exists(artifact.uri) for outputs in results.values() for artifact in outputs.values())
        if not whole or not all(get(name).is_up_to_date(outputs) for name, outputs in results.items()):
            return None
        return Settled(results, known['example'])

    def remember(self, pipeline: 'Pipeline', example: dict[str, str] | None = None) -> None:
        """Look up once more the stages a pipeline has run or skipped, and remember them if all are up to date.

        Files are looked at before the stages are, so that a change in between is noticed the next time.

        Args:
          example: see `Settled`; given if the pipeline has run them all.
        """
        watched = _watched(pipeline)
        if watched is None:
            return
        stats, again = _stats(watched), pipeline.reopened()
        with contextlib.redirect_stdout(io.StringIO()):  # a stage's remarks were printed when it ran
            if not all(again.finished(name) for name in pipeline.looked_up):
                return
        known = self._known() or {'files': {}, 'results': {}, 'run': [], 'example': {}}
        results = {name: {key: vars(artifact) for key, artifact in again.outputs(name).items()}
                   for name in pipeline.looked_up}
        if example is not None:
            known |= {'run': pipeline.looked_up, 'example': example}
        known |= {'key': self._key, 'files': known['files'] | stats, 'results': known['results'] | results}
        temporary = f'{self._path}.{os.getpid()}'
        with contextlib.suppress(OSError):  # the work itself is done; it can be looked up as well
            with open(temporary, 'w', encoding='utf-8') as file:
                json.dump(known, file)
            os.replace(temporary, self._path)

    def _known(self) -> dict[str, Any] | None:
        """Return what is remembered, unless something it depends on has changed since."""
        try:
            known = json.loads(files.content(self._path))
            return known if known['key'] == self._key and known['files'] == _stats(known['files']) else None
        except (OSError, ValueError, TypeError, KeyError):
            return None  # there is none yet, or it is damaged


def _watched(pipeline: 'Pipeline') -> list[str] | None:
    """Return the files that decide, with the lineage, whether stages are up to date; None if that cannot be listed."""
    watched, seen, todo = [os.path.join(pipeline.root, stores.FILE)], set(), [*pipeline.looked_up]
    while todo:
        if (name := todo.pop()) not in seen:
            seen.add(name)
            stage = get(name, pipeline.config)
            todo += stage.needs
            own = stage.watched(pipeline.config)
            if own is None:
                return None
            watched += own
    return None if any('://' in path for path in watched) else watched


def _stats(paths: Iterable[str]) -> dict[str, list[int] | None]:
    """Return sizes and times of files; None for those that do not exist."""
    return {path: [stat.st_size, stat.st_mtime_ns] if (stat := _stat(path)) else None for path in paths}


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _sources() -> str:
    """Return a hash of all files of the project's packages."""
    found = {}
    for package in artifacts.PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec and spec.submodule_search_locations
        found[package] = artifacts.source_hashes(spec.submodule_search_locations[0])
    return artifacts.sha256(found)
