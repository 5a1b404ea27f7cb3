"""Report page and model card show what was measured, and escape text from the data."""
import collections
import dataclasses
import html.parser
import os
import re
import shlex
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_metadata.proto.v0 import anomalies_pb2

from data_prep.core import records, statistics
from keras_models.image import box_scorer
from keras_models.viton import judge
from pipelines.core import config as configs
from pipelines.evaluation import corpus
from pipelines.reporting import answers, data_section, learning_curve, report
from support.finished_run import FOUND, HOSTILE, HOSTILE_KIND, METRICS, make_context, predictions


class Page(html.parser.HTMLParser):
    """Parses a page: its tags with attributes, its text, and of every table row the labelled cells."""
    VOID = {'meta', 'br', 'img', 'link'}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text, self.rows, self._cell = [], [], '', [], None
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == 'tr':
            self.rows.append({'class': dict(attrs).get('class')})
        if tag in ('td', 'th'):
            self._cell = dict(attrs).get('data-label', 'name' if tag == 'th' else None)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ('td', 'th'):
            self._cell = None

    def handle_data(self, data):
        self.text += data
        if self._cell:
            self.rows[-1][self._cell] = self.rows[-1].get(self._cell, '') + data

    def answers(self):
        return [row for row in self.rows if 'prediction' in row]


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


@pytest.fixture(scope='module')
def context(tmp_path_factory):
    root = str(tmp_path_factory.mktemp('run'))
    return make_context(root, predictions(), ['train.steps=8', 'data.max_length=99'])


@pytest.fixture(scope='module')
def page(context):
    return read(report.write(context.outputs['report'], context))


@pytest.fixture(scope='module')
def card(context, page):
    return read(os.path.join(context.outputs['report'], 'model_card.md'))


def test_what_a_repeated_step_wrote_last_counts(context):
    found = report.curves(os.path.join(context.inputs['model_run'].uri, 'tensorboard'))
    assert found.keys() == {'loss', 'tokens_per_second', 'validation/loss'}
    assert found['loss'] == [(1, 101.0), (2, 102.0), (3, 103.0), *((step, float(step)) for step in range(4, 9))]
    assert found['validation/loss'] == [(6, 100.5), (8, 0.5)]


def test_no_events_are_no_curves(tmp_path):
    assert report.curves(str(tmp_path)) == report.curves(str(tmp_path / 'missing')) == {}


def test_page_is_whole_and_loads_nothing(page):
    parsed = Page(page)
    for tag, attributes in parsed.tags:
        assert tag not in {'script', 'link', 'iframe', 'object', 'embed', 'img', 'base', 'form'}
        assert not any(name.startswith('on') for name in attributes)
        for name in ('src', 'href', 'xlink:href', 'srcset', 'data'):
            assert attributes.get(name, '#').startswith('#'), (tag, attributes)
    assert not re.search(r'@import|url\((?!#)', page)


def test_text_of_the_data_stays_text(page):
    parsed = Page(page)
    assert any(HOSTILE in row['prediction'] and HOSTILE in row['source'] for row in parsed.answers())
    assert HOSTILE not in page and HOSTILE_KIND not in page
    assert any(row.get('name') == HOSTILE_KIND for row in parsed.rows)


def test_answers_are_predictions_and_wrong_ones_come_first(page):
    rows = predictions()
    columns = ('source', 'target', 'candidate', 'baseline', 'kind')
    known = {tuple(row[column].strip() for column in columns) for row in rows}
    shown = Page(page).answers()
    assert len({row['source'] for row in shown}) == answers.SHOWN
    for row in shown:
        sign, kind = row['name'].strip().split(' ', 1)
        assert (row['source'], row['reference'], row['prediction'], row['baseline'], kind) in known
        assert (sign == '≠') == (row['prediction'] != row['reference']) == (row['class'] == 'wrong')
    assert [row['class'] for row in shown] == ['wrong'] * answers.SHOWN_WRONG + ['right'] * 8
    text = ' '.join(Page(page).text.split())
    assert '20 of 60 predictions differ from their reference.' in text
    mended = sum(row['candidate'] == row['target'] != row['baseline'] for row in rows)
    broken = sum(row['candidate'] != row['target'] == row['baseline'] for row in rows)
    assert f'{mended} were fixed and {broken} broken' in text


