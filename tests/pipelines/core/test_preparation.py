"""A model and data whose people were prepared by different rules are refused by name, with exit code 2."""
import json
import types

import pytest

from data_prep import UserError
from keras_models.viton import try_on
from pipelines import evaluate, import_weights, predict
from pipelines.core import compatibility
from pipelines.core import config as configs
from pipelines.serving import saved_model
from pipelines.training import checkpoints, trainer

OFFICIAL = {'agnostic': 'official'}
REFUSED = r'was trained with data\.agnostic: official, but this data has paper\. '


def test_data_made_the_same_way_or_of_another_task_pass():
    for trained, data in ((OFFICIAL, OFFICIAL), ({'agnostic': 'paper'}, {'agnostic': 'paper'}), ({}, OFFICIAL),
                          ({'agnostic': None}, OFFICIAL), (OFFICIAL, {})):
        compatibility.check('it', trained, types.SimpleNamespace(**data))


def weights(folder, said):
    folder.mkdir()
    (folder / 'weights.index').touch()
    (folder / 'weights.json').write_text(json.dumps(said))
    return str(folder)


def test_training_refuses_weights_of_people_prepared_otherwise(tmp_path):
    """Before it reads them."""
    config = configs.load('demo_tryon', [f'train.init_from={weights(tmp_path / "theirs", OFFICIAL)}'])
    trained = types.SimpleNamespace(config=config, model=try_on, vocabulary=None, nets={}, optimizers={})
    with pytest.raises(UserError, match=rf'^train\.init_from: .*theirs.* {REFUSED}Give --set data\.agnostic=official'):
        trainer._initial_weights(trained)
    # Made as they are, they are read, and this is no checkpoint.
    trained.config = configs.load('demo_tryon', [f'train.init_from={tmp_path / "theirs"}', 'data.agnostic=official'])
    with pytest.raises(Exception, match='(?s)^(?!.*was trained on people)'):
        trainer._initial_weights(trained)


def test_weights_of_the_authors_say_by_whose_rules(tmp_path, monkeypatch):
    monkeypatch.setattr(import_weights, '_take_over', lambda module, net, path: None)
    monkeypatch.setattr(checkpoints, 'save', lambda nets, path: None)
    paths = [tmp_path / f'{net}.pth' for net in ('seg', 'gmm', 'alias')]
    for path in paths:
        path.touch()
    import_weights.run('viton_hd', list(map(str, paths)), str(tmp_path / 'out'))
    assert checkpoints.recorded(str(tmp_path / 'out' / 'weights'))['agnostic'] == 'official'


@pytest.mark.parametrize('name, remedy', [('candidate', 'Export it again'),
                                          ('baseline', 'Remove it to skip the comparison with it')])
def test_evaluation_refuses_a_model_of_people_prepared_otherwise(monkeypatch, name, remedy):
    described = {'candidate': {'agnostic': 'paper'}, 'baseline': {'agnostic': 'paper'}, name: OFFICIAL}
    monkeypatch.setattr(saved_model, 'load', lambda folder: types.SimpleNamespace(
        description=described[folder.split('/')[0]]))
    folders = {each: f'{each}/Format-Serving' for each in described}
    with pytest.raises(UserError, match=f'^{name} {REFUSED}{remedy}'):
        evaluate.load(configs.load('demo_tryon'), folders)


def test_prediction_refuses_a_named_model_beside_a_configuration_of_other_people(monkeypatch, capsys):
    """One sentence, no traceback."""
    monkeypatch.setattr(saved_model, 'load', lambda path: types.SimpleNamespace(description=OFFICIAL))
    with pytest.raises(SystemExit) as stopped:
        predict.main(['--model', 'model', '--config', 'demo_tryon', 'pairs.txt'])
    said = capsys.readouterr().err
    assert stopped.value.code == 2 and 'Traceback' not in said
    assert '--model model was trained with data.agnostic: official, but this data has paper. Give' in said


def test_the_configuration_of_the_authors_weights_prepares_and_saves_as_they_do():
    config = configs.load('viton_hd', ['data.folder=none'])
    assert (config.data.agnostic, config.model.preset, config.model.levels) == ('official', 'official', 'truncated')
    assert configs.load('viton_hd_segmentation', ['data.folder=none']).data.agnostic == 'paper'
