"""The shipped configurations: their names and run cards, and keys and paths by their old names."""
import dataclasses

import pytest

from data_prep import UserError
from keras_models import vgg
from pipelines import run
from pipelines.core import config, renamed, roles, shipped
from support.commands import ROOT


@pytest.fixture(autouse=True)
def unreported():
    """A note is printed once in a process."""
    renamed._report.cache_clear()


def test_every_file_has_a_name_of_its_own():
    files = [path for path in (ROOT / 'configs').rglob('*.yaml') if 'reproduce' not in path.parts]
    assert sorted(shipped.paths().values()) == sorted(files) and len(files) > 40
    assert {path.parent.name for path in files} == {'demo', 'images', 'parsing', 'play', 'translation', 'tryon'}


@pytest.mark.parametrize('path', ['vgg_a_imagenet', 'vgg_a_imagenet.yaml', 'images/vgg_a_imagenet',
                                  'configs/images/vgg_a_imagenet.yaml'])
def test_a_configuration_is_found_from_any_folder(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert config.load(path).source == str(ROOT / 'configs' / 'images' / 'vgg_a_imagenet.yaml')
    assert not capsys.readouterr().err


def test_an_old_path_works_and_names_the_new(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert config.load('configs/wsj_parsing.yaml').name == 'wsj_parsing'
    assert capsys.readouterr().err == ('note: configs/wsj_parsing.yaml is now configs/parsing/wsj_parsing.yaml, or '
                                       'wsj_parsing for short; the old path works in this version.\n')


@pytest.mark.parametrize('path, near', [('demo_translatoin', 'demo_translation'), ('tryon/vgg_a_imagenet',
                                                                                  'vgg_a_imagenet')])
def test_a_misspelt_name_gets_the_nearest(path, near):
    with pytest.raises(UserError, match=rf'no configuration .{path}.\. Did you mean {near}\? .*run --list'):
        config.load(path)


def test_the_list_has_task_data_time_and_figure_of_each(capsys):
    run.main(['--list'])
    said = capsys.readouterr().out
    for name, path in shipped.paths().items():
        own = said[said.index(f'  {name}\n'):]
        task = said[:said.index(f'  {name}\n')].rstrip('\n').rsplit('\n\n', 1)[-1].split('\n')[0]
        assert task == path.parent.name
        assert own.index('data: ') < own.index('time: ') < own.index('figure (')
    assert 'figure (measured): sacreBLEU 97.5' in said
    assert 'figure (not run in full by us): the paper\'s 27.3 BLEU' in said
    assert max(map(len, shipped.listing(60).splitlines())) <= 70  # but for names longer than a line


def test_a_figure_that_is_the_papers_was_not_run():
    """And says so in the card."""
    cards = {name: shipped.card(path) for name, path in shipped.paths().items()}
    assert all({*shipped.PARTS} <= card.keys() and card['title'] for card in cards.values())
    papers = {name for name, card in cards.items() if card['expect'].startswith('the paper\'s')}
    assert len(papers) > 15 and not any(shipped.is_measured(cards[name]) for name in papers)
    assert shipped.is_measured(cards['demo_translation']) and shipped.is_measured(cards['prelu_cifar10'])


PICTURES = 'extends: vgg_a_tiny_imagenet\n'


@pytest.mark.parametrize('old, new, value', [
    ('input.deviation', 'input.standardise', False), ('model.watch', 'model.monitor', 'loss'),
    ('model.drops', 'model.max_drops', 0), ('model.decay', 'model.weight_decay', 0.25),
    ('model.deviation', 'model.stddev', 0.5), ('model.learn', 'model.trainable_networks', ['alias'])])
@pytest.mark.parametrize('where', ['file', 'flag'])
def test_an_old_key_works_and_names_the_new(old, new, value, where, tmp_path, capsys):
    """Also over the new one of the file it extends."""
    path = tmp_path / 'mine.yaml'
    parent = 'extends: demo_tryon\n' if 'learn' in old else PICTURES
    section, key = old.split('.')
    path.write_text(parent + (where == 'file') * f'{section}: {{{key}: {value}}}\n'.replace('False', 'false'))
    loaded = config.load(str(path), [f'{old}={value}'.replace('False', 'false')] if where == 'flag' else [])
    assert getattr(getattr(loaded, section), new.split('.')[1]) == value
    note = f'note: {path}: {old} is now called {new}; the old name works in this version.\n'
    assert capsys.readouterr().err == note
    config.load(str(path), [f'{old}={value}'.replace('False', 'false')] if where == 'flag' else [])
    assert not capsys.readouterr().err  # once is enough


def test_blanks_around_an_old_key_mean_nothing(capsys):
    assert config.load('vgg_a_tiny_imagenet', ['model.drops = 0']).model.max_drops == 0
    assert 'model.drops is now called model.max_drops' in capsys.readouterr().err


def test_both_names_at_once_are_refused(tmp_path):
    path = tmp_path / 'mine.yaml'
    path.write_text(f'{PICTURES}model: {{drops: 1, max_drops: 2}}\n')
    with pytest.raises(UserError, match=r'mine.yaml: model\.drops is the old name of model\.max_drops, .*Keep '):
        config.load(str(path))


def test_a_key_of_ones_own_module_may_have_an_old_name(capsys):
    """`model.drops` of a paper that has it, and no `max_drops`, is left alone."""
    own = dataclasses.make_dataclass('Config', [('drops', int, 1)])
    raw = {'model': {'max_drops': 5}}
    renamed.settle(raw, {'model.drops'}, {'model': own}, 'mine.yaml')
    assert raw == {'model': {'drops': 5}} and not capsys.readouterr().err


def test_old_attributes_of_a_module_are_refused(monkeypatch):
    monkeypatch.setattr(vgg, 'INSTEAD', {'train': 'educate'}, raising=False)
    with pytest.raises(UserError, match='keras_models.vgg has INSTEAD, which was renamed to STAGE_OVERRIDES. Rename'):
        roles.model('keras_models.vgg')


def test_a_path_outside_is_nobodys():
    assert shipped.find('../configs/images/vgg_a_imagenet.yaml') == ('', '')
    assert shipped.find('/configs/vgg_a_imagenet.yaml') == ('', '')
