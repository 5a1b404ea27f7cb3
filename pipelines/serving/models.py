"""The server's models: which versions are loaded, and how a new one takes over without failing a request."""
import asyncio
import concurrent.futures
import contextlib
import dataclasses
import gc
import glob
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from data_prep import UserError
from pipelines.core import artifacts
from pipelines.serving import labels, loaded, published, recorded, signatures
from pipelines.serving.batching import Batcher, Limits
from pipelines.serving.failure import Failure, invalid, of_model
from pipelines.serving.kit import model_name
from pipelines.serving.layout import WARMUP
from pipelines.serving.loaded import NOTHING, Loaded
from pipelines.serving.monitoring import Monitor
from pipelines.serving.signatures import Signature

START, LOADING, AVAILABLE, UNLOADING, END = 'START', 'LOADING', 'AVAILABLE', 'UNLOADING', 'END'
RETRY = 60  # seconds before loading a failed version is tried again


@dataclasses.dataclass(eq=False)
class Version:
    """One version of a model and its state, named as in TensorFlow Serving.

    Attributes:
      error: why it could not be loaded.
      users: requests that are using it.
    """
    name: str
    number: int
    path: str
    state: str = START
    error: str = ''
    loaded: Loaded = NOTHING
    signatures: dict[str, Signature] = dataclasses.field(default_factory=dict)
    batchers: dict[str, Batcher] = dataclasses.field(default_factory=dict)
    users: int = 0
    retry_at: float = 0.0

    @property
    def model(self) -> Any:
        return self.loaded.model

    @property
    def description(self) -> dict:
        return self.model.description

    def signature(self, name: str, code: str = 'INVALID_ARGUMENT') -> Signature:
        """Return a signature; a missing one has different codes over REST and gRPC, as in TensorFlow Serving."""
        if name not in self.signatures:
            raise Failure(code, f'Serving signature name: "{name}" not found in signature def'
                          if code == 'INVALID_ARGUMENT' else f'Serving signature key "{name}" not found.')
        return self.signatures[name]


@dataclasses.dataclass(eq=False)
class Model:
    """A served destination of pushes: versions by number, labels of versions, and the version that answers.

    Attributes:
      complaint: why the labels of its configuration file could not be read.
    """
    name: str
    destination: str
    labels: dict[str, int] = dataclasses.field(default_factory=dict)
    complaint: str = ''
    versions: dict[int, Version] = dataclasses.field(default_factory=dict)

    def find(self, number: int | None = None, label: str | None = None) -> Version:
        """Return the version a request names; by default the latest.

        Raises:
          Failure: it is not available, in TensorFlow Serving's words.
        """
        if label is not None:
            if label not in self.labels:
                raise invalid(f'Unrecognized servable version label: {label}')
            number = self.labels[label]
        available = [each for each in self.versions.values() if each.state == AVAILABLE]
        if number is None and available:
            return max(available, key=lambda each: each.number)
        for version in available:
            if version.number == number:
                return version
        asked = f'Latest({self.name})' if number is None else f'Specific({self.name}, {number})'
        raise Failure('NOT_FOUND', f'Servable not found for request: {asked}')


