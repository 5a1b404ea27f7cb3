"""Word pieces (Wu et al. 2016, section 4.1), reversible: a mark where a word begins, none where it ends or goes on.

Words are what lies between blanks after normalisation; each is cut greedily, the longest piece first.

The vocabulary is learned by SentencePiece's BPE, the algorithm Wu et al. liken theirs to, and not by tensorflow-text's
own learner: that one takes counts from every prefix of a piece it does not keep (tensorflow/text issue 583), so it
finds no common beginnings of words, and it does not meet a vocabulary size.
"""
import itertools
import json
from collections.abc import Iterable, Iterator

import tensorflow as tf

from data_prep import UserError
from data_prep.text.ids import EOS, UNK

MARK = '▁'
_SPECIAL = 4
_BYTES = [f'<0x{i:02X}>' for i in range(256)]  # their names, SentencePiece's
# In the ops, text is a string of bytes, each written as the character of its number (Latin-1). So an unknown character
# falls apart into its bytes by itself, and the mark, which is no byte, cannot be taken for text.
_NUL = '\u0100'  # stands for byte 0, at which the ops' tables would end
_SUFFIX = '##'  # how FastWordpieceTokenizer tells a piece that does not begin a word; the text never sees it
_BATCH = 10000


def normalized(lines: Iterable[str], normalization: str) -> Iterator[str]:
    """Lines as the vocabulary is learned from: normalised, with single blanks."""
    rest = iter(lines)
    while batch := list(itertools.islice(rest, _BATCH)):
        words = _words(tf.constant(batch), normalization)
        for line in tf.strings.reduce_join(words, axis=-1, separator=' ').numpy():
            yield line.decode()


def _words(text: tf.Tensor, normalization: str) -> tf.RaggedTensor:
    """[n] strings -> ragged [n, (words)]; bytes that are no UTF-8 become U+FFFD."""
    text = tf.strings.unicode_transcode(text, 'UTF-8', 'UTF-8', errors='replace')
    if normalization == 'nfkc':
        import tensorflow_text
        text = tensorflow_text.normalize_utf8(text, 'NFKC')
    return tf.strings.split(text)


def serialize(learned: list[str], normalization: str, byte_fallback: bool, vocab_size: int) -> bytes:
    """A model of exactly `vocab_size` pieces.

    Args:
      learned: pieces of a BPE model: the special ones, merges by rank, then single characters.
      byte_fallback: the 256 bytes take the place of the single-byte characters and of the last merges.

    Raises:
      UserError: bytes and characters alone are more than `vocab_size`, or all pieces are fewer.
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
    """Whether these are word pieces; SentencePiece's models are protocol buffers and never begin like this."""
    return model.startswith(b'{')


def pieces(model: bytes) -> list[str]:
    """The pieces in order of their ids."""
    return _parsed(model)['pieces']


def _parsed(model: bytes) -> dict:
    """What `serialize` wrote.

    Raises:
      ValueError: it is something else.
    """
    found = json.loads(model)
    known = found.get('pieces') if isinstance(found, dict) else None
    if not (isinstance(known, list) and len(known) > _SPECIAL and all(isinstance(piece, str) for piece in known)
            and found.get('normalization') in ('nfkc', 'identity') and isinstance(found.get('byte_fallback'), bool)):
        raise ValueError('it begins like one of word pieces and goes on otherwise')
    return found


class WordPieces(tf.Module):
    """A vocabulary at work, as TensorFlow ops; importing this needs tensorflow-text.

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
        # Of an unknown character, the first byte becomes UNK and those that continue it nothing.
        taken = set(table)
        unknown = [i for i, single in enumerate(singles) if single not in taken]
        self._ids = tf.constant([*range(len(table)), *(-1 if 0x80 <= i < 0xC0 else UNK for i in unknown)])
        self._cut = tensorflow_text.FastWordpieceTokenizer(
            table + [singles[i] for i in unknown], suffix_indicator=_SUFFIX, unknown_token=special[UNK],
            no_pretokenization=True, max_bytes_per_word=2 ** 31 - 1, token_out_type=tf.int32)
        self._texts = tf.constant([b'', b'', b'', ' ⁇ '.encode(), *(bytes([i]) for i in range(first - _SPECIAL)),
                                   *(piece.replace(MARK, ' ').encode() for piece in known)])

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """[n] strings -> ragged [n, (length)] int32 ids, each row ending in EOS."""
        words = _words(text, self._normalization)
        latin = tf.strings.unicode_transcode(words.flat_values, 'ISO-8859-1', 'UTF-8')
        latin = MARK + tf.strings.regex_replace(latin, r'\x00', _NUL)
        ids = self._cut.tokenize(words.with_flat_values(latin)).merge_dims(1, 2)
        ids = tf.gather(self._ids, ids)
        ids = tf.ragged.boolean_mask(ids, ids >= 0)
        return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS)], 1)

    def texts(self, ids: tf.Tensor) -> tf.Tensor:
        """Ids of any shape -> what each stands for, a blank where a word begins."""
        return tf.gather(self._texts, ids)

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Ragged [n, (length)] int32 ids -> [n] strings; bytes that make no character become U+FFFD."""
        text = tf.strings.strip(tf.strings.reduce_join(tf.gather(self._texts, ids), axis=-1))
        return tf.strings.unicode_transcode(text, 'UTF-8', 'UTF-8', errors='replace')


def _latin(text: bytes) -> str:
    return text.decode('latin-1').replace('\0', _NUL)


def _entry(piece: str) -> str:
    """A piece as FastWordpieceTokenizer's table holds it."""
    return MARK + _latin(piece[1:].encode()) if piece.startswith(MARK) else _SUFFIX + _latin(piece.encode())
