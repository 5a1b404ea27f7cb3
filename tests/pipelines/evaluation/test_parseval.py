"""Brackets are counted as evalb does: its own sample, cases by hand, and the gate's metrics over a corpus."""
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from hypothesis import given
from hypothesis import strategies as st

from data_prep.trees import trees
from pipelines import evaluate
from pipelines.evaluation import metrics, parseval

# evalb's sample of four words: what was answered, and the right, reference and answered brackets it prints. Its rows
# that differ in words it leaves out as errors; here they have none right.
SAMPLE = '(S (A (P this)) (B (Q is) (A (R a) (T test))))'
ANSWERS = [
    (SAMPLE, 4, 4, 4), ('(S (A (P this)) (B (Q is) (C (R a) (T test))))', 3, 4, 4),
    ('(S (A (P this)) (B (Q is) (A (R a) (U test))))', 4, 4, 4),
    ('(S (C (P this)) (B (Q is) (A (R a) (U test))))', 3, 4, 4),
    ('(S (A (P this)) (B (Q is) (R a) (A (T test))))', 3, 4, 4),
    ('(S (A (P this) (Q is)) (A (R a) (T test)))', 2, 4, 3),
    ('(S (P this) (Q is) (R a) (T test))', 1, 4, 1), ('(P this) (Q is) (R a) (T test)', 0, 4, 0),
    ('(S (A (P this)) (B (Q is) (A (A (R a) (T test)))))', 4, 4, 5),
    ('(S (A (P this)) (B (Q is) (A (A (A (A (A (R a) (T test))))))))', 4, 4, 8),
    ('(TOP (S (A (P this)) (B (Q is) (A (R a) (T test)))))', 4, 4, 4),
    ('(S (A-SBJ-1 (P this)) (B-WHATEVER (Q is) (A=2 (R a) (T test))))', 4, 4, 4)]
MISMATCHED = ['', '(S (A (P this)) (B (Q was) (A (A (R a) (T test)))))',
              '(S (A (P this)) (B (Q is) (U not) (A (A (R a) (T test)))))', '(S (A (P this)', 'S)', '(S ' * 250]


@pytest.mark.parametrize('answer, right, reference, answered', ANSWERS)
def test_evalbs_sample(answer, right, reference, answered):
    assert parseval.counts(SAMPLE, answer).tolist() == [right, reference, answered, right == answered == 4, 1]


@pytest.mark.parametrize('answer', MISMATCHED)
def test_an_answer_of_other_words_or_no_tree_has_nothing_right(answer):
    assert parseval.counts(SAMPLE, answer).tolist() == [0, 4, 0, 0, 1]


def test_evalbs_published_figures():
    """Recall and precision of the sample's valid sentences, of which one is the first, eleven times over."""
    long = f'(S {" ".join([SAMPLE[3:-1]] * 11)})'
    more = [('(S (A (P this)) (B (Q is) (A (R a) (TT test))))', SAMPLE), (SAMPLE, SAMPLE), (long, long),
            *[(f'{SAMPLE[:-1]} ({tag} *))',) * 2 for tag in ('-NONE-', ':')]]
    sums = sum(parseval.counts(*pair) for pair in [*[(SAMPLE, answer) for answer, *_ in ANSWERS], *more])
    assert sums.tolist()[:3] == [86, 98, 95]
    assert round(parseval.score('recall', sums), 2) == 87.76 and round(parseval.score('precision', sums), 2) == 90.53
    assert parseval.score('f1', sums) == pytest.approx(200 * 86 / (98 + 95))


@pytest.mark.parametrize('reference, answer, expected', [
    # Where a comma is attached makes no difference, and a phrase of punctuation alone is none.
    ('(S (NP (NN a) (, ,)) (VP (VB b)) (. .))', '(S (NP (NN a)) (PRN (, ,)) (VP (VB b) (. .)))', [3, 3, 3, 1, 1]),
    # What punctuation is, the reference says, also where the answer tags it otherwise.
    ('(S (NP (NN a)) (: --) (VP (VB b)))', '(S (NP (NN a) (XX --)) (VP (VB b)))', [3, 3, 3, 1, 1]),
    ('(S (NP (NN a)) (NN --) (VP (VB b)))', '(S (NP (NN a) (: --)) (VP (VB b)))', [2, 3, 3, 0, 1]),
    # ADVP and PRT are equal; NP and NX are not.
    ('(VP (VB a) (PRT (RP up)))', '(VP (VB a) (ADVP (RP up)))', [2, 2, 2, 1, 1]),
    ('(VP (VB a) (NP (NN up)))', '(VP (VB a) (NX (NN up)))', [1, 2, 2, 0, 1]),
    # Twice the same bracket.
    ('(NP (NP (NP (NN a))))', '(NP (NP (NN a)))', [2, 3, 2, 0, 1])])
def test_collins_rules(reference, answer, expected):
    assert parseval.counts(reference, answer).tolist() == expected


