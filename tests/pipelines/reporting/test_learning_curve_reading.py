"""What a learning curve says and shows: gains, chance, and what twice the data may bring."""
import dataclasses

import pytest

from pipelines.evaluation import chance, corpus
from pipelines.reporting import learning_curve
from pipelines.reporting.learning_curve import Curve, Point


def curve(*values, low=None, high=None, metric='top1_error', lower=True):
    """A curve of a power of two of examples; the change's ends are given, or there is no change."""
    points = [Point(100 * 2 ** n, value, 60.0, f'{n}') for n, value in enumerate(values)]
    change = None if low is None else chance.Change(values[-1] - values[-2], low, high, 0.95, 0.01, 300)
    return Curve(metric, lower, points, change, 'images', 300)


@pytest.mark.parametrize('a, b, c', [(0.1, 2.0, 0.5), (0.0, 3.0, 0.4), (0.2, 9.0, 1.0)])
def test_twice_the_data_is_expected_to_go_on_as_a_power_law(a, b, c):
    errors = [a + b * (100 * 2 ** n) ** -c for n in range(4)]
    assert curve(*errors[:3]).expected == pytest.approx(errors[3])
    scores = [100 * (1 - error) for error in errors]
    assert curve(*scores[:3], metric='bleu', lower=False).expected == pytest.approx(scores[3])


def test_a_gain_that_grew_is_not_expected_to_grow_on_and_nothing_is_better_than_perfect():
    assert curve(0.9, 0.8, 0.5).expected == pytest.approx(0.2)
    assert curve(0.6, 0.4, 0.2).expected == pytest.approx(0) and curve(0.5, 0.3, 0.05).expected == 0
    assert curve(50, 70, 90, metric='bleu', lower=False).expected == 100
    assert curve(0.5, 0.7, 0.9, metric='ssim', lower=False).expected == 1


@pytest.mark.parametrize('values', [(0.5, 0.4), (0.5, 0.6, 0.5), (0.5, 0.4, 0.4), (0.4, 0.3, 0.35)])
def test_without_two_gains_nothing_is_expected(values):
    assert curve(*values).expected is None


@pytest.mark.parametrize('made, says', [
    (curve(0.5, 0.36, 0.3, low=-0.09, high=-0.03), [
        'With 100, 200 and 400 training images, top1 error is 0.5, 0.36 and 0.3.',
        'More data helps: the last doubling improved it by 0.06, and with 95% confidence by more than 0.03.',
        'If gains go on as they did, 800 images would bring about 0.274.']),
    (curve(20.0, 30.0, low=4.0, high=16.0, metric='bleu', lower=False), [
        'With 100 and 200 training images, bleu is 20 and 30.',
        'More data helps: the last doubling improved it by 10, and with 95% confidence by more than 4.']),
    (curve(0.5, 0.36, 0.35, low=-0.03, high=0.01), [
        'With 100, 200 and 400 training images, top1 error is 0.5, 0.36 and 0.35.',
        'It does not show that more data of this kind helps. The last doubling improved it by 0.01, and in another '
        'test set of 300 images that may be anything from -0.01 to 0.03.']),
    (curve(0.3, 0.4, low=0.05, high=0.15), [
        'With 100 and 200 training images, top1 error is 0.3 and 0.4.',
        'All of the data did worse than half of it, by 0.1: with more data, the steps may be too few. Raise '
        'train.steps, or train once more with another seed.']),
    (curve(12.0, 12.0, metric='fid'), [
        'With 100 and 200 training images, fid is 12 and 12.',
        'It does not show that more data of this kind helps.']),
])
def test_what_it_says(made, says):
    assert learning_curve.sentences(made) == says


def test_the_change_is_of_the_same_examples():
    """Of 200 test examples the whole is right in 40 more, the half in none that the whole misses."""
    metric = corpus.metric('top1_error')
    half, whole = ([corpus.Row(['a' if n < right else 'b'], 'a') for n in range(200)] for right in (100, 140))
    found = chance.change(metric, whole, half, 0.95, 1)
    made = dataclasses.replace(curve(0.5, 0.3), change=found)
    assert found.value == pytest.approx(-0.2)
    # Binomial: 0.2 less 1.645 standard errors of a share of 0.2 in 200.
    assert -found.high == pytest.approx(0.2 - 1.645 * (0.2 * 0.8 / 200) ** 0.5, abs=0.006)
    assert 'More data helps' in learning_curve.sentences(made)[1]


def test_the_figure_marks_every_number_of_examples_and_twice_as_many():
    shown = learning_curve.read(curve(0.5, 0.36, 0.3, low=-0.09, high=-0.03))
    for label in ('>100<', '>200<', '>400<', '>800<', 'training images'):
        assert label in shown['figure']
    assert '>800<' not in learning_curve.read(curve(0.5, 0.36, 0.4))['figure']
    assert [row['examples'] for row in shown['rows']] == [100, 200, 400]
