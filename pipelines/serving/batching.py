"""Combine concurrent requests into batches, computed off the event loop.

A batch starts when a worker is free and its oldest request has waited a tenth of a batch's average time, at least
`delay` and at most `MAX_DELAY`; under load it then holds what arrived during the batch before. Everything in a batcher
except `_compute` runs on the event loop, so nothing is locked.
"""
import asyncio
import concurrent.futures
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping

import numpy as np

from pipelines.serving.failure import Failure, of_model
from pipelines.serving.monitoring import Monitor

Tensors = Mapping[str, np.ndarray]
MAX_DELAY = 0.02  # seconds


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits on batches and waiting requests.

    Attributes:
      rows: most rows in a batch.
      sizes: batch sizes a compiled model accepts, ascending; other batches are padded. Empty: any size.
      delay: seconds a request waits at least to join a batch.
      queue: rows that may wait; more are refused.
      workers: batches computed concurrently.
    """
    rows: int = 64
    sizes: tuple[int, ...] = ()
    delay: float = 0.002
    queue: int = 1024
    workers: int = 1


@dataclasses.dataclass(eq=False)
class _Request:
    inputs: Tensors
    rows: int
    kind: tuple  # requests of the same kind can share a batch
    length: int  # a measure of cost, to batch similar requests
    future: asyncio.Future
    arrived: float
    deadline: float


class Batcher:
    """The queue of one signature of one version.

    Args:
      run: computes one batch; called on a thread of `pool`.
      name: the model's name, for the metrics.
    """

    def __init__(self, run: Callable[[Tensors], dict[str, np.ndarray]], pool: concurrent.futures.Executor,
                 limits: Limits, monitor: Monitor, name: str):
        self._run, self._pool, self._limits, self._monitor, self._name = run, pool, limits, monitor, name
        self._waiting: list[_Request] = []
        self._waiting_rows = 0
        self._busy = 0
        self._timer: asyncio.TimerHandle | None = None
        self._seconds = 0.1  # average time of a batch, for Retry-After

    async def submit(self, inputs: Tensors, rows: int, timeout: float) -> dict[str, np.ndarray]:
        """Compute the outputs of one request.

        Args:
          inputs: [rows, …] each.
          timeout: seconds it may wait before its batch begins.

        Raises:
          Failure: it was refused, waited too long, or the model refused it.
        """
        limits = self._limits
        if rows > limits.queue:
            raise Failure('TOO_LARGE', f'{rows:,} rows exceed the queue of {limits.queue:,}. Send '
                          'them in several requests.')
        if self._waiting_rows + rows > limits.queue:
            raise Failure('RESOURCE_EXHAUSTED', f'{self._waiting_rows:,} rows are waiting, of {limits.queue:,}. '
                          'Try again later.', self._seconds * self._waiting_rows / limits.rows / limits.workers)
        now = time.monotonic()
        kind = tuple((name, value.shape[1:], value.dtype.str) for name, value in sorted(inputs.items()))
        request = _Request(inputs, rows, kind, _length(inputs), asyncio.get_running_loop().create_future(), now,
                           now + timeout)
        self._waiting.append(request)
        self._waiting_rows += rows
        self._begin()
        return await request.future  # cancelled if the caller leaves

    async def drain(self) -> None:
        """Wait until no request is waiting or being computed."""
        while self._busy or self._waiting:
            await asyncio.sleep(0.01)

    def _begin(self) -> None:
        """Start batches on free workers."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        now = time.monotonic()
        self._drop(now)
        while self._waiting and self._busy < self._limits.workers:
            oldest = self._waiting[0]
            ready = oldest.arrived + max(self._limits.delay, min(MAX_DELAY, self._seconds / 10))
            if self._waiting_rows < self._limits.rows and now < ready:
                self._timer = asyncio.get_running_loop().call_later(ready - now, self._begin)
                break
            batch = self._take(oldest)
            self._busy += 1
            for request in batch:
                self._monitor.waited(self._name, now - request.arrived)
            future = asyncio.get_running_loop().run_in_executor(self._pool, self._compute, batch)
            future.add_done_callback(functools.partial(self._end, batch))
        if self._waiting and not self._timer:  # fail requests that no worker takes in time
            first = min(request.deadline for request in self._waiting)
            self._timer = asyncio.get_running_loop().call_later(max(0.0, first - now) + 0.001, self._begin)

    def _drop(self, now: float) -> None:
        """Remove requests that have timed out or whose caller has left."""
        for request in [each for each in self._waiting if each.future.done() or each.deadline <= now]:
            self._waiting.remove(request)
            self._waiting_rows -= request.rows
            if not request.future.done():
                request.future.set_exception(Failure(
                    'UNAVAILABLE', f'No worker was free for {request.deadline - request.arrived:g} s. Try again later.',
                    self._seconds))

    def _take(self, oldest: _Request) -> list[_Request]:
        """Remove and return the oldest request and others of its kind.

        If not all fit or workers share them, those of similar length are chosen: a batch of lines takes as long as its
        longest, so similar lengths cost less together.
        """
        alike = sorted((each for each in self._waiting if each.kind == oldest.kind), key=lambda each: each.length)
        free = self._limits.workers - self._busy
        room = min(self._limits.rows, max(1, -(-sum(each.rows for each in alike) // free)))
        place = alike.index(oldest)
        batch, left, right = [oldest], place - 1, place + 1
        total = oldest.rows
        while left >= 0 or right < len(alike):
            lower = left >= 0 and (right >= len(alike) or oldest.length - alike[left].length
                                   <= alike[right].length - oldest.length)
            nearest = alike[left] if lower else alike[right]
            if total + nearest.rows > room:
                break
            batch.append(nearest)
            total += nearest.rows
            left, right = (left - 1, right) if lower else (left, right + 1)
        chosen = {id(each) for each in batch}
        self._waiting = [each for each in self._waiting if id(each) not in chosen]
        self._waiting_rows -= total
        return batch

    def _end(self, batch: list[_Request], done: asyncio.Future) -> None:
        self._busy -= 1
        try:
            answers, seconds = done.result()
            self._seconds += 0.2 * (seconds - self._seconds)
        except Exception as error:  # the worker itself failed
            answers = [of_model(error)] * len(batch)
        for request, answer in zip(batch, answers):
            if request.future.done():
                continue
            if isinstance(answer, Failure):
                request.future.set_exception(answer)
            else:
                request.future.set_result(answer)
        self._begin()

    def _compute(self, batch: list[_Request]) -> tuple[list, float]:
        """Return outputs or failures of a batch, in order, and the seconds it took; runs on a worker thread."""
        start = time.monotonic()
        answers = self._answers(batch)
        seconds = time.monotonic() - start
        self._monitor.batch(self._name, sum(request.rows for request in batch), seconds)
        return answers, seconds

    def _answers(self, batch: list[_Request]) -> list:
        """Run a batch; on failure halve it, until only the bad request fails."""
        try:
            return self._together(batch)
        except Exception as error:
            if len(batch) == 1:
                return [of_model(error)]
            middle = len(batch) // 2
            return self._answers(batch[:middle]) + self._answers(batch[middle:])

    def _together(self, batch: list[_Request]) -> list[dict[str, np.ndarray]]:
        inputs = {name: np.concatenate([request.inputs[name] for request in batch]) if len(batch) > 1
                  else batch[0].inputs[name] for name in batch[0].inputs}
        total, parts = sum(request.rows for request in batch), []
        for start in range(0, total, self._limits.rows):  # one large request needs several
            part = {name: value[start:start + self._limits.rows] for name, value in inputs.items()}
            parts.append(self._padded(part, min(self._limits.rows, total - start)))
        outputs = parts[0] if len(parts) == 1 else {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        ends = np.cumsum([request.rows for request in batch])
        return [{name: value[end - request.rows:end] for name, value in outputs.items()}
                for request, end in zip(batch, ends)]

    def _padded(self, inputs: Tensors, rows: int) -> dict[str, np.ndarray]:
        """Run rows padded with the first one to a size the model was compiled for, and drop the padding's outputs."""
        size = next((size for size in self._limits.sizes if size >= rows), rows)
        if rows and size > rows:
            inputs = {name: np.concatenate([value, np.repeat(value[:1], size - rows, 0)])
                      for name, value in inputs.items()}
        outputs = self._run(inputs)
        for name, value in outputs.items():
            if not value.ndim or len(value) != max(size, rows):
                raise Failure('INTERNAL', f'Output {name} has another number of rows than the inputs.')
        return {name: value[:rows] for name, value in outputs.items()}


def _length(inputs: Tensors) -> int:
    """Return the bytes of a text request's longest line, else 0."""
    longest = 0
    for value in inputs.values():
        if value.dtype == object:
            longest = max(longest, max(map(len, value.reshape(-1)), default=0))
    return longest
