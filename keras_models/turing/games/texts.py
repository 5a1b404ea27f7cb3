"""Boards as text, inside a graph: rows of `x`, the player to move, `o`, the other, and dots, with a / between."""
import tensorflow as tf


def read(texts, side: int) -> tf.Tensor:
    """Men of square boards, strings [n] -> int32 [n, side * side].

    Raises:
      tf.errors.InvalidArgumentError: a text is no board.
    """
    row = f'[xo.]{{{side}}}'
    texts = check(texts, '/'.join([row] * side), f'{side} rows of {side} of x, o and dots, with a / between')
    marks = tf.strings.bytes_split(tf.strings.regex_replace(texts, '/', '')).to_tensor(shape=[None, side * side])
    return tf.cast(marks == 'x', tf.int32) - tf.cast(marks == 'o', tf.int32)


def check(texts, form: str, words: str) -> tf.Tensor:
    """Returns the texts, behind an assertion that all are of a form. Without that order another operation may
    fail first, in words of its own."""
    right = tf.strings.regex_full_match(texts, form)
    wrong = tf.strings.reduce_join(tf.boolean_mask(texts, ~right)[:1])
    told = tf.strings.join([wrong, f' is no position: give {words}'])
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(right), [told])]):
        return tf.identity(texts)


def write(men, side: int) -> tf.Tensor:
    """int32 [..., side * side] -> strings [...]."""
    rows = tf.reshape(men, tf.concat([tf.shape(men)[:-1], [side, side]], 0))
    marks = tf.gather(tf.constant(['o', '.', 'x']), rows + 1)
    return tf.strings.reduce_join(tf.strings.reduce_join(marks, -1), -1, separator='/')
