"""Export the trained weights for CTranslate2, an inference engine for CPUs, in float32 or 8-bit integers.

    python -m pipelines.export --to ctranslate2

The folder needs no TensorFlow: it has the engine's own files, the subwords, and a `translate.py` to start from. Weights
are written in float32, because the engine converts them when it loads them (`compute_type`).
"""
import importlib.util
import inspect
import json
import os
import tempfile
import typing

from data_prep import UserError
from pipelines.core import stage

if typing.TYPE_CHECKING:  # keep imports light until the flags are parsed
    from pipelines.core.config import Config

POSITIONS = 1024  # the engine truncates inputs here by default
CHECKED = 16  # validation pairs whose probabilities must equal ours
TOLERANCE = 1e-3  # in a token's log probability; rounding alone gave 1e-5


def execute(context: stage.Context) -> None:
    import ctranslate2
    import tensorflow as tf

    from data_prep.core import records
    from data_prep.text import subwords
    from keras_models.formats import transformer_ctranslate2 as engine
    from pipelines.core.pipeline import fresh
    from pipelines.serving.kit import translate
    from pipelines.training import checkpoints
    config, examples, model_run = context.config, context.inputs['examples'].uri, context.inputs['model_run']
    nets = config.model_spec.build(config.model)
    checkpoints.restore(nets, os.path.join(model_run.uri, 'weights'))
    assert config.data_spec.subword_model is not None
    subword_model = config.data_spec.subword_model(examples)
    longest = config.inference.max_input_length + config.inference.extra_length
    specification = engine.specification(nets, config.model, subwords.pieces(subword_model), subwords.UNK,
                                         max(longest, POSITIONS))
    description = {'name': config.name, 'ctranslate2': ctranslate2.__version__, 'model_run': model_run.digest,
                   'config': config.values}
    folder = fresh(context.outputs['ctranslate2'])
    with tempfile.TemporaryDirectory() as scratch:  # the engine only reads and writes local disks
        engine.save(specification, scratch)
        difference = engine.difference(scratch, nets, *validation_pairs(config, examples, longest))
        if not difference < TOLERANCE:
            raise UserError(f'CTranslate2 {ctranslate2.__version__} gives a token of the validation text a log '
                            f'probability that differs by {difference:.2g} from ours. Install the version in '
                            'requirements.lock.')
        for name in os.listdir(scratch):
            tf.io.gfile.copy(os.path.join(scratch, name), os.path.join(folder, name))
    for name, content in {'subwords.model': subword_model, 'translate.py': inspect.getsource(translate).encode(),
                          'landmark.json': json.dumps(description, indent=1).encode()}.items():
        records.write_atomically(os.path.join(folder, name), content)
    context.properties.update(ctranslate2=ctranslate2.__version__, difference=difference)
    print(f'export_ctranslate2: log probabilities of validation text agree with ours to {difference:.0e}.', flush=True)


def validation_pairs(config: 'Config', examples: str, longest: int) -> tuple[list, list]:
    """Return source and target ids of the first few validation pairs, each row ending in the end symbol."""
    from data_prep.core import records
    split = records.open_split(examples, 'validation')
    _, texts = config.data_spec.examples(split.read(range(min(CHECKED, len(split)))))
    tokenize = config.data_spec.assets(examples).tokenize
    sides = [tokenize(texts[side]).to_list() for side in ('source', 'target')]
    fit = [pair for pair in zip(*sides) if max(map(len, pair)) <= longest]
    return [source for source, _ in fit], [target for _, target in fit]


def check(config: 'Config') -> None:
    """Refuse models the engine cannot run, and a missing engine."""
    from keras_models import transformer
    if not isinstance(config.model, transformer.Config):
        raise UserError('--to ctranslate2 needs a model of keras_models.transformer; model.module is '
                        f'{config.values["model"]["module"]}.')
    if importlib.util.find_spec('ctranslate2') is None:
        raise UserError('--to ctranslate2 needs a package that is not installed. Run '
                        '`python -m pip install "ctranslate2>=4.8,<5"` and start again.')


STAGE = stage.Stage('export_ctranslate2', execute, needs=('prepare', 'train'), outputs={'ctranslate2': 'Model'},
                    sections=('data', 'model', 'export'), roles=('data', 'model'), check=check,
                    room='serving')
