"""Batching of requests: what is computed together, what waits, what is refused, and which requests fail."""
import asyncio
import concurrent.futures
import threading

import numpy as np
import pytest

from pipelines.serving.batching import Batcher, Limits
from pipelines.serving.failure import Failure
from pipelines.serving.monitoring import Monitor


class Doubling:
    """Doubles numbers; keeps the rows of each batch, refuses 13, and waits while `gate` is closed."""

    def __init__(self):
        self.batches, self.gate = [], threading.Event()
        self.gate.set()

    def __call__(self, inputs):
        self.gate.wait()
        self.batches.append(inputs['x'].tolist())
        if 13 in inputs['x']:
            raise Failure('INVALID_ARGUMENT', '13 is refused')
        return {'y': 2 * inputs['x']}


def served(model, work, **limits):
    """Runs `work(batcher)` on an event loop."""
    async def run():
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            batcher = Batcher(model, pool, Limits(**{'delay': 0.01, **limits}), Monitor(), 'doubling')
            try:
                return await asyncio.wait_for(work(batcher), 60)
            finally:
                model.gate.set()
                await batcher.drain()
    return asyncio.run(run())


def row(*values):
    return {'x': np.array(values)}


async def all_of(batcher, *requests, timeout=30.0):
    found = await asyncio.gather(*(batcher.submit(row(*values), len(values), timeout) for values in requests),
                                 return_exceptions=True)
    return [each['y'].tolist() if isinstance(each, dict) else each.code for each in found]


def test_what_comes_together_is_computed_together_and_answered_apart():
    model = Doubling()
    assert served(model, lambda batcher: all_of(batcher, (1,), (2, 3), (4,))) == [[2], [4, 6], [8]]
    assert [sorted(batch) for batch in model.batches] == [[1, 2, 3, 4]]


def test_one_bad_request_fails_alone():
    model, requests = Doubling(), [(n,) for n in range(20)]
    expected = [[2 * n] if n != 13 else 'INVALID_ARGUMENT' for n in range(20)]
    assert served(model, lambda batcher: all_of(batcher, *requests)) == expected
    assert len(model.batches) <= 1 + 2 * 5  # halved until it is by itself


def test_batches_are_filled_up_to_the_sizes_a_model_was_compiled_for():
    model = Doubling()
    assert served(model, lambda batcher: all_of(batcher, (1,), (2,), (3,)), sizes=(1, 4, 8)) == [[2], [4], [6]]
    assert sorted(map(len, model.batches)) == [4]


def test_a_large_request_is_computed_in_parts():
    model = Doubling()
    assert served(model, lambda batcher: all_of(batcher, tuple(range(10))), rows=4) == [list(range(0, 20, 2))]
    assert model.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_requests_of_other_shapes_never_share_a_batch():
    model = Doubling()

    async def work(batcher):
        return await asyncio.gather(*(batcher.submit({'x': np.zeros([1, *shape])}, 1, 30) for shape in ((2,), (3,))))
    assert [each['y'].shape for each in served(model, work)] == [(1, 2), (1, 3)]


def test_what_does_not_fit_the_queue_is_refused_and_says_when_to_come_back():
    model = Doubling()

    async def work(batcher):
        model.gate.clear()
        first = asyncio.ensure_future(all_of(batcher, (1,)))
        await asyncio.sleep(0.1)  # it is being computed
        waiting = asyncio.ensure_future(all_of(batcher, (2, 3), (4, 5)))
        await asyncio.sleep(0.01)
        with pytest.raises(Failure) as full:
            await batcher.submit(row(6), 1, 30)
        with pytest.raises(Failure) as large:
            await batcher.submit(row(*range(5)), 5, 30)
        model.gate.set()
        return full.value, large.value, await first, await waiting
    full, large, *answers = served(model, work, queue=4)
    assert (full.code, full.http_status) == ('RESOURCE_EXHAUSTED', 429) and int(full.headers()['Retry-After']) >= 1
    assert (large.code, large.http_status) == ('TOO_LARGE', 413)
    assert answers == [[[2]], [[4, 6], [8, 10]]]


def test_who_waits_too_long_is_told_so_and_costs_the_others_nothing():
    model = Doubling()

    async def work(batcher):
        model.gate.clear()
        first = asyncio.ensure_future(all_of(batcher, (1,)))
        await asyncio.sleep(0.1)
        impatient, patient = (asyncio.ensure_future(all_of(batcher, (n,), timeout=t)) for n, t in ((2, 0.05), (3, 30)))
        found = await impatient
        model.gate.set()
        return found, await first, await patient
    assert served(model, work) == (['UNAVAILABLE'], [[2]], [[6]])
    assert [2] not in model.batches


def test_who_has_left_is_not_computed():
    model = Doubling()

    async def work(batcher):
        model.gate.clear()
        first = asyncio.ensure_future(all_of(batcher, (1,)))
        await asyncio.sleep(0.1)
        leaving, staying = (asyncio.ensure_future(batcher.submit(row(n), 1, 30)) for n in (2, 3))
        await asyncio.sleep(0.01)
        leaving.cancel()
        model.gate.set()
        return await first, (await staying)['y'].tolist()
    assert served(model, work) == ([[2]], [6]) and model.batches == [[1], [3]]


def test_lines_of_like_length_go_together():
    class Lengths(Doubling):
        def __call__(self, inputs):
            self.gate.wait()
            self.batches.append(sorted(map(len, inputs['text'])))
            return {'length': np.array([len(line) for line in inputs['text']])}
    model, sizes = Lengths(), [1, 100, 2, 99, 3, 98, 4, 97]

    async def work(batcher):
        model.gate.clear()
        found = []
        for size in (50, *sizes):
            found.append(asyncio.ensure_future(batcher.submit({'text': np.array([b'x' * size], object)}, 1, 30)))
            await asyncio.sleep(0.1 if size == 50 else 0)  # until the first is being computed
        model.gate.set()
        return [int(each['length'][0]) for each in await asyncio.gather(*found)]
    assert served(model, work, rows=4) == [50, *sizes]
    assert model.batches[1:] == [[1, 2, 3, 4], [97, 98, 99, 100]]
