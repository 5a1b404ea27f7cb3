"""Train on halves of the data: the command from a finished run to its report, and what it refuses."""
import json
import pathlib
import re
import shutil

import pytest

from data_prep import UserError
from pipelines import learning_curve
from pipelines.core import config, metadata
from pipelines.core.pipeline import Pipeline
from support import text_data
from support.commands import command
from support.forked_stages import fork_stages

EXECUTION = 7  # after the six stages of the run


@pytest.fixture(scope='module')
def curve(config_file, translator_root, tmp_path_factory):
    """Run the command on a copy of a finished run."""
    root = tmp_path_factory.mktemp('curve') / 'root'
    shutil.copytree(translator_root, root)
    args = ['--config', config_file, '--pipeline_root', str(root), *text_data.FLAGS]
    before = stages(root)
    done = command('pipelines.learning_curve', *args, '--set', 'learning_curve.halvings=1', '--runner', 'DirectRunner',
                   before=fork_stages)
    assert done.returncode == 0, done.stdout + done.stderr
    assert stages(root) == {*before, 'fractions', 'learning_curve'} | {f'learning_curve/{EXECUTION}'}
    return root, args, done.stdout


def stages(root):
    """Folders of stages and of their executions."""
    return {str(path.relative_to(root)) for pattern in ('*', '[!fs]*/*') for path in root.glob(pattern)
            if path.is_dir()}


def test_a_half_is_learned_from_and_compared_with_the_whole(curve):
    root, _, printed = curve
    [path] = root.glob('learning_curve/*/learning_curve/learning_curve.json')
    found = json.loads(path.read_text())
    half, whole = found['points']
    assert whole['examples'] == 3000 and abs(half['examples'] - 1500) < 4 * 750 ** 0.5
    assert found['metric'] == 'bleu' and half['value'] > 80 and whole['value'] > 80
    assert found['change']['value'] == pytest.approx(whole['value'] - half['value'], abs=1e-6)
    assert f'With {half["examples"]:,} and 3,000 training pairs, bleu is' in printed
    assert f'/learning_curve/{EXECUTION}/report/report.html has the curve' in printed


def test_only_the_half_is_run_in_a_root_of_its_own_and_beam_gets_its_flags(curve):
    root, _, printed = curve
    commands = [line for line in printed.splitlines() if line.startswith('[')]
    assert all(line.startswith('[train_fraction 0.5] ') and f'{root}/fractions/0.5' in line for line in commands)
    assert [bool(re.search('--runner DirectRunner', line)) for line in commands] == [True, False, False, False]
    names = {path.name for path in (root / 'fractions' / '0.5').iterdir() if path.is_dir()}
    assert names == {'prepare', 'train', 'export', 'evaluate'}


def test_it_is_held_out_from_as_the_whole_is_and_has_its_subwords(curve):
    root, _, _ = curve
    whole, half = (max(folder.glob('prepare/*/examples'), key=lambda path: int(path.parent.name))
                   for folder in (root, root / 'fractions' / '0.5'))
    for name in ('subwords.model', *(f'Split-{split}/part-{number}-00000.tfrecord' for number, split in (
            ('001', 'validation'), ('002', 'test')))):
        assert (half / name).read_bytes() == (whole / name).read_bytes()


def test_the_report_has_the_curve_and_all_of_the_run(curve):
    root, _, _ = curve
    [path] = root.glob('learning_curve/*/report/report.html')
    text, before = path.read_text(), max(root.glob('evaluate/*/report/report.html')).read_text()
    assert 'id="more-data"' in text and 'training pairs' in text and 'id="metrics"' in text
    assert 'id="more-data"' not in before
    assert re.search('-m pipelines.learning_curve --config .* trains on a half', before, re.DOTALL)


def test_once_more_nothing_is_run_and_a_further_half_keeps_the_first(curve, config_file):
    root, args, _ = curve
    again = command('pipelines.learning_curve', *args, '--set', 'learning_curve.halvings=1')
    assert again.returncode == 0 and 'skipped' in again.stdout and 'has the curve' in again.stdout
    assert 'started' not in again.stdout
    flags = ['--config', config_file, *text_data.FLAGS]
    whole = Pipeline(config.load(config_file, text_data.LEARNED), str(root), [], flags)
    examples = whole.outputs('prepare', make=False)['examples'].uri
    half = whole.variant(['data.train_fraction=0.5', 'data.max_dead_letters=1.0', 'learning_curve.halvings=2',
                          f'data.subword_model={examples}/subwords.model'], str(root / 'fractions' / '0.5'))
    assert all(half.finished(name) for name in ('prepare', 'train', 'export', 'evaluate'))


def test_lineage_leads_from_the_curve_to_the_run(curve):
    root, _, _ = curve
    lineage = metadata.of_root(str(root), 'tiny')
    [(execution, _, outputs)] = lineage.completed('learning_curve')
    assert outputs['learning_curve'].type == 'LearningCurve' and outputs['report'].type == 'Report'
    made = [artifacts for stage in ('prepare', 'train', 'export', 'evaluate')
            for _, _, artifacts in lineage.completed(stage)]
    expected = {artifact.id for artifacts in made for artifact in artifacts.values()}
    assert {*lineage.inputs_of(execution)} == expected and len(expected) > 5


@pytest.mark.parametrize('args, words', [
    (['--config', 'learning_machine_nim'], ['keras_models.school does not learn from a data set']),
    (['--set', 'learning_curve.halvings=0'], ['learning_curve.halvings must be more than 0; it is 0']),
    (['--set', 'train.strategy=multi_worker_mirrored'], ['trains on one machine']),
    (['--set', 'evaluate.split=train'], ['evaluate.split is train, which differs between halves']),
    (['--set', 'train.steps=0'], ['train.steps is 0']),
    (['--set', 'data.train_fraction=0'], ['train_fraction is a fraction of the training', 'it is 0']),
    (['--set', 'data.train_fraction=1.5'], ['above 0 and at most 1; it is 1.5']),
])
def test_mistakes_are_sentences(args, words, tmp_path):
    done = command('pipelines.learning_curve', *args, '--pipeline_root', str(tmp_path))
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    assert done.stderr.startswith('error: ') and 'Traceback' not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_halves_must_be_fewer_and_fewer():
    learning_curve.check_halves([100, 52, 25])
    for counts in ([3, 3], [6, 2, 2]):
        with pytest.raises(UserError, match=rf'of {counts[0]} training examples, the halves have '):
            learning_curve.check_halves(counts)


@pytest.mark.parametrize('names, thresholds, chosen', [
    (('top5_error', 'top1_error'), {}, 'top1_error'), (('top5_error', 'top1_error'), {'top5_error': {}}, 'top5_error'),
    (('top5_error', 'top1_error'), {'top1_error': {}, 'top5_error': {}}, 'top1_error'),
    (('mean_class_error', 'top5_error', 'top1_error'), {'top1_error': {}, 'mean_class_error': {}}, 'mean_class_error'),
    (('bleu', 'bleu_tokenised', 'chrf', 'exact_match'), {'bleu': {}}, 'bleu')])
def test_the_metric_is_what_the_gate_is_about(names, thresholds, chosen):
    assert learning_curve.choose(names, thresholds) == chosen


def test_without_a_finished_run_the_command_that_makes_it_is_named(config_file, tmp_path):
    done = command('pipelines.learning_curve', '--config', config_file, '--pipeline_root', str(tmp_path))
    assert done.returncode == 2 and 'has no finished' in done.stderr and 'pipelines.' in done.stderr
    assert not pathlib.Path(tmp_path, 'fractions').exists()
