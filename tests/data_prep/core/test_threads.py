"""Work in several threads: in order, with bounded concurrency, and none after an error."""
import threading

import pytest

from data_prep.core import threads


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(threads, 'THREADS', 2)
    monkeypatch.setattr(threads, 'MAX_WAITING', 4)


@pytest.mark.parametrize('number', [0, 1, 3, 4, 5, 50])
def test_results_are_in_the_order_of_items(number):
    assert [*threads.in_order(lambda i: i * i, iter(range(number)))] == [(i, i * i) for i in range(number)]


def test_others_are_finished_while_the_first_is_not():
    """Three of four at once are made while the first waits for the third; the fifth is not taken before its turn."""
    done, taken = threading.Event(), []

    def items():
        for i in range(6):
            taken.append(i)
            yield i

    def work(i):
        if i == 0:
            assert done.wait(30)
        if i == 3:
            done.set()
        return i
    made = threads.in_order(work, items())
    assert next(made) == (0, 0) and taken == [0, 1, 2, 3]
    assert [i for i, _ in made] == [1, 2, 3, 4, 5]


def test_what_is_raised_comes_in_its_turn_and_ends_the_work():
    begun = []

    def work(i):
        begun.append(i)
        return 1 // (3 - i)
    made = threads.in_order(work, range(1000))
    assert [next(made)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        next(made)
    assert max(begun) < 3 + 4


def test_who_stops_early_leaves_nothing_running():
    before, begun = threading.active_count(), []
    made = threads.in_order(begun.append, range(1000))
    next(made)
    made.close()
    assert threading.active_count() == before and len(begun) <= 5
