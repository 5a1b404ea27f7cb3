"""Networks of a Transformer for other formats, which hold neither its tokenizer nor its beam search."""
from collections.abc import Sequence

import tensorflow as tf
from tensorflow import keras

from keras_models.core.layers import by_name
from keras_models.protocol import Part
from keras_models.transformer import Config, Stacks, source_mask


def networks(nets: dict[str, keras.Model], config: Config, inference, assets) -> dict[str, Part]:
    """Return the encoder, and one step of the decoder with its cache; their arrays are named by layer n.

    `encoder` maps `ids` [B, S], subwords that end in EOS, padded, to the source's `source_keys_n` [B, S, h, d_k] and
    `source_values_n` [B, S, h, d_v].

    `decoder` advances the K hypotheses of every sentence by one position, `step` [1]: it maps `source` (the `ids`
    above) and its keys and values, `last` [B, K], the ids at the position before (BOS at first), and a cache of all
    positions before, `past_keys_n` and `past_values_n` [B * K, step, h, d], to `logits` [B, K, vocab_size] and the
    cache one position longer, `keys_n` and `values_n`. A caller that reorders hypotheses reorders the cache's rows.
    """
    del inference, assets
    stacks = Stacks({layer.name: layer for layer in nets['transformer'].layers}, config)
    variables = tf.Module()
    variables.nets = by_name(nets)  # a module that tracks them
    sizes = {'keys': config.d_k, 'values': config.d_v}

    def encoder(arrays):
        return named('source_', stacks.source_keys_values(stacks.encoder(arrays['ids'])))

    def decoder(arrays):
        rows, mask, longer = tf.size(arrays['last']), source_mask(arrays['source']), []

        def self_attention(n, name, x):
            each = tf.reshape(x, [rows, 1, config.d_model])  # every hypothesis has its own positions
            pairs = zip((arrays[f'past_keys_{n}'], arrays[f'past_values_{n}']), stacks.keys_values(name, each))
            longer.append([tf.concat(pair, 1) for pair in pairs])
            return tf.reshape(stacks.multi_head(name, each, *longer[n], tf.constant(True)), tf.shape(x))

        def source_attention(n, name, x):
            return stacks.multi_head(name, x, arrays[f'source_keys_{n}'], arrays[f'source_values_{n}'], mask)
        y = stacks.decoder(stacks.embed('decoder', arrays['last'], arrays['step']), self_attention, source_attention)
        return {'logits': stacks.layers['embedding'](y, to='logits'), **named('', longer)}

    def named(prefix: str, layers: Sequence) -> dict[str, tf.Tensor]:
        return {f'{prefix}{kind}_{n}': array for n, pair in enumerate(layers) for kind, array in zip(sizes, pair)}

    def part(function, *signature: tf.TensorSpec) -> Part:
        def of_arrays(*values):
            return function({each.name: value for each, value in zip(signature, values)})
        return Part(tf.function(of_arrays, signature, autograph=False), variables)
    ids = {name: tf.TensorSpec([None, None], tf.int32, name) for name in ('ids', 'last', 'source')}
    arrays = [tf.TensorSpec([None, None, config.h, size], tf.float32, f'{prefix}{kind}_{n}')
              for prefix in ('source_', 'past_') for n in range(config.N) for kind, size in sizes.items()]
    return {'encoder': part(encoder, ids['ids']),
            'decoder': part(decoder, ids['last'], tf.TensorSpec([1], tf.int32, 'step'), ids['source'], *arrays)}
