"""The papers' metrics as TFMA metrics, so that TFMA provides slices, thresholds and TensorBoard's views."""
import functools
import re
from collections.abc import Callable

import apache_beam as beam
import numpy as np
import sacrebleu
import sacremoses
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_util

from pipelines.evaluation import parseval

# Metric by the name in configurations and reports: TFMA class, its module, its arguments.
CLASSES: dict[str, tuple[str, str, dict]] = {
    'bleu': ('CorpusBleu', __name__, {}),
    'bleu_tokenised': ('CorpusBleu', __name__, {}),  # plus the target's language, see `tfma_class`
    'exact_match': ('ExactMatch', 'tensorflow_model_analysis.metrics', {}),
    'top1_error': ('TopKError', __name__, {'k': 1}),
    'top5_error': ('TopKError', __name__, {'k': 5}),
    'bracket_precision': ('BracketScore', __name__, {'score': 'precision'}),
    'bracket_recall': ('BracketScore', __name__, {'score': 'recall'}),
    'bracket_f1': ('BracketScore', __name__, {'score': 'f1'}),
    'complete_match': ('BracketScore', __name__, {'score': 'complete'}),
    'right_branching_f1': ('BracketScore', __name__, {'score': 'f1', 'right_branching': True}),
    'well_formed': ('WellFormed', __name__, {}),
}


def tfma_class(name: str, place: int, data) -> tuple[str, str, dict]:
    """Return the TFMA class that computes a metric, its module and its arguments.

    Args:
      place: position among the configuration's metrics; a metric without an entry in `CLASSES` is a scorer's number at
        this position.
      data: the configuration's section, whose target language decides the tokenisation.
    """
    class_name, module, arguments = CLASSES.get(name, ('MeanScore', __name__, {'index': place}))
    if name == 'bleu_tokenised':
        arguments = {**arguments, 'language': _language_code(data.target)}
    return class_name, module, arguments


class CorpusBleu(tfma.metrics.Metric):
    """Corpus BLEU (Papineni et al. 2002), from sums that TFMA can add up over slices and workers.

    TFMA's own `Bleu` yields a BLEUScore object, which cannot be compared with a threshold; this yields the number.

    Args:
      language: if empty, equals sacreBLEU on detokenised text to the last digit. A target language such as `fr` gives
        the figure of Vaswani et al. (Table 2): both sides tokenised as by Moses in that language, no smoothing; see
        `moses_tokens`. Only such figures compare with the paper's.
    """

    def __init__(self, name: str = 'bleu', language: str = ''):
        super().__init__(_computations(BleuCombiner, 'language'), name=name, language=language)


class TopKError(tfma.metrics.Metric):
    """Fraction of examples whose label is not among the top k predictions: ILSVRC's error.

    A prediction is a row of labels, best first, possibly padded with empty strings.
    """

    def __init__(self, k: int, name: str = 'top_k_error'):
        super().__init__(_computations(TopKCombiner, 'k'), name=name, k=k)


class MeanScore(tfma.metrics.Metric):
    """Mean of a number that a model module's `Scorer` gives each example; examples without one are left out.

    A prediction is a row of such numbers; this metric takes the one at `index`.
    """

    def __init__(self, index: int, name: str = 'mean_score'):
        super().__init__(_computations(MeanCombiner, 'index'), name=name, index=index)


class BracketScore(tfma.metrics.Metric):
    """Score of labelled brackets over the corpus; see `parseval`.

    Args:
      score: precision, recall or f1, in percent; or complete, the fraction of sentences without a mistake.
      right_branching: score the right-branching baseline instead of the model's outputs.
    """

    def __init__(self, score: str, right_branching: bool = False, name: str = 'bracket_score'):
        super().__init__(_computations(BracketCombiner, 'score', 'right_branching'), name=name, score=score,
                         right_branching=right_branching)


class WellFormed(tfma.metrics.Metric):
    """Fraction of outputs that were well formed before being repaired; a row records it as `candidate_well_formed`."""

    def __init__(self, name: str = 'well_formed'):
        super().__init__(_computations(WellFormedCombiner), name=name)


