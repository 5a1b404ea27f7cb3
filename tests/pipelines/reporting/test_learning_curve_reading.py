"""What a learning curve says and shows: gains, chance, and what twice the data may bring."""
import dataclasses

import pytest

from pipelines.evaluation import chance, corpus
from pipelines.reporting import learning_curve
from pipelines.reporting.learning_curve import Curve, Point


def curve(*values, low=None, high=None, metric='top1_error', lower=True, counts=(100, 200, 400, 800), tested=300):
    """A curve whose change has the given ends; without them there is no change."""
    points = [Point(count, value, 1.0, f'{count}') for count, value in zip(counts, values)]
    change = None if low is None else chance.Change(values[-1] - values[-2], low, high, 0.95, 0.01, tested)
    return Curve(metric, lower, points, change, 'images', tested)


@pytest.mark.parametrize('counts', [(100, 200, 400), (96, 211, 389), (14, 36, 60), (90, 100, 400)])
@pytest.mark.parametrize('a, b, c', [(0.1, 2.0, 0.5), (0.0, 3.0, 0.4), (0.2, 9.0, 1.0), (0.3, 2.0, 0.01)])
def test_twice_the_data_is_expected_to_go_on_as_a_power_law(a, b, c, counts):
    """The halves are drawn by a hash, so they are seldom exact."""
    errors = [a + b * n ** -c for n in (*counts, 2 * counts[-1])]
    assert curve(*errors[:3], counts=counts).expected == pytest.approx(errors[3])
    scores = [100 * (1 - error) for error in errors]
    assert curve(*scores[:3], metric='bleu', lower=False, counts=counts).expected == pytest.approx(scores[3])


def test_a_gain_that_grew_is_not_expected_to_grow_on_and_nothing_is_better_than_perfect():
    assert curve(0.9, 0.8, 0.5).expected == pytest.approx(0.2)
    # Of the last two doublings each gains 0.15.
    assert curve(0.9, 0.8, 0.5, counts=(100, 200, 800)).expected == pytest.approx(0.35)
    assert curve(0.6, 0.4, 0.2).expected == pytest.approx(0) and curve(0.5, 0.3, 0.05).expected == 0
    assert curve(50, 70, 90, metric='bleu', lower=False).expected == 100
    assert curve(0.3, 0.6, 0.9, metric='bleu', lower=False).expected == pytest.approx(1.2)
    assert curve(0.5, 0.7, 0.9, metric='ssim', lower=False).expected == 1
    assert curve(10, 20, 30, metric='psnr', lower=False).expected == pytest.approx(40)


def test_a_gain_that_all_but_ended_ends():
    assert curve(0.9, 0.5, 0.4999999).expected == pytest.approx(0.4999999, abs=1e-8)


@pytest.mark.parametrize('values', [
    (0.5, 0.4), (0.5, 0.6, 0.5), (0.5, 0.4, 0.4), (0.4, 0.3, 0.35), (float('nan'), 0.4, 0.3), (0.5, 0.4, float('nan'))])
def test_without_two_gains_nothing_is_expected(values):
    assert curve(*values).expected is None


ONCE = 'Each was trained once: with other seeds, these numbers vary further.'


@pytest.mark.parametrize('made, says', [
    (curve(0.5, 0.36, 0.3, low=-0.09, high=-0.03), [
        'With 100, 200 and 400 training images, top1 error is 0.5, 0.36 and 0.3.',
        'More data helps: it improved by 0.06 with 400 in place of 200; by more than 0.03 with 95% confidence, which '
        'allows for the chance of these 300 test images.',
        'If gains go on as they did, twice as many would bring about 0.274.']),
    (curve(20.0, 30.0, low=4.0, high=16.0, metric='bleu', lower=False), [
        'With 100 and 200 training images, bleu is 20 and 30.',
        'More data helps: it improved by 10 with 200 in place of 100; by more than 4 with 95% confidence, which allows '
        'for the chance of these 300 test images.']),
    (curve(0.5, 0.36, 0.35, low=-0.03, high=0.01), [
        'With 100, 200 and 400 training images, top1 error is 0.5, 0.36 and 0.35.',
        'It does not show that more data of this kind helps: it improved by 0.01 with 400 in place of 200, which the '
        'chance of these 300 test images makes anything from -0.01 to 0.03.']),
    (curve(0.3, 0.4, low=0.05, high=0.15), [
        'With 100 and 200 training images, top1 error is 0.3 and 0.4.',
        'It became worse: it improved by -0.1 with 200 in place of 100, which the chance of these 300 test images '
        'makes anything from -0.15 to -0.05. With more data the steps may be too few: raise train.steps, or train once '
        'more with another seed.']),
    (curve(0.3, 0.3, low=0.0, high=0.0), [
        'With 100 and 200 training images, top1 error is 0.3 and 0.3.',
        'It does not show that more data of this kind helps: it improved by 0 with 200 in place of 100, which the '
        'chance of these 300 test images makes anything from 0 to 0.']),
    (curve(12.0, 11.0, metric='fid'), [
        'With 100 and 200 training images, fid is 12 and 11.',
        'It improved by 1 with 200 in place of 100; whether that is chance cannot be estimated, because it is computed '
        'over all examples at once.']),
    (curve(0.5, 0.4, low=-0.2, high=-0.05, tested=8), [
        'With 100 and 200 training images, top1 error is 0.5 and 0.4.',
        'It improved by 0.1 with 200 in place of 100; whether that is chance cannot be estimated, because 8 test '
        'images are too few.']),
    (curve(0.5, float('nan'), low=-0.2, high=-0.05), [
        'With 100 and 200 training images, top1 error is 0.5 and nan.']),
])
def test_what_it_says(made, says):
    assert learning_curve.sentences(made) == [*says, ONCE]


def test_weights_that_may_have_seen_all_of_the_data_are_named():
    made = dataclasses.replace(curve(0.5, 0.36, low=-0.2, high=-0.1), init_from='runs/vgg_a')
    assert learning_curve.sentences(made)[-2].startswith('All started from the weights of runs/vgg_a. If those')


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
