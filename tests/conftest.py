"""Two logical CPUs before TensorFlow starts, and the small data the tests share."""
import os
import pathlib
import random
import subprocess
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
import tiny_text_model
from tensorflow.python.distribute import cross_device_utils  # noqa: E402
from tensorflow.python.framework.config import disable_op_determinism  # noqa: E402

from pipelines import stage, strategy  # noqa: E402

stage.quiet_libraries()
strategy.one_by_one()
strategy.two_logical_cpus()

ROOT = pathlib.Path(__file__).parent.parent
WORDS = {'zero': 'null', 'one': 'eins', 'two': 'zwei', 'three': 'drei', 'four': 'vier', 'five': 'fünf', 'six': 'sechs',
         'seven': 'sieben', 'eight': 'acht', 'nine': 'neun'}

CONFIG = """
data:
  module: data_prep.wmt
  folder: {folder}
  train: [train.tsv]
  validation: [validation.tsv]
  test: [test.tsv]
  vocab_size: 90
input:
  buckets: [8, 16]
  tokens: 256
model:
  module: keras_models.transformer
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  warmup_steps: 60
inference:
  extra_length: 8
  max_input_length: 24
train:
  steps: 20
  log_every: 5
  checkpoint_every: 10
  validate_every: 20
  average_checkpoints: 2
evaluate:
  batch_size: 16
  slices: [kind]
  thresholds:
    bleu: {{min: 0, max_drop: 100}}
"""


def write_pairs(folder: pathlib.Path, split: str, n: int, seed: int) -> None:
    """`n` pairs of number words in English and German, of two kinds."""
    draw = random.Random(seed)
    with open(folder / f'{split}.tsv', 'w', encoding='utf-8') as file:
        for _ in range(n):
            words = draw.choices(list(WORDS), k=draw.randint(1, 9))
            file.write(f'{" ".join(words)}\t{" ".join(WORDS[word] for word in words)}\t'
                       f'{"short" if len(words) < 5 else "long"}\n')


@pytest.fixture(scope='session')
def raw(tmp_path_factory) -> pathlib.Path:
    """A folder with train.tsv, validation.tsv and test.tsv."""
    folder = tmp_path_factory.mktemp('raw')
    for seed, (split, n) in enumerate({'train': 3000, 'validation': 50, 'test': 40}.items()):
        write_pairs(folder, split, n, seed)
    return folder


@pytest.fixture(scope='session')
def config_file(raw, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp('config') / 'tiny.yaml'
    path.write_text(CONFIG.format(folder=raw))
    return str(path)


@pytest.fixture(scope='session')
def examples(config_file, tmp_path_factory) -> str:
    """The tiny corpus, prepared."""
    from data_prep import wmt_job
    from pipelines import config
    folder = str(tmp_path_factory.mktemp('examples'))
    wmt_job.run(config.load(config_file).data, folder, [])
    return folder


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    """Suffix -> SavedModel; they differ in what they answer."""
    folder = str(tmp_path_factory.mktemp('models'))
    return {suffix: tiny_text_model.save(folder, suffix) for suffix in '!?.'}


@pytest.fixture(scope='module')
def plain_graphs():
    """For graphs that are run a few times: rewriting one of 35,000 operations takes as long as building it."""
    tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': True})
    yield
    tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': False})


@pytest.fixture
def destination(tmp_path):
    return str(tmp_path / 'serving' / 'shouter')


def command(*args: str, cwd=None, **kwargs) -> subprocess.CompletedProcess:
    """Runs `python -m …` in a process of its own."""
    environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'CUDA_VISIBLE_DEVICES': ''}
    return subprocess.run([sys.executable, '-m', *args], cwd=cwd, env=environment, capture_output=True, text=True,
                          timeout=900, **kwargs)


def renumber() -> None:
    """Before a strategy whose reductions have other shapes than an earlier one's: TensorFlow numbers both alike."""
    cross_device_utils.INSTANCE_KEY_START_NUMBER += 10_000


@pytest.fixture(autouse=True)
def _fresh_keras():
    yield
    tf.keras.backend.clear_session()
    disable_op_determinism()  # which a training run in this process switched on
    renumber()
