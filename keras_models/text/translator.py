"""Inference with a trained Transformer: cached beam search, text to text, and batches of lines."""
import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow import keras

from keras_models.core.layers import by_name
from keras_models.text import attention_maps, decoding
from keras_models.text.portable import networks  # noqa: F401 (part of a serving module)
from keras_models.transformer import BOS, EOS, PAD, Config, Stacks, source_mask

# Batches `predict` decodes concurrently on a CPU, each on its part of the cores. A step of a small model is hundreds of
# operations too short to be parallelised: 1,000 captions (d_model 128) took two cores 12.3 s with one batch at a time,
# 9.8 s with two batches on both cores each, and 7.5 s with two batches on one core each.
MAX_CONCURRENT_BATCHES = min(4, os.cpu_count() or 1)


@dataclasses.dataclass
class Inference:
    """Inference settings (section 6.1): beam search with length penalty `alpha`.

    Outputs are at most `extra_length` tokens longer than the input, of which at most `max_input_length` subwords are
    read. `prefer_well_formed`, for parsers: the output is the best finished hypothesis of the beam that needs no repair
    to be a tree over the input's words, if there is one.
    """
    beam_size: int = 4  # hypotheses kept at every step; 1 is greedy decoding
    alpha: float = 0.6  # length penalty; 0 disables it
    extra_length: int = 50
    max_input_length: int = 256
    prefer_well_formed: bool = False

    def describe(self) -> list[str]:
        return [f'beam {self.beam_size}', f'length penalty alpha {self.alpha:g}',
                f'at most {self.extra_length} tokens longer than the input',
                *['well-formed outputs preferred'] * self.prefer_well_formed]


class Translator:
    """Beam search over a trained model's layers (Vaswani et al. 6.1).

    Args:
      nets: as returned by `transformer.build`.
    """

    def __init__(self, nets: dict[str, keras.Model], config: Config, inference: Inference):
        self.stacks = Stacks({layer.name: layer for layer in nets['transformer'].layers}, config)
        self.config, self.inference = config, inference

    def __call__(self, inputs, pack: bool = False, several: bool = False):
        """Decode with beam `beam_size`, length penalty `alpha`, at most `extra_length` tokens longer than the input.

        Args:
          inputs: [B, S] ids ending in EOS, padded.
          pack, several: as in `decoding.beam_search`; the first only without XLA.

        Returns:
          ids [B, S + extra_length] ended by EOS or padded, and scores [B], log probability divided by the length
          penalty.
        """
        c, asked = self.config, self.inference
        lengths = tf.reduce_sum(tf.cast(inputs != PAD, tf.int32), 1)
        T = (inputs.shape[1] if inputs.shape[1] is not None else tf.shape(inputs)[1]) + asked.extra_length
        source = [tuple(tf.transpose(x, [0, 2, 1, 3]) for x in pair)  # [B, h, S, d_k], the order of the products
                  for pair in self.stacks.source_keys_values(self.stacks.encoder(inputs))]
        cache = [tuple(tf.zeros([tf.shape(inputs)[0], c.h, 0 if pack else T, asked.beam_size, d])
                       for d in (c.d_k, c.d_v)) for _ in range(c.N)]
        return decoding.beam_search(
            functools.partial(self._step, self._weights(), pack), (source, source_mask(inputs)), cache,
            lengths + asked.extra_length, T, asked.beam_size, asked.alpha, BOS, EOS, pack, several)

    def hypotheses(self, inputs):
        """Return the K best finished hypotheses of the same search: ids [B, K, S + extra_length] and scores [B, K]."""
        return self(inputs, several=True)

    def _weights(self) -> '_Weights':
        layers, d_model = self.stacks.layers, self.config.d_model
        return _Weights(tf.transpose(layers['embedding'].embeddings), [tf.concat([
            tf.reshape(layers[f'decoder/{n}/self_attention/W_{which}'].kernel, [d_model, -1]) for which in 'QKV'], 1)
            for n in range(self.config.N)])

    def _step(self, weights, pack, ids, step, slots, context, cache):
        """Advance every beam by one position: [B, K] ids at `step` -> [B, K, vocab_size] logits and the extended cache.

        The K beams of a sentence are K query positions, to the source as well as to the K slots of every position, so
        neither is copied when beams change places. A mask restricts each beam to its own slots. Keys and values of
        every layer's self-attention are [B, h, t, K, d] for t positions.
        """
        c, (source, mask) = self.config, context
        stacks, longer = self.stacks, []
        t = step + 1 if pack else tf.shape(slots)[2]
        B, K = tf.shape(slots)[0], self.inference.beam_size
        own = (slots[:, :, :t, None] == tf.range(K)) & (tf.range(t) <= step)[:, None]  # [B, K, t, K]
        own = tf.reshape(own, [B, 1, K, t * K])

        def attend(name, q, k, v, mask):
            """Attend from q [B, h, K, d_k] to k, v [B, h, M, d]: `Stacks.multi_head` with its axes in another order."""
            z = tf.matmul(q, k, transpose_b=True) * c.d_k ** -0.5
            weights = tf.nn.softmax(z + tf.where(mask, 0.0, -1e9))
            return stacks.layers[f'{name}/W_O'](tf.transpose(tf.matmul(weights, v), [0, 2, 1, 3]))

        def self_attention(n, name, x):
            new = tf.matmul(tf.reshape(x, [B * K, c.d_model]), weights.self_attention[n])
            q, k, v = (tf.transpose(tf.reshape(each, [B, K, c.h, -1]), [0, 2, 1, 3])
                       for each in tf.split(new, [c.h * d for d in (c.d_k, c.d_k, c.d_v)], 1))  # [B, h, K, d]
            longer.append(tuple(tf.concat([old, each[:, :, None]], 2) if pack else _written(old, step, each)
                                for old, each in zip(cache[n], (k, v))))
            k, v = (tf.reshape(each, [B, c.h, t * K, d]) for each, d in zip(longer[-1], (c.d_k, c.d_v)))
            return attend(name, q, k, v, own)

        def source_attention(n, name, x):
            return attend(name, tf.transpose(stacks.layers[f'{name}/W_Q'](x), [0, 2, 1, 3]), *source[n], mask)
        y = stacks.decoder(stacks.embed('decoder', ids, step[None]), self_attention, source_attention)
        logits = tf.matmul(tf.reshape(y, [B * K, c.d_model]), weights.words)
        return tf.reshape(logits, [B, K, c.vocab_size]), longer


