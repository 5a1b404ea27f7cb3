"""The BLEU of the gate is sacreBLEU's, also where n-grams are missing."""
import pytest
import sacrebleu
import tensorflow_model_analysis as tfma

from pipelines import metrics


@pytest.mark.parametrize('pairs', [
    [('the cat sat on the mat', 'the cat sat on the mat'), ('a dog', 'a dog barks loudly at night')],
    [('one two three four five', 'one two six four five')],  # no 4-gram matches: exponential smoothing
    [('one', 'one'), ('two', 'three')],  # no 4-gram at all
    [('', 'something is here')],
])
def test_corpus_bleu_is_sacrebleus_to_the_last_digit(pairs):
    hypotheses, references = zip(*pairs)
    assert corpus(pairs, split=False) == sacrebleu.corpus_bleu(list(hypotheses), [list(references)]).score


def corpus(pairs, split):
    """The metric over pairs that two workers saw."""
    combiner = metrics.BleuCombiner(tfma.metrics.MetricKey('bleu'), None, split)
    halves = [combiner.create_accumulator() + sum(combiner.segment(*pair) for pair in part)
              for part in (pairs[::2], pairs[1::2])]
    [found] = combiner.extract_output(combiner.merge_accumulators(halves)).values()
    return found


def test_compounds_are_split_as_for_the_papers_figure():
    assert metrics.split_compounds('Der Mitte-Links-Block (z. B. 2014).') == (
        'Der Mitte ##AT##-##AT## Links ##AT##-##AT## Block ( z. B. 2014 ) .')
    pairs = [('Das Mitte-rechts-Bündnis gewann die Wahl.', 'Das Mitte-links-Bündnis gewann die Wahl.')]
    # 10 tokens; the fourth differs, which breaks 1, 2, 3 and 4 of the 10, 9, 8 and 7 n-grams.
    expected = 100 * (9 / 10 * 7 / 9 * 5 / 8 * 3 / 7) ** 0.25
    assert corpus(pairs, split=True) == pytest.approx(expected)
    assert corpus(pairs, split=True) > corpus(pairs, split=False)
