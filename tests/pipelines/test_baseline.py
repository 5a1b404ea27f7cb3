"""Choice of a candidate's baseline: the newest other blessed model that still exists."""
import shutil

import pytest
import tensorflow as tf

from data_prep import UserError
from pipelines import evaluate
from pipelines.core import artifacts, config, metadata, stores
from pipelines.serving import pusher
from support import tiny_player


class History:
    """A pipeline's metadata with models that were exported and evaluated, the last one newest."""

    def __init__(self, folder):
        self.folder = folder
        self.metadata = metadata.Metadata(str(folder / stores.FILE), 'tiny')

    def model(self, content: str, *verdicts: bool):
        """Exports a model that consists of a text, and evaluates it once a verdict. Returns the model."""
        execution = self.metadata.begin('export', content, 's', 'c')
        uri = self.folder / 'export' / str(execution.id) / 'model'
        uri.mkdir(parents=True)
        (uri / 'saved_model.pb').write_text(content)
        self.metadata.publish(execution, [], {'model': ('Model', str(uri), artifacts.digest(str(uri)))}, {})
        model = self.metadata.completed('export')[0][2]['model']
        for blessed in verdicts:
            self.metadata.publish(self.metadata.begin('evaluate', content, 's', 'c'), [model], {
                'blessing': ('ModelBlessing', f'{uri}/blessing', 'd')}, {'blessed': blessed})
        return model

    def newest(self, candidate):
        found = evaluate.newest_blessed(self, candidate.digest)
        return found and found.uri


@pytest.fixture
def history(tmp_path):
    return History(tmp_path)


def test_without_a_blessing_there_is_none(history):
    assert history.newest(history.model('first')) is None
    history.model('second', False)
    assert history.newest(history.model('third')) is None


def test_it_is_the_newest_that_was_blessed(history):
    history.model('first', True)
    second = history.model('second', True)
    history.model('third', False)
    assert history.newest(history.model('fourth')) == second.uri


def test_a_verdict_is_of_its_own_model(history):
    """The model that was exported last need not be the one that was evaluated last."""
    first = history.model('first')
    candidate = history.model('second')
    history.metadata.publish(history.metadata.begin('evaluate', 'f', 's', 'c'), [first], {
        'blessing': ('ModelBlessing', 'blessing', 'd')}, {'blessed': True})
    assert history.newest(candidate) == first.uri


def test_the_candidate_is_not_compared_with_itself(history):
    """Evaluated again, under other thresholds say, or exported again with the same bytes."""
    first = history.model('first', True)
    candidate = history.model('second', True, True)
    assert history.newest(candidate) == first.uri
    again = history.model('second')
    assert again.digest == candidate.digest and again.uri != candidate.uri
    assert history.newest(again) == first.uri
    alone = history.model('first', True)
    assert history.newest(alone) == candidate.uri


def test_a_blessed_model_that_was_removed_gives_way_to_the_one_before(history):
    first, second = (history.model(name, True) for name in ('first', 'second'))
    candidate = history.model('third')
    assert history.newest(candidate) == second.uri
    shutil.rmtree(second.uri)
    assert history.newest(candidate) == first.uri
    shutil.rmtree(first.uri)
    assert history.newest(candidate) is None


class Older(tf.Module):
    """A model with the signature of a player, and without the function that judges ask."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'position')])
    def serve(self, position):
        return {'move': position}


def test_a_baseline_of_an_earlier_version_is_named_with_what_to_do(tmp_path):
    """Before any example is read: of the split nothing is needed."""
    candidate = pusher.publish(tiny_player.save(str(tmp_path / 'new')), str(tmp_path / 'serving'), {})
    module, saved = Older(), tmp_path / 'old'
    tf.saved_model.save(module, str(saved), signatures={'serving_default': module.serve})
    shutil.copytree(tmp_path / 'new' / 'assets.extra', saved / 'assets.extra')
    baseline = tmp_path / 'baseline' / 'Format-Serving'
    shutil.copytree(pusher.publish(str(saved), str(tmp_path / 'older'), {}), baseline)
    resolved = config.load('learning_machine_nim', ['model.game=nim'])
    with pytest.raises(UserError, match=r'^.*/baseline was exported by an earlier version .*\. Remove it'):
        evaluate.load(resolved, {'candidate': candidate, 'baseline': str(baseline)})