# What C evalb (2013, COLLINS.prm, arrays of 10,000) printed: right, reference and answered brackets, or None where it
# reported `Length unmatch` or `Words unmatch` and left the sentence out.
BY_EVALB = [
    # Tags of punctuation differ, but both sides call the word punctuation.
    ('(S (NP (NN a)) (: --) (VP (VB b)))', '(S (NP (NN a) (, --)) (VP (VB b)))', (3, 3, 3)),
    ('(S (NP (NN a)) (, ,) (VP (VB b)) (. .))', '(S (NP (NN a)) (. ,) (VP (VB b)) (: .))', (3, 3, 3)),
    # Only one side calls it so: the lengths differ, or at equal lengths the words.
    ('(S (NP (NN a)) (: --) (VP (VB b)))', '(S (NP (NN a) (XX --)) (VP (VB b)))', None),
    ('(S (NP (NN a)) (NN --) (VP (VB b)))', '(S (NP (NN a) (: --)) (VP (VB b)))', None),
    ("(S (NP (NN a)) ('' ') (VP (VB b)))", "(S (NP (NN a)) (POS ') (VP (VB b)))", None),
    ('(S (NP (NN a)) (: --) (VP (VB b)) (NN -))', '(S (NP (NN a)) (NN --) (VP (VB b)) (: -))', None),
    # A phrase with the label of a deleted tag.
    ('(S (NP (NN a)) (VP (VB b)))', '(, (S (NP (NN a)) (VP (VB b))))', (3, 3, 3)),
    # Nested over 200 deep.
    ('(S (NP (NN a)) (VP (VB b)))', f'(S {"(NP " * 300}(NN a){")" * 300} (VP (VB b)))', (3, 3, 302)),
    ('(S (NP (NN a)) (VP (VB b)))', f'{"(S " * 205}(NP (NN a)) (VP (VB b)){")" * 205}', (3, 3, 207)),
    ('(S (NP (NN a)) (VP (VB b)))', f'(S {"(NP " * 9000}(NN a){")" * 9000} (VP (VB b)))', (3, 3, 9002)),
    (f'(S {"(NP " * 9000}(NN a){")" * 9000} (VP (VB b)))', '(S (NP (NN a)) (VP (VB b)))', (3, 9002, 3))]


@pytest.mark.parametrize('reference, answer, found', BY_EVALB,
                         ids=['marks', 'two-marks', 'XX', 'punctuation', 'quote', 'words', 'phrase', '300', '205',
                              '9000', 'reference-9000'])
def test_a_sentence_counts_as_by_evalb_and_also_where_evalb_leaves_it_out(reference, answer, found):
    right, wanted, got, _, sentences = parseval.counts(reference, answer).tolist()
    assert sentences == 1 and wanted > 0
    assert found in (None, (right, wanted, got))


PHRASES = st.sampled_from(['NP', 'NP-SBJ', 'VP=2', 'ADVP', 'PRT', 'TOP', 'S'])
TAGS = st.sampled_from(['NN', 'VB', ',', '.', '-NONE-'])


@st.composite
def two_trees(draw):
    """Trees of the same words: nested (label, parts) whose leaves are (tag, number of the word)."""
    tags = draw(st.lists(TAGS, min_size=1, max_size=6))

    def tree(first, last, depth=0):
        if last - first == 1 and (depth > 2 or draw(st.booleans())):
            return tags[first], first
        cuts = sorted({first, last, *draw(st.lists(st.integers(first, last), max_size=2))})
        if len(cuts) == 2 and depth > 3:
            cuts = range(first, last + 1)
        return draw(PHRASES), [tree(*each, depth + 1) for each in zip(cuts, cuts[1:])]
    return ('S', [tree(0, len(tags))]), ('S', [tree(0, len(tags))]), tags


def written(tree):
    label, parts = tree
    return f'({label} {f"w{parts}" if isinstance(parts, int) else " ".join(map(written, parts))})'


def phrases(tree, counted):
    """(label, the words in it that count) of every phrase, by the rules; and all words that count."""
    label, parts = tree
    if isinstance(parts, int):
        return [], counted & {parts}
    below = [phrases(part, counted) for part in parts]
    words = set().union(*(words for _, words in below))
    label = {'NP-SBJ': 'NP', 'VP=2': 'VP', 'PRT': 'ADVP'}.get(label, label)
    return [(label, tuple(sorted(words)))] * (label != 'TOP' and len(words) > 0) + [
        each for inner, _ in below for each in inner], words


@given(two_trees())
def test_brackets_are_those_that_sets_of_words_give(trees_and_tags):
    reference, answer, tags = trees_and_tags
    counted = {n for n, tag in enumerate(tags) if tag in ('NN', 'VB')}
    (wanted, _), (got, _) = phrases(reference, counted), phrases(answer, counted)
    right = sum(min(wanted.count(each), got.count(each)) for each in {*wanted})
    assert parseval.counts(written(reference), written(answer)).tolist() == [
        right, len(wanted), len(got), sorted(wanted) == sorted(got), 1]


