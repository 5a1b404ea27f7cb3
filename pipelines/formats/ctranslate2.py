"""Write a trained Transformer for CTranslate2, an inference engine for CPUs, in float32 or 8-bit integers.

Weights are written in float32, because the engine converts them when it loads them (`compute_type`).
"""
import typing

import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from data_prep.text import subwords
from data_prep.text.ids import PAD
from keras_models import transformer
from keras_models.formats import transformer_ctranslate2 as engine

if typing.TYPE_CHECKING:
    from pipelines.core.config import Config
    from pipelines.formats.export import Trained
    from pipelines.formats.table import Format

POSITIONS = 1024  # the engine truncates inputs here by default
CHECKED = 16  # validation pairs whose probabilities must equal ours
TOLERANCE = 1e-3  # in a token's log probability; rounding alone gave 1e-5


def check(format: 'Format', config: 'Config') -> None:
    """Refuse models the engine cannot run."""
    if not isinstance(config.model, transformer.Config):
        raise UserError(f'--to {format.name} needs a model of keras_models.transformer; model.module is '
                        f'{config.values["model"]["module"]}.')


def write(format: 'Format', trained: 'Trained', folder: str) -> dict:
    """Write the engine's files; return its version, and the largest difference of a log probability from ours.

    Raises:
      UserError: the engine computes something else.
    """
    import ctranslate2
    del format  # there is one
    config, examples = trained.config, trained.examples
    assert config.data_spec.subword_model is not None
    longest = config.inference.max_input_length + config.inference.extra_length
    engine.save(engine.specification(
        trained.nets, config.model, subwords.pieces(config.data_spec.subword_model(examples)), subwords.UNK,
        max(longest, POSITIONS)), folder)
    difference = engine.difference(folder, trained.nets, *validation_pairs(config, examples, longest))
    if not difference < TOLERANCE:
        raise UserError(f'CTranslate2 {ctranslate2.__version__} gives a token of the validation text a log probability '
                        f'that differs by {difference:.2g} from ours. Install the version in requirements.lock.')
    return {'ctranslate2': ctranslate2.__version__, 'difference': difference}


def validation_pairs(config: 'Config', examples: str, longest: int) -> tuple[list, list]:
    """Return source and target ids of the first few validation pairs, each row ending in the end symbol."""
    split = records.open_split(examples, 'validation')
    found = config.data_spec.decoder(examples, config.input, False)(
        split.read(range(min(CHECKED, len(split)))), longest + 1, None)
    fit = tf.reduce_all(tf.stack([side[:, longest] == PAD for side in found.values()]), 0)
    source, target = (tf.RaggedTensor.from_tensor(tf.boolean_mask(found[side], fit), padding=PAD).to_list()
                      for side in ('inputs', 'targets'))
    return source, target
