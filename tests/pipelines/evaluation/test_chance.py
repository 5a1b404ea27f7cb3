"""The interval of a change: its ends against the normal theory, its verdicts at the bound, and its refusals."""
import numpy as np
import pytest
from scipy import stats

from data_prep import UserError
from pipelines.evaluation import chance, corpus, gate, thresholds

MEAN = corpus.metric('ssim', 0)


def rows(numbers):
    return [corpus.Row([float(number)], '') for number in numbers]


def pair(examples: int, seed: int, difference: float = 0.0):
    """Two models' scores of the same examples, whose true means differ by `difference`."""
    draw = np.random.default_rng(seed)
    shared = draw.normal(0.8, 0.1, examples)
    return rows(shared + draw.normal(difference, 0.02, examples)), rows(shared + draw.normal(0, 0.02, examples))


def test_the_interval_of_a_mean_is_the_normal_theorys():
    """Expect s / sqrt(n) for the mean of n differences of deviation s; if examples were not paired, 3.6 times that."""
    candidate, blessed = pair(400, seed=0, difference=0.01)
    change = chance.change(MEAN, candidate, blessed, 0.95, seed=0)
    differences = np.array([one.outputs[0] - other.outputs[0] for one, other in zip(candidate, blessed)])
    error = differences.std() / np.sqrt(400)
    assert change.value == pytest.approx(differences.mean()) and change.examples == 400
    z = stats.norm.ppf(0.95)
    # The deviation of 2,000 draws is known to 1.6%, an end to 5% of it.
    assert (change.high - change.value) / error == pytest.approx(z, abs=0.15)
    assert (change.value - change.low) / error == pytest.approx(z, abs=0.15)
    assert change.smallest / error == pytest.approx(2 * z, rel=0.08)
    assert chance.change(MEAN, candidate, blessed, 0.95, seed=0) == change != chance.change(
        MEAN, candidate, blessed, 0.95, seed=1)


def test_at_a_difference_of_the_bound_a_twentieth_errs():
    """Both promises; benchmarks/studies/gate_by_chance.py has other metrics. More than 22 of 250 is rare at 5%."""
    assert stats.binom.sf(22, 250, 0.05) < 1 / 200
    wrong = {'block': 0, 'pass': 0}
    for seed in range(250):
        change = chance.change(MEAN, *pair(60, seed, difference=-0.01), 0.95, seed)
        for option in wrong:
            passes = not chance.refusal('ssim', change, {'max_drop': 0.01, 'confidence': 0.95, 'in_doubt': option})
            wrong[option] += passes == (option == 'block')
    assert max(wrong.values()) <= 22 and min(wrong.values()) >= 4


@pytest.mark.parametrize('name', ['bleu', 'chrf', 'exact_match'])
def test_more_noise_than_difference_is_said_to_be_doubt(name):
    """Compare models with as many errors elsewhere: neither is shown to be within a bound of 0, nor outside."""
    draw = np.random.default_rng(0)
    words = [list(draw.choice(['red', 'green', 'blue', 'black'], 8)) for _ in range(200)]

    def answers(seed):
        wrong = np.random.default_rng(seed).random((200, 8)) < 0.2
        return [corpus.Row([' '.join(np.where(where, 'white', text))], ' '.join(text))
                for where, text in zip(wrong, words)]
    change = chance.change(corpus.metric(name), answers(3), answers(4), 0.95, 0)
    assert change.low < 0 < change.high
    bounds = {'max_drop': 0.0, 'confidence': 0.95}
    reason = chance.refusal(name, change, bounds)
    assert f'{name} changed by {change.value:+.4g}' in reason and f'may be up to {-change.low:.4g}' in reason
    assert 'max_drop is 0' in reason and '95%' in reason
    assert chance.refusal(name, change, {**bounds, 'in_doubt': 'pass'}) == ''
    assert chance.refusal(name, change, {'max_drop': 100.0, 'confidence': 0.95}) == ''
    far = {'max_rise': change.low - 1, 'confidence': 0.95, 'in_doubt': 'pass'}
    assert f'the rise is {change.low:.4g} or more' in chance.refusal(name, change, far)


def test_one_example_has_no_chance():
    """Every test set drawn from it is itself."""
    change = chance.change(MEAN, rows([0.5]), rows([0.25]), 0.95, seed=0)
    assert (change.low, change.value, change.high, change.smallest) == (0.25, 0.25, 0.25, 0)


def test_a_metric_without_a_number_has_not_changed():
    """Give no example a number, as metrics of pairs have none on data without pairs."""
    change = chance.change(MEAN, rows([float('nan')] * 3), rows([float('nan')] * 3), 0.95, seed=0)
    assert (change.low, change.value, change.high) == (0, 0, 0)


def test_equal_models_have_no_chance():
    same, _ = pair(50, seed=0)
    assert chance.change(MEAN, same, same, 0.95, 0) == chance.Change(0.0, 0.0, 0.0, 0.95, 0.0, 50)


@pytest.mark.parametrize('bounds, said', [
    ({'confidence': 0.95}, 'Give max_drop or max_rise'),
    ({'max_drop': 1, 'in_doubt': 'pass'}, 'and a confidence'),
    ({'max_drop': 1, 'confidence': 95}, 'confidence must be between 0.5 and 1; it is 95'),
    ({'max_drop': 1, 'confidence': 0.95, 'in_doubt': 'ask'}, "in_doubt must be block or pass; it is 'ask'"),
    ({'max_drop': 'one'}, "max_drop must be a number; it is 'one'"),
    ({'max_drop': 1, 'max_rise': 1}, 'exclude each other'), ({'most': 1}, "holds ['most']"), ({}, 'holds nothing')])
def test_what_decides_nothing_is_refused(bounds, said):
    with pytest.raises(UserError) as refused:
        thresholds.check('evaluate.thresholds.bleu', bounds, True)
    assert str(refused.value).startswith('evaluate.thresholds.bleu') and said in str(refused.value)


def test_a_metric_of_all_examples_at_once_has_no_confidence():
    with pytest.raises(UserError, match=r'evaluate.thresholds.fid.confidence: .*Leave confidence out'):
        thresholds.check('evaluate.thresholds.fid', {'max_rise': 1, 'confidence': 0.9}, False)
    thresholds.check('evaluate.thresholds.fid', {'max_rise': 1}, False)


def test_the_gate_decides_by_the_intervals_end():
    """The number itself is within its bound, but may have dropped by more."""
    change = chance.Change(-0.4, -0.9, 0.1, 0.95, 1.0, 300)
    bounds = {'min': 20, 'max_drop': 0.5, 'confidence': 0.95}
    assert gate.holds({'min': 20, 'max_drop': 0.5}, 30.0, 30.4, None)
    assert not gate.holds(bounds, 30.0, 30.4, change)
    assert gate.holds({**bounds, 'in_doubt': 'pass'}, 30.0, 30.4, change)
    assert not gate.holds({**bounds, 'in_doubt': 'pass'}, 19.0, 19.4, change)
    assert gate.holds(bounds, 30.0, None, None)  # nothing to compare with
