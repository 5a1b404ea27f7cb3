"""Run a stage: look it up, skip or execute it, rename its outputs into place, record it."""
import contextlib
import os
import time
from collections.abc import Callable

import tensorflow as tf
import yaml

from data_prep import UserError
from data_prep.core import files, records
from pipelines.core import artifacts, children, commands, locks, metadata, roles
from pipelines.core import config as configs
from pipelines.core.artifacts import Artifact
from pipelines.core.config import Config
from pipelines.core.stage import STAGES, Context, Stage, get, say_skipped


class Pipeline:
    """One configuration in one pipeline root.

    Outputs lie in `<root>/<stage>/<execution id>/<output key>/…`, as in TFX; all outputs of an execution are renamed
    together. Metadata lies in `<root>/metadata.sqlite`, or where the environment says (`stores.address`). Unfinished
    work lies in `<root>/<stage>/.partial-<fingerprint>`; the same work started again finds it there, which is how
    training resumes.

    Args:
      config: the resolved configuration.
      root: folder for artifacts; any path TensorFlow can write.
      argv: flags passed on to Beam.
      flags: the user's --config, --set and --pipeline_root, for commands named in messages.
    """

    def __init__(self, config: Config, root: str, argv: list[str], flags: list[str] | None = None):
        self.config, self.root, self.argv = config, root, argv
        self._flags = flags or []
        self._metadata: metadata.Metadata | None = None
        self._results: dict[str, dict[str, Artifact]] = {}
        self.looked_up: list[str] = []  # stages run or skipped, in order
        self.skipped: list[str] = []
        self.seconds: dict[str, float] = {}

    @property
    def metadata(self) -> metadata.Metadata:
        if self._metadata is None:
            self._metadata = metadata.of_root(self.root, self.config.name)
        return self._metadata

    @property
    def destination(self) -> str:
        """The folder that serving watches."""
        return self.config.push.folder(self.root, self.config.name)

    def command(self, stage: str) -> str:
        return commands.line(stage, self._flags)

    def full_command(self, name: str) -> str:
        """Return the command that runs a stage as this process would, Beam's flags included."""
        stage = get(name, self.config)
        return commands.line(stage.name, [*self._flags, *(self.argv if stage.takes_beam_flags else [])])

    def work(self, name: str) -> str:
        """Return what identifies the work of a stage whose inputs are finished; equal work has one lock."""
        stage = get(name, self.config)
        return self._fingerprint(stage, self._inputs(stage))

    def run(self, stage: Stage) -> dict[str, Artifact]:
        """Execute a stage, or skip it when nothing it depends on has changed.

        Returns:
          Its outputs by key; none in a worker process, whose chief records them.
        """
        stage.check(self.config)
        inputs = self._inputs(stage)
        fingerprint = self._fingerprint(stage, inputs)
        cached = self._cached(stage, fingerprint)
        if cached is not None:
            say_skipped(stage.name, cached)
            self.skipped.append(stage.name)
        else:
            started = time.monotonic()
            cached = self._make(stage, inputs, fingerprint)
            self.seconds[stage.name] = time.monotonic() - started
        self._results[stage.name] = cached
        self.looked_up.append(stage.name)
        return cached

    def reopened(self) -> 'Pipeline':
        """Return a pipeline of the same configuration and root that has looked nothing up yet."""
        return Pipeline(self.config, self.root, self.argv, self._flags)

    def variant(self, overrides: list[str], root: str) -> 'Pipeline':
        """Return a pipeline of the same configuration with further `section.key=value` overrides, in another root."""
        flags = [part for flag, value in zip(self._flags[::2], self._flags[1::2]) if flag != '--pipeline_root'
                 for part in (flag, value)]
        flags += [part for override in overrides for part in ('--set', override)]
        given = [value for flag, value in zip(flags[::2], flags[1::2]) if flag == '--set']
        return Pipeline(configs.load(self.config.source or None, given), root, self.argv,
                        [*flags, '--pipeline_root', root])

    def perform(self, name: str, title: str) -> None:
        """Run a stage by its own command, in a process of its own, unless it is finished.

        Args:
          title: what this pipeline is among several, for the line that shows the command.

        Raises:
          SystemExit, UserError: it failed, see `children.run`.
        """
        if not self.finished(name):
            children.run(self.full_command(name), title)
            self.finished(name)  # looks up its outputs

    def outputs(self, name: str, make: bool = True) -> dict[str, Artifact]:
        """Return a stage's outputs for this configuration; a demo runs missing stages first.

        Args:
          make: False runs nothing, not even for a demo: for commands that only read.

        Raises:
          UserError: they are missing; the message names the command that makes them.
        """
        if name in self._results:
            return self._results[name]
        stage = get(name, self.config)
        if make and (self.config.is_demo or (name == 'prepare' and self.config.makes_its_data)):
            return self.run(stage)
        for need in stage.needs if make else ():
            self.outputs(need)
        if not self.finished(name):
            raise UserError(f'{self.root} has no finished {name} for this configuration. '
                            f'Run `{self.command(stage.name if make else "run")}` first.')
        return self._results[name]

    def finished(self, name: str) -> bool:
        """Return whether a stage and all before it are done for this configuration; then `outputs` has its results."""
        stage = get(name, self.config)
        if name not in self._results and all(self.finished(need) for need in stage.needs):
            found = self._cached(stage, self._fingerprint(stage, self._inputs(stage)))
            if found is not None:
                self._results[name] = found
        return name in self._results

    def _inputs(self, stage: Stage) -> dict[str, Artifact]:
        needs = [*stage.needs, *filter(self.finished, stage.takes)]
        return {key: artifact for need in needs for key, artifact in self.outputs(need).items()}

    def _fingerprint(self, stage: Stage, inputs: dict[str, Artifact]) -> str:
        values = self.config.values
        return artifacts.sha256({
            'stage': stage.name, 'seed': values['seed'] if stage.seeded else None,
            'sections': {name: values[name] for name in stage.sections},
            'inputs': {key: artifact.digest for key, artifact in inputs.items()}, 'also': stage.extra_inputs(self)})

    def _source(self, stage: Stage) -> str:
        return artifacts.source_hash([*stage.modules, *roles.sources(self.config, stage.roles)])

    def _cached(self, stage: Stage, fingerprint: str) -> dict[str, Artifact] | None:
        source = self._source(stage)
        for _, made_by, outputs in self.metadata.completed(stage.name, fingerprint):
            whole = all(tf.io.gfile.exists(artifact.uri) for artifact in outputs.values())
            if made_by == source and whole and stage.is_up_to_date(outputs):
                return outputs
        return None

    def _make(self, stage: Stage, inputs: dict[str, Artifact], fingerprint: str) -> dict[str, Artifact]:
        partial = os.path.join(self.root, stage.name, f'.partial-{fingerprint[:16]}')
        if stage.is_worker(self.config):
            stage.execute(self._context(stage, inputs, partial))
            return {}
        if any(get(name, self.config).is_worker(self.config) for name in STAGES):
            raise UserError(f'{self.root} has no finished {stage.name}, and only the chief worker '
                            f'can make it. Run `{self.command(stage.name)}` on one machine first.')
        with locks.held(partial, stage.name) as confirm_lock:
            cached = self._cached(stage, fingerprint)
            if cached is not None:
                return cached  # made by another process while this one waited for the lock
            for execution in self.metadata.unrecorded(stage.name, fingerprint):
                final = os.path.join(self.root, stage.name, str(execution))
                if tf.io.gfile.exists(final) and not tf.io.gfile.exists(partial):
                    _move(final, partial)  # killed between its rename and its record
            return self._execute(stage, inputs, fingerprint, partial, confirm_lock)

    def _context(self, stage: Stage, inputs: dict[str, Artifact], partial: str) -> Context:
        print(f'{stage.name}: started.', flush=True)
        outputs = {key: os.path.join(partial, key) for key in stage.outputs}
        for folder in outputs.values():
            tf.io.gfile.makedirs(folder)
        config = self.config
        if 'examples' in inputs:
            config = configs.with_data_set(config, records.read_manifest(inputs['examples'].uri).model)
        return Context(config, inputs, outputs, self.argv, {}, self)

    def _execute(self, stage: Stage, inputs: dict[str, Artifact], fingerprint: str,
                 partial: str, confirm_lock: Callable[[], None]) -> dict[str, Artifact]:
        context = self._context(stage, inputs, partial)
        outputs = context.outputs
        execution = self.metadata.begin(stage.name, fingerprint, self._source(stage),
                                        yaml.safe_dump(self.config.values, sort_keys=False))
        try:
            stage.execute(context)
            digests = {key: artifacts.digest(folder) for key, folder in outputs.items()}
            confirm_lock()
            final = os.path.join(self.root, stage.name, str(execution.id))
            while tf.io.gfile.exists(final):  # metadata was removed but artifacts were not; overwrite nothing
                final += '+'
            _move(partial, final)
            try:
                self.metadata.publish(execution, inputs.values(), {
                    key: (stage.outputs[key], os.path.join(final, key), digests[key]) for key in stage.outputs},
                    context.properties)
            except BaseException:
                _move(final, partial)  # not recorded: the next run must find the work in its place
                raise
        except BaseException:
            with contextlib.suppress(UserError):  # lineage cannot be written: the next run marks it
                self.metadata.fail(execution)
            raise
        return self.metadata.completed(stage.name, fingerprint)[0][2]


def _move(source: str, target: str) -> None:
    """Rename a folder; in an object store move it file by file, where metadata decides what is finished."""
    if '://' not in source:
        os.rename(source, target)
        return
    files.copy(source, target)
    tf.io.gfile.rmtree(source)


def fresh(folder: str) -> str:
    """Empty a stage's output folder, for a stage that starts over instead of resuming."""
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)
    tf.io.gfile.makedirs(folder)
    return folder