@pytest.mark.parametrize('reference', ['(S (A (P this)', 'no tree', '(S ' * 250])
def test_a_reference_that_is_no_tree_has_no_brackets(reference):
    for answer in (SAMPLE, '', reference):
        assert parseval.counts(reference, answer).tolist() == [0, 0, 0, 0, 1]
    assert parseval.right_branching(reference) == parseval.right_branching('') == ''


def test_two_sentences_in_one_are_counted_together():
    both = f'{SAMPLE} {SAMPLE}'
    assert parseval.counts(both, both).tolist() == [8, 8, 8, 1, 1]
    assert parseval.counts(both, SAMPLE).tolist() == [0, 8, 0, 0, 1]


def test_scores_are_of_sums_and_0_where_there_is_nothing():
    sums = np.array([6, 8, 12, 3, 4])
    for name, value in (('precision', 50), ('recall', 75), ('f1', 60), ('complete', 0.75)):
        assert parseval.score(name, sums) == value
    assert dict(zip(parseval.COUNTS, sums)) == {
        'right': 6, 'reference': 8, 'answer': 12, 'complete': 3, 'sentences': 4}
    for name in ('precision', 'recall', 'f1', 'complete'):
        assert parseval.score(name, np.zeros(5, int)) == 0


def test_right_branching():
    reference = '(S (NP (DT a) (NN b)) (VP (VB c) (NP (DT d) (NN e))) (. .))'
    expected = '(S (DT a) (VP (NN b) (VP (VB c) (VP (DT d) (NN e)))) (. .))'
    assert parseval.right_branching(reference) == expected
    assert parseval.counts(reference, expected).tolist() == [2, 4, 4, 0, 1]  # S, and VP from the third word on
    for n, tree in enumerate(['(S (X w0))', '(S (X w0) (X w1))', '(S (X w0) (VP (X w1) (X w2)))'], 1):
        flat = f'(Q {" ".join(f"(X w{i})" for i in range(n))})'
        assert parseval.right_branching(flat) == tree
        assert [leaf.word for leaf in trees.parse(tree)[0].leaves()] == [f'w{i}' for i in range(n)]
    flat = f'(Q {" ".join(f"(X w{i})" for i in range(1500))})'  # deeper than Python calls itself
    deep = parseval.right_branching(flat)
    assert deep.count('(VP') == 1498 and parseval.counts(deep, deep).tolist() == [1499, 1499, 1499, 1, 1]


def test_the_gates_metrics_over_a_corpus(tmp_path):
    """Through TFMA: sums over sentences, not means of sentences; slices apart; forms as the rows say."""
    rows = [(SAMPLE, answer, 'odd' if number % 2 else 'even', float(number % 3 > 0))
            for number, (answer, *_) in enumerate(ANSWERS)] + [(SAMPLE, 'S)', 'odd', 0.0)]
    with tf.io.TFRecordWriter(str(tmp_path / 'predictions')) as writer:
        for target, answer, kind, well_formed in rows:
            writer.write(evaluate._example({'target': target, 'candidate': [answer], 'kind': kind,
                                            'candidate_well_formed': well_formed}))
    names = ('complete_match', 'well_formed', 'bracket_precision', 'bracket_recall', 'right_branching_f1', 'bracket_f1')
    config = tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(signature_name='serving_default', label_key='target')],
        slicing_specs=[tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=['kind'])],
        metrics_specs=[tfma.MetricsSpec(metrics=[
            tfma.MetricConfig(class_name='CorpusMetric', module=metrics.__name__, config=json.dumps({'name': name}))
            for name in names])])
    shared = tfma.default_eval_shared_model(
        evaluate.pick_column('candidate', str(tmp_path / 'column')), tags=['serve'], eval_config=config)
    result = tfma.run_model_analysis(eval_shared_model=shared, eval_config=config,
                                     data_location=str(tmp_path / 'predictions'), output_path=str(tmp_path / 'out'))
    for slice_key, values in result.slicing_metrics:
        own = [row for row in rows if not slice_key or row[2] == slice_key[0][1]]
        sums = sum(parseval.counts(*row[:2]) for row in own)
        branching = sum(parseval.counts(SAMPLE, parseval.right_branching(SAMPLE)) for _ in own)
        expected = {'bracket_precision': parseval.score('precision', sums), 'complete_match':
                    parseval.score('complete', sums), 'bracket_recall': parseval.score('recall', sums),
                    'bracket_f1': parseval.score('f1', sums), 'right_branching_f1': parseval.score('f1', branching),
                    'well_formed': np.mean([row[3] for row in own])}
        assert {name: value['doubleValue'] for name, value in values[''][''].items()} == pytest.approx(expected)
    assert len(result.slicing_metrics) == 3
