"""The push stage: its gate, its outputs, and the commands that list and roll back."""
import json
import os
import pathlib
import re
import shutil
import time
import types

import pytest

from data_prep import UserError
from pipelines import push
from pipelines.core import artifacts, sections, stage
from pipelines.release import canary
from pipelines.serving import kit as serving_kit
from pipelines.serving import labels, published, pusher
from support.tiny_text_model import WARMUP, answer, assert_whole, push_all, served

ROOT = str(pathlib.Path(__file__).parents[2])
BLESSINGS = {'blessing': ('BLESSED', 'NOT_BLESSED'), 'infra_blessing': ('INFRA_BLESSED', 'INFRA_NOT_BLESSED')}


def context(tmp_path, model, model_blessed='blessed', infra_blessed='blessed'):
    """A stage context with real folders; each blessing is 'blessed', 'not' or 'absent'."""
    inputs, folder = {}, tmp_path / 'inputs'
    shutil.copytree(model, folder / 'model' / 'Format-Serving')
    for key, state in {'blessing': model_blessed, 'infra_blessing': infra_blessed}.items():
        (folder / key).mkdir()
        if state != 'absent':
            marker = folder / key / BLESSINGS[key][state == 'not']
            marker.write_text(f'{key}: 3 is below 10.\n{key}: no answer\n')
    kinds = {'model': 'Model', 'blessing': 'ModelBlessing', 'infra_blessing': 'InfraBlessing'}
    for number, (key, kind) in enumerate(kinds.items(), 7):
        uri = str(folder / key)
        inputs[key] = artifacts.Artifact(number, kind, uri, artifacts.digest(uri), {})
    output = tmp_path / 'pushed_model'
    output.mkdir()
    config = types.SimpleNamespace(name='shouter', push=sections.PushConfig())
    pipeline = types.SimpleNamespace(root=str(tmp_path), command=lambda name: f'python -m pipelines.{name}',
                                     destination=config.push.folder(str(tmp_path), config.name))
    return stage.Context(config, inputs, {'pushed_model': str(output)}, [], {}, pipeline)


@pytest.mark.parametrize('infra', ['blessed', 'not', 'absent'])
@pytest.mark.parametrize('model', ['blessed', 'not', 'absent'])
def test_only_both_blessings_push(models, tmp_path, destination, model, infra):
    work = context(tmp_path, models['!'], model, infra)
    if model == infra == 'blessed':
        push.execute(work)
        assert len(os.listdir(destination)) == 1
        return
    with pytest.raises(UserError) as error:
        push.execute(work)
    assert not os.path.exists(destination) and not os.listdir(work.outputs['pushed_model'])
    message = str(error.value)
    assert message.startswith('not pushed: ') and '\n' not in message
    for key, state in {'blessing': model, 'infra_blessing': infra}.items():
        assert (f'({key}: 3 is below 10, {key}: no answer)' in message) == (state == 'not')
        assert (f'neither {BLESSINGS[key][0]} nor {BLESSINGS[key][1]}' in message) == (state == 'absent')


def test_two_contradicting_blessings_do_not_push(models, tmp_path, destination):
    work = context(tmp_path, models['!'], 'not')
    with open(os.path.join(work.inputs['blessing'].uri, 'BLESSED'), 'w'):
        pass
    with pytest.raises(UserError, match='though BLESSED is there too'):
        push.execute(work)
    assert not os.path.exists(destination)


def test_a_model_that_was_rolled_back_can_be_pushed_again(models, tmp_path, destination):
    push_all(models, destination, '?')
    work = context(tmp_path, models['!'])
    push.execute(work)
    assert answer(pusher.rollback(destination)) == 'hi?'
    push.execute(work)
    assert answer(served(destination)) == 'hi!' and answer(pusher.rollback(destination)) == 'hi?'


@pytest.mark.parametrize('key, file', [('model', 'Format-Serving/saved_model.pb'), ('blessing', 'BLESSED')])
def test_what_changed_after_the_blessing_is_not_pushed(models, tmp_path, destination, key, file):
    work = context(tmp_path, models['!'])
    with open(os.path.join(work.inputs[key].uri, file), 'ab') as stream:
        stream.write(b'\n')
    with pytest.raises(UserError, match=f'not pushed: .*/{key} was changed'):
        push.execute(work)
    assert not os.path.exists(destination)


def test_push_writes_version_lineage_kit_and_output(models, tmp_path, destination, capsys):
    work, before = context(tmp_path, models['!']), int(time.time())
    push.execute(work)
    version = served(destination)
    assert_whole(version)
    assert answer(version) == 'hi!' and os.path.exists(os.path.join(version, WARMUP))
    assert before <= int(os.path.basename(version)) <= time.time()
    record = published.verify(version)
    assert record['lineage'] == {'pipeline': 'shouter', 'artifacts': {
        key: {'id': artifact.id, 'digest': artifact.digest} for key, artifact in work.inputs.items()}}
    pushed = {'destination': destination, 'version': int(os.path.basename(version)), 'path': version, 'formats': []}
    with open(os.path.join(work.outputs['pushed_model'], 'pushed_model.json'), encoding='utf-8') as file:
        assert json.load(file) == work.properties == pushed
    assert version in capsys.readouterr().out
    assert set(os.listdir(f'{destination}.kit')) == {
        'README.md', labels.FILE, serving_kit.MONITORING, serving_kit.BATCHING, *serving_kit.ASKED['text'][2]}


