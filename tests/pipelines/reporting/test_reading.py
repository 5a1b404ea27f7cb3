"""The interpretation of a run: what curves and predictions show, and its display on the page."""
import dataclasses
import re

import pytest

from pipelines.reporting import reading

STEPS = range(100, 1100, 100)


def curve(*values):
    return list(zip(STEPS, values))


@pytest.mark.parametrize('training, validation, says', [
    # Falls to the end on both.
    ([2 - 0.15 * n for n in range(10)], [2.1 - 0.15 * n for n in range(10)], 'Too little training'),
    # Validation turns at step 400 while training falls.
    ([2 - 0.19 * n for n in range(10)], [2, 1.5, 1.2, 1.0, 1.1, 1.3, 1.5, 1.7, 1.8, 1.9],
     r'Too much training .* lowest at step 400 \(1\)'),
    # Validation stays, far above training.
    ([2 - 0.19 * n for n in range(10)], [2, 1.5, 1.2, 1, 1, 1, 1, 1, 1, 1], 'More data would help more than more time'),
    ([2, 1.5, 1.2, 1, 1, 1, 1, 1, 1, 1], [2, 1.5, 1.2, 1, 1, 1, 1, 1, 1, 1], 'a larger net'),
    ([2] * 10, [1, 2, 3, 3, 3, 3, 3, 3, 3, 3], 'learned nothing'),
    # It overfits from the first validation on.
    ([2 - 0.19 * n for n in range(10)], [1 + 0.1 * n for n in range(10)],
     r'lowest at the first validation, step 100 \(1\)'),
    # Both fall, far apart.
    ([2 - 0.19 * n for n in range(10)], [2.4 - 0.1 * n for n in range(10)], 'still falling .* and more data'),
    # Dropout keeps the training loss up.
    ([2, 1.5, 1.2, 1, 1, 1, 1, 1, 1, 1], [2, 1, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], 'does not overfit. Less'),
    ([7, 6, 5], [7, 6, 5], 'Too little training')])
def test_curves_say_what_to_try(training, validation, says):
    [sentence] = reading.of_training(curve(*training), curve(*validation))
    assert re.search(says, sentence)


def test_training_past_the_best_validation_loses_nothing_where_that_is_exported():
    curves = curve(*[2 - 0.19 * n for n in range(10)]), curve(2, 1.5, 1.2, 1.0, 1.1, 1.3, 1.5, 1.7, 1.8, 1.9)
    [kept], [lost] = (reading.of_training(*curves, keeps_best=best) for best in (True, False))
    assert 'nothing is lost' in kept and 'train.steps' not in kept and 'set train.steps to about 400' in lost


def test_few_points_say_nothing():
    assert reading.of_training(curve(1, 2), curve(1, 2)) == []


def rows(*pairs):
    return [{'target': target, 'candidate': answer, 'file': f'{n}.jpg'} for n, (target, answer) in enumerate(pairs)]


def test_what_is_confused_and_which_labels_may_be_wrong():
    asked = rows(('cat', 'cat'), ('cat', 'dog'), ('cat', 'dog'), ('dog', 'dog'), ('bird', 'dog'))
    found = reading.read({}, asked, [0.9, 0.99, 0.6, 0.9, 0.5], 'image')
    assert found.confusions == [('cat', 'dog', 2, 3), ('bird', 'dog', 1, 1)]
    assert [row[0] for row in found.sure] == ['1.jpg', '2.jpg', '4.jpg']
    said = ' '.join(found.advice)
    assert "'cat' is predicted as 'dog' in 2 of 3" in said and 'A wrong prediction has a probability over 90%' in said
    assert 'Never predicted: bird' in said
    assert 'style="width: 2.34in' in found.figure and 'Confusion matrix' in found.figure


def test_a_net_that_always_says_the_same_is_called_that():
    found = reading.read({}, rows(*[(name, 'a') for name in 'aabb']), [1.0] * 4, 'image')
    assert "Every prediction is 'a'" in found.advice[0]
    text = [{'source': f's {n}', 'target': f'some words {n}', 'candidate': '.'} for n in range(20)]
    found = reading.read({}, text, [], 'text')
    assert "20 of 20 outputs are the same, '.'" in found.advice[0] and 'times as long' in found.advice[1]
    assert len(found.worst) == reading.SHOWN


def test_the_worst_of_text_are_the_farthest_from_their_references():
    text = [{'source': f's {n}', 'target': 'one two three', 'candidate': answer} for n, answer in
            enumerate(('one two three', 'one two', 'xyz'))]
    assert [row[2] for row in reading.read({}, text, [], 'text').worst] == ['xyz', 'one two']


def test_scores_in_place_of_answers_are_passed_over():
    found = reading.read({}, [{'target': 'cat'}], [], 'image')
    assert dataclasses.astuple(found) == ([], [], [], [], '')
