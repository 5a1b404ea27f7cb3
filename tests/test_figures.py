"""Figures, and the marks that show where an answer differs from its reference."""
import numpy as np
import pytest

from pipelines import answers, figures


@pytest.mark.parametrize('longest', [0, 1, 59, 60, 61, 119, 500, 1023])
def test_bars_hold_every_record(longest):
    edges = figures.bar_edges(longest)
    assert np.histogram([0, longest // 2, longest], edges)[0].sum() == 3 and len(edges) <= 62
    assert edges[0] == -0.5 and len(set(np.diff(edges))) == 1


def test_a_diverged_run_is_drawn():
    drawing = figures.lines('loss', {'training': [(1, 1.0), (2, float('inf')), (3, float('nan'))]}, [2])
    assert 'training nan<' in drawing


@pytest.mark.parametrize('one, other', [
    ('am 01.02.', 'am 11.02.'), ('', 'a'), ('a  b', 'a b'), ('über_x', 'uber x')])
def test_differences_cut_and_lose_nothing(one, other):
    left, right = answers.differences(one, other)
    assert ''.join(text for text, _ in left) == one and ''.join(text for text, _ in right) == other
    assert [text for text, differs in left if not differs] == [text for text, differs in right if not differs]
    assert any(differs for _, differs in left + right)


def test_marks_are_single_digits():
    assert answers.differences('01.02.', '11.02.')[1] == [('1', True), ('1.02.', False)]
