"""`pipelines.verify`: numbers again from stored rows alone; one changed answer, reference or signature is found."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from data_prep import UserError
from pipelines import evaluate, verify
from pipelines.core import config
from pipelines.evaluation import gate, verification
from support.commands import ROOT

TEXTS = [('a b c d e', 'a b c d e', 'a b c d x'), ('f g h i', 'f g h i', 'f g h i'), ('j k l', 'j k m', 'j k l'),
         ('n o p q r', 'n o p q r', 'n o p x r')] * 5  # target, candidate, baseline
THRESHOLDS = {'bleu': {'min': 20, 'max_drop': 30, 'confidence': 0.9}, 'exact_match': {'max_drop': 0.5}}


@pytest.fixture(scope='module')
def evaluated(config_file, tmp_path_factory) -> pathlib.Path:
    """The folder of an evaluation and its page, as evaluation itself computes and stores them."""
    folder = tmp_path_factory.mktemp('evaluated')
    (folder / 'evaluation').mkdir()
    loaded = config.load(config_file)
    loaded.evaluate.thresholds, loaded.evaluate.slices = THRESHOLDS, ['kind']
    path = folder / 'evaluation' / evaluate.PREDICTIONS
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, row in enumerate(TEXTS):
            writer.write(evaluate._example(dict(zip(('target', 'candidate', 'baseline'), row)) | {
                'kind': 'odd' if number % 2 else 'even'}))
    metrics, validation = evaluate.analyse(loaded, str(path), str(folder / 'evaluation'), ['candidate', 'baseline'])
    changes = evaluate.compare(loaded, str(path))
    verdict = gate.decide(THRESHOLDS, validation, changes)
    found = {**evaluate.account(loaded, {}, str(folder / 'evaluation')), 'metrics': metrics, **verdict._asdict(),
             'examples': len(TEXTS), 'baseline': 'b' * 64,
             'changes': {name: vars(each) for name, each in changes.items()}}
    (folder / 'evaluation' / 'metrics.json').write_text(json.dumps(found))
    (folder / 'report').mkdir()
    (folder / 'report' / 'report.html').write_text(' '.join(f'<b title="{x}">' for x in metrics['overall'].values()))
    return folder


@pytest.fixture
def copy(evaluated, tmp_path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(evaluated, tmp_path / 'copy'))


def wrong(folder) -> list[str]:
    return [finding.what for finding in verification.verify(verification.opened(str(folder))) if not finding.equal]


def test_every_number_is_found_again(evaluated):
    """TFMA's metrics, slices, intervals and verdict."""
    findings = verification.verify(verification.opened(str(evaluated / 'report' / 'report.html')))
    assert all(finding.equal for finding in findings)
    kinds = {re.sub(r'^(SHA-256|protocol|change) of .*|.*(slice|report.html).*', r'\1\2', finding.what)
             for finding in findings}
    assert kinds == {'SHA-256', 'protocol', 'change', 'slice', 'report.html', 'examples', 'verdict',
                     'outside thresholds', 'bleu', 'bleu_tokenised', 'chrf', 'exact_match'}


def rewrite(folder, change) -> None:
    """Changes one row, with checksums as a writer would leave them."""
    path = folder / 'evaluation' / evaluate.PREDICTIONS
    first, *others = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    row = tf.train.Example.FromString(first)
    change(row.features.feature)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in (row.SerializeToString(), *others):
            writer.write(record)


@pytest.mark.parametrize('feature, expected', [
    ('candidate', {'bleu', 'exact_match', 'bleu, slice even', 'change of bleu, value'}),
    ('target', {'bleu', 'exact_match', 'bleu, slice even'}), ('baseline', {'change of bleu, value'})])
def test_one_changed_text_is_found(copy, feature, expected):
    def change(features):
        features[feature].bytes_list.value[0] = b'something else here'
    rewrite(copy, change)
    found = wrong(copy)
    assert expected <= {*found} and 'SHA-256 of predictions.tfrecord' in found
    assert ('bleu' in found) == (feature != 'baseline')


@pytest.mark.parametrize('keys, value, expected', [
    (['protocol', 'bleu'], 'corpus BLEU, sacreBLEU version:1.0', ['protocol of bleu']),
    (['metrics', 'overall', 'exact_match'], 0.9, ['exact_match', 'exact_match in report.html']),
    (['blessed'], False, ['verdict']), (['changes', 'bleu', 'low'], 0.0, ['change of bleu, low']),
    (['thresholds', 'bleu', 'min'], 99, ['verdict', 'outside thresholds']), (['examples'], 21, ['examples'])])
def test_one_changed_record_is_found(copy, keys, value, expected):
    path = copy / 'evaluation' / 'metrics.json'
    found = json.loads(path.read_text())
    inner = found
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(found))
    assert wrong(copy) == expected


def test_a_report_of_an_earlier_version_opens(copy):
    """Which recorded neither changes nor thresholds nor the target's language."""
    path = copy / 'evaluation' / 'metrics.json'
    found = json.loads(path.read_text())
    for key in ('changes', 'thresholds', 'target', 'files', 'slices', 'whole', 'seed'):
        del found[key]
    path.write_text(json.dumps(found))
    assert wrong(copy) == []
    assert verification.opened(str(copy)).metrics()['bleu_tokenised'].protocol == found['protocol']['bleu_tokenised']


def test_the_command_needs_no_tensorflow_and_ends_with_1_where_something_differs(copy, capsys):
    code = ('import sys; from pipelines import verify; verify.main(sys.argv[1:]); '
            'assert not {"tensorflow", "apache_beam", "tensorflow_model_analysis"} & {*sys.modules}')
    done = subprocess.run([sys.executable, '-c', code, str(copy / 'report')], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith('all equal.\n'), done.stdout + done.stderr
    page = copy / 'report' / 'report.html'
    page.write_text(page.read_text().replace('title="0.75"', 'title="0.95"'))
    with pytest.raises(SystemExit, match='1'):
        verify.main([str(page)])
    printed = capsys.readouterr().out
    assert 'exact_match in report.html: recorded 0.75, but found another' in printed and '1 differ.' in printed


@pytest.mark.parametrize('damage, said', [
    (lambda folder: shutil.rmtree(folder), 'belongs to no evaluation'),
    (lambda folder: (folder / 'metrics.json').write_text('{"metrics": 1'), 'it is no JSON object'),
    (lambda folder: (folder / 'metrics.json').write_text('[]'), 'it lacks blessed, examples'),
    (lambda folder: (folder / 'predictions.tfrecord').unlink(), 'cannot be read'),
    (lambda folder: (folder / 'predictions.tfrecord').write_bytes(b'x' * 40), 'is damaged at byte 0'),
    (lambda folder: cut(folder / 'predictions.tfrecord'), 'is damaged at byte')],
    ids=['no evaluation', 'cut json', 'a list', 'no predictions', 'no TFRecord', 'cut TFRecord'])
def test_what_cannot_be_read_is_one_sentence(copy, damage, said):
    damage(copy / 'evaluation')
    with pytest.raises(UserError, match=said):
        verification.opened(str(copy / 'report'))


def cut(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])
