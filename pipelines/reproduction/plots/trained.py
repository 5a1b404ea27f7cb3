"""Access to a study's runs: choose one, and load its net with trained weights, its data and images."""
import os
from collections.abc import Iterator

import tensorflow as tf

from data_prep import UserError
from data_prep.core import records
from pipelines.core import config as configs
from pipelines.core.pipeline import Pipeline
from pipelines.training import checkpoints

IMAGES_PER_BATCH = 256  # images per batch through a net


def run(study, setting: str):
    """Return the first run of a setting, or of the study.

    Raises:
      UserError: there is none.
    """
    for each in study.runs:
        if setting in ('', each.setting):
            return each
    raise UserError(f'There is no run of the setting {setting!r}. Settings with runs: '
                    f'{", ".join(dict.fromkeys(each.setting for each in study.runs)) or "none"}.')


def config(pipeline: Pipeline) -> configs.Config:
    """Return the pipeline's configuration, with the model's empty keys filled from its data set."""
    if not configs.empty_keys(pipeline.config):
        return pipeline.config
    return configs.with_data_set(pipeline.config, records.read_manifest(_examples(pipeline)).model)


def net(pipeline: Pipeline) -> tf.keras.Model:
    """Return the image net a pipeline trained: its functional model, (image, seed) -> …, with trained weights."""
    known = config(pipeline)
    nets = known.model_spec.build(known.model)
    checkpoints.restore(nets, os.path.join(pipeline.outputs('train')['model_run'].uri, 'weights'))
    return next(iter(nets.values()))


def split(pipeline: Pipeline, name: str) -> records.Split:
    """Open one split of the pipeline's data set, to be read by number."""
    return records.open_split(_examples(pipeline), name)


def pictures(pipeline: Pipeline, name: str, numbers) -> Iterator:
    """Yield batches of a split's images as in validation, float32 [n, crop, crop, 3], in the given order."""
    settings, of = pipeline.config, split(pipeline, name)
    decode = tf.function(settings.data_spec.decoder(_examples(pipeline), settings.input, training=False),
                         autograph=False)
    for start in range(0, len(numbers), IMAGES_PER_BATCH):
        serialized = tf.constant(of.read(numbers[start:start + IMAGES_PER_BATCH]))
        yield decode(serialized, tf.constant(0), tf.zeros([len(serialized), 2], tf.int32))['image']


def _examples(pipeline: Pipeline) -> str:
    return pipeline.outputs('prepare')['examples'].uri