class Models:
    """All models of a server; runs on its event loop.

    Args:
      find: returns the destinations by name; called at every check, so that models pushed later appear.
      workers: threads that compute batches.
      keep: newest versions of each model that stay loaded.
      labels: by model, versions by label; they come before those of the models' configuration files.
      limits: of every batcher, except workers and sizes, which depend on the model.
      open_version: loads the folder of a version.
    """

    def __init__(self, find: Callable[[], dict[str, str]], limits: Limits, monitor: Monitor, workers: int,
                 keep: int = 1, labels: dict[str, dict[str, int]] | None = None,
                 open_version: Callable[[str], Loaded] = loaded.load):
        self.models: dict[str, Model] = {}
        self.monitor = monitor
        self.pool = concurrent.futures.ThreadPoolExecutor(workers, 'compute')
        self._loader = concurrent.futures.ThreadPoolExecutor(1, 'load')
        self._find, self._limits, self._keep, self._labels = find, limits, keep, labels or {}
        self._open = open_version
        self._unloading: set[asyncio.Task] = set()
        self._calls = 0

    def get(self, name: str) -> Model:
        if name not in self.models:
            raise Failure('NOT_FOUND', f'Servable not found for request: Latest({name})')
        return self.models[name]

    @contextlib.contextmanager
    def use(self, name: str, number: int | None = None, label: str | None = None) -> Iterator[Version]:
        """Provide the version a request names, which stays loaded while it is used."""
        if name not in self.models and number is not None:
            raise Failure('NOT_FOUND', f'Servable not found for request: Specific({name}, {number})')
        version = self.get(name).find(number, label)
        version.users += 1
        try:
            yield version
        finally:
            version.users -= 1

    async def predict(self, version: Version, signature: str, inputs: Mapping[str, np.ndarray],
                      timeout: float) -> dict[str, np.ndarray]:
        """Compute a signature's outputs, batched with other requests if it takes rows."""
        version.signatures[signature].check(inputs)
        batcher = version.batchers[signature]
        count = signatures.rows(inputs) if version.signatures[signature].takes_rows else None
        if count:
            return await batcher.submit(inputs, count, timeout)
        try:
            return await self.call(timeout, version.loaded.functions[signature], inputs)
        except Exception as error:
            raise of_model(error) from error

    async def call(self, timeout: float, function: Callable, *arguments):
        """Run a function on a thread of the pool, unless too many calls are waiting."""
        if self._calls >= self._limits.queue // 16:
            raise Failure('RESOURCE_EXHAUSTED', f'{self._calls} requests are running or waiting. Try again later.', 1)
        deadline = time.monotonic() + timeout

        def begin():
            if time.monotonic() > deadline:
                raise Failure('UNAVAILABLE', f'No worker was free for {timeout:g} s. Try again later.', 1)
            return function(*arguments)
        self._calls += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self.pool, begin)
        finally:
            self._calls -= 1

    async def look(self) -> None:
        """Check once for versions pushed or rolled back since the last check, and load them."""
        loop = asyncio.get_running_loop()
        for name, destination in (await loop.run_in_executor(self._loader, self._find)).items():
            model = self.models.get(name)
            if model is None:
                model = self.models[name] = Model(name, destination)
            await loop.run_in_executor(self._loader, self._read_labels, model)
            while wanted := await loop.run_in_executor(self._loader, self._wanted, model):
                for version in wanted:
                    await self._load(model, version)
            self._unload(model)

    def _read_labels(self, model: Model) -> None:
        """Take the labels of a model's configuration file; keep the former ones if it cannot be read."""
        complaint = ''
        try:
            model.labels = {**labels.read(model.destination), **self._labels.get(model.name, {})}
        except UserError as error:
            complaint = str(error)
        if complaint and complaint != model.complaint:
            print(f'serve: {complaint}', flush=True)
        model.complaint = complaint

    def _wanted(self, model: Model) -> list[Version]:
        """Return the versions to load now, newest first; older ones too while newer ones cannot be loaded."""
        wanted, kept = [], 0
        for found in reversed(published.versions(model.destination)):
            version = model.versions.get(found.number)
            labelled = found.number in model.labels.values()
            if kept >= self._keep and not labelled:
                continue
            if version is None or version.state == END and time.monotonic() >= version.retry_at:
                if not found.loadable:  # a push to an object store is in progress
                    continue
                wanted.append(Version(model.name, found.number, found.path))
            elif version.state == END:
                continue
            kept += 1
        return wanted

    async def _load(self, model: Model, version: Version) -> None:
        version.state = LOADING
        model.versions[version.number] = version
        start = time.monotonic()
        try:
            await asyncio.get_running_loop().run_in_executor(self._loader, self._read, version)
        except Exception as error:  # another version keeps answering, whatever the error
            version.state, version.error, version.loaded = END, str(error), NOTHING
            version.retry_at = time.monotonic() + RETRY
            print(f'serve: {model.name} version {version.number} is not served: {error}', flush=True)
            return
        version.state = AVAILABLE
        which = f' as {version.loaded.format}' if version.loaded.format else ''
        print(f'serve: {model.name} version {version.number} is served{which}, loaded in '
              f'{time.monotonic() - start:.1f} s.', flush=True)

    def _read(self, version: Version) -> None:
        """Check, load and warm up a version, on the loader's thread."""
        version.loaded = self._open(version.path)
        known, functions = signatures.read(version.loaded.definitions), version.loaded.functions
        version.signatures = {name: known[name] for name in known if name in functions}
        limits = dataclasses.replace(self._limits, workers=version.loaded.workers, sizes=version.loaded.sizes)
        for name in version.signatures:
            version.batchers[name] = Batcher(functions[name], self.pool, limits, self.monitor, version.name)
        for name, inputs in warmup_requests(version.path):
            for size in limits.sizes or (1,):
                functions[name]({key: np.repeat(value, size, 0) for key, value in inputs.items()})

    def _unload(self, model: Model) -> None:
        """Unload versions replaced by newer ones."""
        available = sorted((each for each in model.versions.values() if each.state == AVAILABLE),
                           key=lambda each: -each.number)
        for version in available[self._keep:]:
            if version.number not in model.labels.values():
                version.state = UNLOADING
                task = asyncio.get_running_loop().create_task(self._release(model, version))
                self._unloading.add(task)
                task.add_done_callback(self._unloading.discard)
        for version in sorted(model.versions.values(), key=lambda each: -each.number)[self._keep + 8:]:
            if version.state == END:  # the status lists the last unloaded versions
                del model.versions[version.number]

    async def _release(self, model: Model, version: Version) -> None:
        """Wait until no request uses a version, then free its memory."""
        while version.users:
            await asyncio.sleep(0.05)
        for batcher in version.batchers.values():
            await batcher.drain()
        version.batchers, version.signatures = {}, {}
        version.loaded, version.state = NOTHING, END
        await asyncio.get_running_loop().run_in_executor(self._loader, gc.collect)  # functions form cycles
        print(f'serve: {model.name} version {version.number} is no longer served.', flush=True)

    async def drain(self) -> None:
        """Wait until all requests are answered."""
        for model in self.models.values():
            for version in [*model.versions.values()]:
                while version.users:
                    await asyncio.sleep(0.01)

    def close(self) -> None:
        self._loader.shutdown(wait=False, cancel_futures=True)
        self.pool.shutdown(wait=False, cancel_futures=True)