class _Weights(NamedTuple):
    """Weights rearranged once per search, so that its steps take less time.

    Attributes:
      words: [d_model, vocab_size], the transposed embedding. With 37,000 words, products of 128 rows with it take 24 ms
        instead of 39, of 16 rows 6 instead of 20; transposing takes 60.
      self_attention: [d_model, h (2 d_k + d_v)] per layer, W_Q, W_K and W_V side by side: 1.6 ms instead of 2.6.
    """
    words: tf.Tensor
    self_attention: list[tf.Tensor]


def _written(cache, step, new):
    """Return `cache` [B, h, T, K, d] with `new` [B, h, K, d] at position `step`."""
    B, h, T, *_ = tf.unstack(tf.shape(cache))
    rows = tf.reshape(cache, [B * h * T, -1])
    rows = tf.tensor_scatter_nd_update(rows, (tf.range(B * h) * T + step)[:, None], tf.reshape(new, [B * h, -1]))
    return tf.reshape(rows, tf.shape(cache))


class Translation(tf.Module):
    """The exported model: raw text in, text out, with tokenizer, beam search and un-tokenizer inside.

    Signatures:
      serving_default: `text` [n] strings -> `text` [n], `score` [n], `truncated` [n], and what the tokenizer adds.
      tf_examples: `examples` [n] serialized tf.Examples with a feature `source` -> the same.
      explore: `text` [n] -> `alternatives` and `scores` [n, K], all finished hypotheses of the beam, the output first,
        then '' and -inf; `source` [n, S] and `target` [n, T], subwords of the line and the best output, padded with '';
        and `attention` [n, T, S], the decoder's attention to the source for each, averaged over layers and heads.

    Functions for callers that batch themselves: `encode`, `decode` (compiled by XLA if `jit`), `decode_fixed`, the same
    in shapes XLA can compile, and `answer`. `truncated` is true for a line of more than `max_input_length` subwords, of
    which only the beginning was translated; `predict` below translates such lines in parts. An empty line stays empty.
    """

    def __init__(self, nets: dict[str, keras.Model], config: Config, inference: Inference, tokenizer,
                 jit: bool = False):
        super().__init__()
        ids = tf.TensorSpec([None, None], tf.int32, 'ids')
        self.decode_fixed = tf.function(self._decode, input_signature=[ids], autograph=False, jit_compile=jit or None)
        self.decode = self.decode_fixed if jit else tf.function(lambda ids: self._decode(ids, pack=True), [ids],
                                                                autograph=False)
        self.nets = by_name(nets)
        self._tokenizer, self._pieces = tokenizer, tokenizer.resource  # a SavedModel must track the second
        self._translator = Translator(nets, config, inference)
        self._max_input_length = inference.max_input_length
        self._prefers = inference.prefer_well_formed
        if self._prefers:
            self.prefer = tf.function(self._prefer, [tf.TensorSpec([None], tf.string, 'text'),
                                                     tf.TensorSpec([None, None, None], tf.int32, 'ids'),
                                                     tf.TensorSpec([None, None], tf.float32, 'score')], autograph=False)

    def signatures(self) -> dict:
        return {'serving_default': self.serve, 'tf_examples': self.serve_examples, 'explore': self.explore}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text')], autograph=False)
    def encode(self, text):
        """Map lines to ids [n, S] ending in EOS, padded, and whether each was truncated."""
        ids = self._tokenizer.tokenize(text)
        truncated = ids.row_lengths() > self._max_input_length
        cut = tf.concat([ids[:, :self._max_input_length - 1], tf.fill([tf.shape(text)[0], 1], EOS)], 1)
        return {'ids': _choose(truncated, cut, ids).to_tensor(PAD), 'truncated': truncated}

    def _decode(self, ids, pack: bool = False):
        """Map ids [n, S] to the best hypothesis' ids [n, S + extra_length] and score [n].

        With `prefer_well_formed` they are those of all hypotheses, [n, K, S + extra_length] and [n, K], for `prefer`.
        """
        best, score = self._translator(ids, pack, several=self._prefers)
        return {'ids': best, 'score': score}

    def _prefer(self, text, ids, score):
        """Return ids [n, T] and score [n] of the best well-formed hypothesis of lines, or else of the best."""
        best = _by_form(self._outputs(text, ids)['well_formed'], score)[:, 0]
        return {'ids': tf.gather(ids, best, batch_dims=1), 'score': tf.gather(score, best, batch_dims=1)}

    def _outputs(self, text, ids):
        """Return the outputs for lines [n] and their hypotheses [n, K, T], [n, K] each."""
        n, K, T = tf.unstack(tf.shape(ids))
        answer = self._tokenizer.answer(tf.repeat(text, K), tf.reshape(ids, [n * K, T]))
        return {key: tf.reshape(value, [n, K]) for key, value in answer.items()}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text'),
                                  tf.TensorSpec([None, None], tf.int32, 'ids')], autograph=False)
    def answer(self, text, ids):
        """Return the outputs for lines and their decoded ids."""
        return self._tokenizer.answer(text, ids)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text')], autograph=False)
    def serve(self, text):
        encoded = self.encode(text)
        decoded = self.decode(encoded['ids'])
        if self._prefers:
            decoded = self.prefer(text, **decoded)
        empty = encoded['ids'][:, 0] == EOS
        answer = self.answer(text, decoded['ids'])
        return {**answer, 'text': tf.where(empty, '', answer['text']), 'score': decoded['score'],
                'truncated': encoded['truncated']}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'examples')], autograph=False)
    def serve_examples(self, examples):
        return self.serve(tf.io.parse_example(examples, {'source': tf.io.FixedLenFeature([], tf.string)})['source'])


    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text')], autograph=False)
    def explore(self, text):
        ids = self.encode(text)['ids']
        found, scores = self._translator.hypotheses(ids)
        answers = self._outputs(text, found)
        texts = answers['text']
        if self._prefers:
            order = _by_form(answers['well_formed'], scores)
            found, scores, texts = (tf.gather(each, order, batch_dims=1) for each in (found, scores, texts))
        there = tf.math.is_finite(scores) & (ids[:, :1] != EOS)
        best = found[:, 0]
        best = best[:, :tf.reduce_max(tf.reduce_sum(tf.cast(best != PAD, tf.int32), 1))]
        translator = self._translator
        return {'alternatives': tf.where(there, texts, ''), 'scores': scores,
                'source': self._tokenizer.subwords(ids), 'target': self._tokenizer.subwords(best),
                'attention': attention_maps.source_attention(translator.stacks.layers, translator.config, ids, best)}


