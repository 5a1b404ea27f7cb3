"""Beam search among trees alone: a mask of the subwords with which an output can still become a tree.

An output is a linear form (`data_prep/trees/trees.py`) in subwords, such as `(S (NP DT NN )NP VBZ )S`. Only its labels
are the net's choice then: brackets close in the order in which they opened, there are as many tags as words, and
everything is closed before the longest output. Vinyals et al. 2015 search freely, as Vaswani et al. 2017 do.
"""
from typing import NamedTuple

import tensorflow as tf

from keras_models import ModelError
from keras_models.transformer import EOS, Config


class Kinds(NamedTuple):
    """What every subword does in a linear form, [V] each.

    Attributes:
      tags: whether it begins a word that is no bracket; a tag in a tree.
      opens: whether it begins an opening bracket.
      closes: whether it begins a closing bracket.
      continues: whether it continues a word.
      whole: whether it is a bracket, and no other subword belongs to that or to its counterpart.
      closing: id of the whole bracket that closes it; otherwise -1. int32; the others are bool.
    """
    tags: tf.Tensor
    opens: tf.Tensor
    closes: tf.Tensor
    continues: tf.Tensor
    whole: tf.Tensor
    closing: tf.Tensor


def kinds(tokenizer, config: Config, inference) -> Kinds | None:
    """Return the kinds of a tokenizer's subwords, if `inference.well_formed`.

    Raises:
      ModelError: the tokenizer is not one of trees.
    """
    if not inference.well_formed:
        return None
    if not hasattr(tokenizer, 'kinds'):
        raise ModelError('inference.well_formed is for trees, but this data set has none. Leave it out.')
    return Kinds(**tokenizer.kinds(config.vocab_size))


class _Mark(NamedTuple):
    """What is known of a hypothesis after one of its tokens, [B, K] each, int32."""
    missing: tf.Tensor  # words of the sentence that have no tag yet
    depth: tf.Tensor  # open brackets
    closing: tf.Tensor  # id that closes the innermost one; -1 if that is not whole
    opened: tf.Tensor  # position of the innermost one
    outer_closing: tf.Tensor  # if the token is an opening bracket: the two above before it
    outer_opened: tf.Tensor


class Trees:
    """The rule for trees over sentences, for `decoding.beam_search`.

    Args:
      kinds: of the vocabulary.
    """

    def __init__(self, kinds: Kinds):
        self.kinds = Kinds(*(tf.constant(each) for each in kinds))

    def start(self, inputs: tf.Tensor, T, beam_size: int):
        """Return the marks before the first step, for sentences [B, S] of ids."""
        kinds = self.kinds
        words = tf.gather(kinds.tags | kinds.opens | kinds.closes, inputs)
        return tf.reduce_sum(tf.cast(words, tf.int32), 1), tf.zeros([tf.shape(inputs)[0], T, beam_size, len(_Mark._fields)], tf.int32)

    def __call__(self, ids, step, slots, max_length, marks):
        """Allow the subwords of position `step`.

        Args:
          ids: [B, K], the tokens before.
          step: scalar.
          slots: [B, K, T], see `beam_search`.
          max_length: [B], longest output, EOS included.
          marks: words of every sentence [B], and marks [B, T, K, fields], one for each token.

        Returns:
          [B, K, V], true where a subword is allowed; and the marks, with those of `ids` written at `step`.
        """
        words, written = marks
        kinds = Kinds(*(tf.gather(each, ids) for each in self.kinds))
        mark = self._next(kinds, step, slots, words, written)
        here = (tf.range(tf.shape(written)[1]) == step)[None, :, None, None]
        written = tf.where(here, tf.stack(mark, -1)[:, None], written)
        return self._allowed(kinds, mark, max_length[:, None] - step), (words, written)

    def _next(self, kinds: Kinds, step, slots, words, written) -> _Mark:
        """Return the marks after tokens of these kinds."""
        B, K = tf.unstack(tf.shape(kinds.tags))
        before = _read(written, slots, tf.fill([B, K], tf.maximum(step - 1, 0)))
        blank = tf.zeros([B, K], tf.int32)
        first = _Mark(tf.tile(words[:, None], [1, K]), blank, blank - 1, blank, blank, blank)
        before = _Mark(*(tf.where(step > 0, *pair) for pair in zip(before, first)))
        opening = _read(written, slots, before.opened)  # the mark of the innermost open bracket
        opens, closes = kinds.opens, kinds.closes

        def chosen(if_opens, if_closes, otherwise):
            return tf.where(opens, if_opens, tf.where(closes, if_closes, otherwise))
        return _Mark(before.missing - tf.cast(kinds.tags, tf.int32),
                     before.depth + tf.cast(opens, tf.int32) - tf.cast(closes, tf.int32),
                     chosen(kinds.closing, opening.outer_closing, before.closing),
                     chosen(step, opening.outer_opened, before.opened),
                     before.closing, before.opened)

    def _allowed(self, last: Kinds, mark: _Mark, left) -> tf.Tensor:
        """Return [B, K, V] for the kinds of the last tokens, their marks, and the number of positions left [B, 1]."""
        kinds, V = self.kinds, tf.shape(self.kinds.tags)[0]
        missing, open_ = mark.missing > 0, mark.depth > 0
        spare = left - (mark.missing + mark.depth + 1)  # positions that tags, closing brackets and EOS do not need
        spelled = last.continues | (last.tags | last.opens | last.closes) & ~last.whole

        def of(may, which):
            return may[..., None] & which
        innermost = tf.one_hot(mark.closing, V, True, False, dtype=tf.bool) | of(mark.closing < 0,
                                                                                 kinds.closes & ~kinds.whole)
        return (of(missing & (spare > 1), kinds.opens) | of(missing & open_, kinds.tags)
                | of(open_ & ~last.opens & ((mark.depth > 1) | ~missing), innermost)
                | of(spelled & (spare > 0), kinds.continues) | of(~missing & ~open_, tf.range(V) == EOS))


def _read(written, slots, position) -> _Mark:
    """Return the marks of hypotheses at positions [B, K]."""
    B, T, K, fields = tf.unstack(tf.shape(written))
    where = position * K + tf.gather(slots, position, batch_dims=2)
    found = tf.gather(tf.reshape(written, [B, T * K, fields]), where, batch_dims=1)
    return _Mark(*tf.unstack(found, num=len(_Mark._fields), axis=-1))
