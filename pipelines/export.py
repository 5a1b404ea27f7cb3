"""Export the trained weights as a SavedModel: raw text or image bytes in, text, labels or PNG out.

    python -m pipelines.export
    python -m pipelines.export --to tflite

With `--to` the same weights are written in another format, which needs no TensorFlow: for TensorFlow Lite (with
weights in float32, float16 or 8-bit integers), for ONNX's runtimes, or for CTranslate2, an inference engine for CPUs.
`python -m pipelines.evaluate --format` judges it, and `push` hands it over.
"""
import dataclasses
import json
import os
import sys
import typing
from collections.abc import Sequence

from pipelines.core import cli, commands, stage
from pipelines.formats.table import FORMATS
from pipelines.serving.layout import DESCRIPTION, FORMAT, WARMUP

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.config import Config
    from pipelines.core.pipeline import Pipeline


SAVED_MODEL = 'saved_model'


def execute(context: stage.Context) -> None:
    import tensorflow as tf

    from data_prep.core import records
    from keras_models.core import layers
    from pipelines.core.pipeline import fresh
    from pipelines.serving import familiarity
    from pipelines.serving.hashes import check_hashes
    from pipelines.training import checkpoints
    config, examples = context.config, context.inputs['examples'].uri
    inference = with_newest(config.inference, config.model_spec.exported_models)
    for other in held(inference, config.model_spec.exported_models):
        if tf.io.gfile.exists(os.path.join(other, 'saved_model.pb')):  # a missing model is reported when it is loaded
            check_hashes(other)
    nets = config.model_spec.build(config.model)
    checkpoints.restore(nets, os.path.join(context.inputs['model_run'].uri, 'weights'))
    module = config.model_spec.serving(nets, config.model, inference,
                                         config.data_spec.assets(examples, config.input), config.export.jit)
    folder = os.path.join(fresh(context.outputs['model']), FORMAT)
    tf.saved_model.save(module, folder, signatures=module.signatures())
    tf.io.gfile.makedirs(os.path.join(folder, 'assets.extra'))
    manifest = records.read_manifest(examples)
    vocabulary = manifest.vocabulary.get('sha256')
    if vocabulary:  # fine-tuning needs the same subwords
        name = config.data_spec.subwords
        tf.io.gfile.copy(os.path.join(examples, name), os.path.join(folder, 'assets.extra', name))
    description = {'name': config.name, 'model_module': config.values['model']['module'],
                   'data_module': config.values['data']['module'], 'vocabulary': vocabulary,
                   'agnostic': manifest.properties.get('agnostic'), 'config': config.values,
                   'foreign': context.inputs['model_run'].properties.get('foreign', {})}
    records.write_atomically(os.path.join(folder, DESCRIPTION), json.dumps(description, indent=1).encode())
    familiarity.write(config, examples, folder)
    split = records.open_split(examples, 'validation')
    inputs, _ = config.data_spec.examples(split.read(range(min(config.export.warmup_requests, len(split)))))
    asked = [spec.name for spec in module.signatures()['serving_default'].input_signature]
    write_warmup(folder, config.name, [each if isinstance(each, dict) else {asked[0]: each} for each in inputs])
    context.properties.update(parameters={name: layers.count_params(net) for name, net in nets.items()},
                              megabytes=round(_size(folder) / 1e6, 1))
    print(f'export: {context.properties["megabytes"]} MB SavedModel.', flush=True)


def write_warmup(folder: str, name: str, requests: list[dict]) -> None:
    """Write the requests TensorFlow Serving runs before it serves a version, so that no user waits for the first call.

    Args:
      requests: the signature's inputs by name, one row each.
    """
    import tensorflow as tf
    from tensorflow_serving.apis import model_pb2, predict_pb2, prediction_log_pb2
    with tf.io.TFRecordWriter(os.path.join(folder, WARMUP)) as writer:
        for inputs in requests:
            request = predict_pb2.PredictRequest(
                model_spec=model_pb2.ModelSpec(name=name, signature_name='serving_default'))
            for key, value in inputs.items():
                request.inputs[key].CopyFrom(tf.make_tensor_proto([value]))
            log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
            writer.write(log.SerializeToString())


def _size(folder: str) -> int:
    import tensorflow as tf
    return sum(tf.io.gfile.stat(os.path.join(directory, file)).length
               for directory, _, files in tf.io.gfile.walk(folder) for file in files)


def check(config: 'Config') -> None:
    """Refuse inference settings that the trained model will not support."""
    config.model_spec.check(config.model, config.inference)


def with_newest(inference, keys: Sequence[str]):
    """Return inference settings with each folder of pushed versions under `keys` replaced by its newest version."""
    from pipelines.core import artifacts

    def newest(named):
        return [*map(newest, named)] if isinstance(named, list) else (artifacts.version_folders(named) or [named])[-1]
    return dataclasses.replace(inference, **{key: newest(getattr(inference, key)) for key in keys})


def held(inference, keys: Sequence[str]) -> list[str]:
    """Return the folders of other exported models that this export embeds."""
    named = [getattr(inference, key) for key in keys]
    return [folder for value in named for folder in (value if isinstance(value, list) else [value]) if folder]


def asked(pipeline: 'Pipeline') -> dict:
    """Return the digests of those models, since the configuration holds only their paths."""
    from pipelines.core import artifacts
    inference, keys = pipeline.config.inference, pipeline.config.model_spec.exported_models
    return {folder: artifacts.digest(folder) for folder in held(with_newest(inference, keys), keys)}


def watched(config: 'Config') -> list[str] | None:
    """Return None if it embeds other exported models, whose digests need all their bytes."""
    return None if held(config.inference, config.model_spec.exported_models) else []


STAGE = stage.Stage('export', execute, check=check, extra_inputs=asked, watched=watched, needs=('prepare', 'train'),
                    outputs={'model': 'Model'}, sections=('data', 'input', 'model', 'inference', 'export'),
                    roles=('data', 'model', 'serving'))


def main(argv=None) -> None:
    flags = cli.parser('export', __doc__)
    flags.add_argument('--to', choices=[SAVED_MODEL, *FORMATS], default=SAVED_MODEL,
                       help='format to write (default: saved_model)')
    args, _ = flags.parse_known_args(argv)
    outputs = cli.main(STAGE if args.to == SAVED_MODEL else stage.get(f'export-{args.to}'), flags, argv)
    if args.to in outputs:
        client = os.path.join(outputs[args.to].uri, f'{outputs[args.to].properties["client"]}.py')
        print(f'export: `{commands.python()} {client} --help` says how to run it.', flush=True)


if __name__ == '__main__':
    main(sys.argv[1:])
