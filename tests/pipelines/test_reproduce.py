"""Every table and figure of the papers has a command, and its verdicts follow from its numbers."""
import dataclasses
import json
import math
import re
import subprocess
import sys

import pytest

from data_prep import UserError
from pipelines.core import artifacts, config, machine
from pipelines.reporting import report
from pipelines.reproduction import experiments, publishing, results, running
from pipelines.reproduction.experiments import Claim, Figure
from support.commands import ROOT, command
from support.forked_stages import fork_stages

TABLES_AND_FIGURES = {'transformer': (4, 5), 'alexnet': (2, 4), 'vgg': (12, 0), 'prelu': (7, 7), 'viton_hd': (2, 23)}


def claim(**bounds):
    return Claim('So it is.', 'error', **bounds)


@pytest.mark.parametrize('bounds, values, word', [
    (dict(rises=['a', 'b']), {'a': [1, 2], 'b': [3, 4]}, 'shows'),
    (dict(rises=['a', 'b']), {'a': [1, 3.5], 'b': [3, 4]}, 'not clear'),
    (dict(rises=['a', 'b']), {'a': [5, 6], 'b': [3, 4]}, 'does not show'),
    (dict(rises=['a', 'b']), {'a': [3], 'b': [3]}, 'does not show'),
    (dict(rises=['a', 'b']), {'a': [1], 'b': [math.inf]}, 'shows'),
    (dict(rises=['a', 'b']), {'a': [1]}, 'not measured'),
    (dict(rises=['a', 'b']), {'a': [1], 'b': [math.nan]}, 'not measured'),
    (dict(at_most={'a': 2}), {'a': [1, 2]}, 'shows'),
    (dict(at_least={'a': 2}), {'a': [1, 2]}, 'not clear'),
    (dict(at_least={'a': 2, 'b': 2}), {'a': [3], 'b': [1]}, 'does not show'),
    (dict(rises=['a', 'b', 'c']), {'a': [1], 'b': [3], 'c': [2]}, 'does not show'),
    (dict(rises=['a', 'b', 'c']), {'a': [1], 'b': [3, 4], 'c': [5, 2]}, 'not clear'),
    (dict(ratio=['a', 'b'], least=2), {'a': [6, 8], 'b': [3]}, 'shows'),
    (dict(ratio=['a', 'b'], least=2), {'a': [6, 5], 'b': [3]}, 'not clear'),
    (dict(ratio=['a', 'b'], least=0.9, most=1.1), {'a': [1], 'b': [3]}, 'does not show'),
])
def test_a_verdict_follows_from_every_seed(bounds, values, word):
    verdict = claim(**bounds).judged(values)
    assert verdict.word == word
    assert verdict.why.startswith('error')


@pytest.mark.parametrize('bounds, values, chance, word', [
    (dict(rises=['a', 'b']), {'a': [1], 'b': [3.5]}, 2, 'shows'),
    (dict(rises=['a', 'b']), {'a': [1], 'b': [2.5]}, 2, 'not clear'),
    (dict(rises=['a', 'b']), {'a': [3], 'b': [3]}, 2, 'not clear'),
    (dict(rises=['a', 'b']), {'a': [3.5], 'b': [1]}, 2, 'does not show'),
    (dict(at_least={'a': 2}), {'a': [2.5, 3.5]}, 1, 'not clear'),
    (dict(at_most={'a': 2}), {'a': [3.5]}, 1, 'does not show'),
    (dict(ratio=['a', 'b'], least=2), {'a': [6.5], 'b': [3]}, 1, 'not clear'),
    (dict(ratio=['a', 'b'], least=2), {'a': [7.5], 'b': [3]}, 1, 'shows'),
])
def test_what_may_be_chance_is_not_clear(bounds, values, chance, word):
    verdict = claim(**bounds).judged(values, chance)
    assert verdict.word == word
    assert verdict.why.endswith(f'; {chance} may be chance')


def test_a_ratio_is_said():
    assert claim(ratio=['tanh', 'relu'], least=2).judged({'tanh': [600], 'relu': [100]}).why.endswith('a ratio of 6')


@pytest.mark.parametrize('paper', TABLES_AND_FIGURES)
def test_no_table_and_no_figure_is_missing(paper):
    """Every one has an item of its own, or is part of one: table3_a."""
    items = [name.partition('/')[2] for name in experiments.names() if name.startswith(f'{paper}/')]
    for kind, count in zip(('table', 'fig'), TABLES_AND_FIGURES[paper]):
        for number in range(1, count + 1):
            assert any(re.match(rf'{kind}{number}(?!\d)', item) for item in items), f'{paper}: {kind} {number}'


