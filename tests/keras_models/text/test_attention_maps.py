"""Attention plots show the weights the net computes with."""
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from data_prep import UserError
from keras_models import transformer
from keras_models.text import attention_maps
from pipelines import attention as command
from pipelines.core import config, pipeline
from pipelines.reporting import attention
from support.text_data import LEARNED

CONFIG = transformer.Config(vocab_size=50, N=2, d_model=16, d_ff=32, h=4)
INPUTS, TARGETS = np.array([[5, 6, 7, 2]], np.int32), np.array([[8, 9, 2]], np.int32)


def test_weights_are_distributions_over_what_may_be_seen():
    tf.keras.utils.set_random_seed(0)
    found = attention_maps.attention_weights(transformer.build(CONFIG), CONFIG, INPUTS, TARGETS)
    kinds = {'encoder': ['self_attention'], 'decoder': ['self_attention', 'source_attention']}
    assert [*found] == [f'{stack}/{n}/{kind}' for stack in kinds for n in range(2) for kind in kinds[stack]]
    for name, weights in found.items():
        queries, keys = (3 if name.startswith('decoder') else 4), (3 if name.startswith('decoder/0/self') or
                                                                   name.startswith('decoder/1/self') else 4)
        assert weights.shape == [4, queries, keys], name
        np.testing.assert_allclose(tf.reduce_sum(weights, -1), 1, atol=1e-6)
    causal = found['decoder/1/self_attention'].numpy()
    assert (causal[:, np.triu_indices(3, 1)[0], np.triu_indices(3, 1)[1]] == 0).all()


def test_a_weight_that_is_all_of_a_row_is_the_value_that_comes_out():
    """Multiply one layer's source attention by V and W_O: that is what the layer gives."""
    tf.keras.utils.set_random_seed(0)
    nets = transformer.build(CONFIG)
    stacks = transformer.Stacks({layer.name: layer for layer in nets['transformer'].layers}, CONFIG)
    name, pos = 'encoder/0/self_attention', tf.range(4)
    x = stacks.embed('encoder', INPUTS, pos)
    k, v = stacks.keys_values(name, x)
    given = stacks.multi_head(name, x, k, v, transformer.source_mask(INPUTS))
    weights = attention_maps.attention_weights(nets, CONFIG, INPUTS, TARGETS)[name]
    heads = tf.einsum('hlm,bmhv->blhv', weights, v)
    np.testing.assert_allclose(stacks.layers[f'{name}/W_O'](heads), given, atol=1e-6)


def test_the_page_has_every_layer_and_the_pictures_are_beside_it(config_file, translator_root, tmp_path):
    resolved = config.load(config_file, LEARNED)
    made = pipeline.Pipeline(resolved, shutil.copytree(translator_root, str(tmp_path / 'runs')), [])
    looked = attention.look(made, 'a1 b2 c3', target='A1 B2')
    weights, source = looked.weights, looked.source
    assert source[-1] == looked.target[-1] == '</s>'
    assert weights['encoder/0/self_attention'].shape[1:] == (len(source),) * 2
    page = attention.write(looked, str(tmp_path / 'page'))
    text, pictures = open(page).read(), sorted(path.name for path in (tmp_path / 'page').glob('*.png'))
    assert len(pictures) == 2 * len(weights) and text.count('<figure') == sum(map(len, weights.values()))
    assert '<h1>a1 b2 c3</h1>' in text and '<p class="paper">A1 B2</p>' in text
    shown = [float(number) for number in re.findall(r'title="([\d.]+)"', text)]
    drawn = np.concatenate([np.ravel(weights[name]) for name in (  # in the order of the page's sections
        f'{stack}/{n}/{part}' for stack, part in attention.KINDS for n in range(resolved.model.N))])
    np.testing.assert_allclose(shown, drawn, atol=0.0051)
    assert all(f'{name.replace("/", "_")}_{kind}.png' in pictures for name in weights for kind in ('lines', 'heads'))
    assert 'http:' not in text and 'https:' not in text and 'viewport' in text
    own = attention.look(made, 'a1 b2 c3')
    assert own.target and isinstance(own.translation, str)
    command.main(['--config', config_file, *(part for step in LEARNED for part in ('--set', step)), '--pipeline_root',
                  str(tmp_path / 'runs'), '--out', str(tmp_path / 'again'), '--target', 'A1 B2', 'a1 b2 c3'])
    assert (tmp_path / 'again' / 'attention.html').read_text() == text
    with pytest.raises(UserError, match='holds no subword of the model'):
        attention.look(made, ' ')