def _computations(combiner: Callable[..., beam.CombineFn], *names: str) -> Callable:
    """Return the function that TFMA calls to create a metric's computation.

    Args:
      combiner: (key, eval_config, arguments) -> sums over examples, and the metric computed from them.
      names: the metric's arguments that the combiner takes.
    """
    def create(name: str = '', eval_config=None, model_name: str = '', output_name: str = '', **arguments):
        key = tfma.metrics.MetricKey(name=name, model_name=model_name, output_name=output_name)
        made = combiner(key, eval_config, *(arguments[each] for each in names))
        return [tfma.metrics.MetricComputation(keys=[key], preprocessors=made.preprocessors(), combiner=made)]
    return metric_util.merge_per_key_computations(create)


class _SumCombiner(beam.CombineFn):
    """Sum of every example's `counts`, from which a corpus metric is computed."""

    def __init__(self, key, eval_config):
        self._key, self._eval_config = key, eval_config

    def preprocessors(self) -> list | None:
        """Return TFMA's extractors; None extracts labels and predictions."""
        return None

    def add_input(self, accumulator, element):
        for label, prediction, _ in metric_util.to_label_prediction_example_weight(
                element, eval_config=self._eval_config, model_name=self._key.model_name,
                output_name=self._key.output_name, flatten=False):
            [reference] = _texts(label)
            accumulator = accumulator + self.counts(_texts(prediction), reference)
        return accumulator

    def merge_accumulators(self, accumulators):
        return np.sum(list(accumulators), axis=0)


class TopKCombiner(_SumCombiner):
    """Number of wrong examples, and of all examples."""

    def __init__(self, key, eval_config, k: int):
        super().__init__(key, eval_config)
        self._k = k

    def create_accumulator(self):
        return np.zeros(2, np.int64)

    def counts(self, prediction: list[str], reference: str) -> np.ndarray:
        return np.array([reference not in prediction[:self._k], 1], np.int64)

    def extract_output(self, accumulator):
        wrong, total = accumulator
        return {self._key: wrong / total}


class MeanCombiner(_SumCombiner):
    """Sum of the examples' numbers at one position, and how many examples have one."""

    def __init__(self, key, eval_config, index: int):
        super().__init__(key, eval_config)
        self._index = index

    def create_accumulator(self):
        return np.zeros(2)

    def counts(self, prediction: list[str], reference: str) -> np.ndarray:
        value = float(prediction[self._index])
        return np.zeros(2) if np.isnan(value) else np.array([value, 1])

    def extract_output(self, accumulator):
        total, count = accumulator
        return {self._key: total / count if count else float('nan')}


class WellFormedCombiner(MeanCombiner):
    """Mean, as in its base class, of a feature of the example such as `candidate_well_formed`."""

    def __init__(self, key, eval_config):
        super().__init__(key, eval_config, 0)
        self._feature = f'{key.model_name or "candidate"}_well_formed'

    def preprocessors(self) -> list:
        return [tfma.metrics.FeaturePreprocessor([self._feature])]

    def add_input(self, accumulator, element):
        value = (element.features or {}).get(self._feature)
        return accumulator if value is None or not np.size(value) else accumulator + [float(np.ravel(value)[0]), 1]


class BracketCombiner(_SumCombiner):
    """Sums of `parseval.COUNTS`."""

    def __init__(self, key, eval_config, score: str, right_branching: bool):
        super().__init__(key, eval_config)
        self._score, self._right_branching = score, right_branching

    def create_accumulator(self):
        return np.zeros(len(parseval.COUNTS), np.int64)

    def counts(self, prediction: list[str], reference: str) -> np.ndarray:
        answer = parseval.right_branching(reference) if self._right_branching else prediction[0]
        return parseval.counts(reference, answer)

    def extract_output(self, accumulator):
        return {self._key: parseval.score(self._score, accumulator)}


