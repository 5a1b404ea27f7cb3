"""A command with nothing to do says so without TensorFlow, and looks again as soon as anything changed."""
import json
import os
import shutil

import pytest

from pipelines.core import artifacts, config, places, settled
from pipelines.core.pipeline import Pipeline
from pipelines.core.stage import get
from support.commands import command, imported_packages
from support.text_data import FLAGS, LEARNED

EXAMPLE = {'line': 'a b'}


@pytest.fixture
def root(translator_root, tmp_path) -> str:
    """A root in which a run of two stages is remembered."""
    return shutil.copytree(translator_root, tmp_path / 'root', ignore=shutil.ignore_patterns('settled.json'))


def memory(config_file, root, overrides=LEARNED) -> settled.Memory:
    return settled.Memory(places.find(config_file, overrides, str(root), []))


def look_up(config_file, root, overrides=LEARNED) -> Pipeline:
    pipeline = Pipeline(config.load(config_file, overrides), str(root), [])
    for name in ('prepare', 'train'):
        pipeline.run(get(name))
    return pipeline


def remember(config_file, root) -> Pipeline:
    pipeline = look_up(config_file, root)
    memory(config_file, root).remember(pipeline, EXAMPLE)
    return pipeline


def test_what_is_remembered_is_what_was_looked_up(config_file, root, capsys):
    pipeline = remember(config_file, root)
    said = capsys.readouterr().out
    known = memory(config_file, root).recall()
    assert known == settled.Settled({name: pipeline.outputs(name) for name in ('prepare', 'train')}, EXAMPLE)
    known.say()
    assert capsys.readouterr().out == said and said.count('; skipped.') == 2
    assert [*memory(config_file, root).recall(['train']).results] == ['train']
    assert memory(config_file, root).recall(['export']) is None


def test_a_stage_with_nothing_to_do_imports_no_tensorflow(config_file, root, monkeypatch):
    """It takes 0.3 s of CPU; TensorFlow's import alone takes 2.5."""
    remember(config_file, root)
    monkeypatch.setenv('PYTHONPROFILEIMPORTTIME', '1')
    flags = ['--config', config_file, '--pipeline_root', str(root), *FLAGS]
    done = command('pipelines.train', *flags, new_process=True)
    assert done.returncode == 0 and done.stdout.startswith('train: nothing it depends on has changed'), done.stderr
    assert not imported_packages(done) & {'tensorflow', 'keras', 'official', 'apache_beam', 'tensorflow_text'}


@pytest.mark.parametrize('change', ['values', 'sources', 'raw file', 'lineage', 'outputs', 'damage'])
def test_whatever_changed_stages_are_looked_up_again(config_file, raw, root, monkeypatch, change):
    remember(config_file, root)
    file, overrides = root / 'settled.json', LEARNED
    assert memory(config_file, root).recall()
    if change == 'values':
        overrides = [*LEARNED, 'seed=2']
    elif change == 'sources':
        monkeypatch.setattr(artifacts, 'PACKAGES', ('pipelines',))
    elif change == 'raw file':  # other tests read it too
        known = json.loads(file.read_text())
        known['files'][f'{raw}/train.tsv'][0] += 1
        file.write_text(json.dumps(known))
    elif change == 'lineage':
        os.utime(root / 'metadata.sqlite')
    elif change == 'outputs':
        known = json.loads(file.read_text())
        known['results']['train']['model_run']['uri'] += '-gone'
        file.write_text(json.dumps(known))
    else:
        file.write_text(file.read_text()[:-9])
    assert memory(config_file, root, overrides).recall() is None


def test_another_stage_adds_to_what_is_remembered(config_file, root):
    remember(config_file, root)
    pipeline = Pipeline(config.load(config_file, LEARNED), str(root), [])
    pipeline.run(get('prepare'))
    memory(config_file, root).remember(pipeline)
    assert [*memory(config_file, root).recall().results] == ['prepare', 'train']


def test_weights_to_start_from_are_looked_for_each_time(config_file, root, translator_root):
    overrides = [*LEARNED, 'train.steps=0', f'train.init_from={translator_root}']
    pipeline = look_up(config_file, root, overrides)
    memory(config_file, root, overrides).remember(pipeline)
    assert not (root / 'settled.json').exists()


def test_the_hash_of_the_sources_follows_every_file(tmp_path, monkeypatch):
    package = tmp_path / 'some_package'
    (package / '__pycache__').mkdir(parents=True)
    (package / '__init__.py').write_text('')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(artifacts, 'PACKAGES', ('some_package',))
    before = settled._sources()
    (package / '__pycache__' / 'module.pyc').write_text('compiled')
    assert settled._sources() == before
    (package / 'table.yaml').write_text('key: 1')
    assert settled._sources() != before
