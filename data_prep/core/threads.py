"""Run work on many threads and return the results in order."""
import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Given = TypeVar('Given')
Made = TypeVar('Made')
THREADS = min(8, os.cpu_count() or 1)
MAX_WAITING = 4 * THREADS  # items in memory


def in_order(work: Callable[[Given], Made], items: Iterable[Given], threads: int | None = None,
             max_waiting: int | None = None) -> Iterator[tuple[Given, Made]]:
    """Yield each item and its result, in the items' order; an exception of `work` is raised in its place.

    An item is started as soon as another has been taken, so items need not wait for the slowest of a block.

    Args:
      threads, max_waiting: threads, and items in memory; default to THREADS and MAX_WAITING.
    """
    waiting: collections.deque[tuple[Given, concurrent.futures.Future[Made]]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(threads or THREADS) as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(work, item)))
                if len(waiting) == (max_waiting or MAX_WAITING):
                    item, future = waiting.popleft()
                    yield item, future.result()
            while waiting:
                item, future = waiting.popleft()
                yield item, future.result()
        finally:  # no caller waits for the others any more
            pool.shutdown(wait=False, cancel_futures=True)