def test_the_list_names_all_and_starts_at_once():
    done = command('pipelines.reproduce', '--list', cwd=ROOT)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert [line.split()[0] for line in lines if line and line[0] != ' '] == experiments.names()
    script = ('import sys; from pipelines import reproduce; reproduce.main(["--list"]); '
              'assert not {"tensorflow", "numpy", "matplotlib"} & {*sys.modules}')
    subprocess.run([sys.executable, '-c', script], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


ITEM = '''
title: Two rates
source: a test
stages: [prepare, train]
scales:
  small: {config: demo_images, seeds: [1, 2], time: 1 min,
          set: [train.steps=20, train.validate_every=20, train.checkpoint_every=20, input.rows=16]}
  paper: {config: demo_images, time: 2 min}
settings:
  usual: {}
  no rate: {set: [model.learning_rate=1e-9]}
  left as it is:
    set: [train.steps=1, train.checkpoint_every=1, model.learning_rate=1e-9, 'train.init_from={run: usual}']
measures:
  error: {metric: top1_error, take: averaged, percent: true}
  perplexity: {metric: loss, take: least, exp: true}
  steps: {metric: top1_error, take: steps, below: 0.8}
  parameters: {take: parameters}
paper:
  usual: {error: 1.5, price: high}
  another: {error: 2.5}
claims:
  - {says: A net that does not learn is worse., measure: error, rises: [usual, no rate]}
  - {says: It knows all., measure: error, at_most: {usual: 0}}
notes: Made for a test.
'''


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """Run an item of the demo twice: what it leaves, and what was printed each time."""
    folder = tmp_path_factory.mktemp('made')
    (folder / 'ours').mkdir()
    (folder / 'ours' / 'rates.yaml').write_text(ITEM)
    args = ('pipelines.reproduce', 'ours/rates.yaml', '--out', 'out')
    first, again = (command(*args, cwd=folder, before=fork_stages) for _ in range(2))
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    return folder / 'out', first.stdout, again.stdout


def test_an_item_is_run_by_the_stages_and_judged(made):
    out, said, _ = made
    found = json.loads((out / 'ours' / 'rates' / 'found.json').read_text())
    usual, without = found['table']['usual'], found['table']['no rate']
    assert max(usual['error']) < min(without['error']) and len(usual['error']) == 2
    runs = (out / 'ours' / 'runs_small').glob('train/[0-9]*/model_run/tensorboard')
    least = [min(dict(report.curves(str(run))['validation/loss']).values()) for run in runs]
    perplexities = [value for row in found['table'].values() for value in row['perplexity']]
    assert len({*perplexities}) > 2
    assert all(any(value == pytest.approx(math.exp(loss)) for loss in least) for value in perplexities)
    assert usual['steps'] == [20, 20] and without['steps'] == ['inf', 'inf']
    assert usual['parameters'] == without['parameters']
    assert found['table']['left as it is']['error'] == usual['error']
    assert [verdict['verdict'] for verdict in found['verdicts']] == ['shows', 'does not show']
    assert len(found['commands']) == 12 and said.count('python -m pipelines.prepare') == 1  # seeds share it
    assert 'A net that does not learn is worse. shows.' in said.replace(': shows', '. shows')


def test_the_page_has_both_numbers_and_what_differs(made):
    page = (made[0] / 'ours' / 'rates' / 'page.html').read_text()
    for words in ('Two rates', 'paper: 1.5', 'paper: high', 'another', 'not reached', 'train.steps', 'Does not show',
                  'Made for a test.', 'python -m pipelines.train'):
        assert words in page, words


def test_what_was_run_is_not_run_again(made):
    _, first, again = made
    assert 'train: started' in first and 'started' not in again and 'skipped' not in again


def test_origin_is_that_of_the_runs(made):
    found = results.read(str(made[0] / 'ours' / 'rates' / results.FOUND))
    facts = [json.loads(file.read_text()) for file in made[0].glob('ours/runs_small/train/*/model_run/run.json')]
    assert {found.hardware} == {each['hardware'] for each in facts} == {machine.describe()}
    assert found.minutes > sum(each['seconds'] for each in facts) / 60 - 0.1
    assert found.commit == artifacts.commit() and math.isinf(found.table['no rate']['steps'][0])


@pytest.fixture(scope='module')
def published(tmp_path_factory):
    """Runs that show what is theirs and ours, and the folder they were published into."""
    folder, svg = tmp_path_factory.mktemp('published'), '<svg><text>curve</text></svg>'
    for name, data in (('alexnet/fig3', 'pictures'), ('viton_hd/table1', '')):
        item = experiments.load(name)
        assert bool(item.needs) == bool(data)
        out = folder / 'runs' / name
        out.mkdir(parents=True)
        for file, size in (('people.png', 1000), ('large.png', publishing.LARGEST + 1)):
            (out / file).write_bytes(bytes(size))
        figures = [Figure('Curve', svg), Figure('People', '<img src="people.png" alt="People">', shows_data=True),
                   Figure('Large', '<img src="large.png" alt="Large">')]
        found = results.Found(
            name, 'small', [1, 2], {
                'a|b': {'error': [1.0, 3.0], 'steps': [math.inf, math.inf]}, 'AlexNet': {'towers apart': [0.1, 0.15]},
                'VITON-HD*': {'SSIM': [0.9, 0.9]}, 'VITON-HD': {'SSIM': [0.8, 0.85]}},
            [{'claim': 'A claim as it stood.', 'verdict': 'shows', 'why': 'error: 2 (1 to 3)'}],
            [figure._asdict() for figure in figures], [('train.steps', '90', '9')],
            ['/home/somebody/python -m pipelines.train'], 1.5, '2026-01-02', 'c' * 40, 'a machine')
        results.write(item, found, str(out))
    assert publishing.publish(str(folder / 'runs'), str(folder / 'docs')) == ['alexnet/fig3', 'viton_hd/table1']
    return folder


def test_a_published_page_has_everything_but_other_peoples_data(published):
    theirs, ours = published / 'docs' / 'alexnet', published / 'docs' / 'viton_hd'
    assert {path.name for path in theirs.iterdir()} == {'fig3.md', 'fig3.json', 'fig3-1.html'}
    assert {path.name for path in ours.iterdir()} == {'table1.md', 'table1.json', 'table1-1.html', 'table1-2.png'}
    page = (theirs / 'fig3.md').read_text()
    for words in ('Does not show', 'towers apart: AlexNet 0.125 (0.1 to 0.15)', '2 (1 to 3)', 'not reached',
                  '`train.steps`', '2026-01-02', '`cccccccccccc`', 'a machine', '1.5',
                  'pipelines.reproduce alexnet/fig3 --data DIR', '**People** is not published: it shows images',
                  '**Large** is not published: it has 150 KB'):
        assert words in page, words
    assert r'a\|b' in page  # a cell is not cut
    assert 'A claim as it stood' not in page  # it is judged by the claims as they are now
    assert '/home/somebody' not in page + (theirs / 'fig3.json').read_text()


def test_pages_and_index_follow_from_the_numbers_beside_them(published):
    texts = publishing.written(str(published / 'docs'))
    assert [*texts] == ['alexnet/fig3.md', 'viton_hd/table1.md', 'index.md']
    assert all((published / 'docs' / name).read_text() == text for name, text in texts.items())
    rows = [line for line in texts['index.md'].splitlines() if re.match(r'\| \[?(alexnet|prelu|trans|vgg|viton)', line)]
    assert len(rows) == len(experiments.names()) and sum('does not show' in row for row in rows) == 2
    assert f'Of {len(rows)} items 2 are published' in texts['index.md']
    of_ilsvrc = [row for row in rows if row.startswith(('| alexnet/table2 |', '| prelu/table5 |'))]  # have no small
    assert len(of_ilsvrc) == 2 and all('| not run |' in row for row in of_ilsvrc)
    assert re.search(r'- `prelu/table5`.*no small scale.*3 to 4 weeks.*ILSVRC 2012', texts['index.md'])


def test_the_shipped_pages_follow_from_the_numbers_beside_them():
    folder = ROOT / 'docs' / 'results'
    for name, text in publishing.written(str(folder)).items():
        assert (folder / name).read_text() == text, 'run `python -m pipelines.reproduce --publish docs/results`'
        assert 'with changes' not in text, f'{name} is of a source that no commit has'


@pytest.mark.parametrize('name', [name for name in experiments.names()
                                  if (ROOT / 'docs' / 'results' / f'{name}.json').exists()])
def test_published_verdicts_are_those_of_the_claims_as_they_stand(name):
    found = results.read(str(ROOT / 'docs' / 'results' / f'{name}.json'))
    assert results.judged(experiments.load(name), found.scale, found.table) == found.verdicts


def test_publishing_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match='no item is finished'):
        publishing.publish(str(tmp_path), str(tmp_path / 'docs'))
    old = tmp_path / 'vgg' / 'table1'
    old.mkdir(parents=True)
    (old / 'found.json').write_text('{"item": "vgg/table1", "table": {}}')
    with pytest.raises(UserError, match='pipelines.reproduce vgg/table1'):
        publishing.publish(str(tmp_path), str(tmp_path / 'docs'))