def serving(nets: dict[str, keras.Model], config: Config, inference: Inference, tokenizer, jit: bool) -> tf.Module:
    """Return the exported module: text in, text out; see `Translation`."""
    return Translation(nets, config, inference, tokenizer, jit)


def _by_form(well_formed, score):
    """Return the order [n, K] in which well-formed finished hypotheses come first; each kind stays best first."""
    first = tf.cast(well_formed & tf.math.is_finite(score), tf.int32)
    return tf.argsort(first, direction='DESCENDING', stable=True)


def _choose(condition, ragged_true, ragged_false):
    """Select rows from one of two ragged tensors."""
    both = tf.concat([ragged_true, ragged_false], 0)
    rows = tf.range(tf.shape(condition)[0])
    return tf.gather(both, tf.where(condition, rows, rows + tf.shape(condition)[0]))


def predict(model, lines: Sequence[str], batch_size: int = 128, jit: bool = False) -> list[dict]:
    """Translate lines with a loaded SavedModel, in order.

    Lines of similar length share batches. A line longer than the model accepts is split at the space nearest its middle
    until it fits.

    Args:
      model: as loaded by `tf.saved_model.load` from an exported `Translation`.
      lines: text without line ends.
      batch_size: with 128 instead of 64, a small model (d_model 128) took 0.83 of the processor time for 1,000 lines.
      jit: compile decoding with XLA. Every new shape is compiled, so batches then have 1, 8 or `batch_size` rows and a
        length that is a multiple of 16.

    Returns:
      A dict per line: `answers`, the single translation, `score` (summed over the parts of a split line), `parts`, and
      the model's further outputs (such as `well_formed`), true if they are for every part.
    """
    if jit and not hasattr(model, 'compiled'):  # once per model, not per block of lines
        model.compiled = tf.function(lambda ids: model.decode_fixed(ids), autograph=False, jit_compile=True)
    max_concurrent_batches = 1 if tf.config.list_physical_devices('GPU') else MAX_CONCURRENT_BATCHES
    results: list[dict] = [{'answers': [''], 'score': 0.0, 'parts': 0} for _ in lines]
    done: list[tuple] = []
    todo: list[tuple[int, tuple[int, ...], str]] = [
        (number, (), line) for number, line in enumerate(lines) if line.strip()]
    with concurrent.futures.ThreadPoolExecutor(max_concurrent_batches) as pool:
        while todo:
            todo.sort(key=lambda item: len(item[2]), reverse=True)  # so that the last batches are short
            batches = [todo[start:start + batch_size] for start in range(0, len(todo), batch_size)]
            todo = []
            for found, halves in pool.map(lambda batch: _asked(model, batch, batch_size if jit else None), batches):
                done += found
                todo += halves
    for number, _, text, score, said in sorted(done, key=lambda item: item[:2]):
        result = results[number]
        result['answers'] = [f'{result["answers"][0]} {text}'.strip()]
        result['score'] += score
        result['parts'] += 1
        for key, value in said.items():
            result[key] = result.get(key, True) and value
    return results