def test_numbers_are_those_that_were_found(page):
    text = ' '.join(Page(page).text.split())
    for values in METRICS.values():
        for metric, value in values.items():
            assert (f'title="{value}"' in page and f'{value:.4g}' in text) == (metric != 'bleu' or value > 0)
    for shown in ('NOT_BLESSED', FOUND['reasons'][0], '1,234,567', '1 h 6 min', '2 replicas', '8, resumed at 3',
                  'mean of 2 checkpoints, ckpt-4 to ckpt-8', corpus.signature(), 'beam 4', 'max_drop 0.02',
                  '2.125', '1.875', tf.__version__,
                  'keras_models.transformer'):
        assert shown in text, shown
    assert text.count(FOUND['reasons'][0]) == 1
    assert f'title="{"3" * 64}">{"3" * 12}<' in page
    assert '—' in text and 'no output shares four consecutive tokens' in text


def test_figures_have_the_last_values(page):
    drawings = re.findall(r'<svg.*?</svg>', page, re.DOTALL)
    assert [re.search('aria-label="(.*?)"', drawing)[1] for drawing in drawings] == [
        'loss', 'tokens per second', 'records by length']
    assert 'training 8<' in drawings[0] and 'validation 0.5<' in drawings[0] and '12,000<' in drawings[1]
    assert not re.search('#0000|DejaVu', page)


def test_counts_are_the_manifests(page):
    rows = [re.findall(r'>([^<>]+)</t[hd]>', row) for row in page.split('<tr>')]
    assert ['split', 'read', 'written', 'dead letters', 'filtered long'] in rows
    assert ['train', '54', '50', '1', '3'] in rows


def test_lengths_are_those_of_the_records(context, page):
    """TFDV's figures, against the index of every record."""
    rows = [re.findall(r'>([^<>]+)</t[hd]>', row) for row in page.split('<tr>')]
    for split in ('train', 'test'):
        index = records.open_split(context.inputs['examples'].uri, split).index
        for name in ('inputs', 'targets'):
            half, most = np.quantile(index[name], [0.5, 0.99], method='inverted_cdf')
            expected = [index[name].min(), f'{index[name].mean():.1f}', half, most, index[name].max()]
            assert [split, name, *map(str, expected)] in rows


def test_features_are_the_schemas(page):
    rows = {row['name']: row for row in Page(page).rows if 'frequent' in row}
    assert rows.keys() == {'inputs', 'targets', 'source', 'target', 'kind'}
    assert (rows['inputs']['type'], rows['inputs']['present']) == ('INT, 1 or more', 'always')
    assert (rows['source']['type'], rows['source']['values']) == ('BYTES, one', 'text')
    assert (rows['kind']['values'], rows['kind']['frequent'].split()) == ('1 value', ['date', '100.0%'])


def test_most_frequent_subwords_are_shown_as_text(context, page):
    """Each training word is one subword here, so subwords are counted as words are; EOS counts, but is no text."""
    rows = records.open_split(context.inputs['examples'].uri, 'train')
    source, _ = context.config.data_spec.examples(rows.read(range(len(rows))))
    counts = collections.Counter(word for line in source for word in line.split())
    total = int(rows.index['inputs'].sum())
    [shown] = [row['frequent'].split() for row in Page(page).rows if row.get('name') == 'inputs' and 'frequent' in row]
    assert dict(zip(shown[::2], shown[1::2])) == {
        word: f'{100 * count / total:.1f}%' for word, count in counts.items()}


def test_drift_and_departures_stand_out(context, page, card):
    text = ' '.join(Page(page).text.split())
    measured = {}
    with tf.io.gfile.GFile(os.path.join(context.inputs['anomalies'].uri, 'Split-test', 'SchemaDiff.pb'), 'rb') as file:
        for far in statistics.drift(anomalies_pb2.Anomalies.FromString(file.read())):
            measured[far.feature] = far
            style = 'n warn' if far.found else 'n'
            assert f'<td class="{style}" title="{far.value}">{far.value:.3f}' in page
            assert f'({far.threshold - statistics.DRIFT:.3f})' in page
    assert measured['inputs'].found and not measured['inputs_length'].found
    for shown in ('Different from the training split', 'kind: Examples contain values missing from the schema',
                  f'test: drifted from the training split, inputs by {measured["inputs"].value:.2f} ('):
        assert shown in text
    assert '- test: drifted from the training split, inputs by 0.' in card
    assert 'Some splits differ from the training split.' in text and 'href="#data"' in page and 'id="data"' in page


