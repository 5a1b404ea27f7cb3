"""A small language about Nim, in which every statement about a position is true or false.

A sentence has three words: `a has three`, `b is odd`, `c exceeds a`, `mover will win`.
"""
import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

LENGTH = 3  # words of a sentence
NUMBERS = ('none', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')


@dataclasses.dataclass(frozen=True)
class Language:
    """The language of a game. A word is its number in `words`; an unfinished sentence ends with NONE, -1.

    Attributes:
      game: a `nim.Game` with heaps no higher than the number words.
    """
    game: Any

    features = ('words', 'heap spoken of', 'heaps compared', 'heaps by size and words')

    @functools.cached_property
    def heaps(self) -> tuple[str, ...]:
        return tuple('abcdefghijklmnopqrstuvwxyz'[:self.game.heaps])

    @functools.cached_property
    def words(self) -> tuple[str, ...]:
        return (*self.heaps, *NUMBERS[:self.game.highest + 1], 'even', 'odd', 'mover', 'has', 'is', 'exceeds', 'will',
                'win', 'lose')

    def number(self, word: str) -> int:
        return self.words.index(word)

    @functools.cached_property
    def _follows(self) -> np.ndarray:
        """The words that may follow each word, bool [words + 1, words]; the last row is for the first word."""
        numbers = self.words[len(self.heaps):][:self.game.highest + 1]
        after = {**{heap: ('has', 'is', 'exceeds') for heap in self.heaps}, 'mover': ('will',), 'has': numbers,
                 'is': ('even', 'odd'), 'exceeds': self.heaps, 'will': ('win', 'lose')}
        follows = np.zeros([len(self.words) + 1, len(self.words)], bool)
        for word, others in after.items():
            follows[self.number(word), [self.number(other) for other in others]] = True
        follows[-1, [self.number(word) for word in (*self.heaps, 'mover')]] = True
        return follows

    def may_follow(self, said) -> tf.Tensor:
        """Return the words that may continue a sentence, int32 [n, LENGTH] -> bool [n, words]."""
        count = tf.reduce_sum(tf.cast(said >= 0, tf.int32), 1)
        last = tf.gather(said, tf.maximum(count - 1, 0), axis=1, batch_dims=1)
        return tf.gather(tf.constant(self._follows), tf.where(count > 0, last, len(self.words)))

    def keys(self, board, said) -> tf.Tensor:
        """Return the keys of each next word, int32 [n, words, 4].

        - words: the words so far and the next.
        - heap spoken of: these, and the men of the heap that the first word names.
        - heaps compared: all that, and the men of the heap that the next word names.
        - heaps by size and words: a hash.
        """
        words = len(self.words)
        begun = tf.reduce_sum((said + 1) * (words + 1) ** np.arange(LENGTH, dtype=np.int32), 1)[:, None]
        key = begun * words + tf.range(words)  # [n, words]
        spoken_of = self._men(board, said[:, 0])[:, None]
        named = tf.pad(board, [[0, 0], [0, words - self.game.heaps]], constant_values=self.game.highest + 1)
        none = self.game.highest + 2
        by_size = self.game.condition_keys(board)[:, 1:]
        return tf.stack([key, key * none + spoken_of, (key * none + spoken_of) * none + named,
                         by_size * 16777619 + key & 2 ** 31 - 1], 2)

    def _men(self, board, word):
        """Return the men of the heap that a word names, int32 [n]; one above the highest if it names none."""
        named = tf.one_hot(word, self.game.heaps, dtype=tf.int32)
        return tf.where(tf.reduce_any(named > 0, 1), tf.reduce_sum(board * named, 1), self.game.highest + 1)

    def true(self, board, sentence) -> tf.Tensor:
        """Return whether sentences, int32 [n, LENGTH], are true of positions, bool [n]."""
        subject, verb, what = tf.unstack(sentence, axis=1)
        men = self._men(board, subject)
        says = {'has': men == what - self.number('none'), 'exceeds': men > self._men(board, what),
                'is': (men % 2 == 1) == (what == self.number('odd')),
                'will': self.game.won(board) == (what == self.number('win'))}
        return functools.reduce(tf.logical_or, [(verb == self.number(name)) & right for name, right in says.items()])


def with_word(said, place: int, word):
    """Return sentences, int32 [n, LENGTH], with a word, int32 [n], at a place."""
    return tf.concat([said[:, :place], word[:, None], said[:, place + 1:]], 1)
