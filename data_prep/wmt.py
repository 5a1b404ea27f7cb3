"""Parallel text: files, tf.Examples and batches of sentence pairs (Vaswani et al. 5.1).

The Beam job is in `text/job.py`, the only part that needs Beam.
"""
import dataclasses
import hashlib
import os
import re
from collections.abc import Callable

import tensorflow as tf

from data_prep import UserError
from data_prep.core import archives, records, splits
from data_prep.core.input_pipeline import InputConfig
from data_prep.text import subwords

SPLITS = ('train', 'validation', 'test')
LENGTHS = ('inputs', 'targets')
SUBWORDS = 'subwords.model'
UNIT = 'pairs'
TASK = 'text'
JOB = 'data_prep.text.job'
Input = InputConfig


@dataclasses.dataclass
class Config(subwords.Config):
    """Location of the pairs, and their preparation.

    A split is a list of files: two by two, source and target line by line (`[a.en, a.de, b.en, b.de]`), or tables
    ending in .tsv or .csv with the columns source, target and, optionally, kind. Any may be gzipped (.gz). A file
    ending in .sgm or .sgml is NIST's SGML, the format of WMT's test sets; every `<seg>` is a line. A file inside an
    archive (.tgz, .tar.gz, .tar) is named by a path that continues inside it, such as
    `training-parallel-europarl-v7.tgz/training/europarl-v7.de-en.en` or, gzipped inside a tar,
    `training-giga-fren.tar/giga-fren.release2.fixed.en.gz`.

    With `header`, a table's first row names its columns, and `columns` may define source, target and kind by templates:
    `{source: '{Instruction} {Input}', target: '{Response}'}`.

    For a split without a list, `validation_fraction` or `test_fraction` of the training pairs are split off by a hash
    of the source text, so pairs with the same source stay together.

    `samples: cldr` replaces files by the corpus of `data_prep/text/samples.py`. Training pairs longer than `max_length`
    subwords on either side are filtered; validation and test keep every pair. Training pairs that are also in
    validation or test, identical except for white space at the ends, are counted, and filtered if `remove_duplicates`
    (the paper does not say whether it did).
    """
    samples: str = ''
    source: str = 'en'  # language of the input, by its ISO 639 code
    target: str = 'de'  # language of the output
    folder: str = ''  # base of relative paths in the lists below
    train: list[str] = dataclasses.field(default_factory=list)  # files to train with
    validation: list[str] = dataclasses.field(default_factory=list)  # files to validate with
    test: list[str] = dataclasses.field(default_factory=list)  # files to test with
    validation_fraction: float = 0.0
    test_fraction: float = 0.0
    header: bool = False
    columns: dict[str, str] = dataclasses.field(default_factory=dict)
    remove_duplicates: bool = False
    max_length: int = 256
    max_dead_letters: float = 0.01  # fraction of unreadable lines above which preparation stops
    pairs_per_block: int = 2000  # pairs read by one Beam element
    pairs_per_shard: int = 200000  # pairs in one TFRecord file

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.max_dead_letters <= 1:
            raise ValueError(f'max_dead_letters is a fraction of the records, 0 to 1; it is {self.max_dead_letters}')
        self._check_columns()
        if self.samples not in ('', 'cldr'):
            raise ValueError(f'samples must be cldr or empty; it is {self.samples!r}')
        if self.samples:
            return
        if not self.train:
            raise ValueError('train must list files, for example --set data.train=[train.en,train.de]')
        splits.check(self, 'files', 'pairs')

    def _check_columns(self):
        given = set(self.columns)
        if given and not (self.header and {'source', 'target'} <= given <= {'source', 'target', 'kind'}):
            raise ValueError('columns needs header: true and templates of source and target (and kind), such as '
                             "{source: '{Instruction} {Input}', target: '{Response}'}; "
                             f'header is {self.header} and columns names {", ".join(sorted(given))}')
        for part, template in self.columns.items():
            if not re.search(r'\{[^{}]+\}', template):
                raise ValueError(f"columns.{part} {template!r} names no column in braces, such as '{{Response}}'")

    def files(self, split: str) -> list[str]:
        """Return the split's files, below `folder` if one is given; for a path inside an archive, the archive."""
        paths = [archives.split(os.path.join(self.folder, file))[0] for file in getattr(self, split)]
        given = [self.subword_model] if split == 'train' and self.subword_model else []
        return list(dict.fromkeys([*paths, *given]))


def decoder(folder: str, config: InputConfig, training: bool) -> Callable:
    """Return the function that decodes a batch of records, in training and evaluation; see `decode`.

    Raises:
      UserError: the data set's subwords were changed after its records were made.
    """
    del config, training
    subword_model(folder)
    return decode


def decode(serialized: tf.Tensor, length: tf.Tensor, seeds: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
    """Decode serialized tf.Examples [rows] to `inputs` and `targets`, int32 [rows, length], with 0 as padding.

    An empty record becomes a row of padding. Nothing is random, so `seeds` are ignored.
    """
    del seeds
    features = {name: tf.io.RaggedFeature(tf.int64) for name in LENGTHS}
    parsed = tf.io.parse_example(serialized, features)
    shape = tf.stack([-1, length])
    return {name: tf.cast(parsed[name].to_tensor(subwords.PAD, shape=shape), tf.int32) for name in LENGTHS}


def assets(folder: str, config: InputConfig | None = None) -> subwords.Tokenizer:
    """Return what a served model needs of the data set: its tokenizer."""
    del config
    return subwords.Tokenizer(subword_model(folder))


def subword_model(folder: str) -> bytes:
    """Return the subwords a data set was made with, serialized.

    Raises:
      UserError: they are missing or were changed.
    """
    path = os.path.join(folder, SUBWORDS)
    if not tf.io.gfile.exists(path):
        raise UserError(f'{path} is missing. Run `python -m pipelines.prepare` again.')
    with tf.io.gfile.GFile(path, 'rb') as file:
        model = file.read()
    if hashlib.sha256(model).hexdigest() != records.read_manifest(folder).vocabulary.get('sha256'):
        raise UserError(f'{path} is not the tokenizer this data set was made with (SHA-256 differs). Restore it, or '
                        'remove this data set and run `python -m pipelines.prepare` again.')
    return model


def examples(serialized: list[bytes]) -> tuple[list[str], dict[str, list[str]]]:
    """Convert serialized tf.Examples to model inputs and text for people.

    Returns:
      Inputs of a model, the source lines; and text by column: `source`, `target` and `kind`.
    """
    parsed = tf.io.parse_example(serialized, {name: tf.io.FixedLenFeature([], tf.string, '')
                                              for name in ('source', 'target', 'kind')})
    columns = {name: [text.decode() for text in column.numpy()] for name, column in parsed.items()}
    return columns['source'], columns