def test_files_of_the_statistics_are_named(context, page):
    for name in ('statistics/Split-train/FeatureStats.pb', 'schema/schema.pbtxt', 'anomalies/Split-test/SchemaDiff.pb'):
        assert os.path.exists(os.path.join(context.pipeline.root, name))
    for shown in ('<code>statistics</code>', '<code>schema/schema.pbtxt</code>', '<code>anomalies</code>'):
        assert shown in page
    assert 'on a sample' not in page


def test_a_sample_is_called_one(tmp_path, monkeypatch):
    monkeypatch.setattr(statistics, 'SAMPLE', 50)
    monkeypatch.setattr(statistics, '_RUN', 10)
    context = make_context(str(tmp_path), predictions())
    text = read(report.write(context.outputs['report'], context))
    assert 'on a sample of the records (test: 50 of 60)' in ' '.join(text.split())


@pytest.mark.parametrize('counts, words', [
    ({'read': 9}, []),
    ({'in_test': 0, 'in_validation': 0}, ['No training record is also in validation or test.']),
    ({'in_test': 1, 'in_validation': 1200, 'filtered_duplicate': 0},
     ['Of the training records, 1,200 are also in validation and 1 is also in test; they were left in.']),
    ({'in_test': 1, 'in_validation': 1200, 'filtered_duplicate': 1201},
     ['Of the training records, 1,200 are also in validation and 1 is also in test; 1,201 were left out.'])])
def test_duplicates_in_words(counts, words):
    assert data_section.duplicates('train', counts, ['train', 'validation', 'test']) == words


def test_duplicates_are_told_and_no_column(page, card):
    sentence = 'Of the training records, 2 are also in test; they were left in.'
    assert sentence in page and sentence in card and 'in test</th>' not in page


def test_model_card(card):
    for text in ('NOT_BLESSED', 'Vaswani et al. 2017', '| bleu | 87.65 |', '| exact_match | 0.7333 |',
                 corpus.signature().replace('|', r'\|'), '| date | 20 | 91.25 | 0.625 |',
                 '| number | 20 | — | 0.875 |', '| \\<b onclick=\'x()\'\\>\\|a\\* | 20 | 55.5 | 1 |',
                 'Unicode licence', '| train | 54 | 50 | 1 | 3 |', 'at most 64 subwords',
                 'English (en) to German (de)', '## Sample answers', '- Hardware: ',
                 'weakest slice is date, exact match 0.625', 'No training record had targets longer than 15',
                 'd_k 32', 'Apache-2.0'):
        assert text in card, text


def test_thresholds_say_whether_they_are_met_and_metrics_which_way_is_better(context, page, card, tmp_path):
    assert '✗ fail' in page and '**failed**' in card and 'lower is better' not in page
    context = dataclasses.replace(context, properties={**context.properties, 'failed': []})
    parsed = Page(read(report.write(context.outputs['report'], context)))
    assert parsed.text.count('✓ pass') == len(context.config.evaluate.thresholds)
    context.properties['baseline'] = None  # then what max_drop bounds was not checked, and did not pass
    unchecked = Page(read(report.write(context.outputs['report'], context)))
    assert unchecked.text.count('✓ pass') == 1 and '✗ fail' not in unchecked.text


def test_the_contents_lead_to_sections_that_are_there(page):
    links = re.findall('<a href="#([a-z]+)">', page[:page.index('<main>')])
    assert {'metrics', 'answers', 'training', 'data', 'lineage'} <= {*links}
    assert all(f'id="{link}"' in page for link in links)


def test_what_all_metrics_share_of_their_protocol_is_said_once(context):
    found = {'metrics': {'overall': {'ssim': .5, 'l1': .1}},
             'protocol': {'ssim': 'window of 11; at 8 x 6, list ab', 'l1': 'mean; at 8 x 6, list ab'}}
    rows, common = report._metrics(context.config, found)
    assert common == 'at 8 x 6, list ab'
    assert [(row['protocol'], row['better']) for row in rows] == [('window of 11', 'higher'), ('mean', 'lower')]


def test_command_repeats_the_configuration(context, card):
    [command] = re.findall('^python -m pipelines.run.*', card, re.MULTILINE)
    words = shlex.split(command)[3:]
    assert configs.load(None, words[1::2]).values == context.config.values
    assert set(words[::2]) == {'--set'}


def test_own_data_has_no_licence_stated(tmp_path):
    files = ['data.samples=""', 'data.train=[a.tsv]', 'data.validation=[b.tsv]', 'data.test=[c.tsv]']
    context = make_context(str(tmp_path), predictions(), files)
    report.write(context.outputs['report'], context)
    card = read(tmp_path / 'report' / 'model_card.md')
    assert 'does not state the data\'s licence' in card and 'Unicode' not in card
    assert configs.load(None, shlex.split(report.command(context))[4::2]).values == context.config.values


