"""A short form of benchmarks/fuzz.py: every reader, fed damaged files, accepts or refuses them and names the place."""
import pytest

from benchmarks import fuzz
from benchmarks.fuzz_readers import READERS


@pytest.mark.parametrize('name', READERS)
def test_bad_bytes_are_accepted_or_refused_by_name(name, tmp_path):
    fed = fuzz.Fed(READERS[name], tmp_path, seed=7)
    found = [(number, *fed.outcome(fed.input(number))) for number in (*range(60), *range(fuzz.BLOCK, fuzz.BLOCK + 60))]
    assert [finding for finding in found if finding[1] == 'finding'] == []
    assert {kind for _, kind, _ in found} == {'accepted', 'refused'}


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
