"""Decode validation examples during training, and score the answers as the gate does (`train.monitor: bleu`)."""
import numpy as np
import tensorflow as tf
from tensorflow import keras

from data_prep.core import records
from pipelines.core.config import Config
from pipelines.evaluation import corpus


class Decoded:
    """A metric of the gate on `train.monitor_examples` examples spread over the validation split.

    It decodes with nets of its own, built as for the export: one device, float32.

    Args:
      examples: the data set's folder.
    """

    def __init__(self, config: Config, examples: str):
        spec, split = config.model_spec, records.open_split(examples, 'validation')
        count = min(config.train.monitor_examples, len(split))
        self._inputs, columns = config.data_spec.examples(split.read([i * len(split) // count for i in range(count)]))
        self._targets, self._predict, self._jit = columns['target'], spec.predict, is_compiled(config)
        self._metric = corpus.metric(config.train.monitor, target=getattr(config.data, 'target', ''))
        self._nets = spec.build(config.model)
        self._model = spec.serving(self._nets, config.model, config.inference,
                                   config.data_spec.assets(examples, config.input), False)

    def __call__(self, nets: dict[str, keras.Model]) -> float:
        """Return the metric of these nets."""
        for name, own in self._nets.items():
            own.set_weights(nets[name].get_weights())
        results = self._predict(self._model, self._inputs, jit=self._jit)
        rows = [corpus.Row(result['answers'], target, result.get('well_formed'))
                for result, target in zip(results, self._targets)]
        return self._metric.score(np.sum([self._metric.counts(row) for row in rows], 0))


def is_compiled(config: Config) -> bool:
    """Return whether XLA compiles decoding: as `train.jit` says, and if that is auto, on a GPU."""
    return bool(tf.config.list_physical_devices('GPU')) if config.train.jit == 'auto' else config.train.jit