def test_weights_of_others_keep_their_licence(tmp_path):
    context = make_context(str(tmp_path), predictions())
    run = context.inputs['model_run']
    foreign = {'licence': 'CC BY-NC 4.0', 'files': ['a.pth', 'b.pth'], 'source': 'https://example.org/them'}
    context.inputs['model_run'] = dataclasses.replace(run, properties={**run.properties, 'foreign': foreign})
    report.write(context.outputs['report'], context)
    card = read(tmp_path / 'report' / 'model_card.md')
    assert 'CC BY-NC 4.0: training started from a.pth, b.pth of https://example.org/them.' in card
    assert 'Apache-2.0, for weights' not in card


def test_sections_without_data_are_left_out(tmp_path):
    """Report on a model of images: scores instead of text, an index without lengths, and here no events either."""
    rows = [{'target': 'cat', 'kind': 'number', 'candidate': [0.25, 0.75]}] * 3
    context = make_context(str(tmp_path), rows, events=False)
    examples = context.inputs['examples'].uri
    writer = records.ShardWriter(os.path.join(examples, 'Split-train', 'part-00001.tfrecord'))
    writer.write(b'image')
    records.write_manifest(examples, [writer.close()], (), {'train': {'read': 1, 'written': 1}}, {})
    context.properties.update(metrics={'overall': {'top_1': 0.5}}, blessed=True, reasons=['all'], baseline=None)
    context.inputs['model_run'] = dataclasses.replace(context.inputs['model_run'], properties={})
    for key in ('statistics', 'schema', 'anomalies'):
        del context.inputs[key]
    parsed = Page(read(report.write(context.outputs['report'], context)))
    assert 'No curves' in parsed.text and 'has no lengths' in parsed.text and 'top 1' in parsed.text
    assert 'TensorFlow Data Validation' not in parsed.text
    assert 'Predictions' not in parsed.text and 'By kind' not in parsed.text and not parsed.answers()
    assert 'pipelines.learning_curve trains on a half' in ' '.join(parsed.text.split())
    # Where nothing else is interpreted, a learning curve is shown all the same.
    points = [learning_curve.Point(*each) for each in ((24, 0.5, None, 'a'), (50, 0.7, 1.5, 'b'))]
    curve = learning_curve.Curve('ssim', False, points, None, 'people', 40)
    parsed = Page(read(report.write(context.outputs['report'], context, curve)))
    text = ' '.join(parsed.text.split())
    assert 'Would more data help? With 24 and 50 training people, ssim is 0.5 and 0.7.' in text
    assert re.search(r'training people ?ssim ?minutes ?24 ?0.5 ?– ?50 ?0.7 ?1.5', text)
    assert ('a', {'href': '#reading'}) in parsed.tags and 'trains on a half' not in text


@pytest.mark.parametrize('metric, first', [('ssim', 'low'), ('l1', 'high'), ('top1_error', 'high'), ('fid', 'high')])
def test_worst_slice_comes_first(metric, first):
    """Less is better of errors and distances, more of everything else."""
    config = types.SimpleNamespace(data_spec=types.SimpleNamespace(metrics=('other', metric)),
                                   model_spec=types.SimpleNamespace(scorer_module=''),
                                   evaluate=types.SimpleNamespace(slices=['kind'], thresholds={}, drift={}))
    values = {'overall': {metric: 0.5}, 'none': {metric: float('nan')}, 'low': {metric: 0.1}, 'high': {metric: 0.9}}
    assert [row['name'] for row in report._slices(config, values, [])] in ([first, 'low', 'none'],
                                                                           [first, 'high', 'none'])


def test_distances_and_errors_are_better_when_lower():
    """All metrics of all scorers and of text, by hand."""
    lower = {'l1', 'chain_l1', 'warp_l1', 'warp_l1_identity', 'misaligned', 'garment_lab', 'chain_garment_lab',
             'arms_lab', 'chain_arms_lab', 'lpips', 'fid', 'box_error', 'box_error_constant', 'class_error',
             'localisation_error', 'top1_error', 'top5_error', 'mean_class_error'}
    names = {*judge.PROTOCOLS, *box_scorer.PROTOCOLS, *corpus.METRICS, 'won_against_random', 'best_move'}
    assert {name for name in names if report.better(name) == 'lower'} == lower