@pytest.mark.parametrize('args, words', [
    (['nothing/here'], "There is no 'nothing/here'"),
    (['broken.yaml'], "broken.yaml: 'It is.' uses 'b', which is not a setting"),
    (['rates.yaml', '--scale', 'paper'], 'has no scale paper. Choose from small'),
    (['rates.yaml'], 'needs --data: pictures'),
])
def test_mistakes_are_sentences(tmp_path, args, words):
    plain = ITEM.replace('  paper: {config: demo_images, time: 2 min}\n', '')
    plain = plain.replace('source:', 'needs: pictures\nsource:')
    (tmp_path / 'rates.yaml').write_text(plain)
    (tmp_path / 'broken.yaml').write_text(
        'title: t\nsource: s\nscales: {small: {config: demo_images}}\nsettings: {a: {}}\nmeasures: {error: {}}\n'
        'claims: [{says: It is., measure: error, rises: [a, b]}]\n')
    done = command('pipelines.reproduce', *args, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.parametrize('name', experiments.names())
def test_every_item_is_of_exhibits_and_configurations_that_load(name):
    """At every scale, with data and other settings' runs named by some path; and it says how long that takes."""
    item = experiments.load(name)
    assert all(experiments.drawer(exhibit) for exhibit in item.exhibits)
    for scale, chosen in item.scales.items():
        assert chosen.time != 'unmeasured', scale
        for name, keys in filter(None, (setting.at(scale, chosen) for setting in item.settings.values())):
            assert config.load(name, [experiments.REFERENCE.sub('run', key.replace('{data}', 'data')) for key in keys])


def test_medium_is_small_for_longer():
    """The net that table 3 trains at many scales, at both; it starts from A at both."""
    item = experiments.load('vgg/table3')
    setting = item.settings['D, S = 256 to 512']
    small, medium = (setting.at(scale, item.scales[scale]) for scale in ('small', 'medium'))
    assert small[0] == medium[0] == 'vgg_d_tiny_imagenet_variations'
    assert {*small[1]} < {*medium[1]} and 'train.steps=20000' in medium[1]
    assert item.settings['D, S = 384'].at('medium', item.scales['medium']) is None  # for the paper's scale alone


def test_a_setting_begins_with_what_is_above_it(tmp_path):
    (tmp_path / 'item.yaml').write_text(
        'title: t\nsource: s\nscales: {small: {config: demo_images}}\n'
        'settings: {a: {set: ["train.init_from={run: b}"]}, b: {}}')
    with pytest.raises(UserError, match="'a' refers to 'b', which is not an earlier setting"):
        experiments.load(str(tmp_path / 'item.yaml'))


def test_an_items_file_is_checked(tmp_path):
    for text, words in (('title: t', 'source'), ('title: t\nsource: s', 'either scales or instead'), ('[]', '')):
        (tmp_path / 'item.yaml').write_text(text)
        with pytest.raises(UserError, match=words):
            experiments.load(str(tmp_path / 'item.yaml'))


def test_a_scale_has_its_own_stages_and_settings(tmp_path):
    item = ITEM.replace('source:', 'needs: pictures\nsource:').replace("  usual: {}", "  usual: {scales: [paper]}")
    (tmp_path / 'rates.yaml').write_text(item.replace('  small: {', '  small: {stages: [], '))
    experiment = experiments.load(str(tmp_path / 'rates.yaml'))
    bare = dataclasses.replace(experiment.settings['no rate'], stages=None)
    computed = dataclasses.replace(experiment, settings={'usual': experiment.settings['usual'], 'no rate': bare})
    found = running.run(computed, 'small', '', str(tmp_path), [])
    assert [(run.setting, run.stages) for run in found] == [('no rate', [])]
