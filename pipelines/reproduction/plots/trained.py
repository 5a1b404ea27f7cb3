"""What exhibits ask of a study's runs: which one, its net with the trained weights, its pictures."""
import os
from collections.abc import Iterator

from data_prep import UserError

IMAGES_PER_BATCH = 256  # pictures through a net together


def run(study, setting: str):
    """The first run of a setting; of the study, if none is named.

    Raises:
      UserError: there is none.
    """
    for each in study.runs:
        if setting in ('', each.setting):
            return each
    raise UserError(f'There is no run of the setting {setting!r}; there are '
                    f'{", ".join(dict.fromkeys(each.setting for each in study.runs)) or "none"}.')


def config(pipeline):
    """The pipeline's configuration; the model's keys that are empty take what its data set says of them."""
    from data_prep.core import records
    from pipelines.core import config as configs
    if not configs.empty_keys(pipeline.config):
        return pipeline.config
    return configs.with_data_set(pipeline.config, records.read_manifest(_examples(pipeline)))


def net(pipeline):
    """The image net a pipeline trained: its functional model, (image, seed) -> …, with those weights."""
    from pipelines.training import checkpoints
    known = config(pipeline)
    nets = known.model_spec.build(known.model)
    checkpoints.restore(nets, os.path.join(pipeline.outputs('train')['model_run'].uri, 'weights'))
    return next(iter(nets.values()))


def split(pipeline, name: str):
    """One split of the pipeline's data set, to be read by number."""
    from data_prep.core import records
    return records.open_split(_examples(pipeline), name)


def pictures(pipeline, name: str, numbers) -> Iterator:
    """Pictures of a split as validation shows them, float32 [n, crop, crop, 3], some at once and in the order given."""
    import tensorflow as tf
    settings, of = pipeline.config, split(pipeline, name)
    decode = tf.function(settings.data_spec.decoder(_examples(pipeline), settings.input, training=False),
                         autograph=False)
    for start in range(0, len(numbers), IMAGES_PER_BATCH):
        serialized = tf.constant(of.read(numbers[start:start + IMAGES_PER_BATCH]))
        yield decode(serialized, tf.constant(0), tf.zeros([len(serialized), 2], tf.int32))['image']


def _examples(pipeline) -> str:
    return pipeline.outputs('prepare')['examples'].uri
