"""The gate's BLEU equals sacreBLEU, even with missing n-grams; the gate's errors equal ILSVRC's."""
import json

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf
import tensorflow_model_analysis as tfma

from pipelines import evaluate
from pipelines.core import config
from pipelines.evaluation import corpus as corpus_metrics
from pipelines.evaluation import metrics


@pytest.mark.parametrize('pairs', [
    [('the cat sat on the mat', 'the cat sat on the mat'), ('a dog', 'a dog barks loudly at night')],
    [('one two three four five', 'one two six four five')],  # no 4-gram matches: exponential smoothing
    [('one', 'one'), ('two', 'three')],  # no 4-gram at all
    [('', 'something is here')],
])
def test_corpus_bleu_and_chrf_are_sacrebleus_to_the_last_digit(pairs):
    hypotheses, references = zip(*pairs)
    assert corpus(pairs) == sacrebleu.corpus_bleu(list(hypotheses), [list(references)]).score
    assert scored('chrf', pairs) == sacrebleu.corpus_chrf(list(hypotheses), [list(references)]).score


def corpus(pairs, language=''):
    """The metric over pairs that two workers saw."""
    return scored('bleu_tokenised' if language else 'bleu', pairs, language)


def scored(name, pairs, language=''):
    metric = corpus_metrics.metric(name, 0, language)
    combiner = metrics.Sums(tfma.metrics.MetricKey(name), (name, 0, language))
    halves = [combiner.create_accumulator() + sum(metric.counts(corpus_metrics.Row([answer], reference))
                                                  for answer, reference in part)
              for part in (pairs[::2], pairs[1::2])]
    [found] = combiner.extract_output(combiner.merge_accumulators(halves)).values()
    return found


def test_compounds_are_split_as_for_the_papers_figure():
    assert corpus_metrics.moses_tokens('Der Mitte-Links-Block (z. B. 2014).', 'de') == (
        'Der Mitte ##AT##-##AT## Links ##AT##-##AT## Block ( z. B. 2014 ) .')
    pairs = [('Das Mitte-rechts-Bündnis gewann die Wahl.', 'Das Mitte-links-Bündnis gewann die Wahl.')]
    # 10 tokens; the fourth differs, which breaks 1, 2, 3 and 4 of the 10, 9, 8 and 7 n-grams.
    expected = 100 * (9 / 10 * 7 / 9 * 5 / 8 * 3 / 7) ** 0.25
    assert corpus(pairs, 'de') == pytest.approx(expected)
    assert corpus(pairs, 'de') > corpus(pairs)


FRENCH = ["L'eau du porte-avions n'est plus froide aujourd'hui.", "Peut-être qu'il viendra, dit M. Dupont à l'école."]
# What Moses' tokenizer.perl of July 2018 printed of the second, with -q -no-escape -l and these.
BY_MOSES = {
    'fr': "Peut-être qu' il viendra , dit M. Dupont à l' école .",
    'it': "Peut-être qu' il viendra , dit M. Dupont à l' école .",
    'en': "Peut-être qu 'il viendra , dit M. Dupont à l 'école .",
    'xx': "Peut-être qu ' il viendra , dit M. Dupont à l ' école ."}


@pytest.mark.parametrize('language', BY_MOSES)
def test_the_language_decides_where_tokens_end(language):
    for code in (language, language.upper(), f'{language}-CA', f'{language}_CA'):
        assert corpus_metrics.moses_tokens(FRENCH[1], code) == BY_MOSES[language]


def test_french_is_cut_as_french():
    """23 tokens in two lines of 11 and 12. The seventh and the third are wrong, which breaks 2, 2 + 2, 3 + 3 and 4 + 3
    of the 23, 21, 19 and 17 n-grams. Cut as German, there are 31 tokens and the figure is 78.25."""
    answers = [FRENCH[0].replace('plus', 'pas'), FRENCH[1].replace("qu'il", "qu'elle")]
    expected = 100 * (21 / 23 * 17 / 21 * 13 / 19 * 10 / 17) ** 0.25
    assert expected == pytest.approx(73.8525, abs=1e-4)
    assert corpus([*zip(answers, FRENCH)], 'fr') == pytest.approx(expected)


