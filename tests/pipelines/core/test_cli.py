"""The command line: suggestions for typos, printed commands, and options that only query."""
import os
import re
import shutil
import subprocess
import sys

import pytest

from data_prep import UserError
from pipelines import __main__ as landmark
from pipelines import attention, features, lineage, predict, push, reproduce
from pipelines.core import cli, commands, config
from pipelines.core.pipeline import Pipeline
from support.commands import ROOT

ASKED = {'attention': attention, 'features': features, 'lineage': lineage, 'predict': predict, 'push': push}


@pytest.mark.parametrize('name', ASKED)
def test_explain_asks_for_nothing_and_makes_nothing(name, tmp_path, monkeypatch, capsys):
    """It begins with the run card and what differs from the defaults."""
    monkeypatch.chdir(tmp_path)
    ASKED[name].main(['--explain', '--config', 'multi30k_en_de', '--set', 'train.steps=5'])
    said = capsys.readouterr().out
    assert said.startswith('multi30k_en_de: English to German on Multi30k')
    assert said.index('  time: 37 minutes') < said.index('Differs from the defaults') < said.index('parameters')
    assert re.search(r'train\.steps +5 +100000', said) and re.search(r'model\.d_model +256 +512', said)
    assert 'model.label_smoothing ' not in said[:said.index('The whole configuration')]  # that is the default
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('override, nearest', [
    ('steps=10', 'train.steps'), ('train:steps=10', 'train.steps'), ('train.stpes=10', 'train.steps'),
    ('trainn.steps=10', 'train'), ('d_model=8', 'model.d_model')])
def test_a_key_that_is_nearly_right_gets_the_right_one(override, nearest):
    with pytest.raises(UserError, match=rf'unknown key .*\. Did you mean {re.escape(nearest)}\?$'):
        config.load(None, [override])


def test_blanks_around_a_value_mean_nothing():
    assert config.load(None, ['train.steps = 10']).train.steps == 10


def test_a_root_that_cannot_be_made_is_a_sentence():
    with pytest.raises(UserError, match=r'/proc/nope: this folder cannot be made\. Give another --pipeline_root'):
        Pipeline(config.load(), '/proc/nope', []).metadata  # noqa: B018


@pytest.mark.parametrize('name, words', [
    ('predict', []), ('attention', ['12 May']), ('features', ['x.png', '--config', 'demo_images', '--scales', '28'])])
def test_who_only_asks_trains_nothing(name, words, tmp_path, monkeypatch, capsys):
    """Not even a demo, which stages make on the way."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        ASKED[name].main([*words, '--pipeline_root', str(tmp_path / 'root')])
    said = capsys.readouterr()
    assert left.value.code == 2 and 'started' not in said.out + said.err
    assert re.search(r'has no finished (push|train) for this configuration\. Run `python -m pipelines\.run ', said.err)


def test_features_of_a_model_of_text_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        features.main(['x.png', '--scales', '28', '--pipeline_root', str(tmp_path)])
    assert 'demo_translation has no image model. Name a configuration that has one' in capsys.readouterr().err


def test_commands_name_the_interpreter_that_works(monkeypatch, tmp_path):
    monkeypatch.setenv('PATH', os.path.dirname(sys.executable))
    assert commands.python() == 'python'
    monkeypatch.setenv('PATH', '/usr/bin')
    monkeypatch.chdir(tmp_path)  # below which the interpreter is not
    assert commands.python() == sys.executable
    own = tmp_path / '.venv' / 'bin' / 'python'
    monkeypatch.setattr(sys, 'executable', str(own))
    assert commands.python() == '.venv/bin/python'
    said = commands.as_typed_here('run `python -m pipelines.run` first, python being python')
    assert said == 'run `.venv/bin/python -m pipelines.run` first, python being python'
    assert commands.as_typed_here(said) == said
    assert Pipeline(config.load(), str(tmp_path), []).command('push') == '.venv/bin/python -m pipelines.push'


def test_a_missing_package_is_a_sentence(tmp_path):
    """Import none of the site's packages, like an interpreter outside of the environment."""
    done = subprocess.run([sys.executable, '-S', '-m', 'pipelines.run'], cwd=tmp_path, capture_output=True, text=True,
                          env={'PYTHONPATH': str(ROOT), 'PATH': os.environ['PATH']})
    assert done.returncode == 2 and re.fullmatch(
        rf'error: \w+ is not installed for {re.escape(sys.executable)}\. Run `make install`, .*\n', done.stderr)


def test_a_missing_module_of_ours_is_no_users_mistake():
    def work():
        raise ModuleNotFoundError('No module named pipelines.nothing', name='pipelines.nothing')
    with pytest.raises(ModuleNotFoundError):
        cli.run_command(work)


def test_all_commands_are_listed_and_one_is_run(monkeypatch, capsys):
    monkeypatch.setenv('COLUMNS', '100')
    landmark.main([])
    said = capsys.readouterr().out
    named = re.findall(r'^  (\w+) +[A-Z]', said, re.M)
    assert {'run', 'train', 'predict', 'lineage', 'fetch', 'reproduce'} <= {*named}
    assert all(len(line) <= 100 for line in said.splitlines())
    landmark.main(['run', '--list'])
    assert 'demo_translation' in capsys.readouterr().out
    with pytest.raises(SystemExit, match='error: there is no command trains.'):
        landmark.main(['trains'])


def test_items_are_listed_one_a_line(capsys):
    reproduce.listing()
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match(r'\w+/\w+ +\S', line) for line in lines) and len(lines) > 60
    reproduce.listing('alexnet/fig1')
    assert '--data: a folder with' in ' '.join(capsys.readouterr().out.split())


def test_landmark_is_a_command_of_the_package():
    assert "'landmark = pipelines.__main__:main'" in (ROOT / 'setup.py').read_text()
    assert shutil.which('python')  # by which the tests before this one name their interpreter
