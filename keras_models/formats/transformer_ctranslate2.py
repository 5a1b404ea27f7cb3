"""Convert a trained Transformer for CTranslate2, an inference engine for CPUs (github.com/OpenNMT/CTranslate2)."""
import json
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from tensorflow import keras

from keras_models.transformer import BOS, EOS, PAD, Config, Stacks


def specification(nets: dict[str, keras.Model], config: Config, pieces: Sequence[str], unknown: int, length: int):
    """Return the engine's specification of a Transformer, with our weights in float32.

    The engine has one head size for queries, keys and values: the smaller of d_k and d_v is padded with zeros, which
    change no product. Its own sinusoids start at position 1, with sines before cosines, so ours are written out.

    Args:
      nets: as returned by `transformer.build`, trained.
      pieces: the vocabulary; a larger `config.vocab_size` is padded with unused names.
      unknown: id of the unknown piece.
      length: number of positions to write; the engine refuses longer inputs and outputs.

    Returns:
      A `ctranslate2.specs.TransformerSpec`, ready for `validate`, `optimize` and `save`.
    """
    from ctranslate2 import specs
    c = config
    assert c.vocab_size and c.d_k and c.d_v
    weights = _Weights(nets, max(c.d_k, c.d_v), c.d_k ** -0.5)
    parts = {'pre_norm': c.norm == 'pre', 'head_dim': weights.head_dim}
    encoder = specs.TransformerEncoderSpec(c.N, c.h, **parts)
    decoder = specs.TransformerDecoderSpec(c.N, c.h, **parts)
    positions = _array(Stacks(weights.layers, c).positions(tf.range(length)))
    for name, stack in (('encoder', encoder), ('decoder', decoder)):
        stack.position_encodings.encodings = positions
        for n, layer in enumerate(stack.layer):
            weights.attention(layer.self_attention, f'{name}/{n}/self_attention')
            if name == 'decoder':
                weights.attention(layer.attention, f'{name}/{n}/source_attention')
            weights.dense(layer.ffn.linear_0, f'{name}/{n}/ffn/W_1')
            weights.dense(layer.ffn.linear_1, f'{name}/{n}/ffn/W_2')
            weights.norm(layer.ffn.layer_norm, f'{name}/{n}/ffn/norm')
        if c.norm == 'pre':
            weights.norm(stack.layer_norm, f'{name}/norm')
    shared = _array(weights.layers['embedding'].embeddings)
    encoder.embeddings[0].weight = decoder.embeddings.weight = decoder.projection.weight = shared

    result = specs.TransformerSpec(encoder, decoder)
    vocabulary = [*pieces, *(f'<unused {i}>' for i in range(len(pieces), c.vocab_size))]
    result.register_source_vocabulary(vocabulary)
    result.register_target_vocabulary(vocabulary)
    result.config.unk_token, result.config.bos_token, result.config.eos_token = (
        vocabulary[i] for i in (unknown, BOS, EOS))
    result.config.decoder_start_token, result.config.add_source_eos = vocabulary[BOS], True
    result.config.layer_norm_epsilon = weights.layers['encoder/0/ffn/norm'].epsilon
    return result


class _Weights:
    """Copy our layers, by name, into the engine's."""

    def __init__(self, nets: dict[str, keras.Model], head_dim: int, scale: float):
        self.layers = {layer.name: layer for layer in nets['transformer'].layers}
        self.head_dim, self.scale = head_dim, scale

    def dense(self, spec, name: str) -> None:
        spec.weight, spec.bias = _array(self.layers[name].kernel).T, _array(self.layers[name].bias)

    def norm(self, spec, name: str) -> None:
        spec.gamma, spec.beta = _array(self.layers[name].gamma), _array(self.layers[name].beta)

    def attention(self, spec, name: str) -> None:
        """Copy an attention; self-attention joins queries, keys and values, source attention only keys and values."""
        q, k, v = (self._heads(f'{name}/{projection}', 2) for projection in ('W_Q', 'W_K', 'W_V'))
        joined = [(q, k, v)] if len(spec.linear) == 2 else [(q,), (k, v)]
        for linear, matrices in zip(spec.linear, joined):
            linear.weight = np.concatenate([matrix.reshape(len(matrix), -1).T for matrix in matrices])
        out = self._heads(f'{name}/W_O', 1)  # [h, head_dim, d_model]
        spec.linear[-1].weight = out.reshape(-1, out.shape[-1]).T
        spec.queries_scale = self.scale
        self.norm(spec.layer_norm, f'{name}/norm')

    def _heads(self, name: str, axis: int) -> np.ndarray:
        """Return a projection's kernel with zeros at the end of each head, up to `head_dim`."""
        kernel = _array(self.layers[name].kernel)
        more = self.head_dim - kernel.shape[axis]
        return np.pad(kernel, [(0, more if i == axis else 0) for i in range(kernel.ndim)])


def _array(tensor) -> np.ndarray:
    return np.asarray(tensor, np.float32)


def save(specification, folder: str) -> None:
    """Write a specification in the engine's format: model.bin, config.json and the vocabulary."""
    specification.validate()
    specification.optimize()
    specification.save(folder)


def difference(folder: str, nets: dict[str, keras.Model], source: Sequence[Sequence[int]],
               target: Sequence[Sequence[int]]) -> float:
    """Return the largest difference between the engine's log probability of a token of `target` and ours.

    Args:
      folder: written by `save`.
      source, target: sentences as ids, each ending in EOS.
    """
    import ctranslate2
    with open(os.path.join(folder, 'shared_vocabulary.json'), encoding='utf-8') as file:
        pieces = json.load(file)
    words = [[[pieces[i] for i in ids[:-1]] for ids in side] for side in (source, target)]  # the engine adds EOS
    found = ctranslate2.Translator(folder, compute_type='float32').score_batch(*words, max_input_length=0)
    inputs, targets = (tf.ragged.constant(side, tf.int32).to_tensor(PAD) for side in (source, target))
    logits = nets['transformer']([inputs, targets, tf.zeros([2], tf.int32)])
    ours = tf.gather(tf.nn.log_softmax(logits), targets, batch_dims=2).numpy()
    return max(float(np.abs(row[:len(ids)] - result.log_probs).max()) for row, ids, result in zip(ours, target, found))
