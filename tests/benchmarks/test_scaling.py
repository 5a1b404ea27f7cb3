"""The comparison of strategies on a tiny net: all of them compute the same."""
import sys

import pytest

from benchmarks.speed import scaling, side_by_side


@pytest.mark.slow  # a tool of the benchmarks
def test_every_strategy_finds_the_same_losses_and_has_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr(side_by_side, 'DISTURBED', 1.1)
    tiny = scaling.contest('tiny', 8)
    for name in [name for name in tiny.sides if 'beside' in name or 'a thread' in name]:  # the same, slower to start
        del tiny.sides[name], tiny.reach[name]
    result = side_by_side.hold(tiny, {'ours': sys.executable}, rounds=1, seconds=0.2)
    assert result['differences'].keys() == {*tiny.reach} and max(result['differences'].values()) < 1e-4
    assert all(side['rate'] > 0 and side['processor'] > 0 for side in result['sides'].values())
    table = scaling.markdown({'tiny': result})
    assert table.count('\n') == 1 + len(tiny.sides) and table.count('% to ') == len(tiny.reach)


@pytest.mark.parametrize('ratio, more', [(1.1, '+10.0%'), (0.95, '-5.0%')])
def test_more_time_is_told_in_percent(ratio, more):
    side = {'rate': 2.0, 'processor': 0.5, 'peak_mib': 100.0}
    result = {'sides': {'one device': side, 'two workers': side}, 'ratios': {'two workers': [ratio, 0.9, 1.2]},
              'rounds': [], 'dropped': 0}
    assert f'| two workers | 2 | {more} (-10.0% to +20.0%) |' in scaling.markdown({'net': result})