@pytest.mark.parametrize('name, language, described', [
    ('wmt14_en_fr_base', 'fr', 'Moses tokens of language fr, sacreBLEU'),
    ('wmt14_en_fr_big', 'fr', 'Moses tokens of language fr, sacreBLEU'),
    ('wmt14_en_de_base', 'de', 'Moses tokens of language de, compounds split, sacreBLEU'),
    ('instructions', 'ko', 'Moses tokens of language ko, sacreBLEU')])
def test_the_targets_language_reaches_tfma_and_the_protocol(name, language, described):
    loaded = config.load(name)
    [spec] = [each for specs in evaluate.tfma_config(loaded, ['candidate']).metrics_specs for each in specs.metrics
              if json.loads(each.config)['name'] == 'bleu_tokenised']
    assert json.loads(spec.config) == {'name': 'bleu_tokenised', 'place': 1, 'target': language}
    key = tfma.metrics.MetricKey('bleu_tokenised')
    [computation] = getattr(metrics, spec.class_name)(**json.loads(spec.config)).computations()
    assert computation.keys == [key]
    pair = ("Qu'il voie le porte-avions !", "Qu'elle voie le porte-avions !")
    sums = corpus_metrics.metric('bleu_tokenised', 1, language).counts(corpus_metrics.Row(pair[:1], pair[1]))
    assert computation.combiner.extract_output(sums) == {key: corpus([pair], language)}
    assert described in corpus_metrics.protocol('bleu_tokenised', loaded.data)


class Answers(tf.Module):
    """Picks the column of answers, as evaluation does."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'examples')])
    def serve(self, examples):
        return tf.io.parse_example(examples, {'candidate': tf.io.FixedLenFeature([5], tf.string)})['candidate']


def test_top_k_errors_through_tfma(tmp_path):
    """The place of the right class among five answers, or none; slices apart. Weights are those of two classes."""
    places = {'photo': [0, 0, 3, None, 4], 'drawing': [1, None]}
    with tf.io.TFRecordWriter(str(tmp_path / 'predictions')) as writer:
        for kind, each in places.items():
            for place in each:
                answers = [f'n{i}' for i in range(5)]
                target = 'n9' if place is None else answers[place]
                row = {'kind': [kind], 'target': [target], 'candidate': answers}
                feature = {
                    name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode() for text in texts]))
                    for name, texts in row.items()}
                feature['weight'] = tf.train.Feature(float_list=tf.train.FloatList(value=[1 / len(each)]))
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    module = Answers()
    tf.saved_model.save(module, str(tmp_path / 'column'), signatures={'serving_default': module.serve})
    config = tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(signature_name='serving_default', label_key='target')],
        slicing_specs=[tfma.SlicingSpec(), tfma.SlicingSpec(feature_keys=['kind'])],
        metrics_specs=[tfma.MetricsSpec(metrics=[
            tfma.MetricConfig(class_name='CorpusMetric', module=metrics.__name__, config=json.dumps({'name': name}))
            for name in ('top1_error', 'top5_error', 'mean_class_error')])])
    shared = tfma.default_eval_shared_model(str(tmp_path / 'column'), tags=['serve'], eval_config=config)
    result = tfma.run_model_analysis(eval_shared_model=shared, eval_config=config,
                                     data_location=str(tmp_path / 'predictions'), output_path=str(tmp_path / 'out'))
    found = {slice_key: {name: value['doubleValue'] for name, value in values[''][''].items()}
             for slice_key, values in result.slicing_metrics}
    assert found[()] == pytest.approx({'top1_error': 5 / 7, 'top5_error': 2 / 7, 'mean_class_error': (3 / 5 + 1) / 2})
    assert found[(('kind', 'photo'),)] == pytest.approx({'top1_error': 3 / 5, 'top5_error': 1 / 5,
                                                         'mean_class_error': 3 / 5})
    assert found[(('kind', 'drawing'),)] == pytest.approx({'top1_error': 1, 'top5_error': 1 / 2,
                                                           'mean_class_error': 1})


def test_workers_errors_add_up_and_a_missing_answer_is_wrong():
    metric = corpus_metrics.metric('top5_error')
    rows = [(['b', 'a', 'c'], 'a'), ([''] * 5, 'a'), (['a'], 'a')]
    counts = [metric.counts(corpus_metrics.Row(*row)) for row in rows]
    np.testing.assert_array_equal(counts, [[0, 1], [1, 1], [0, 1]])
    assert metric.score(sum(counts)) == pytest.approx(1 / 3)


class Scores(tf.Module):
    """Picks the column of numbers."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'examples')])
    def serve(self, examples):
        return tf.io.parse_example(examples, {'candidate': tf.io.FixedLenFeature([2], tf.float32)})['candidate']


