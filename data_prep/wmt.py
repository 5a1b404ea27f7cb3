"""Parallel text: files, tf.Examples and batches of sentence pairs (Vaswani et al. 5.1).

The Beam job is in `text/job.py`, the only part that needs Beam.
"""
import dataclasses
import hashlib
import os
from collections.abc import Callable

import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from data_prep.core.input_pipeline import InputConfig
from data_prep.text import subwords
from data_prep.text.schema import LENGTHS, SPLITS, SUBWORDS, Config  # noqa: F401 (the names of a data module)

UNIT = 'pairs'
TASK = 'text'
JOB = 'data_prep.text.job'


@dataclasses.dataclass
class Input(InputConfig):
    """Settings that turn pairs into batches.

    A batch has the shape of one bucket. With `tokens`, a bucket of length L holds `tokens / L` rows, rounded down to a
    multiple of `rows_multiple_of`, so that any number of replicas dividing it sees the same batches.

    `swapped` is the share of the pairs, drawn anew in every epoch, that training sees the other way round: target to
    source. What the source is written in tells a net which way to go. It is not Vaswani et al.'s but bidirectional
    training (Ding, Wu & Tao 2021), who give the first third of all steps both directions: a phase of
    `train.curriculum`.
    """
    swapped: float = 0.0

    def __post_init__(self):
        if not 0 <= self.swapped <= 1:
            raise ValueError(f'swapped is a share of the pairs, 0 to 1; it is {self.swapped}')


def decoder(folder: str, config: Input, training: bool) -> Callable:
    """Return the function that decodes a batch of records; see `decode`. Only in training it swaps pairs.

    Raises:
      UserError: the data set's subwords were changed after its records were made.
    """
    subword_model(folder)
    if not training or not config.swapped:
        return decode
    return lambda serialized, length, seeds: _swapped(decode(serialized, length), seeds, config.swapped)


def decode(serialized: tf.Tensor, length: tf.Tensor, seeds: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
    """Decode serialized tf.Examples [rows] to `inputs` and `targets`, int32 [rows, length], with 0 as padding.

    An empty record becomes a row of padding. Nothing is random, so `seeds` are ignored.
    """
    del seeds
    features = {name: tf.io.RaggedFeature(tf.int64) for name in LENGTHS}
    parsed = tf.io.parse_example(serialized, features)
    shape = tf.stack([-1, length])
    return {name: tf.cast(parsed[name].to_tensor(subwords.PAD, shape=shape), tf.int32) for name in LENGTHS}


def _swapped(pairs: dict[str, tf.Tensor], seeds: tf.Tensor, share: float) -> dict[str, tf.Tensor]:
    """Exchange inputs and targets of this share of the rows, each drawn by its seed."""
    drawn = tf.map_fn(lambda seed: tf.random.stateless_uniform([], seed, alg='philox'), seeds,
                      fn_output_signature=tf.float32)
    swap = (drawn < share)[:, tf.newaxis]
    return {'inputs': tf.where(swap, pairs['targets'], pairs['inputs']),
            'targets': tf.where(swap, pairs['inputs'], pairs['targets'])}


def assets(folder: str, config: Input | None = None) -> subwords.Tokenizer:
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
