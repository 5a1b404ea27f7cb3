"""Infra validation of real SavedModels: only models that a server can load and query pass."""
import os

import pytest
import tensorflow as tf

from pipelines import export, infra_validate
from pipelines.core import artifacts, metadata, stores
from pipelines.core.stage import Context


class Scorer(tf.Module):
    """Answers each text with itself and a score, which `score` makes of float32 [n] lengths."""

    def __init__(self, score):
        super().__init__()
        self.score = score

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text')])
    def serve(self, text):
        return {'text': text, 'score': self.score(tf.cast(tf.strings.length(text), tf.float32))}


def save(folder, score, requests=('a', 'bc', 'def')):
    """A model with its warm-up requests. Returns its path."""
    module, path = Scorer(score), os.path.join(folder, export.FORMAT)
    tf.saved_model.save(module, path, signatures={'serving_default': module.serve})
    os.makedirs(os.path.join(path, 'assets.extra'), exist_ok=True)
    export.write_warmup(path, 'scorer', [{'text': request} for request in requests])
    return path


def test_every_request_is_played(tmp_path):
    assert infra_validate.serve_warmup(save(str(tmp_path), tf.identity)) == 3


@pytest.mark.parametrize('score, words', [
    pytest.param(lambda x: x * float('nan'), 'score is not finite', id='always NaN'),
    pytest.param(lambda x: tf.sqrt(2.5 - x), 'score is not finite', id='NaN for the last request'),
    pytest.param(lambda x: 1 / (3 - x), 'score is not finite', id='infinite for the last request'),
    pytest.param(lambda x: tf.repeat(x, 2), r'score has shape \[2\].* each of the 1', id='two answers'),
    pytest.param(lambda x: x[1:], r'score has shape \[0\].* each of the 1', id='no answer'),
    pytest.param(tf.reduce_mean, r'score has shape \[\].* each of the 1', id='one answer to all')])
def test_answers_no_server_should_give(tmp_path, score, words):
    with pytest.raises(ValueError, match=words):
        infra_validate.serve_warmup(save(str(tmp_path), score))


def test_a_model_nobody_asks_is_not_known_to_answer(tmp_path):
    with pytest.raises(ValueError, match='it has no warm-up requests'):
        infra_validate.serve_warmup(save(str(tmp_path), tf.identity, requests=()))
    os.remove(tmp_path / export.FORMAT / export.WARMUP)
    with pytest.raises(tf.errors.NotFoundError, match='tf_serving_warmup_requests'):
        infra_validate.serve_warmup(str(tmp_path / export.FORMAT))


def test_a_model_that_answers_nan_gets_no_blessing(tmp_path, capsys):
    """Through the stage: the fresh process, the verdict's file, what is recorded, and what the user reads."""
    folder, blessing = tmp_path / 'root' / 'export' / '1' / 'model', tmp_path / 'blessing'
    save(str(folder), lambda x: tf.sqrt(2.5 - x))
    store = metadata.Metadata(str(tmp_path / 'root' / stores.FILE), 'scorer')
    digest = artifacts.digest(str(folder))
    store.publish(store.begin('export', 'f', 's', 'c'), [], {'model': ('Model', str(folder), digest)}, {})
    settings = type('Config', (), {'infra_validate': type('Section', (), {'max_seconds': 300.0})})
    context = Context(settings, {'model': artifacts.Artifact(1, 'Model', str(folder), digest, {})},
                      {'infra_blessing': str(blessing)}, [], {}, None)
    infra_validate.execute(context)
    assert os.listdir(blessing) == ['INFRA_NOT_BLESSED']
    reason = (blessing / 'INFRA_NOT_BLESSED').read_text()
    assert 'could not serve it' in reason and 'score is not finite' in reason
    assert context.properties == {'infra_blessed': False, 'reason': reason}
    assert f'INFRA_NOT_BLESSED: {reason}' in capsys.readouterr().out