def test_push_is_current_until_another_model_is_pushed(models, tmp_path, destination, capsys):
    push_all(models, destination, '.')
    work = context(tmp_path, models['!'])
    push.execute(work)
    outputs = {'pushed_model': artifacts.Artifact(1, 'PushedModel', 'runs/x/push/1/pushed_model', '', work.properties)}
    capsys.readouterr()
    assert push.is_up_to_date(outputs) and not capsys.readouterr().out
    pusher.rollback(destination)
    assert push.is_up_to_date(outputs)
    assert re.fullmatch(rf'push: version {work.properties["version"]} was rolled back and stays so .*\. Remove '
                        r'runs/x/push/1/pushed_model to push it again\.\n', capsys.readouterr().out)
    push_all(models, destination, '?')
    assert not push.is_up_to_date(outputs)
    shutil.rmtree(destination)
    assert not push.is_up_to_date(outputs)


def test_a_kit_that_cannot_be_written_does_not_stop_the_push(models, tmp_path, destination, capsys):
    os.makedirs(os.path.dirname(destination))
    with open(f'{destination}.kit', 'w'):
        pass
    push.execute(context(tmp_path, models['!']))
    assert_whole(served(destination))
    assert 'the serving kit could not be written' in capsys.readouterr().out


def test_a_canary_needs_both_blessings_and_keeps_its_label(models, tmp_path, destination, capsys):
    [first] = push_all(models, destination, '?')
    work = context(tmp_path, models['!'], infra_blessed='not')
    work.outputs['canary'] = work.outputs.pop('pushed_model')
    with pytest.raises(UserError, match='not pushed: the model is not blessed by infra validation'):
        canary.execute(work)
    work = context(tmp_path / 'again', models['!'])
    work.outputs['canary'] = work.outputs.pop('pushed_model')
    work.pipeline.destination = destination
    canary.execute(work)
    assert served(destination) == first and answer(work.properties['path']) == 'hi!'
    assert '`python -m pipelines.push --promote` compares it with the served version.' in capsys.readouterr().out
    outputs = {'canary': artifacts.Artifact(1, 'PushedModel', 'runs/x', '', work.properties)}
    assert canary.is_up_to_date(outputs)
    command(destination, '--list')
    assert re.search(r'whole, serving loads this one\n.*whole, canary\n$', capsys.readouterr().out)
    labels.write(destination, 'shouter', canary=0)
    assert not canary.is_up_to_date(outputs)


def command(destination, *flags):
    push.main([*flags, '--set', f'push.destination={destination}'])


def test_list_and_rollback_commands(models, destination, capsys):
    first, second = push_all(models, destination, '!?')
    command(destination, '--rollback')
    assert capsys.readouterr().out.splitlines() == [
        f'push: {served(destination)} is served now, with the files of version {os.path.basename(first)} '
        f'instead of those of {os.path.basename(second)}.']
    command(destination, '--list')
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == f'{destination} holds 3 versions, newest first:'
    numbers = [os.path.basename(path) for path in (served(destination), second, first)]
    assert [line.split()[0] for line in lines] == numbers
    assert all(re.search(r'  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00  .*whole', line) for line in lines)
    assert [line.endswith('serving loads this one') for line in lines] == [True, False, False]
    assert f'rollback from {numbers[1]} to {numbers[2]}' in lines[0]
    assert all('  shouter  model 000000000021  ' in line for line in (lines[0], lines[2]))
    assert '  shouter  model 00000000003f  ' in lines[1]


@pytest.mark.parametrize('override, words', [
    ('push.destinations=x', 'unknown key push.destinations. Did you mean push.destination?'),
    ('pushed.destination=x', 'unknown key pushed. Did you mean push?'), ('push.destination=5', 'must be str; it is 5'),
    ('name=a/b', 'name must be usable as a folder name')])
def test_a_misspelt_key_does_not_list_another_folder(override, words, capsys):
    with pytest.raises(SystemExit):
        push.main(['--list', '--set', override])
    assert words in capsys.readouterr().err


def test_labels_follow_pushes_and_rollbacks(models, destination, capsys):
    """The label `stable` is ours; others stay as long as their versions exist."""
    first, second = push_all(models, destination, '!?')
    labels.write(destination, 'shouter')
    old, new = int(os.path.basename(first)), int(os.path.basename(second))
    assert labels.read(destination) == {'stable': new}
    with open(labels.path_of(destination)) as file:
        text = file.read()
    with open(labels.path_of(destination), 'w') as file:
        file.write(text.replace('  }\n}', f'    version_labels {{ key: "mine" value: {old} }}\n'
                                f'    version_labels {{ key: "gone" value: 7 }}\n  }}\n}}'))
    assert labels.read(destination) == {'stable': new, 'mine': old, 'gone': 7}
    command(destination, '--rollback')
    assert labels.read(destination) == {'stable': int(os.path.basename(served(destination))), 'mine': old}
    with open(labels.path_of(destination), 'w') as file:
        file.write('model_config_list {')
    with pytest.raises(SystemExit):
        command(destination, '--rollback')
    assert 'models.config cannot be read (' in capsys.readouterr().err and len(published.versions(destination)) == 3


def test_list_names_damage(models, destination, capsys):
    [path] = push_all(models, destination, '!')
    os.remove(os.path.join(path, 'fingerprint.pb'))
    command(destination, '--list')
    assert 'damaged: fingerprint.pb is missing, serving loads' in capsys.readouterr().out


@pytest.mark.parametrize('flag, sentence', [('--list', 'Nothing has been pushed'),
                                            ('--rollback', 'There is nothing to roll back'),
                                            ('--promote', '[^ ]* has no canary. Run `.*--canary` first')])
def test_commands_on_an_empty_destination(destination, capsys, flag, sentence):
    with pytest.raises(SystemExit) as leave:
        command(destination, flag)
    assert leave.value.code == 2
    said = capsys.readouterr().err
    assert re.fullmatch(f'error: {sentence}.*\n', said) and destination in said
