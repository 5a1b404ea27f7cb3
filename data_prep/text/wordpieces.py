"""Reversible word pieces (Wu et al. 2016, section 4.1): a mark shows where a word begins.

Words are separated by spaces after normalisation; each is split greedily, longest piece first.

The vocabulary is learned with SentencePiece's BPE, the algorithm to which Wu et al. compare theirs, and not with
tensorflow-text's learner: that one subtracts counts from every prefix of a piece it does not keep (tensorflow/text
issue 583), so it finds no common beginnings of words, and it does not meet a given vocabulary size.
"""
import itertools
import json
from collections.abc import Iterable, Iterator

import tensorflow as tf

from data_prep import UserError
from data_prep.text.ids import EOS, UNK

MARK = '▁'
_SPECIAL = 4
_BYTES = [f'<0x{i:02X}>' for i in range(256)]  # SentencePiece's names of bytes
# In the ops, text is a string of bytes, each written as the character of its number (Latin-1). An unknown character
# thus splits into its bytes by itself, and the mark, which is not a byte, cannot be confused with text.
_NUL = '\u0100'  # replaces byte 0, which would end the ops' tables
_SUFFIX = '##'  # FastWordpieceTokenizer's mark of a piece inside a word; it never appears in the text
_BATCH = 10000


def normalized(lines: Iterable[str], normalization: str) -> Iterator[str]:
    """Yield lines as used for learning the vocabulary: normalised, with single spaces."""
    rest = iter(lines)
    while batch := list(itertools.islice(rest, _BATCH)):
        words = _words(tf.constant(batch), normalization)
        for line in tf.strings.reduce_join(words, axis=-1, separator=' ').numpy():
            yield line.decode()


def _words(text: tf.Tensor, normalization: str) -> tf.RaggedTensor:
    """Split [n] strings into ragged [n, (words)]; invalid UTF-8 becomes U+FFFD."""
    text = tf.strings.unicode_transcode(text, 'UTF-8', 'UTF-8', errors='replace')
    if normalization == 'nfkc':
        import tensorflow_text
        text = tensorflow_text.normalize_utf8(text, 'NFKC')
    return tf.strings.split(text)


def serialize(learned: list[str], normalization: str, byte_fallback: bool, vocab_size: int) -> bytes:
    """Return a model of exactly `vocab_size` pieces.

    Args:
      learned: pieces of a BPE model: the special ones, merges by rank, then single characters.
      byte_fallback: the 256 bytes replace the single-byte characters and the last merges.

    Raises:
      UserError: bytes and characters alone exceed `vocab_size`, or all pieces are fewer.
    """
    found = learned
    if byte_fallback:
        merges = [piece for piece in learned[_SPECIAL:] if len(piece) > 1]
        characters = [piece for piece in learned[_SPECIAL:] if len(piece) == 1 and not piece.isascii()]
        least = _SPECIAL + len(_BYTES) + len(characters)
        most = least + len(merges)
        if not least <= vocab_size <= most:
            bound = f'at least {least}' if vocab_size < least else f'at most {most}'
            raise UserError(f'data.vocab_size {vocab_size} does not fit the training text; with the 256 bytes it must '
                            f'be {bound}.')
        found = [*learned[:_SPECIAL], *_BYTES, *merges[:vocab_size - least], *characters]
    return json.dumps({'kind': 'wordpiece', 'normalization': normalization, 'byte_fallback': byte_fallback,
                       'pieces': found}, indent=0).encode()


def is_model(model: bytes) -> bool:
    """Return whether a model holds word pieces; SentencePiece's are protocol buffers and never begin like this."""
    return model.startswith(b'{')


def pieces(model: bytes) -> list[str]:
    """Return the pieces in order of their ids."""
    return _parsed(model)['pieces']


def _parsed(model: bytes) -> dict:
    """Parse what `serialize` wrote.

    Raises:
      ValueError: it is not a model of word pieces.
    """
    found = json.loads(model)
    known = found.get('pieces') if isinstance(found, dict) else None
    if not (isinstance(known, list) and len(known) > _SPECIAL and all(isinstance(piece, str) for piece in known)
            and found.get('normalization') in ('nfkc', 'identity') and isinstance(found.get('byte_fallback'), bool)):
        raise ValueError('it begins like a model of word pieces but does not continue like one')
    return found


class WordPieces(tf.Module):
    """Tokenizer of word pieces as TensorFlow ops; it needs tensorflow-text.

    Without byte fallback, an unknown character is UNK; with it, its UTF-8 bytes.
    """

    def __init__(self, model: bytes):
        super().__init__()
        import tensorflow_text
        found = _parsed(model)
        self._normalization = found['normalization']
        first = _SPECIAL + (len(_BYTES) if found['byte_fallback'] else 0)
        special, known = found['pieces'][:_SPECIAL], found['pieces'][first:]
        singles = [_SUFFIX + _latin(bytes([i])) for i in range(256)]
        table = special + (singles if found['byte_fallback'] else []) + [_entry(piece) for piece in known]
        # The first byte of an unknown character becomes UNK, its other bytes nothing.
        taken = set(table)
        unknown = [i for i, single in enumerate(singles) if single not in taken]
        self._ids = tf.constant([*range(len(table)), *(-1 if 0x80 <= i < 0xC0 else UNK for i in unknown)])
        self._cut = tensorflow_text.FastWordpieceTokenizer(
            table + [singles[i] for i in unknown], suffix_indicator=_SUFFIX, unknown_token=special[UNK],
            no_pretokenization=True, max_bytes_per_word=2 ** 31 - 1, token_out_type=tf.int32)
        self._texts = tf.constant([b'', b'', b'', ' ⁇ '.encode(), *(bytes([i]) for i in range(first - _SPECIAL)),
                                   *(piece.replace(MARK, ' ').encode() for piece in known)])

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Map [n] strings to ragged [n, (length)] int32 ids, each row ending in EOS."""
        words = _words(text, self._normalization)
        latin = tf.strings.unicode_transcode(words.flat_values, 'ISO-8859-1', 'UTF-8')
        latin = MARK + tf.strings.regex_replace(latin, r'\x00', _NUL)
        ids = self._cut.tokenize(words.with_flat_values(latin)).merge_dims(1, 2)
        ids = tf.gather(self._ids, ids)
        ids = tf.ragged.boolean_mask(ids, ids >= 0)
        return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], 1)

    def texts(self, ids: tf.Tensor) -> tf.Tensor:
        """Map ids of any shape to their texts; a space marks the start of a word."""
        return tf.gather(self._texts, ids)

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Map ragged [n, (length)] int32 ids to [n] strings; invalid UTF-8 becomes U+FFFD."""
        text = tf.strings.strip(tf.strings.reduce_join(tf.gather(self._texts, ids), axis=-1))
        return tf.strings.unicode_transcode(text, 'UTF-8', 'UTF-8', errors='replace')


def _latin(text: bytes) -> str:
    return text.decode('latin-1').replace('\0', _NUL)


def _entry(piece: str) -> str:
    """Return a piece in the form of FastWordpieceTokenizer's table."""
    return MARK + _latin(piece[1:].encode()) if piece.startswith(MARK) else _SUFFIX + _latin(piece.encode())
