"""The signature `explore` of an exported translation model: alternatives, subwords, and attention."""
import numpy as np
import tensorflow as tf

from data_prep.text import subwords
from keras_models import transformer
from keras_models.text.translator import Inference, Translation

LINES = ['ab cd', 'a bc dd ab', 'dcb']


def test_a_saved_model_tells_its_alternatives_and_where_it_looked(tmp_path):
    vocabulary = subwords.learn([*LINES, 'd c b a', 'ab ab cd'], subwords.Config(vocab_size=16))
    config = transformer.Config(vocab_size=16, N=1, d_model=8, d_ff=16, h=2)
    nets = transformer.build(config)
    draw = np.random.default_rng(5)
    for weight in nets['transformer'].weights:
        weight.assign(weight + draw.normal(0, 0.35, weight.shape))
    module = Translation(nets, config, Inference(beam_size=3, extra_length=4), subwords.Tokenizer(vocabulary))
    tf.saved_model.save(module, str(tmp_path), signatures=module.signatures())
    model = tf.saved_model.load(str(tmp_path))
    text = tf.constant([*LINES, ''])
    served = model.signatures['serving_default'](text=text)
    found = {name: value.numpy() for name, value in model.signatures['explore'](text=text).items()}
    np.testing.assert_array_equal(found['alternatives'][:, 0], served['text'])
    np.testing.assert_allclose(found['scores'][:, 0], served['score'], atol=1e-4)
    assert not found['alternatives'][3].any()  # of an empty line there is nothing to say
    for row, line in enumerate(LINES):
        assert b''.join(found['source'][row]).decode().strip() == line
        assert b''.join(found['target'][row]).strip() == served['text'].numpy()[row]
        length = np.count_nonzero(found['source'][row]) + 1  # and the end of the sentence
        weights = found['attention'][row, :max(1, np.count_nonzero(found['target'][row]))]
        np.testing.assert_allclose(weights[:, :length].sum(-1), 1, atol=1e-5)
