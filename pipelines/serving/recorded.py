"""Recorded requests: TFRecords of PredictionLog, as TensorFlow Serving's request logging and our exports write them."""
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from pipelines.serving import signatures

Request = tuple[str, Mapping[str, np.ndarray]]  # signature, inputs


def read(path: str) -> Iterator[Request]:
    """Yield the Predict requests of a file."""
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        if request.inputs:
            yield request.model_spec.signature_name or signatures.DEFAULT, {
                name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
