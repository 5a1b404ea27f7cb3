"""Boards as text in a graph: rows of `x` for the player to move, `o` for the other, and dots, separated by /."""
import tensorflow as tf


def read(texts, side: int) -> tf.Tensor:
    """Return the men of square boards, strings [n] -> int32 [n, side * side].

    Raises:
      tf.errors.InvalidArgumentError: a text is not a board.
    """
    row = f'[xo.]{{{side}}}'
    texts = check(texts, '/'.join([row] * side), f'{side} rows of {side} of x, o and dots, separated by /')
    marks = tf.strings.bytes_split(tf.strings.regex_replace(texts, '/', '')).to_tensor(shape=[None, side * side])
    return tf.cast(marks == 'x', tf.int32) - tf.cast(marks == 'o', tf.int32)


def check(texts, form: str, words: str) -> tf.Tensor:
    """Return the texts after an assertion that all have a form.

    Without this order, another operation may fail first with a message of its own.
    """
    right = tf.strings.regex_full_match(texts, form)
    wrong = tf.strings.reduce_join(tf.boolean_mask(texts, ~right)[:1])
    message = tf.strings.join([wrong, f' is not a position: give {words}'])
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(right), [message])]):
        return tf.identity(texts)


def write(men, side: int) -> tf.Tensor:
    """Write boards, int32 [..., side * side] -> strings [...]."""
    rows = tf.reshape(men, tf.concat([tf.shape(men)[:-1], [side, side]], 0))
    marks = tf.gather(tf.constant(['o', '.', 'x']), rows + 1)
    return tf.strings.reduce_join(tf.strings.reduce_join(marks, -1), -1, separator='/')
