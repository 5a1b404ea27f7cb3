"""The papers' metrics as a TFMA metric, so that TFMA provides slices, thresholds and TensorBoard's views."""
import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.metrics import metric_util

from pipelines.evaluation import corpus
from pipelines.evaluation.predictions import WEIGHT
from pipelines.evaluation.thresholds import OPTIONAL


class CorpusMetric(tfma.metrics.Metric):
    """A metric of `corpus`, from counts that TFMA adds up over slices and workers.

    TFMA's own `Bleu`, for one, yields a BLEUScore object, which cannot be compared with a threshold.

    Args:
      name, place, target: see `corpus.metric`.
    """

    def __init__(self, name: str, place: int = 0, target: str = ''):
        super().__init__(metric_util.merge_per_key_computations(_computations), name=name, place=place, target=target)


def _computations(name: str, place: int, target: str, eval_config=None, model_name: str = '', output_name: str = ''):
    key = tfma.metrics.MetricKey(name=name, model_name=model_name, output_name=output_name)
    feature = f'{model_name or "candidate"}_well_formed' if name == 'well_formed' else ''
    read = feature or (WEIGHT if name in OPTIONAL else '')
    return [tfma.metrics.MetricComputation(
        keys=[key], combiner=Sums(key, (name, place, target), eval_config, feature),
        preprocessors=[tfma.metrics.FeaturePreprocessor([read])] if read else None)]  # None: labels, predictions


class Sums(beam.CombineFn):
    """Sums of a metric's counts, and the metric computed from them.

    Args:
      asked: arguments of `corpus.metric`.
      feature: a feature of the example to count in place of label and prediction: whether an output was well formed.
    """

    def __init__(self, key, asked: tuple[str, int, str], eval_config=None, feature: str = ''):
        self._key, self._asked, self._eval_config, self._feature = key, asked, eval_config, feature

    @property
    def _metric(self) -> corpus.Metric:
        return corpus.metric(*self._asked)  # not an attribute: Beam pickles this object, and functions are no data

    def create_accumulator(self):
        return np.zeros(self._metric.size)

    def add_input(self, accumulator, element):
        if self._feature:
            value = (element.features or {}).get(self._feature)
            return accumulator + self._metric.counts(corpus.Row([], '', *np.ravel([] if value is None else value)[:1]))
        for label, outputs, _ in metric_util.to_label_prediction_example_weight(
                element, eval_config=self._eval_config, model_name=self._key.model_name,
                output_name=self._key.output_name, flatten=False):
            [target] = _plain(label)
            [weight] = np.ravel((element.features or {}).get(WEIGHT, 1.0))
            accumulator = accumulator + self._metric.counts(corpus.Row(_plain(outputs), target, weight=weight))
        return accumulator

    def merge_accumulators(self, accumulators):
        return np.sum(list(accumulators), axis=0)

    def extract_output(self, accumulator):
        return {self._key: self._metric.score(accumulator)}


def _plain(value) -> list:
    return [item.decode() if isinstance(item, bytes) else item for item in np.ravel(value).tolist()]
