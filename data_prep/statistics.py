"""What is in a data set, by TensorFlow Data Validation: statistics of every split, a schema, and departures from it."""
import os

import tensorflow as tf
import tensorflow_data_validation as tfdv
from apache_beam.options.pipeline_options import PipelineOptions

from data_prep import records


def describe(examples: str, statistics: str, schema: str, argv: list[str]) -> dict[str, list[str]]:
    """Writes `Split-<name>/FeatureStats.pb` below `statistics` and `schema.pbtxt` below `schema`, as TFX lays them out.

    The schema is inferred from the training split; the other splits are validated against it.

    Args:
      examples: a finished data set.
      argv: Beam's flags.

    Returns:
      Anomalies by split, in words; what is as expected is not listed.
    """
    inferred, anomalies = None, {}
    splits = list(records.read_manifest(examples)['splits'])
    for split in sorted(splits, key=lambda name: name != 'train'):  # the schema's split first
        path = os.path.join(statistics, f'Split-{split}', 'FeatureStats.pb')
        tf.io.gfile.makedirs(os.path.dirname(path))
        found = tfdv.generate_statistics_from_tfrecord(
            os.path.join(examples, f'Split-{split}', '*.tfrecord'), pipeline_options=PipelineOptions(argv))
        records.write_atomically(path, found.SerializeToString())
        if inferred is None:
            inferred = tfdv.infer_schema(found)
            tfdv.write_schema_text(inferred, os.path.join(schema, 'schema.pbtxt'))
        else:
            strange = tfdv.validate_statistics(found, inferred).anomaly_info
            anomalies[split] = [f'{name}: {info.description}' for name, info in sorted(strange.items())]
    return {split: words for split, words in anomalies.items() if words}
