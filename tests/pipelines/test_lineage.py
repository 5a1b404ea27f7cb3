"""Lineage of a finished pipeline: from a pushed version back to raw files, and from a raw file to every version."""
import dataclasses
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from data_prep import UserError
from data_prep.core import raw_files
from data_prep.text import job as text_job
from pipelines import lineage
from pipelines.core import artifacts, config, metadata, stage
from pipelines.core.pipeline import Pipeline
from pipelines.serving import pusher
from support.commands import ROOT, command, environment, imported_packages
from support.text_data import LEARNED, write_pairs


@dataclasses.dataclass
class Finished:
    """A folder with `runs/tiny`, a root where a model was pushed, and then another of the same training run.

    `raw` holds the raw files of its data, to which the folder's more.tsv was added later.
    """
    folder: pathlib.Path
    root: str
    first: str
    second: str
    config: str
    raw: pathlib.Path


@pytest.fixture(scope='module')
def finished(config_file, raw, translator_root, tmp_path_factory):
    folder = tmp_path_factory.mktemp('lineage')
    write_pairs(folder, 'more', 30, 3)
    root = str(shutil.copytree(translator_root, folder / 'runs' / 'tiny'))

    def pipeline(*more):
        return Pipeline(config.load(config_file, [*LEARNED, *more]), root, [])
    whole = pipeline()
    made = {key: artifact for name in stage.STAGES for key, artifact in whole.outputs(name).items()}
    other = pipeline('inference.beam_size=1').run(stage.get('export'))['model']
    lineage_of = {key: {'id': artifact.id, 'digest': artifact.digest}
                  for key, artifact in {**made, 'model': other}.items()}
    [first] = artifacts.version_folders(os.path.join(root, 'serving', 'tiny'))
    second = pusher.publish(os.path.join(other.uri, 'Format-Serving'), os.path.dirname(first),
                            {'pipeline': 'tiny', 'artifacts': lineage_of})
    pipeline(f'data.train=[train.tsv,{folder}/more.tsv]', 'data.pairs_per_shard=900').run(stage.get('prepare'))
    return Finished(folder, root, first, second, config_file, raw)


