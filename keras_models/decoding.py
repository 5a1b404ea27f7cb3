"""Beam search and greedy decoding over any step function, with a cache, compiled or not.

A sentence whose best is found leaves its result alone from then on, so what a sentence gets does not depend on the
others in its batch; when all are done the loop ends.
"""
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_NEVER = -1e9


def length_penalty(length, alpha: float):
    """Wu et al. 2016, eq. (14): ((5 + length) / 6)^alpha."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def beam_search(step_fn: Callable, cache: Any, max_length: tf.Tensor, T, beam_size: int, alpha: float,
                bos: int, eos: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds for every sentence the hypothesis of highest log P / length_penalty.

    A candidate that ends counts as finished only if it is among the `beam_size` best of its step, so that a beam of 1
    with alpha 0 is greedy search. A sentence is done when no open hypothesis can still beat its best finished one
    (its log P can only fall, its penalty is at most that of `max_length`), or at `max_length`; the best open hypothesis
    is then the answer where none has finished.

    Args:
      step_fn: (ids [B, K], step, cache) -> (logits [B, K, V], cache).
      cache: nest of [B, K, ...] tensors.
      max_length: [B], tokens at most, the end symbol included.
      T: the longest of them that can occur, static under XLA.

    Returns:
      ids [B, T], ended by `eos` or padded with 0, and scores [B].
    """
    B, K = tf.shape(max_length)[0], beam_size
    worst = length_penalty(max_length, alpha)

    def cond(step, open_ids, open_logp, ids, scores, done, cache):
        return tf.logical_and(step < T, ~tf.reduce_all(done))

    def body(step, open_ids, open_logp, ids, scores, done, cache):
        last = tf.where(step > 0, tf.gather(open_ids, tf.maximum(step - 1, 0), axis=2), bos)
        logits, new_cache = step_fn(last, step, cache)
        V = logits.shape[-1]
        logp = open_logp[..., None] + tf.nn.log_softmax(tf.cast(logits, tf.float32))  # [B, K, V]
        # 2K candidates: even if K of them end, K open ones are left.
        best, where = tf.math.top_k(tf.reshape(logp, [B, K * V]), 2 * K)
        beam, token = where // V, where % V
        here = tf.range(T) == step  # [T]
        candidates = tf.where(here, token[..., None], tf.gather(open_ids, beam, batch_dims=1))  # [B, 2K, T]
        ends = token == eos

        ended = tf.where(ends & (tf.range(2 * K) < K), best / length_penalty(step + 1, alpha), _NEVER)
        new_scores, which = tf.math.top_k(tf.concat([scores, ended], 1), K)
        new_ids = tf.gather(tf.concat([ids, candidates], 1), which, batch_dims=1)

        still, which = tf.math.top_k(tf.where(ends, _NEVER, best), K)
        new_open = tf.gather(candidates, which, batch_dims=1)
        parent = tf.gather(beam, which, batch_dims=1)  # [B, K]
        new_cache = tf.nest.map_structure(lambda x: tf.gather(x, parent, batch_dims=1), new_cache)

        keep = done[:, None]
        open_logp, scores = tf.where(keep, open_logp, still), tf.where(keep, scores, new_scores)
        open_ids = tf.where(keep[..., None], open_ids, new_open)
        ids = tf.where(keep[..., None], ids, new_ids)
        beaten = open_logp[:, 0] / worst <= scores[:, 0]
        done = done | beaten | (step + 1 >= max_length)
        return step + 1, open_ids, open_logp, ids, scores, done, new_cache

    # All beams but the first start impossible: K equal hypotheses would stay K equal hypotheses.
    open_logp = tf.tile(tf.constant([[0.0] + [_NEVER] * (K - 1)]), [B, 1])
    blank = tf.zeros([B, K, T], tf.int32)
    state = (tf.constant(0), blank, open_logp, blank, tf.fill([B, K], _NEVER), tf.zeros([B], tf.bool), cache)
    _, open_ids, open_logp, ids, scores, _, _ = tf.while_loop(cond, body, state)
    finished = scores[:, 0] > _NEVER / 2
    ids = tf.where(finished[:, None], ids[:, 0], open_ids[:, 0])
    return ids, tf.where(finished, scores[:, 0], open_logp[:, 0] / worst)


def greedy(logits_fn: Callable, inputs: tf.Tensor, max_length: int, eos: int) -> tf.Tensor:
    """The most probable token at every step, without cache or beam: what `beam_search` is checked against.

    Args:
      logits_fn: (inputs, targets [B, T]) -> [B, T, V], as a teacher-forced model gives them.

    Returns:
      ids [B, max_length], ended by `eos` or padded with 0.
    """
    ids = tf.zeros([tf.shape(inputs)[0], max_length], tf.int32)
    open_ = tf.ones([tf.shape(inputs)[0]], tf.bool)
    for step in range(max_length):
        token = tf.argmax(logits_fn(inputs, ids)[:, step], -1, tf.int32)
        here = (tf.range(max_length) == step)[None, :] & open_[:, None]
        ids = tf.where(here, token[:, None], ids)
        open_ &= token != eos
    return ids
