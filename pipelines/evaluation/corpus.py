"""Corpus metrics from counts of each example, which can be added up in any order and drawn again.

TFMA adds them over slices and workers (`metrics`), the gate draws test sets from them (`chance`), and
`pipelines.verify` adds them up again from a report's stored rows, so nothing here needs TensorFlow or Beam.
"""
import dataclasses
import functools
import re
from collections.abc import Callable, Sequence

import numpy as np
import sacrebleu
import sacremoses

from pipelines.evaluation import parseval


@dataclasses.dataclass(frozen=True)
class Row:
    """Hold one model's answer to one example.

    Attributes:
      outputs: its outputs, best first, possibly padded with empty strings; or the numbers of a scorer.
      target: the reference.
      well_formed: whether the output was well formed before being repaired, if the model reports it.
      weight: one divided by the number of examples with this target, for `mean_class_error`.
    """
    outputs: Sequence
    target: str
    well_formed: float | None = None
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Metric:
    """A corpus metric.

    Attributes:
      size: length of `counts`.
      counts: (row) -> what one example adds, [size].
      score: (sums of counts, [size]) -> the metric.
      protocol: how the metric is computed; shown wherever its number is. A scorer describes its own metrics.
    """
    size: int
    counts: Callable[[Row], np.ndarray]
    score: Callable[[np.ndarray], float]
    protocol: str


@functools.cache
def metric(name: str, place: int = 0, target: str = '') -> Metric:
    """Return a metric by its name in configurations and reports.

    Args:
      name: a key of `METRICS`, or that of a scorer's number.
      place: position of a scorer's number among the metrics.
      target: the target's language, which decides the tokenisation of `bleu_tokenised`.
    """
    if name in METRICS:
        return METRICS[name](_language_code(target))
    return _mean(lambda row: row.outputs[place], '')


def _mean(value: Callable[[Row], float | None], protocol: str,
          weight: Callable[[Row], float] = lambda row: 1.0) -> Metric:
    """Return the weighted mean of what `value` gives, over the examples for which it is a number."""
    def counts(row: Row) -> np.ndarray:
        found = value(row)
        return np.zeros(2) if found is None or np.isnan(found) else weight(row) * np.array([found, 1.0])
    return Metric(2, counts, lambda sums: float(sums[0] / sums[1]) if sums[1] else float('nan'), protocol)


def _missed(k: int) -> Callable[[Row], float]:
    """Return whether the target is not among the first k outputs, as a function of a row."""
    return lambda row: row.target not in row.outputs[:k]


def _brackets(score: str, protocol: str, right_branching: bool = False) -> Metric:
    """Return a score of labelled brackets; see `parseval`."""
    def counts(row: Row) -> np.ndarray:
        answer = parseval.right_branching(row.target) if right_branching else row.outputs[0]
        return parseval.counts(row.target, answer)
    return Metric(len(parseval.COUNTS), counts, lambda sums: parseval.score(score, sums), protocol)


def _bleu(language: str) -> Metric:
    """Return corpus BLEU (Papineni et al. 2002), from matches and totals for n = 1 to 4 and both lengths.

    Args:
      language: if empty, the metric equals sacreBLEU on detokenised text to the last digit. A target language such as
        `fr` gives the figure of Vaswani et al. (Table 2): both sides tokenised as by Moses in that language, no
        smoothing; see `moses_tokens`. Only such figures compare with the paper's.
    """
    bleu = _scorer(tokenised=bool(language))

    def counts(row: Row) -> np.ndarray:
        hypothesis, reference = row.outputs[0], row.target
        if language:
            hypothesis, reference = (moses_tokens(text, language) for text in (hypothesis, reference))
        found = bleu.corpus_score([hypothesis], [[reference]])
        return np.array([*found.counts, *found.totals, found.sys_len, found.ref_len], np.int64)

    def score(sums: np.ndarray) -> float:
        *ngrams, hypothesis, reference = map(int, sums)
        return sacrebleu.BLEU.compute_bleu(ngrams[:4], ngrams[4:], hypothesis, reference,
                                           smooth_method=bleu.smooth_method).score
    how = f'Moses tokens of language {language}, {"compounds split, " * (language == "de")}' if language else (
        'detokenised text, ')
    return Metric(10, counts, score, f'corpus BLEU on {how}sacreBLEU {signature(bool(language))}')


def _chrf() -> Metric:
    """Return corpus chrF (Popović 2015): sacreBLEU's, to the last digit."""
    chrf = sacrebleu.CHRF()
    signed = sacrebleu.CHRF()
    signed.corpus_score(['a'], [['a']])
    return Metric(3 * chrf.order,
                  lambda row: np.array(*chrf._extract_corpus_statistics([row.outputs[0]], [[row.target]])),
                  lambda sums: chrf._compute_f_score(sums.tolist()),
                  f'corpus chrF on detokenised text, sacreBLEU {signed.get_signature()}')


_EVALB = 'labelled, by the rules of evalb with COLLINS.prm'
# Metric by its name in configurations and reports: (the target's language) -> Metric.
METRICS: dict[str, Callable[[str], Metric]] = {
    'bleu': lambda language: _bleu(''),
    'bleu_tokenised': _bleu,
    'chrf': lambda language: _chrf(),
    'exact_match': lambda language: _mean(lambda row: row.outputs[0] == row.target,
                                          'fraction of outputs equal to the reference in every character'),
    'top1_error': lambda language: _mean(_missed(1), 'fraction of images whose class is not the most probable one'),
    'mean_class_error': lambda language: _mean(
        _missed(1), "mean over the classes of the fraction of each class's images whose class is not the most probable "
                    'one; that is, one less the balanced accuracy', lambda row: row.weight),
    'top5_error': lambda language: _mean(
        _missed(5), 'fraction of images whose class is not among the five most probable'),
    'bracket_precision': lambda language: _brackets(
        'precision', f'percentage of the predicted brackets that are right; {_EVALB}'),
    'bracket_recall': lambda language: _brackets(
        'recall', f'percentage of the reference brackets that were predicted; {_EVALB}'),
    'bracket_f1': lambda language: _brackets('f1', f'harmonic mean of bracket precision and recall; {_EVALB}'),
    'complete_match': lambda language: _brackets('complete',
                                                 f'fraction of sentences with all brackets right; {_EVALB}'),
    'right_branching_f1': lambda language: _brackets(
        'f1', 'bracket_f1 of the right-branching baseline: an S in which every word but the first begins a VP that '
              'extends to the end', right_branching=True),
    'well_formed': lambda language: _mean(
        lambda row: row.well_formed, 'fraction of outputs that were one tree over exactly the input words; the others '
                                     'were repaired by the rules in data_prep/trees/tree_graph.py'),
}


def protocol(name: str, data=None) -> str:
    """Describe how a metric is computed; empty for a scorer's, which describes its own.

    Args:
      data: the configuration's section, for the target's language.
    """
    return metric(name, 0, getattr(data, 'target', '')).protocol


def _scorer(tokenised: bool) -> sacrebleu.BLEU:
    return sacrebleu.BLEU(tokenize='none', smooth_method='none', force=True) if tokenised else sacrebleu.BLEU()


def signature(tokenised: bool = False) -> str:
    """Return sacreBLEU's signature of a BLEU above."""
    bleu = _scorer(tokenised)
    bleu.corpus_score(['a'], [['a']])
    return str(bleu.get_signature())


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