def warmup_requests(path: str) -> Iterable[recorded.Request]:
    """Return the warm-up requests exported with a version."""
    file = os.path.join(path, WARMUP)
    return recorded.read(file) if tf.io.gfile.exists(file) else ()


def pushed(root: str = 'runs') -> dict[str, str]:
    """Return the destinations that pipelines below `root` have pushed to, by model name."""
    found: dict[str, str] = {}
    records = glob.glob(os.path.join(root, '*', 'push', '*', 'pushed_model', 'pushed_model.json'))
    for record in sorted(records, key=os.path.getmtime):
        with open(record, encoding='utf-8') as file:
            found[record] = json.load(file)['destination']
    folders = [folder.rstrip('/') for folder in glob.glob(os.path.join(root, '*', 'serving', '*', ''))]
    destinations = dict.fromkeys(os.path.normpath(each) if '://' not in each else each
                                 for each in (*folders, *found.values()) if not each.endswith('.kit'))
    return named(each for each in destinations if artifacts.version_folders(each))


def named(destinations) -> dict[str, str]:
    """Return destinations by model name.

    Raises:
      UserError: two have the same name.
    """
    result: dict[str, str] = {}
    for destination in destinations:
        name = model_name(destination.rstrip('/'))
        if result.setdefault(name, destination) != destination and \
                os.path.realpath(result[name]) != os.path.realpath(destination):
            raise UserError(f'{result[name]} and {destination} would both be served as {name}. Name the one to serve: '
                            f'`python -m pipelines.serve {destination}`.')
    return result
