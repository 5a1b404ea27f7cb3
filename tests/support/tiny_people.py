"""Generated people and a configuration of try-on networks a sixteenth as wide, which learn from them."""
import pathlib

from data_prep.people import job as people_job
from data_prep.people import sample_people
from pipelines.core import config

DATA = """\
name: people
data:
  module: data_prep.tryon
  folder: {folder}
  train: [train_pairs.txt]
  validation_fraction: 0.3
  test: [test_pairs.txt]
"""
CONFIG = DATA + """\
input: {{rows: 4, rows_multiple_of: 2, size: [64, 64]}}
model:
  module: keras_models.viton.try_on
  low: [32, 32]
  segmentation: {{width: 0.0625}}
  geometric_matching: {{width: 0.0625, synchronized: true}}
  alias: {{width: 0.0625, lambda_percept: 0}}
train: {{steps: 4, checkpoint_every: 2, validate_every: 4, log_every: 2, average_checkpoints: 1}}
"""


def prepare(folder: pathlib.Path, pairs: int, *overrides: str) -> tuple[str, str]:
    """Makes `pairs` people to train on and two to test with. Returns the configuration's file and the examples."""
    sample_people.write_people(str(folder), pairs, 2, (160, 120))
    file, examples = folder / 'people.yaml', str(folder / 'examples')
    file.write_text(CONFIG.format(folder=folder))
    people_job.run(config.load(str(file), list(overrides)).data, examples, [])
    return str(file), examples
