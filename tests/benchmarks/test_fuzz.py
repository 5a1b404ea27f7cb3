"""A short form of benchmarks/robustness/fuzz.py: readers accept damaged files or refuse them with the place."""
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.robustness import fuzz
from benchmarks.robustness.fuzz_readers import READERS


@pytest.mark.parametrize('name', READERS)
def test_bad_bytes_are_accepted_or_refused_by_name(name, tmp_path):
    """Seeds that are damaged; what has the form of a file, where the reader's is known; and that, damaged."""
    fed, seen = fuzz.Fed(READERS[name], tmp_path, seed=7), set()

    def feed(data):
        kind, why = fed.outcome(data)
        assert kind != 'finding', why
        seen.add(kind)

    @settings(max_examples=40)
    @given(st.integers(0, fuzz.BLOCK - 1))
    def damaged(number):
        feed(fed.input(number))
    damaged()
    if fed.strategy is not None:
        @settings(max_examples=40, suppress_health_check=list(HealthCheck))
        @given(fed.strategy, st.integers(0, 3), st.randoms(use_true_random=False))
        def shaped(data, whole, draw):
            feed(data if whole else fuzz.mutated(draw, [data], fed.reader.words))
        shaped()
    assert seen == {'accepted', 'refused'}


def test_inputs_follow_from_seed_and_number(tmp_path):
    one, other = (fuzz.Fed(READERS['manifest'], tmp_path / name, seed=7) for name in 'ab')
    assert [one.input(number) for number in (3, 150)] == [other.input(number) for number in (3, 150)]
    assert one.input(3) != fuzz.Fed(READERS['manifest'], tmp_path / 'c', seed=8).input(3)


@pytest.mark.parametrize('read, expected', [
    (lambda data: [], 'accepted'), (lambda data: ['part-0.x is bad'], 'refused'), (lambda data: ['bad'], 'finding'),
    (lambda data: ['part-0.\x1b[2J'], 'finding'), (lambda data: {}['x'], 'finding')],
    ids=['accepted', 'refused with its place', 'refused without', 'refused with a control character', 'raised'])
def test_what_counts_as_a_finding(tmp_path, read, expected):
    fed = fuzz.Fed(READERS['shard'], tmp_path, seed=7)
    fed.read = read
    assert fed.outcome(b'')[0] == expected
