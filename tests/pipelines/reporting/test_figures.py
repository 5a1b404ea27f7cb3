"""Figures, and the marks that show where an answer differs from its reference."""
import re

import numpy as np
import pytest

from pipelines.reporting import answers, figures


@pytest.mark.parametrize('longest', [0, 1, 59, 60, 61, 119, 500, 1023])
def test_bars_hold_every_record(longest):
    edges = figures.bar_edges(longest)
    assert np.histogram([0, longest // 2, longest], edges)[0].sum() == 3 and len(edges) <= 62
    assert edges[0] == -0.5 and len(set(np.diff(edges))) == 1


def test_a_diverged_run_is_drawn():
    drawing = figures.lines('loss', {('', 'training'): [(1, 1.0), (2, float('inf')), (3, float('nan'))]}, [2])
    assert 'training nan<' in drawing


def test_a_part_has_its_colour_and_its_validation_is_dashed():
    drawing = figures.lines('L', {(part, side): [(1, 1.0), (2, 2.0)] for side in ('training', 'validation')
                                  for part in ('one', 'other')})
    styles = [re.search(r'stroke-dasharray', style) is None for style in re.findall(
        'style="fill: none;([^"]*stroke: var.--series-1.[^"]*)"', drawing)]
    assert styles == [True, False, True, False]  # the lines, then the legend's
    assert [text in drawing for text in ('one training 2<', 'other validation 2<')] == [True, True]
    assert 'var(--series-2)' in drawing and 'var(--series-3)' not in drawing


@pytest.mark.parametrize('one, other', [
    ('am 01.02.', 'am 11.02.'), ('', 'a'), ('a  b', 'a b'), ('über_x', 'uber x')])
def test_differences_cut_and_lose_nothing(one, other):
    left, right = answers.differences(one, other)
    assert ''.join(text for text, _ in left) == one and ''.join(text for text, _ in right) == other
    assert [text for text, differs in left if not differs] == [text for text, differs in right if not differs]
    assert any(differs for _, differs in left + right)


def test_marks_are_single_digits():
    assert answers.differences('01.02.', '11.02.')[1] == [('1', True), ('1.02.', False)]
