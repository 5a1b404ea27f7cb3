"""Shared source-target subwords (Vaswani et al. 5.1): learned and used through SentencePiece.

One model file serves three users: the Beam job (sentencepiece, batched), the exported SavedModel (tensorflow-text, in
the graph), and the trainer, which needs only the ids below.
"""
import dataclasses
import functools
import io
from collections.abc import Iterable
from typing import Literal

from data_prep import UserError

PAD, BOS, EOS, UNK = 0, 1, 2, 3


@dataclasses.dataclass
class Config:
    """`split_digits` makes every digit a token of its own, without which unseen numbers cannot be copied.

    `subword_sample`: how many training pairs the subwords are learned from, chosen by a stable hash.
    """
    vocab_size: int = 37000
    subword_kind: Literal['bpe', 'unigram'] = 'bpe'
    split_digits: bool = False
    byte_fallback: bool = False
    normalization: Literal['nmt_nfkc', 'nfkc', 'identity'] = 'nmt_nfkc'
    character_coverage: float = 1.0
    subword_sample: int = 500000


def learn(lines: Iterable[str], config: Config) -> bytes:
    """Learns a subword model.

    Args:
      lines: text of both languages.
      config: `vocab_size` counts the four special pieces too.

    Returns:
      The serialized SentencePiece model.

    Raises:
      UserError: the text is too small or too varied for that vocabulary.
    """
    import sentencepiece
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model,
            vocab_size=config.vocab_size, model_type=config.subword_kind,
            pad_id=PAD, bos_id=BOS, eos_id=EOS, unk_id=UNK, split_digits=config.split_digits,
            byte_fallback=config.byte_fallback, normalization_rule_name=config.normalization,
            character_coverage=config.character_coverage, max_sentence_length=1 << 16, minloglevel=2)
    except (RuntimeError, OSError) as error:
        reason = ' '.join(str(error).split(') ', 2)[-1].split())
        raise UserError(f'data.vocab_size {config.vocab_size} does not fit the training text: {reason}') from error
    return model.getvalue()


@functools.lru_cache(maxsize=2)
def processor(model: bytes):
    """The SentencePiece processor of a serialized model, kept between bundles of a worker."""
    import sentencepiece
    return sentencepiece.SentencePieceProcessor(model_proto=model)


class Tokenizer:
    """The same subwords as TensorFlow ops, for use inside a SavedModel; importing this needs tensorflow-text."""

    def __init__(self, model: bytes):
        import tensorflow_text
        self._pieces = tensorflow_text.SentencepieceTokenizer(model, add_eos=True)

    @property
    def resource(self):
        """What a SavedModel must track to hold the subwords."""
        return self._pieces

    def tokenize(self, text):
        """[n] strings -> ragged [n, (length)] int32 ids, each row ending in EOS; an empty line is EOS alone."""
        return self._pieces.tokenize(text)

    def detokenize(self, ids):
        """[n, length] int32 ids, ended by EOS or padded -> [n] strings."""
        import tensorflow as tf
        ended = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) > 0
        kept = tf.ragged.boolean_mask(ids, ~ended & (ids != PAD) & (ids != BOS))
        return self._pieces.detokenize(kept)
