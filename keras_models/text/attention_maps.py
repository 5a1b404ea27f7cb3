"""Attention weights of every head and layer of a trained Transformer, for a sentence and its translation.

Figures 3 to 5 of Vaswani et al. 2017 draw them.
"""
import tensorflow as tf
from tensorflow import keras

from keras_models.transformer import Config, Stacks


class _Watched(Stacks):
    """Stacks that record attention weights at the point where dropout would apply."""

    def __init__(self, layers: dict[str, keras.layers.Layer], config: Config):
        super().__init__(layers, config)
        self.seen: dict[str, tf.Tensor] = {}

    def _dropout(self, name: str, x):
        kind, _, part = name.rpartition('/')
        if part == 'attention_dropout':
            self.seen[kind] = x
        return x


def attention_weights(nets: dict[str, keras.Model], config: Config, inputs, targets) -> dict[str, tf.Tensor]:
    """Return softmax(Q K^T / sqrt(d_k)) of eq. (1) for every attention.

    Args:
      nets: as returned by `transformer.build`.
      inputs: [1, S] ids ending in EOS.
      targets: [1, T] ids ending in EOS.

    Returns:
      `encoder/<n>/self_attention` [h, S, S], `decoder/<n>/self_attention` [h, T, T] and `decoder/<n>/source_attention`
        [h, T, S]; rows are queries, whose weights sum to 1. In the decoder, row i is the query that predicts target i,
        and column i of its self-attention is the token before that.
    """
    stacks = _Watched({layer.name: layer for layer in nets['transformer'].layers}, config)
    stacks.logits(inputs, targets)
    return {name: weights[0] for name, weights in stacks.seen.items()}


def source_attention(layers: dict[str, keras.layers.Layer], config: Config, inputs, targets) -> tf.Tensor:
    """Return the decoder's attention to the source, averaged over layers and heads.

    Args:
      layers: a Transformer's, by name.
      inputs: [B, S] ids ending in EOS, padded.
      targets: [B, T] likewise.

    Returns:
      [B, T, S]: row i is the query that predicted target i; it sums to 1 at real positions.
    """
    stacks = _Watched(layers, config)
    stacks.logits(inputs, targets)
    seen = [weights for name, weights in stacks.seen.items() if name.startswith('decoder') and 'source' in name]
    return tf.reduce_mean(tf.stack(seen), [0, 2])
