"""Brackets are counted as evalb counts them: its own sample, cases by hand, and the gate's metrics over a corpus."""
import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma

from data_prep import trees
from pipelines import evaluate, metrics, parseval

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


def test_right_branching():
    reference = '(S (NP (DT a) (NN b)) (VP (VB c) (NP (DT d) (NN e))) (. .))'
    expected = '(S (DT a) (VP (NN b) (VP (VB c) (VP (DT d) (NN e)))) (. .))'
    assert parseval.right_branching(reference) == expected
    assert parseval.counts(reference, expected).tolist() == [2, 4, 4, 0, 1]  # S, and VP from the third word on
    for n, tree in enumerate(['(S (X w0))', '(S (X w0) (X w1))', '(S (X w0) (VP (X w1) (X w2)))'], 1):
        flat = f'(Q {" ".join(f"(X w{i})" for i in range(n))})'
        assert parseval.right_branching(flat) == tree
        assert [leaf.word for leaf in trees.parse(tree)[0].leaves()] == [f'w{i}' for i in range(n)]


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
            tfma.MetricConfig(class_name=cls, module=module, config=json.dumps({'name': name, **arguments}))
            for name in names for cls, module, arguments in [metrics.CLASSES[name]]])])
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
