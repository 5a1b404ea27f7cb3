"""The experiments on learning machines: their measures, and each of them on tiny populations."""
import dataclasses
import functools
import json
import pathlib

import numpy as np
import pytest

from benchmarks.studies import education
from keras_models.turing import games


def test_decisive_positions_of_one_heap_are_those_of_more_than_one_man_that_three_does_not_divide():
    boards, best = education.decisive(games.make('nim', {'heaps': 1, 'highest': 8, 'most': 2}))
    assert boards.numpy().ravel().tolist() == [2, 4, 5, 7, 8]
    assert best.numpy().argmax(1).tolist() == [1, 0, 1, 0, 1] and (best.numpy().sum(1) == 1).all()


def test_intervals_are_those_of_the_closed_forms():
    values = np.random.default_rng(0).normal(2, 1, 400)
    half = 1.96 * values.std() / 20
    np.testing.assert_allclose(education.mean_of(values), [values.mean(), values.mean() - half, values.mean() + half],
                               atol=0.1 * half)
    n, k, z = 20480, 20, 1.959964
    middle, width = (k + z * z / 2) / (n + z * z), z / (n + z * z) * np.sqrt(k * (n - k) / n + z * z / 4)  # Wilson 1927
    np.testing.assert_allclose(education.share_of(np.arange(n) < k), [k / n, middle - width, middle + width], rtol=1e-5)


@pytest.mark.parametrize('found, said', [((1, 0.5, 2), 'more'), ((1, -0.5, 2), 'none'), ((-1, -2, -0.5), 'less')])
def test_a_verdict_is_what_the_interval_leaves(found, said):
    assert education.verdict(found, 'more', 'none', 'less') == said
    assert education.verdict(tuple(value + 7 for value in found), 'more', 'none', 'less', than=7) == said


def run(name: str, folder: pathlib.Path, machines: int, count: int) -> dict:
    education.run(name, str(folder), machines, count, 1)
    assert (folder / f'{name}.png').read_bytes().startswith(b'\x89PNG')
    return json.loads((folder / f'{name}.json').read_text())


@pytest.mark.slow  # of a tool; test_learning_machine.py fakes figures of a tape
def test_machines_whose_own_tape_has_the_faked_figures_live_as_the_faked_ones_do(tmp_path, monkeypatch, capsys):
    for name, value in {'SCHOOLS': 1, 'FIGURES': 3, 'ONE_IN': 8, 'FAKED': dataclasses.replace(
            education.FAKED, memory=64, cards=256, options={'heaps': 1, 'highest': 12, 'most': 2})}.items():
        monkeypatch.setattr(education, name, value)
    found = run('faked', tmp_path, 256, 1)
    school, (agree, as_high, as_model, alike, all_) = found['schools'][0], found['rows']
    _, low, high = agree['found']
    assert low < 1 / 8 < high and agree['verdict'] == 'about 1 in 8'
    # One game of three choices, all optimal: whoever has these figures has learned all there is, and nobody else.
    assert school['degree of the one faked'] == 1 and school['median of the faked'] == [1]
    assert alike['found'] == [0, 0, 0] and as_high['found'] == as_model['found'] == agree['found']
    assert all_['found'][2] < -0.2 and all_['verdict'] == 'lower'
    assert sum(school['degrees']['faked']) == sum(school['degrees']['unfaked']) == 256
    printed = capsys.readouterr().out
    assert all(row['verdict'] in printed for row in found['rows'])


@pytest.mark.slow  # of a tool; test_lessons.py has machines learn, and keys pressed for others teach nothing
def test_schooling_teaches_and_keys_that_tell_nothing_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr(education, 'POINTS', 1)
    monkeypatch.setattr(education, 'SUBJECTS', {'Nim': education.SUBJECTS['Nim']})
    monkeypatch.setattr(education, 'PLAYERS', ('random',))
    # The learned rule from the first lesson: within 64 lessons few machines outgrow the crude one, which learns slower.
    monkeypatch.setattr(education, 'Config', functools.partial(education.Config, rule='learned'))
    pressed, school = [], education.school

    def noted(*args):
        degrees, keys = school(*args)
        pressed.append(keys)
        return degrees, keys
    monkeypatch.setattr(education, 'school', noted)
    found = run('cheating', tmp_path, 32, 64)
    honest, shuffled, coin, never = pressed
    assert (np.bincount(1 + honest.ravel()) == np.bincount(1 + shuffled.ravel())).all() and not never.any()
    pleasures = np.mean(honest == education.PLEASURE)  # keys that know nothing of each other agree so often by chance
    assert np.mean(honest == shuffled) == pytest.approx(pleasures ** 2 + (1 - pleasures) ** 2, abs=0.05)
    assert np.mean(coin == education.PLEASURE) == pytest.approx(pleasures, abs=0.05)
    curves = found['curves']['Nim, random player']['machines']
    assert len({tuple(curve[0]) for curve in curves.values()}) == 1
    assert curves['keys never pressed'][0] == curves['keys never pressed'][-1]
    taught, cheated, habit = found['rows']
    assert taught['difference'][1] > 0.1 and taught['verdict'] == 'schooling teaches'
    for row in (cheated, habit):  # the bound is three times the deviation of such a mean
        assert abs(row['difference'][0]) < 0.06 < taught['difference'][1] / 3
