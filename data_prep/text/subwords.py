"""Subwords shared by source and target (Vaswani et al. 5.1): learning and using them, for all kinds.

Kinds are SentencePiece's BPE and unigram pieces, and Wu et al.'s word pieces (`wordpieces.py`). One model file serves
three users: the Beam job (`encoder`, batched), the exported SavedModel (`Tokenizer`, in the graph), and the trainer,
which needs only the ids below.
"""
import concurrent.futures
import dataclasses
import functools
import io
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from data_prep import UserError
from data_prep.text.ids import BOS, EOS, PAD, UNK

WORD = '▁'  # marks the start of a word
_SEEDING = threading.Lock()  # of SentencePiece's seed, which is the process's


@dataclasses.dataclass
class Config:
    """Settings from which subwords are learned.

    `subword_kind`: `bpe`, the paper's for German; `unigram`; or `wordpiece`, the paper's for French, whose
    `normalization` is `nfkc` or `identity`. `split_digits` makes every digit a token of its own; without it unseen
    numbers cannot be copied. `normalization: identity` keeps text unchanged except for spaces at its beginning; with
    word pieces, which split text at spaces, several spaces also become one. `byte_fallback` spells characters outside
    the vocabulary by their UTF-8 bytes; without it they become UNK. `character_coverage`: the fraction of the training
    text's characters, the most frequent ones, in the alphabet. `symbols`: words that are one piece each wherever a word
    begins with them, such as brackets, which are not text. `subword_sample`: number of training pairs the subwords are
    learned from, chosen by a stable hash. `subword_samples`: further training pairs made of each, the same text split
    at random into other subwords: by BPE-dropout (Provilkov et al. 2020), whose probability is `sampling_alpha`, or
    for `unigram` by Kudo 2018, whose smoothing it is; other ones in every process, see `sampled`. `subword_model`: path
    of a `subwords.model` to reuse; fine-tuning needs it, since weights depend on their subwords.
    """
    vocab_size: int = 37000  # subwords to learn
    subword_kind: Literal['bpe', 'unigram', 'wordpiece'] = 'bpe'
    split_digits: bool = False
    byte_fallback: bool = False
    normalization: Literal['nmt_nfkc', 'nfkc', 'identity'] = 'nmt_nfkc'
    character_coverage: float = 1.0
    symbols: list[str] = dataclasses.field(default_factory=list)
    subword_sample: int = 250000
    subword_samples: int = 0
    sampling_alpha: float = 0.1
    subword_model: str = ''

    def __post_init__(self):
        if self.subword_kind == 'wordpiece' and self.normalization == 'nmt_nfkc':
            raise ValueError("normalization nmt_nfkc is SentencePiece's own; with subword_kind wordpiece it must be "
                             'nfkc or identity')
        if not 0 < self.sampling_alpha < 1:
            raise ValueError(f'sampling_alpha must be between 0 and 1; it is {self.sampling_alpha}')
        if self.subword_kind == 'wordpiece' and self.subword_samples:
            raise ValueError('subword_samples draws pieces of SentencePiece, bpe or unigram; leave it out, or choose '
                             'such a subword_kind')
        if self.subword_kind == 'wordpiece' and self.symbols:
            raise ValueError('symbols are pieces of SentencePiece, bpe or unigram; leave them out, or choose such a '
                             'subword_kind')


def learn(lines: Iterable[str], config: Config) -> bytes:
    """Learn a subword model.

    Args:
      lines: text of both languages.
      config: `vocab_size` includes the four special pieces and is met exactly.

    Returns:
      The serialized model, of SentencePiece or of word pieces.

    Raises:
      UserError: the text is too small or too varied for that vocabulary.
    """
    if config.subword_kind != 'wordpiece':
        return _train(lines, config)
    from data_prep.text import wordpieces
    bpe = dataclasses.replace(config, subword_kind='bpe', normalization='identity', byte_fallback=False)
    learned = _train(wordpieces.normalized(lines, config.normalization), bpe,
                     hard_vocab_limit=not config.byte_fallback)  # with the 256 bytes, fewer pieces need to be learned
    return wordpieces.serialize(pieces(learned), config.normalization, config.byte_fallback, config.vocab_size)


def possible(lines: Iterable[str], config: Config) -> int:
    """Return how many of `vocab_size` BPE pieces can be learned from the lines."""
    return len(pieces(_train(lines, config, hard_vocab_limit=False)))


def _train(lines: Iterable[str], config: Config, **options) -> bytes:
    import sentencepiece
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model,
            vocab_size=config.vocab_size, model_type=config.subword_kind,
            pad_id=PAD, bos_id=BOS, eos_id=EOS, unk_id=UNK, split_digits=config.split_digits,
            byte_fallback=config.byte_fallback, normalization_rule_name=config.normalization,
            remove_extra_whitespaces=config.normalization != 'identity',
            character_coverage=config.character_coverage, max_sentence_length=1 << 16, minloglevel=2,
            user_defined_symbols=[f'{WORD}{symbol}' for symbol in config.symbols], **options)
    except (RuntimeError, OSError) as error:
        reason = ' '.join(str(error).rsplit('] ', 1)[-1].split())
        raise UserError(f'data.vocab_size {config.vocab_size} does not fit the training text: {reason}') from error
    return model.getvalue()