def _asked(model, batch: list[tuple], rows: int | None) -> tuple[list[tuple], list[tuple]]:
    """Return the outputs for a batch of (number, part, line), see `_answers`; and halves of lines that are too long.

    Args:
      rows: compiled decoding pads batches to this many rows, unless they are small; None if it is not compiled.
    """
    encoded = model.encode(tf.constant([line for _, _, line in batch]))
    ids = encoded['ids'].numpy()
    kept, halves = [], []
    for row, ((number, part, line), cut) in enumerate(zip(batch, encoded['truncated'].numpy())):
        if cut and len(line) > 1:
            left, right = _halves(line)
            halves += [(number, (*part, 0), left), (number, (*part, 1), right)]
        elif ids[row, 0] != EOS:  # otherwise the line has no known subword
            kept.append(row)
    if not kept:
        return [], halves
    ids = tf.constant(ids[kept])
    decoded = model.decode(ids) if rows is None else model.compiled(_pad(ids, rows))
    return _answers(model, [batch[row] for row in kept], decoded), halves


def _answers(model, asked: list[tuple], decoded: dict) -> list[tuple]:
    """Return (number, part, text, score, further outputs) for each (number, part, line)."""
    decoded = {key: value[:len(asked)] for key, value in decoded.items()}  # without the padding rows
    text = tf.constant([line for _, _, line in asked])
    if decoded['ids'].shape.rank == 3:
        decoded = model.prefer(text, **decoded)
    ids = decoded['ids']
    if hasattr(model, 'answer'):
        answer = model.answer(text, ids)
    else:  # exported by an earlier version
        answer = model.text(ids)
    said = {key: value.numpy().tolist() for key, value in answer.items()}
    return [(number, part, said['text'][row].decode(), float(score),
             {key: values[row] for key, values in said.items() if key != 'text'})
            for row, ((number, part, _), score) in enumerate(zip(asked, decoded['score'].numpy()))]


def _halves(line: str) -> tuple[str, str]:
    middle = len(line) // 2
    blanks = [i for i in (line.rfind(' ', 1, middle), line.find(' ', middle)) if i > 0]
    cut = min(blanks, key=lambda i: abs(i - middle)) if blanks else middle
    return line[:cut].strip() or line[:middle], line[cut:].strip() or line[middle:]


def _pad(ids: tf.Tensor, rows: int) -> tf.Tensor:
    """Pad to at most `rows` rows with sentences of only EOS, and to a length that is a multiple of 16."""
    n, length = ids.shape
    rows = next(size for size in (1, 8, rows) if n <= size)  # few shapes, and single lines stay cheap
    ids = tf.pad(ids, [[0, rows - n], [0, -length % 16]], constant_values=PAD)
    blank = tf.concat([tf.fill([rows - n, 1], EOS), tf.fill([rows - n, ids.shape[1] - 1], PAD)], 1)
    return tf.concat([ids[:n], blank], 0)