def test_means_of_numbers_through_tfma_leave_out_what_has_none(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / 'predictions')) as writer:
        for numbers in ([0.25, 7], [float('nan'), 7], [0.75, 7]):
            writer.write(tf.train.Example(features=tf.train.Features(feature={
                'target': tf.train.Feature(bytes_list=tf.train.BytesList(value=[b''])),
                'candidate': tf.train.Feature(float_list=tf.train.FloatList(value=numbers))})).SerializeToString())
    module = Scores()
    tf.saved_model.save(module, str(tmp_path / 'column'), signatures={'serving_default': module.serve})
    config = tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(signature_name='serving_default', label_key='target')],
        slicing_specs=[tfma.SlicingSpec()],
        metrics_specs=[tfma.MetricsSpec(metrics=[
            tfma.MetricConfig(class_name='CorpusMetric', module=metrics.__name__,
                              config=json.dumps({'name': name, 'place': place}))
            for place, name in enumerate(('ssim', 'fid'))])])
    shared = tfma.default_eval_shared_model(str(tmp_path / 'column'), tags=['serve'], eval_config=config)
    result = tfma.run_model_analysis(eval_shared_model=shared, eval_config=config,
                                     data_location=str(tmp_path / 'predictions'), output_path=str(tmp_path / 'out'))
    [(_, values)] = result.slicing_metrics
    assert {name: value['doubleValue'] for name, value in values[''][''].items()} == {'ssim': 0.5, 'fid': 7}


def test_a_protocol_says_what_its_number_is():
    """Told apart from all others; a fraction if the best there is comes to 1, and else of a hundred."""
    protocols = {name: corpus_metrics.protocol(name) for name in corpus_metrics.METRICS}
    assert all(protocols.values()) and len({*protocols.values()}) == len(corpus_metrics.METRICS)
    assert corpus_metrics.protocol('no metric') == ''
    right = '(S (NP (NN a)) (VP (VB b)))'
    best = {name: corpus_metrics.metric(name).score(corpus_metrics.metric(name).counts(
        corpus_metrics.Row([right], right, 1.0))) for name in corpus_metrics.METRICS}
    for name, value in best.items():
        of_best = 0 if name.endswith('_error') else 1 if protocols[name].startswith('fraction') else 100
        assert value == pytest.approx(50 if 'right' in name else of_best), name
    for name, options in (('bleu', {}), ('bleu_tokenised',
                                         {'tokenize': 'none', 'smooth_method': 'none', 'force': True})):
        bleu = sacrebleu.BLEU(**options)
        score = bleu.corpus_score(['one two three four five'], [['one two three four six']]).score
        assert corpus([('one two three four five', 'one two three four six')], 'en' * bool(options)) == score
        assert protocols[name].endswith(str(bleu.get_signature()))