@functools.lru_cache(maxsize=2)
def processor(model: bytes):
    """Return the SentencePiece processor of a serialized model, cached between bundles of a worker.

    Raises:
      UserError: the model holds word pieces.
    """
    import sentencepiece

    from data_prep.text import wordpieces
    if wordpieces.is_model(model):
        raise UserError('This needs subwords of SentencePiece, but the data set has word pieces. '
                        'Prepare it with data.subword_kind bpe or unigram.')
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def pieces(model: bytes) -> list[str]:
    """Return a model's pieces in order of their ids; `▁` marks the beginning of a word."""
    from data_prep.text import wordpieces
    if wordpieces.is_model(model):
        return wordpieces.pieces(model)
    found = processor(model)
    return found.id_to_piece(list(range(found.get_piece_size())))


@functools.lru_cache(maxsize=2)
def encoder(model: bytes) -> Callable[[list[str]], list[list[int]]]:
    """Return the function from lines to ids, each row ending in EOS, cached between bundles of a worker."""
    from data_prep.text import wordpieces
    if wordpieces.is_model(model):
        import tensorflow as tf
        tokenize = tf.function(Tokenizer(model).tokenize, input_signature=[tf.TensorSpec([None], tf.string)],
                               autograph=False)
        return lambda lines: tokenize(tf.constant(lines, tf.string)).to_list()
    return lambda lines: processor(model).encode(lines, add_eos=True)


def sampled(model: bytes, lines: Sequence[str], alpha: float, seed: int) -> list[list[int]]:
    """Return the ids of lines that are split at random (`Config.sampling_alpha`), each row ending in EOS.

    Within a process the same arguments give the same ids: SentencePiece seeds a generator in each thread that draws, so
    every call draws in a thread of its own. Another process gives others, since SentencePiece 0.2.3 adds a secret of
    the process to every seed.
    """
    import sentencepiece

    def draw():
        return [processor(model).encode(line, add_eos=True, enable_sampling=True, nbest_size=-1, alpha=alpha)
                for line in lines]
    with _SEEDING, concurrent.futures.ThreadPoolExecutor(1) as pool:
        sentencepiece.set_random_generator_seed(seed)
        return pool.submit(draw).result()


def versions(model: bytes, sides: Sequence[list[str]], config: Config, training: bool) -> list[list[list[list[int]]]]:
    """Return the ids of each side's lines; in training also of every one of `subword_samples` draws."""
    found = [[encoder(model)(lines) for lines in sides]]
    for number in range(config.subword_samples if training else 0):
        found.append([sampled(model, lines, config.sampling_alpha, zlib.crc32(f'{number} {lines[0]}'.encode()))
                      for lines in sides])
    return found


class Tokenizer:
    """The same subwords as TensorFlow ops, for use inside a SavedModel; importing this needs tensorflow-text."""

    def __init__(self, model: bytes):
        import tensorflow_text

        from data_prep.text import wordpieces
        self._pieces = (wordpieces.WordPieces(model) if wordpieces.is_model(model)
                        else tensorflow_text.SentencepieceTokenizer(model, add_eos=True))

    @property
    def resource(self):
        """Object a SavedModel must track to contain the subwords."""
        return self._pieces

    def tokenize(self, text):
        """Map [n] strings to ragged [n, (length)] int32 ids, each row ending in EOS; an empty line is only EOS."""
        return self._pieces.tokenize(text)

    def detokenize(self, ids):
        """Map [n, length] int32 ids, ended by EOS or padded, to [n] strings."""
        import tensorflow as tf
        ended = tf.cumsum(tf.cast(ids == EOS, tf.int32), axis=1) > 0
        kept = tf.ragged.boolean_mask(ids, ~ended & (ids != PAD) & (ids != BOS))
        return self._pieces.detokenize(kept)

    def subwords(self, ids):
        """Map [n, length] int32 ids, ended by EOS or padded, to subwords as strings.

        A space marks the start of a word; EOS and everything after it is ''.
        """
        import tensorflow as tf

        from data_prep.text import wordpieces
        if isinstance(self._pieces, wordpieces.WordPieces):
            found = self._pieces.texts(ids)
        else:
            found = tf.strings.regex_replace(self._pieces.id_to_string(ids), '▁', ' ')
        return tf.where((ids == PAD) | (ids == BOS) | (ids == EOS), '', found)

    def answer(self, text, ids):
        """Return a model's outputs for [n] lines and their predicted ids [n, length]: `text` [n], and possibly more."""
        del text
        return {'text': self.detokenize(ids)}