class BleuCombiner(_SumCombiner):
    """Sums of n-gram matches, totals and lengths: everything BLEU depends on."""

    def __init__(self, key, eval_config, language: str):
        super().__init__(key, eval_config)
        self._language, self._bleu = language, _scorer(tokenised=bool(language))

    def create_accumulator(self):
        return np.zeros(10, np.int64)  # matches and totals for n = 1 to 4, hypothesis and reference length

    def counts(self, prediction: list[str], reference: str) -> np.ndarray:
        [hypothesis] = prediction
        return self.segment(hypothesis, reference)

    def segment(self, hypothesis: str, reference: str) -> np.ndarray:
        """Return one segment's counts."""
        if self._language:
            hypothesis, reference = (moses_tokens(text, self._language) for text in (hypothesis, reference))
        score = self._bleu.corpus_score([hypothesis], [[reference]])
        return np.array([*score.counts, *score.totals, score.sys_len, score.ref_len], np.int64)

    def extract_output(self, accumulator):
        correct, total, (hypothesis, reference) = accumulator[:4], accumulator[4:8], accumulator[8:]
        score = sacrebleu.BLEU.compute_bleu(correct.tolist(), total.tolist(), int(hypothesis), int(reference),
                                            smooth_method=self._bleu.smooth_method)
        return {self._key: score.score}


def _scorer(tokenised: bool) -> sacrebleu.BLEU:
    return sacrebleu.BLEU(tokenize='none', smooth_method='none', force=True) if tokenised else sacrebleu.BLEU()


@functools.cache
def _moses(code: str) -> sacremoses.MosesTokenizer:
    return sacremoses.MosesTokenizer(code)


def moses_tokens(text: str, language: str) -> str:
    """Tokenise text as Moses' tokenizer.perl -l LANGUAGE does, and split German compounds.

    The language decides where an apostrophe is split (`l' eau` in French and Italian, `it 's` in English, `l ' eau` in
    all others) and which abbreviations keep their full stop; a language without a list in Moses uses the English one.
    In German, `a-b` becomes `a ##AT##-##AT## b`, as in tensor2tensor's get_ende_bleu.sh; other languages keep their
    hyphens. sacremoses is Moses before November 2018, the paper's version: an abbreviation keeps its full stop at the
    end of a line too. That version's script and this agree in every token of 1,000 French and 1,000 German lines of
    Multi30k.
    """
    code = _language_code(language)
    tokens = _moses(code).tokenize(text, escape=False, return_str=True)
    return re.sub(r'(\S)-(\S)', r'\1 ##AT##-##AT## \2', tokens) if code == 'de' else tokens


def _language_code(language: str) -> str:
    """Return the primary language, such as `de` for `de-AT` or `DE`; `en` for an empty one, as Moses does."""
    return re.split('[-_]', language.lower())[0] or 'en'


def _texts(value) -> list[str]:
    return [item.decode() if isinstance(item, bytes) else str(item) for item in np.ravel(value)]


def signature(tokenised: bool = False) -> str:
    """Return sacreBLEU's signature of a BLEU above."""
    bleu = _scorer(tokenised)
    bleu.corpus_score(['a'], [['a']])
    return str(bleu.get_signature())


def protocol(name: str, data=None) -> str:
    """Describe how a metric is computed; shown wherever its number is. A scorer describes its own metrics.

    Args:
      data: the configuration's section; only `bleu_tokenised` needs it, for the target's language.
    """
    code = _language_code(getattr(data, 'target', ''))
    evalb = 'labelled, by the rules of evalb with COLLINS.prm'
    return {
        'bleu': lambda: f'corpus BLEU on detokenised text, sacreBLEU {signature()}',
        'bleu_tokenised': lambda: (f'corpus BLEU on Moses tokens of language {code}, '
                                   f'{"compounds split, " * (code == "de")}sacreBLEU {signature(tokenised=True)}'),
        'exact_match': lambda: 'fraction of outputs equal to the reference in every character',
        'top1_error': lambda: 'fraction of images whose class is not the most probable one',
        'top5_error': lambda: 'fraction of images whose class is not among the five most probable',
        'bracket_precision': lambda: f'percentage of the predicted brackets that are right; {evalb}',
        'bracket_recall': lambda: f'percentage of the reference brackets that were predicted; {evalb}',
        'bracket_f1': lambda: f'harmonic mean of bracket precision and recall; {evalb}',
        'complete_match': lambda: f'fraction of sentences with all brackets right; {evalb}',
        'right_branching_f1': lambda: 'bracket_f1 of the right-branching baseline: an S in which every word but the '
                                      'first begins a VP that extends to the end',
        'well_formed': lambda: 'fraction of outputs that were one tree over exactly the input words; the others were '
                               'repaired by the rules in data_prep/trees/tree_graph.py',
    }.get(name, lambda: '')()
