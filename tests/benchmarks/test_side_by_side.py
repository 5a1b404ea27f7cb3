"""The benchmark runner, on sides with known rates and answers."""
import dataclasses
import gzip
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import yaml

BENCHMARKS = pathlib.Path(__file__).parents[2] / 'benchmarks' / 'speed'
sys.path.insert(0, str(BENCHMARKS))
import side_by_side  # noqa: E402

from benchmarks.speed import made  # noqa: E402

SIDE = """\
import sys, time
sys.path.insert(0, {sides!r})
import numpy as np
import side

def work(seconds, answer):
    print('chatter')
    def once():
        time.sleep(seconds)
        return 3
    return side.Work({{'answer': np.full([2, 2], answer)}}, once)
side.serve({{'work': work}})
"""


@pytest.fixture
def contest(tmp_path):
    script = tmp_path / 'sleeper.py'
    script.write_text(SIDE.format(sides=str(BENCHMARKS / 'sides')))
    return side_by_side.Contest('naps', {'ours': f'{script} work seconds=0.02 answer=1.0',
                                         'slow': f'{script} work seconds=0.08 answer=1.5',
                                         'slower': f'{script} work seconds=0.1 answer=1.0'},
                                reach={'slow': 3, 'slower': 6}, flops=1e9)


@pytest.mark.slow  # rates, by the clock
def test_every_peer_has_a_ratio_and_answers_are_compared(contest, tmp_path, monkeypatch):
    monkeypatch.setattr(side_by_side, 'DISTURBED', 1.1)
    found = side_by_side.hold(contest, {'ours': sys.executable, 'peers': sys.executable}, rounds=3, seconds=0.4)
    assert found['ratios']['slow'][0] == pytest.approx(4, rel=0.25)
    assert found['ratios']['slower'][0] == pytest.approx(5, rel=0.25) and len(found['rounds']) == 3
    assert all(least <= ratio <= most for ratio, least, most in found['ratios'].values())
    assert found['sides']['ours']['rate'] == pytest.approx(150, rel=0.25)
    assert found['differences'] == {'slow': 0.5, 'slower': 0}
    table = side_by_side.markdown({'naps': contest}, {'naps': found})
    assert table.count('\n') == 6 and '3, 0 dropped' in table and '| 6 | |' in table
    side_by_side.draw({'naps': contest}, {'naps': found}, str(tmp_path / 'naps.png'))
    assert (tmp_path / 'naps.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.slow  # rates, by the clock
def test_what_others_take_is_seen(contest, tmp_path):
    """Measure a side that sleeps beside a process that does nothing but count."""
    side = side_by_side.Side(contest.sides['ours'], {'peers': sys.executable}, tmp_path / 'answer.npz')
    counting = subprocess.Popen([sys.executable, '-c', 'while True: pass'])
    try:
        assert side.say() == {'ready': 'work'}
        assert side_by_side.measure(side, 1)['others'] > side_by_side.DISTURBED
    finally:
        counting.kill()
        counting.wait()
        side.close()


def test_a_side_that_ends_is_named(tmp_path):
    (tmp_path / 'gone.py').write_text('raise SystemExit(3)')
    side = side_by_side.Side(f'{tmp_path}/gone.py work', {'peers': sys.executable}, tmp_path / 'answer.npz')
    with pytest.raises(RuntimeError, match=r'gone\.py ended: exit code 3'):
        side.say()


def test_work_on_files_that_are_not_given_is_left_out_unless_such_can_be_made(contest, tmp_path, monkeypatch, capsys):
    def needing(name):
        return dataclasses.replace(contest, sides={side: f'{command} text={{{name}}}'
                                                   for side, command in contest.sides.items()})
    contests = {'naps': contest, 'reads': needing('theirs'), 'learns': needing('text')}
    given = {'theirs': '/lines'}
    monkeypatch.setattr(made, 'PAIRS', 3)
    found = side_by_side.chosen(contests, [], {}, tmp_path)
    assert [*found] == ['naps', 'learns'] and [each.made for each in found.values()] == [False, True]
    assert 'reads: left out; it needs --given theirs=PATH' in capsys.readouterr().out
    assert found['learns'].sides['ours'].endswith(f'answer=1.0 text={tmp_path / "text"}')
    assert len(gzip.decompress((tmp_path / 'text' / 'train.de.gz').read_bytes()).splitlines()) == 3
    [found] = side_by_side.chosen(contests, ['reads'], given, tmp_path).values()
    assert found.sides['ours'].endswith('answer=1.0 text=/lines') and contest.sides['ours'].endswith('answer=1.0')
    assert not found.made


def test_made_images_are_those_of_a_seed_and_as_large_as_photographs(tmp_path, monkeypatch):
    monkeypatch.setattr(made, 'COUNT', 2)
    for folder in ('one', 'other'):
        made.images(tmp_path / folder)
    one, other = ([path.read_bytes() for path in sorted((tmp_path / folder).rglob('*.JPEG'))]
                  for folder in ('one', 'other'))
    assert one == other and len(one) == 2
    assert 80_000 < sum(map(len, one)) / 2 < 140_000  # ILSVRC's: 110 kB


@pytest.mark.parametrize('other, far', [({'a': [1.0, 2.5]}, 0.5), ({'b': [1.0, 2.0]}, np.inf), ({'a': [1.0]}, np.inf),
                                        ({'a': ['one', 'two', 'no', 'four']}, 0.25)])
def test_answers_of_other_names_or_shapes_are_no_answers(tmp_path, other, far):
    paths = [tmp_path / 'one.npz', tmp_path / 'other.npz']
    np.savez(paths[0], a=['one', 'two', 'three', 'four'] if far == 0.25 else [1.0, 2.0])
    np.savez(paths[1], **other)
    assert side_by_side.differences(paths) == [far]


def test_every_contest_names_work_there_is():
    contests = {name: side_by_side.Contest(**row) for name, row in
                yaml.safe_load((BENCHMARKS / 'contests.yaml').read_text()).items()}
    commands = [command.split() for contest in contests.values() for command in contest.sides.values()]
    assert len(commands) > 20
    for script, work, *values in commands:
        assert f"'{work}': " in (BENCHMARKS / 'sides' / script).read_text().split('side.serve')[1]
        assert all('=' in value for value in values)


def test_a_quick_contest_differs_in_its_sizes_alone(contest):
    small = dataclasses.replace(contest, quick={'seconds': 1}).small()
    assert [side.split()[1:] for side in small.sides.values()] == [
        ['work', 'seconds=1', f'answer={answer}'] for answer in ('1.0', '1.5', '1.0')]
    with pytest.raises(AssertionError, match='has no batch'):
        dataclasses.replace(contest, quick={'batch': 1}).small()


def test_every_quick_size_is_one_of_its_sides():
    rows = yaml.safe_load((BENCHMARKS / 'contests.yaml').read_text())
    small = [side_by_side.Contest(**row).small() for row in rows.values() if 'quick' in row]
    assert len(small) > 5


def test_the_table_names_the_processor_and_work_that_was_disturbed():
    found = {'naps': {'machine': 'a processor, 2 cores, AVX2', 'undisturbed': False}, 'reads': {'undisturbed': True}}
    assert side_by_side.measured_on(found) == 'a processor, 2 cores, AVX2; 1 of 2 measured beside other work'
