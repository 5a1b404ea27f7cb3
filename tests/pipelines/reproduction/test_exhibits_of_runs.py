"""Pages' plots of runs: curves, slopes, slices and variances of tiny nets."""
import collections
import json

import pytest
import tensorflow as tf

from pipelines.core import config
from pipelines.reporting import answers
from pipelines.reproduction import experiments, results, running
from pipelines.reproduction.plots import operations
from pipelines.training import checkpoints
from support.commands import command
from support.forked_stages import fork_stages

ITEM = '''
title: Two rectifiers
source: a test
stages: [prepare, train, export, evaluate]
scales: {small: {config: demo_images, time: 1 min, set: [
  train.steps=8, train.validate_every=4, train.checkpoint_every=4, train.log_every=4, input.rows=16]}}
settings:
  relu: {set: [model.activation=relu, model.weights=xavier]}
  prelu: {}
exhibit:
  - {draw: curves, of: [validation/top1_error, loss, nothing], percent: true}
  - {draw: slopes}
  - {draw: slices, measures: {less: top1_error}, x: digit, minus: relu}
  - {draw: variances, width: 16, layers: 6, seeds: 4}
measures:
  test error: {metric: top1_error, take: evaluated}
claims: [{says: First layers keep slopes above 0., measure: prelu, at_least: {conv1: 0.1}}]
'''


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp('made')
    (folder / 'ours').mkdir()
    (folder / 'ours' / 'rectifiers.yaml').write_text(ITEM)
    done = command('pipelines.reproduce', 'ours/rectifiers.yaml', '--out', 'out', cwd=folder, before=fork_stages)
    assert done.returncode == 0, done.stderr
    page = folder / 'out' / 'ours' / 'rectifiers'
    return folder, page, json.loads((page / 'found.json').read_text())['table']


@pytest.mark.slow
def test_every_figure_is_in_the_page_and_a_file(made):
    _, page, _ = made
    assert {path.name for path in page.glob('*.png')} == {
        'validation_top1_error.png', 'loss.png', 'slopes.png', 'top1_error_by_digit.png', 'variances_forward.png',
        'variances_backward.png'}
    assert (page / 'page.html').read_text().count('<svg') == 6


@pytest.mark.slow
def test_slopes_are_the_means_of_the_weights(made):
    folder, _, table = made
    rows = {row: columns['prelu'][0] for row, columns in table.items() if 'prelu' in columns}
    assert [*rows] == ['conv1', 'conv2_1', 'conv2_2', 'conv3', 'fc1', 'mean of conv2']
    assert rows['mean of conv2'] == pytest.approx((rows['conv2_1'] + rows['conv2_2']) / 2)
    model = config.load('demo_images').model_spec
    runs = [str(path) for path in (folder / 'out' / 'ours' / 'runs_small' / 'train').glob('*/model_run')]
    [weights] = [found for run in runs if 'conv1/prelu/a' in (found := checkpoints.read(
        checkpoints.find(run, model))['classifier'])]
    assert rows['conv1'] == pytest.approx(tf.reduce_mean(weights['conv1/prelu/a']).numpy())


@pytest.mark.slow
def test_differences_by_slice_are_those_of_the_evaluations(made):
    folder, _, table = made
    digits = [table[f'prelu, d{digit}']['less'][0] for digit in range(10)]
    assert all(-1 <= less <= 1 for less in digits) and len({*digits}) > 1
    errors = [table[name]['test error'][0] for name in ('relu', 'prelu')]
    assert all(0 < error < 1 for error in errors)
    predictions = next((folder / 'out' / 'ours').glob('runs_small/evaluate/*/evaluation/predictions.tfrecord'))
    counts = collections.Counter(row['target'] for row in answers.read(str(predictions)))
    weighted = sum(counts[f'd{digit}'] * less for digit, less in enumerate(digits)) / counts.total()
    assert errors[0] - errors[1] == pytest.approx(weighted, abs=1e-6)
    assert table['prelu']['top1_error less in, %'] == [10 * sum(less > 0 for less in digits)]


@pytest.mark.slow
def test_variances_are_of_the_settings_own_rules(made):
    _, _, table = made
    kept, lost = (table[name]['Var[y_L] / Var[y_1]'][0] for name in ('prelu', 'relu'))
    assert lost < kept and 2 ** -9 < lost < 2 ** -2  # a half a layer, five of them; narrow ones scatter


def test_table_3_is_computed():
    item = experiments.load('prelu/table3')
    found = running.run(item, 'small', '', 'unused', [])
    shown = operations.draw(experiments.Study(found, '', '', 'small'), digits=10)
    table = results.measured(item, found, [shown])
    assert [claim.judged({row: columns[claim.measure] for row, columns in table.items()}).word
            for claim in item.claims] == ['shows'] * 4
    assert shown.figures[0].html.count('<tr>') == 1 + 22


@pytest.mark.parametrize('scale, kind', [('small', 'small'), ('medium', 'small'), ('paper', 'paper')])
def test_a_plot_is_that_of_small_at_the_medium_scale(tmp_path, monkeypatch, scale, kind):
    """Takes from small what plots name by scale, as settings do: there are no other layers and sizes."""
    (tmp_path / 'item.yaml').write_text(
        'title: t\nsource: s\nstages: []\nsettings: {a: {}}\nexhibit: {draw: operations}\n'
        'scales: {small: {config: demo_images}, medium: {}, paper: {config: demo_images}}')
    item, kinds = experiments.load(str(tmp_path / 'item.yaml')), []
    monkeypatch.setattr(experiments, 'drawer', lambda _: lambda study: kinds.append(study.kind) or
                        experiments.Exhibit({}, []))
    results.gather(item, scale, running.run(item, scale, '', 'unused', []), '', str(tmp_path / 'out'), [])
    assert kinds == [kind]
