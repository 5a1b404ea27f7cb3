"""What every test finds: the plugins of the runner, the tiers, and small data and models shared by many files."""
import os
import pathlib

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from support import text_data, tiny_text_model  # noqa: E402

hypothesis.settings.register_profile('same everywhere', derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile('same everywhere')
pytest_plugins = ['support.cost', 'support.tensorflow_state', 'support.order', 'support.skips']


@pytest.fixture(scope='session')
def raw(tmp_path_factory) -> pathlib.Path:
    """A folder with train.tsv, validation.tsv and test.tsv."""
    folder = tmp_path_factory.mktemp('raw')
    for seed, (split, n) in enumerate({'train': 3000, 'validation': 50, 'test': 40}.items()):
        text_data.write_pairs(folder, split, n, seed)
    return folder


@pytest.fixture(scope='session')
def config_file(raw, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp('config') / 'tiny.yaml'
    path.write_text(text_data.CONFIG.format(folder=raw))
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


@pytest.fixture
def destination(tmp_path):
    return str(tmp_path / 'serving' / 'shouter')