def printed(capsys, *argv):
    lineage.main([*map(str, argv)])
    return capsys.readouterr().out


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def head():
    return subprocess.run(['git', 'rev-parse', 'HEAD'], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def test_a_version_leads_back_to_metrics_run_configuration_commit_and_raw_files(finished, capsys):
    text = printed(capsys, finished.first)
    assert text.startswith(f'{finished.first}, pushed 20') and 'files are those that were pushed' in text
    order = [re.search(rf'── {name} \d+, 20', text).start() for name in
             ('infra_validate', 'evaluate', 'export', 'train', 'prepare')]
    assert order == sorted(order)
    store = metadata.opened(finished.root)
    [evaluated] = store.executions('evaluation')
    exported = store.executions('model')[-1]
    for name, value in evaluated.properties['metrics']['overall'].items():
        assert f'{name} {value:.6g}' in text
    assert exported.outputs['model'].digest == artifacts.digest(exported.outputs['model'].uri)
    assert f'model {exported.outputs["model"].digest}' in text
    for split in ('train', 'validation', 'test'):
        path = finished.raw / f'{split}.tsv'
        assert f'{path}, {path.stat().st_size:,} bytes, SHA-256 {sha256(path)}' in text
    assert 'more.tsv' not in text and '3 raw files' in text
    if head():
        assert text.count(f'commit {head()}') == 5
    values = config.load(finished.config, LEARNED).values
    shown = yaml.safe_load('\n'.join(line.lstrip('│├└─ ') if re.match(r'[│├└ ]*── ', line) and line.endswith(':')
                                     else re.sub('^[│ ]+(?=seed)', '', line)
                                     for line in configuration(text, 'prepare')))
    assert shown['seed'] == values['seed'] and shown['data'] == values['data']
    assert 'd_model: 64' in text and 'steps: 300' in text and 'beam_size: 4' in text


@pytest.mark.parametrize('words', [['pipelines.push', '--list'], ['pipelines.lineage']])
def test_commands_that_only_look_import_no_tensorflow(finished, words):
    """0.2 and 0.3 s of processor time, where importing TensorFlow takes 3."""
    done = command(*words, '--config', finished.config, '--pipeline_root', finished.root,
                   new_process=True, env=environment(PYTHONPROFILEIMPORTTIME='1'))
    assert os.path.basename(finished.second) in done.stdout
    assert not imported_packages(done) & {'tensorflow', 'keras', 'official', 'apache_beam', 'pandas', 'scipy'}


def configuration(text, name):
    """The YAML that a stage's branch ends with, the tree's lines cut off."""
    lines = text[text.index(f'── {name} '):].splitlines()
    start = next(number for number, line in enumerate(lines) if '── seed: ' in line)
    indent = lines[start].index('seed')
    return [line[indent:] for line in lines[start:]]


def test_a_rollback_leads_to_the_same_place(finished, capsys, tmp_path):
    root = str(tmp_path / 'elsewhere')  # where nothing was recorded under its present path
    shutil.copytree(finished.root, root)
    destination = os.path.join(root, 'serving', 'tiny')
    back = pusher.rollback(destination)
    first, again = printed(capsys, os.path.join(destination, os.path.basename(finished.first))), printed(capsys, back)
    assert first.splitlines()[1:] == again.splitlines()[1:]
    assert f'the files of {os.path.basename(finished.first)} again' in again.splitlines()[0]
    forward = printed(capsys, '--raw', finished.raw / 'train.tsv', '--pipeline_root', root)
    assert f'{back}, pushed' in forward and forward.count('loaded by serving') == 1
    assert forward.count(f'{os.path.basename(finished.first)}') == 2


def test_a_raw_file_leads_to_every_version_it_went_into_whatever_it_is_called_now(finished, capsys, tmp_path,
                                                                                   monkeypatch):
    renamed = shutil.copy(finished.raw / 'test.tsv', tmp_path / 'renamed.txt')
    monkeypatch.chdir(finished.folder)  # its runs/ are looked through
    by_name, by_hash = printed(capsys, '--raw', renamed), printed(capsys, '--raw', sha256(finished.raw / 'test.tsv'))
    assert by_name.splitlines()[1:] == by_hash.splitlines()[1:]
    assert all(os.path.relpath(version) + ', pushed' in by_name for version in (finished.first, finished.second))
    assert len(re.findall('── export', by_name)) == 2
    assert by_name.count('never trained on') == 1  # the second data set
    more = printed(capsys, '--raw', 'more.tsv')
    assert 'never trained on' in more and 'serving/tiny' not in more
    (tmp_path / 'new').write_text('nobody read this')
    assert 'in no data set of runs/tiny' in printed(capsys, '--raw', tmp_path / 'new')


def test_the_highest_version_is_meant_and_damage_is_told(finished, capsys, tmp_path):
    destination = shutil.copytree(os.path.dirname(finished.second), tmp_path / 'tiny')
    highest = destination / os.path.basename(finished.second)
    with open(highest / 'saved_model.pb', 'ab') as file:
        file.write(b'\0')
    text = printed(capsys, destination, '--pipeline_root', finished.root)
    assert text.startswith(f'{highest}, ') and 'damaged: saved_model.pb has changed since the push' in text
    assert 'beam_size: 1' in text


@pytest.mark.parametrize('argv, said', [
    (['nowhere'], 'nowhere is not a pushed version'),
    (['--raw', 'nowhere'], '--raw nowhere: there is no such file'),
    (['{first}', '--pipeline_root', '{empty}'], 'has no metadata.sqlite'),
    (['{first}', '--pipeline_root', '{other}'], 'was not pushed from here: its model')])
def test_what_cannot_be_traced_is_a_sentence(finished, capsys, tmp_path, argv, said):
    other, empty = tmp_path / 'other', tmp_path / 'empty'
    other.mkdir(), empty.mkdir()
    metadata.Metadata(str(other / 'metadata.sqlite'), 'other')
    with pytest.raises(SystemExit) as left:
        lineage.main([word.format(first=finished.first, other=other, empty=empty) for word in argv])
    error = capsys.readouterr().err
    assert left.value.code == 2 and said in error and error.count('\n') == 1


def test_a_list_that_is_gone_or_altered_is_named_and_nothing_claimed(finished, capsys, tmp_path):
    root = shutil.copytree(finished.root, tmp_path / 'root')
    lists = sorted(root.glob(f'prepare/*/examples/{raw_files.LIST}'))
    lists[0].unlink()
    lists[1].write_bytes(lists[1].read_bytes()[:-20])
    text = printed(capsys, '--raw', finished.raw / 'train.tsv', '--pipeline_root', root)
    assert text.count('unknown for this one') == 2
    assert 'is missing; its SHA-256 was' in text and 'was changed after it was written (its SHA-256 differs)' in text
    assert 'in no data set' in text


def test_the_list_holds_every_file_below_what_was_named_once(tmp_path):
    """Folders, links, names that are no text, files of nothing; in an order of its own, and the same again."""
    data, folder = tmp_path / 'data', tmp_path / 'examples'
    for path, content in {'cat/1.jpg': b'1', 'cat/2.jpg': b'', 'dog/1.jpg': b'3', 'labels.txt': b'4'}.items():
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_bytes(content)
    (data / 'dog' / 'all').symlink_to(data)  # a folder that holds itself
    open(os.fsencode(data) + b'/cat/\xff.jpg', 'wb').close()
    (folder / 'raw').mkdir(parents=True)
    (folder / 'raw' / 'drawn').write_bytes(b'5')
    named = [str(data / 'dog'), str(data / 'cat'), str(data), str(data), str(folder / 'raw')]
    found = raw_files.run(named, str(folder), [])
    rows = {row['file']: row for row in raw_files.read(str(folder))}
    names = [*(f'{data}/{name}' for name in ('cat/1.jpg', 'cat/2.jpg', 'cat/\udcff.jpg', 'dog/1.jpg', 'labels.txt')),
             'raw/drawn']
    assert sorted(rows) == sorted(names) and found['files'] == len(names) and found['bytes'] == 4
    assert all(rows[name]['sha256'] == sha256(folder / name if name == 'raw/drawn' else data / os.fsdecode(name))
               for name in names if 'udcff' not in ascii(name))
    assert found['sha256'] == sha256(folder / raw_files.LIST)
    assert raw_files.run(reversed(named), str(folder), ['--direct_num_workers=2']) == found


def test_a_raw_file_that_changes_while_it_is_read_stops_the_stage(finished, tmp_path, monkeypatch):
    for split in ('train', 'validation', 'test'):
        shutil.copy(finished.raw / f'{split}.tsv', tmp_path)
    loaded = config.load(finished.config, [f'data.folder={tmp_path}'])
    prepare = text_job.run

    def slow(*args):
        made = prepare(*args)
        with open(tmp_path / 'train.tsv', 'a') as file:
            file.write('one\teins\tshort\n')
        return made
    monkeypatch.setattr(text_job, 'run', slow)
    pipeline = Pipeline(loaded, str(tmp_path / 'root'), [])
    with pytest.raises(UserError, match=r'train\.tsv changed while it was read\. Run `python -m pipelines\.prepare'):
        pipeline.run(stage.get('prepare'))
    assert not pipeline.metadata.completed('prepare')


def test_made_samples_lead_to_the_source_that_made_them(tmp_path, capsys):
    root, examples = tmp_path / 'root', tmp_path / 'root' / 'prepare' / '1' / 'examples'
    (examples / 'raw').mkdir(parents=True)
    (examples / 'raw' / 'train.tsv').write_text('one\teins\n')
    raw = raw_files.run([str(examples / 'raw')], str(examples), [])
    store = metadata.Metadata(str(root / 'metadata.sqlite'), 'made')
    values = {'seed': 1, 'data': {'samples': 'cldr'}}
    execution = store.begin('prepare', 'f', 'c0ffee' * 8, yaml.safe_dump(values))
    store.publish(execution, [], {'examples': ('Examples', str(examples), 'd')}, {'raw': raw, 'counts': {}})
    digest = hashlib.sha256(b'one\teins\n').hexdigest()
    assert 'as raw/train.tsv' in printed(capsys, '--raw', digest, '--pipeline_root', root)
    from rich.tree import Tree
    tree = Tree('')
    lineage._add_raw_files(tree, store.executions('examples')[0], str(root))
    said = tree.children[0].label
    assert 'generated by source c0ffeec0ffee for data.samples cldr, with the seed in that source' in said


def test_the_commit_is_of_this_source_or_nobodys(tmp_path):
    """A copy in another project's repository is not of its commits."""
    if head():
        assert re.fullmatch(f'{head()}( with changes)?', artifacts.commit())
    theirs = tmp_path / 'theirs'
    (theirs / 'pipelines' / 'core').mkdir(parents=True)
    copy = shutil.copy(artifacts.__file__, theirs / 'pipelines' / 'core')

    def commit():
        spec = importlib.util.spec_from_file_location('copied', copy)
        copied = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, 'copied', copied)
            spec.loader.exec_module(copied)
            return copied.commit()

    def git(*words):
        subprocess.run(['git', '-C', theirs, '-c', 'user.name=a', '-c', 'user.email=a@b', *words], check=True,
                       capture_output=True)
    assert commit() == ''
    (theirs / 'theirs.txt').write_text('a project')
    git('init')
    git('add', 'theirs.txt')
    git('commit', '-m', 'theirs')
    assert commit() == ''
    git('add', 'pipelines')
    git('commit', '-m', 'ours')
    clean = commit()
    assert re.fullmatch('[0-9a-f]{40}', clean)
    (theirs / 'pipelines' / 'new.py').write_text('')
    assert commit() == f'{clean} with changes'
