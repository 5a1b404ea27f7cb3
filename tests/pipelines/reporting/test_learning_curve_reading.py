"""Interpret learning curves: the gain of more data, and whether it may be chance."""
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


ONCE = 'Each was trained once: with other seeds, these numbers vary further.'


@pytest.mark.parametrize('made, says', [
    (curve(0.5, 0.36, 0.3, low=-0.09, high=-0.03), [
        'With 100, 200 and 400 training images, top1 error is 0.5, 0.36 and 0.3.',
        'More data helps: it improved by 0.06 with 400 in place of 200; by more than 0.03 with 95% confidence, which '
        'allows for the chance of these 300 test images. Give a training on more data more steps, too.']),
    (curve(20.0, 30.0, low=4.0, high=16.0, metric='bleu', lower=False), [
        'With 100 and 200 training images, bleu is 20 and 30.',
        'More data helps: it improved by 10 with 200 in place of 100; by more than 4 with 95% confidence, which allows '
        'for the chance of these 300 test images. Give a training on more data more steps, too.']),
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
    """Compare answers to 200 examples: the whole is right in 40 more, the half in none that the whole misses."""
    metric = corpus.metric('top1_error')
    half, whole = ([corpus.Row(['a' if n < right else 'b'], 'a') for n in range(200)] for right in (100, 140))
    found = chance.change(metric, whole, half, 0.95, 1)
    made = dataclasses.replace(curve(0.5, 0.3), change=found)
    assert found.value == pytest.approx(-0.2)
    # Binomial: 0.2 less 1.645 standard errors of a share of 0.2 in 200.
    assert -found.high == pytest.approx(0.2 - 1.645 * (0.2 * 0.8 / 200) ** 0.5, abs=0.006)
    assert 'More data helps' in learning_curve.sentences(made)[1]


def test_the_figure_marks_every_number_of_examples():
    shown = learning_curve.read(curve(0.5, 0.36, 0.3, low=-0.09, high=-0.03))
    for label in ('>100<', '>200<', '>400<', 'training images'):
        assert label in shown['figure']
    assert [row['examples'] for row in shown['rows']] == [100, 200, 400]
