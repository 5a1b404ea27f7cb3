"""Corpus metrics as TFMA metrics, so that slices, thresholds and TensorBoard's views come from TFMA."""
import apache_beam as beam
import numpy as np
import sacrebleu
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_util

# What a metric is, by the name configurations and reports use: (class, module) for TFMA's EvalConfig.
CLASSES = {'bleu': ('CorpusBleu', __name__), 'exact_match': ('ExactMatch', 'tensorflow_model_analysis.metrics')}


class CorpusBleu(tfma.metrics.Metric):
    """Corpus BLEU (Papineni et al. 2002) as sacreBLEU computes it, to the last digit, on detokenised text.

    TFMA's own `Bleu` yields a BLEUScore object, which no threshold can be compared with; this yields its number.
    """

    def __init__(self, name: str = 'bleu'):
        super().__init__(metric_util.merge_per_key_computations(_computations), name=name)


def _computations(name: str, eval_config=None, model_name: str = '', output_name: str = '', **_):
    key = tfma.metrics.MetricKey(name=name, model_name=model_name, output_name=output_name)
    return [tfma.metrics.MetricComputation(keys=[key], preprocessors=None, combiner=_BleuCombiner(key, eval_config))]


class _BleuCombiner(beam.CombineFn):
    """Sums of n-gram matches and totals, and of lengths: all that BLEU depends on."""

    def __init__(self, key, eval_config):
        self._key, self._eval_config = key, eval_config
        self._bleu = sacrebleu.BLEU()

    def create_accumulator(self):
        return np.zeros(10, np.int64)  # matches and totals for n = 1 to 4, hypothesis and reference length

    def add_input(self, accumulator, element):
        for label, prediction, _ in metric_util.to_label_prediction_example_weight(
                element, eval_config=self._eval_config, model_name=self._key.model_name,
                output_name=self._key.output_name, flatten=False):
            accumulator = accumulator + sufficient(self._bleu, text(prediction), text(label))
        return accumulator

    def merge_accumulators(self, accumulators):
        return np.sum(list(accumulators), axis=0)

    def extract_output(self, accumulator):
        correct, total, (hypothesis, reference) = accumulator[:4], accumulator[4:8], accumulator[8:]
        score = sacrebleu.BLEU.compute_bleu(correct.tolist(), total.tolist(), int(hypothesis), int(reference),
                                            smooth_method=self._bleu.smooth_method)
        return {self._key: score.score}


def sufficient(bleu: sacrebleu.BLEU, hypothesis: str, reference: str) -> np.ndarray:
    """One segment's contribution to a corpus BLEU."""
    score = bleu.corpus_score([hypothesis], [[reference]])
    return np.array([*score.counts, *score.totals, score.sys_len, score.ref_len], np.int64)


def text(value) -> str:
    [item] = np.ravel(value)
    return item.decode() if isinstance(item, bytes) else str(item)


def signature() -> str:
    """sacreBLEU's signature of the BLEU above, to be shown wherever the number is."""
    bleu = sacrebleu.BLEU()
    bleu.corpus_score(['a'], [['a']])
    return str(bleu.get_signature())
