"""Beam search among trees alone: a mask of the subwords with which an output can still become a tree.

An output is a linear form (`data_prep/trees/trees.py`) in subwords, such as `(S (NP DT NN )NP VBZ )S`. Only its labels
are the net's choice then: brackets close in the order in which they opened, by the same labels, there are as many tags
as words, and everything is closed before the longest output. Vinyals et al. 2015 search freely, as Vaswani et al. 2017
do.
"""
from typing import NamedTuple

import tensorflow as tf

from keras_models import ModelError
from keras_models.transformer import BOS, EOS, Config


class Kinds(NamedTuple):
    """What every subword does in a linear form, [V] each; bool but for the last, int32.

    Attributes:
      tags: whether it begins a word that is no bracket; a tag in a tree.
      opens: whether it begins an opening bracket.
      closes: whether it begins a closing bracket.
      continues: whether it continues a word.
      closing: id of the same as a closing bracket; -1 if there is none.
    """
    tags: tf.Tensor
    opens: tf.Tensor
    closes: tf.Tensor
    continues: tf.Tensor
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
    """What is known of a hypothesis after one of its tokens, [B, K] each, int32. Positions are those of marks."""
    token: tf.Tensor
    missing: tf.Tensor  # words of the sentence that have no tag yet
    depth: tf.Tensor  # open brackets
    owed: tf.Tensor  # subwords that close them
    blank: tf.Tensor  # 1 if the innermost one holds nothing yet; its label may continue
    closing: tf.Tensor  # id that begins to close it; -1 if there is none
    opened: tf.Tensor  # its position
    outer_closing: tf.Tensor  # if the token opens: the two above before it
    outer_opened: tf.Tensor
    copied: tf.Tensor  # position in the opened label that the closing one goes on with; 0 if it copies none


class Trees:
    """The rule for trees over sentences, for `decoding.beam_search`.

    Args:
      kinds: of the vocabulary.
    """

    def __init__(self, kinds: Kinds):
        self.kinds = Kinds(*(tf.constant(each) for each in kinds))
        self.paired = tf.reduce_any(tf.one_hot(kinds.closing, len(kinds.closing), True, False, dtype=tf.bool), 0)

    def start(self, inputs: tf.Tensor, T, beam_size: int):
        """Return the marks before the first step, for sentences [B, S] of ids."""
        kinds = self.kinds
        begins = tf.gather(kinds.tags | kinds.opens | kinds.closes, inputs)
        words = tf.reduce_sum(tf.cast(begins, tf.int32), 1)
        return words, tf.zeros([tf.shape(inputs)[0], T, beam_size, len(_Mark._fields)], tf.int32)

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
        mark = self._next(ids, step, slots, words, written)
        here = (tf.range(tf.shape(written)[1]) == step)[None, :, None, None]
        written = tf.where(here, tf.stack(mark, -1)[:, None], written)
        return self._allowed(mark, slots, written, max_length[:, None] - step), (words, written)

    def _next(self, ids, step, slots, words, written) -> _Mark:
        """Return the marks after these tokens."""
        kinds = Kinds(*(tf.gather(each, ids) for each in self.kinds))
        zero = tf.zeros_like(ids)
        first = _Mark(*[zero] * len(_Mark._fields))._replace(missing=zero + words[:, None])
        before = _Mark(*(tf.where(step > 0, *pair) for pair in zip(
            _read(written, slots, zero + tf.maximum(step - 1, 0)), first)))
        opening = _read(written, slots, before.opened)  # the mark of the innermost open bracket
        opens, closes = kinds.opens, kinds.closes
        labels, copies = (kinds.continues & (field > 0) for field in (before.blank, before.copied))

        def chosen(if_opens, if_closes, otherwise):
            return tf.where(opens, if_opens, tf.where(closes, if_closes, otherwise))

        def number(condition):
            return tf.cast(condition, tf.int32)
        return _Mark(
            token=ids,
            missing=before.missing - number(kinds.tags),
            depth=before.depth + number(opens) - number(closes),
            owed=before.owed + number(opens | labels) - number(closes | copies),
            blank=number(opens | labels),
            closing=chosen(kinds.closing, opening.outer_closing, before.closing),
            opened=chosen(step, opening.outer_opened, before.opened),
            outer_closing=before.closing, outer_opened=before.opened,
            copied=tf.where(closes & (before.closing >= 0), before.opened + 1,
                            tf.where(copies, before.copied + 1, 0)))

    def _allowed(self, mark: _Mark, slots, written, left) -> tf.Tensor:
        """Return [B, K, V] after the last marks, for the number of positions that are left [B, 1]."""
        kinds, V = self.kinds, tf.shape(self.kinds.tags)[0]

        def of(may, which):
            return may[..., None] & which

        def just(ids):
            return tf.one_hot(ids, V, True, False, dtype=tf.bool)
        missing, open_, copying = mark.missing > 0, mark.depth > 0, mark.copied > 0
        spare = left - (mark.missing + mark.owed + 1)  # positions that tags, closing brackets and EOS do not need
        begun = mark.token != BOS
        innermost = just(mark.closing) | of(mark.closing < 0, kinds.closes & ~self.paired)
        free = (of(missing & (spare > 1), kinds.opens) | of(missing & open_, kinds.tags)
                | of(open_ & (mark.blank == 0) & ((mark.depth > 1) | ~missing), innermost)
                | of(begun & ~copying & (spare > mark.blank), kinds.continues)
                | of(~missing & ~open_, tf.range(V) == EOS))
        copied = _read(written, slots, mark.copied).token
        must = copying & tf.gather(kinds.continues, copied)
        return tf.where(must[..., None], just(copied), free)


def _read(written, slots, position) -> _Mark:
    """Return the marks of hypotheses at positions [B, K]."""
    B, T, K, fields = tf.unstack(tf.shape(written))
    where = position * K + tf.gather(slots, position, batch_dims=2)
    found = tf.gather(tf.reshape(written, [B, T * K, fields]), where, batch_dims=1)
    return _Mark(*tf.unstack(found, num=len(_Mark._fields), axis=-1))
