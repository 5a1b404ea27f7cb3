"""Set up every test: runner plugins, tiers, and small data and models shared by many files."""
import fcntl
import gc
import hashlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# As in an environment that is activated: messages name its interpreter `python`.
os.environ['PATH'] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get('PATH', os.defpath)])
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of what a shell starts in the background: none would come
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # support/garbage.py switches it on again once the tests are collected

import pytest  # noqa: E402

from support import commands, copier, text_data, tiny_text_model  # noqa: E402

pytest_plugins = ['support.garbage', 'support.cost', 'support.tensorflow_state', 'support.order',
                  'support.forked_files', 'support.skips', 'support.ids', 'support.drawn', 'support.quick_beam']


def shared(tmp_path_factory, name: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """A folder of this run that the first process to ask for it makes, and that all others only read."""
    here = tmp_path_factory.getbasetemp()
    folder = (here.parent if os.environ.get('PYTEST_XDIST_WORKER') else here) / f'shared-{name}'
    folder.mkdir(exist_ok=True)
    with open(folder / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (done := folder / 'done').exists():
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope='session')
def raw(tmp_path_factory) -> pathlib.Path:
    """A folder with train.tsv, validation.tsv and test.tsv."""
    def make(folder):
        for seed, (split, n) in enumerate({'train': 3000, 'validation': 50, 'test': 40}.items()):
            text_data.write_pairs(folder, split, n, seed)
    return shared(tmp_path_factory, 'raw', make)


@pytest.fixture(scope='session')
def config_file(raw, tmp_path_factory) -> str:
    text = text_data.CONFIG.format(folder=raw)
    return str(shared(tmp_path_factory, 'config', lambda folder: (folder / 'tiny.yaml').write_text(text)) / 'tiny.yaml')


@pytest.fixture(scope='session')
def examples(config_file, tmp_path_factory) -> str:
    """The tiny corpus, prepared."""
    def make(folder):
        from data_prep.text import job as text_job
        from pipelines.core import config
        text_job.run(config.load(config_file).data, str(folder / 'examples'), [])
    return str(shared(tmp_path_factory, 'examples', make) / 'examples')


@pytest.fixture(scope='session')
def translator_root(config_file, tmp_path_factory) -> str:
    """A root after `python -m pipelines.run`, by which the tiny corpus is learned; tests that run more stages copy it.

    Beside it, `printed.txt` holds what the command printed.
    """
    def make(folder):
        done = commands.command('pipelines.run', '--config', config_file, '--pipeline_root', str(folder / 'root'),
                                *text_data.FLAGS)
        assert done.returncode == 0, done.stdout + done.stderr
        (folder / 'printed.txt').write_text(done.stdout, 'utf-8')
    return str(shared(tmp_path_factory, 'translator', make) / 'root')


@pytest.fixture(scope='session')
def trained_copier(tmp_path_factory) -> Callable:
    """A configuration -> its nets after `copier.trained`, to which a run of the tests trains them once."""
    def nets(c):
        name = hashlib.sha256(repr(c).encode()).hexdigest()[:16]
        folder = shared(tmp_path_factory, f'copier-{name}', lambda folder: copier.save(copier.trained(c), folder))
        return copier.load(c, folder)
    return nets


@pytest.fixture(scope='module')
def models(tmp_path_factory):
    """Suffix -> SavedModel; they differ in what they answer."""
    folder = str(tmp_path_factory.mktemp('models'))
    return {suffix: tiny_text_model.save(folder, suffix) for suffix in '!?.'}


@pytest.fixture
def destination(tmp_path):
    return str(tmp_path / 'serving' / 'shouter')


@pytest.fixture(scope='session')
def blazepose(tmp_path_factory) -> str:
    """Fetch BlazePose's networks into a folder, through pip's configured package index."""
    def make(folder):
        done = subprocess.run([sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', '--dest', str(folder),
                               'mediapipe==0.10.21'], capture_output=True, text=True)
        if done.returncode:
            pytest.fail(f'pip cannot download mediapipe 0.10.21, which holds BlazePose: {done.stderr.strip()[-300:]}')
        fetched = commands.command('pipelines.fetch', 'blazepose', '--out', str(folder))
        assert fetched.returncode == 0, fetched.stderr
    return str(shared(tmp_path_factory, 'blazepose', make))
