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
    combiner = metrics._BleuCombiner(tfma.metrics.MetricKey('bleu'), None)
    halves = [combiner.create_accumulator() + sum(
        metrics.sufficient(combiner._bleu, *pair) for pair in part) for part in (pairs[::2], pairs[1::2])]
    [found] = combiner.extract_output(combiner.merge_accumulators(halves)).values()
    assert found == sacrebleu.corpus_bleu(list(hypotheses), [list(references)]).score
