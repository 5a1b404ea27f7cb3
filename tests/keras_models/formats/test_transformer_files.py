"""A Transformer's encoder and decoder step as files, and the beam search of NumPy over them, give our translations."""
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_models import transformer
from keras_models.formats import onnx_file, tflite_file
from keras_models.text import portable, translator
from keras_models.text.translator import Inference
from keras_models.transformer import BOS, PAD, Config
from pipelines.serving.kit import networks, search
from support.copier import BASE, batch, sentences

CONVERTERS = {'tflite': tflite_file.convert, 'onnx': onnx_file.convert}
VARIANTS = {'post, sinusoids': {'N': 2}, 'pre, learned positions that end, d_k > d_v': {
    'norm': 'pre', 'positions': 'learned', 'max_positions': 6, 'd_k': 11, 'd_v': 7}}


@pytest.fixture(scope='module', params=[
    pytest.param(changes, id=name, marks=() if 'post' in name else pytest.mark.slow)  # another net to train, 12 s
    for name, changes in VARIANTS.items()])
def model(request, trained_copier, tmp_path_factory):
    """Trained nets, their configuration, and a folder of files by format."""
    c = Config(**{**BASE, **request.param})
    nets = trained_copier(c)
    folder = tmp_path_factory.mktemp('files')
    for name, convert in CONVERTERS.items():
        (folder / name).mkdir()
        for part, each in portable.networks(nets, c, Inference(), None).items():
            (folder / name / f'{part}.{name}').write_bytes(convert(each))
    return nets, c, folder


@pytest.mark.parametrize('name', CONVERTERS)
@pytest.mark.parametrize('beam_size, alpha, extra_length', [(1, 0.0, 8), (4, 0.6, 8), (4, 0.6, 0)])
def test_translations_are_ours_token_for_token(model, name, beam_size, alpha, extra_length):
    nets, c, folder = model
    inference = Inference(beam_size, alpha, extra_length, max_input_length=32)
    source = sentences(60, 7)
    found = search.Search(folder / name, dataclasses.asdict(inference))([row[:-1] for row in source])
    ids, scores = translator.Translator(nets, c, inference)(batch(source, 10))
    for ours, score, [(answer, their_score)] in zip(ids.numpy().tolist(), scores.numpy(), found):
        assert answer == [i for i in ours if i != PAD]
        assert their_score == pytest.approx(score, abs=1e-4)


def test_all_hypotheses_are_ours_token_for_token(model):
    nets, c, folder = model
    inference = Inference(4, 0.6, 8, max_input_length=32, prefer_well_formed=True)
    source = sentences(60, 7)
    found = search.Search(folder / 'tflite', dataclasses.asdict(inference))([row[:-1] for row in source])
    ids, scores = translator.Translator(nets, c, inference).hypotheses(batch(source, 10))
    for ours, score, those in zip(ids.numpy().tolist(), scores.numpy(), found):
        there = np.isfinite(score)
        assert [answer for answer, _ in those] == [[i for i in row if i != PAD] for row, is_one in zip(ours, there)
                                                   if is_one]
        np.testing.assert_allclose([each for _, each in those], score[there], atol=1e-4)
    assert min(map(len, found)) < 4 and sum(map(len, found)) > 150


@pytest.mark.parametrize('name', CONVERTERS)
def test_a_step_is_a_position_of_the_teacher_forced_net(model, name):
    """For several sentences, one of which is padded, and two hypotheses of each."""
    nets, c, folder = model
    found, source = networks.load(folder / name), batch(sentences(3, 5), 10).numpy()
    targets = np.random.default_rng(0).integers(4, c.vocab_size, (3, 2, 5)).astype(np.int32)
    before = np.concatenate([np.full([3, 2, 1], BOS, np.int32), targets[..., :-1]], -1)
    encoded = found['encoder'](ids=source)
    cache = {each.replace('source', 'past'): np.zeros([6, 0, *array.shape[2:]], np.float32)
             for each, array in encoded.items()}
    for step in range(5):
        given = {'last': before[..., step], 'step': np.array([step], np.int32), 'source': source}
        longer = found['decoder'](**given, **encoded, **cache)
        logits = longer.pop('logits')
        cache = {f'past_{name}': each for name, each in longer.items()}
        for k in range(2):
            whole = nets['transformer']([source, targets[:, k], tf.zeros([2], tf.int32)])
            assert np.allclose(logits[:, k], whole[:, step], atol=1e-4)


def test_smaller_weights_change_little(tmp_path):
    """Differences as a share of the largest value, of a net whose matrices are not too small for 8 bits."""
    c = Config(vocab_size=300, N=1, d_model=64, d_ff=256, h=2)
    part = portable.networks(transformer.build(c), c, Inference(), None)['encoder']
    files, found = {}, {}
    source = np.random.default_rng(0).integers(4, 300, (20, 9)).astype(np.int32)
    for weights in ('float32', 'float16', 'int8'):
        files[weights] = tmp_path / f'{weights}.tflite'
        files[weights].write_bytes(tflite_file.convert(part, weights))
        found[weights] = networks.network(files[weights])(ids=source)
    for weights, smaller, bound in (('float16', 0.6, 3e-3), ('int8', 0.35, 0.05)):
        assert files[weights].stat().st_size < smaller * files['float32'].stat().st_size
        for name, expected in found['float32'].items():
            assert 0 < np.abs(found[weights][name] - expected).max() < bound * np.abs(expected).max()
