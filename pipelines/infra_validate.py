"""Load the exported model in a fresh process and run its warm-up requests, as a server would.

python -m pipelines.infra_validate
"""
import json
import os
import subprocess
import sys
import time

from pipelines.core import cli, stage
from pipelines.serving.layout import FORMAT, WARMUP


def execute(context: stage.Context) -> None:
    from data_prep.core import records
    from pipelines.core.pipeline import fresh
    from pipelines.serving.hashes import check_hashes
    folder = fresh(context.outputs['infra_blessing'])
    saved_model = os.path.join(context.inputs['model'].uri, FORMAT)
    check_hashes(saved_model)
    ok, reason = in_fresh_process(saved_model, context.config.infra_validate.max_seconds)
    verdict = 'INFRA_BLESSED' if ok else 'INFRA_NOT_BLESSED'
    records.write_atomically(os.path.join(folder, verdict), reason.encode())
    context.properties.update(infra_blessed=ok, reason=reason)
    print(f'infra_validate: {verdict}: {reason}.', flush=True)


def in_fresh_process(saved_model: str, max_seconds: float) -> tuple[bool, str]:
    """Return whether a new Python process can serve the model, and the reason."""
    started = time.monotonic()
    try:
        child = subprocess.run([sys.executable, '-m', 'pipelines.infra_validate', '--load', saved_model],
                               capture_output=True, text=True, timeout=max_seconds)
    except subprocess.TimeoutExpired:
        return False, f'loading and warm-up took longer than infra_validate.max_seconds {max_seconds:g}'
    if child.returncode:
        last = (child.stderr.strip().splitlines() or [f'exit code {child.returncode}'])[-1]
        return False, f'a fresh process could not serve it: {last}'
    found = json.loads(child.stdout.splitlines()[-1])
    return True, (f'a fresh process loaded it and answered {found["requests"]} warm-up requests in '
                  f'{time.monotonic() - started:.0f} s')


def serve_warmup(saved_model: str) -> int:
    """Run the warm-up requests through the serving signature; return their number.

    Raises:
      ValueError: there are none, an output is missing or not finite, or the graph holds an op that no server can run.
    """
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (registers the tokenizer's ops, as TensorFlow Serving does)
    from tensorflow_serving.apis import prediction_log_pb2
    model = tf.saved_model.load(saved_model)  # noqa: TID251 (after check_hashes)
    signature = model.signatures['serving_default']
    if must_compile(saved_model):
        raise ValueError('it holds functions marked for XLA, which TensorFlow Serving refuses; '
                         'export with export.jit: false')
    requests = 0
    for record in tf.data.TFRecordDataset(os.path.join(saved_model, WARMUP)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
        n = next(iter(inputs.values())).shape[0]
        for name, answer in signature(**inputs).items():
            if answer.shape[:1] != [n]:  # a scalar has no rows either
                raise ValueError(f'{name} has shape {answer.shape.as_list()}, but should have a row for each '
                                 f'of the {n} inputs')
            if answer.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(answer)):
                raise ValueError(f'{name} is not finite')
        requests += 1
    if not requests:
        raise ValueError('it has no warm-up requests')
    return requests


def must_compile(saved_model: str) -> bool:
    """Return whether any function of the graph is marked for compilation by XLA."""
    from tensorflow.python.saved_model import loader_impl
    functions = loader_impl.parse_saved_model(saved_model).meta_graphs[0].graph_def.library.function
    return any(holder.attr['_XlaMustCompile'].b for function in functions for holder in (function, *function.node_def))


STAGE = stage.Stage('infra_validate', execute, needs=('export',), outputs={'infra_blessing': 'InfraBlessing'},
                    sections=('infra_validate',))


def main(argv=None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ['--load']:  # the fresh process
        cli.prepare_libraries()
        print(json.dumps({'requests': serve_warmup(argv[1])}))
        return
    cli.main(STAGE, argv=argv)


if __name__ == '__main__':
    main(sys.argv[1:])
