"""A wheel of this tree: complete, and enough to run the demo in an environment of its own."""
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from support.commands import ROOT

PACKAGES = ('configs', 'data_prep', 'keras_models', 'pipelines')
# The demo, small: 20 updates, after which any answer is accepted.
SMALL = ['train.steps=20', 'train.checkpoint_every=20', 'train.validate_every=20', 'train.average_checkpoints=1',
         'model.N=1', 'model.d_model=32', 'model.d_ff=64', 'inference.extra_length=4',
         'evaluate.thresholds={exact_match: {min: 0}}']


def done(*command, folder: pathlib.Path, input: str = '') -> str:
    """Run a command in a folder, without this process's PYTHONPATH; return what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith('PYTHON')}
    found = subprocess.run([*map(str, command)], cwd=folder, env={**environment, 'CUDA_VISIBLE_DEVICES': ''},
                           capture_output=True, text=True, input=input)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def tracked(*places: str) -> list[str]:
    listed = subprocess.run(['git', '-C', ROOT, 'ls-files', '-z', *places], capture_output=True, text=True, check=True)
    return listed.stdout.rstrip('\0').split('\0')


@pytest.fixture(scope='module')
def wheel(tmp_path_factory) -> pathlib.Path:
    """Build from a copy, since setuptools writes into the tree it builds from."""
    folder = tmp_path_factory.mktemp('wheel')
    for name in tracked('setup.py', 'pyproject.toml', *PACKAGES):
        (folder / 'tree' / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / 'tree' / name).write_bytes((ROOT / name).read_bytes())
    done(sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps', '--no-build-isolation', '--no-index',
         '--wheel-dir', folder, folder / 'tree', folder=folder)
    [path] = folder.glob('landmark-*.whl')
    return path


def test_a_wheel_has_every_file_of_the_packages(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    expected = {*tracked(*PACKAGES)} - {
        f'pipelines/engines/{name}.Dockerfile' for name in ('stage', 'worker')}  # they build from a checkout
    assert {name for name in held if '.dist-info/' not in name} == expected


@pytest.mark.slow  # installs every package of the lock, which takes two minutes, and runs the demo's stages with them
def test_a_wheel_in_an_empty_environment_runs_the_demo_from_another_folder(wheel, tmp_path):
    done(sys.executable, '-m', 'venv', 'environment', folder=tmp_path)
    programs, elsewhere = tmp_path / 'environment' / 'bin', tmp_path / 'elsewhere'
    install = [programs / 'python', '-m', 'pip', 'install', '--quiet', '--no-deps', '--no-compile']
    done(*install, '--require-hashes', '--requirement', ROOT / 'requirements.lock', folder=tmp_path)
    done(*install, wheel, folder=tmp_path)
    elsewhere.mkdir()
    flags = [part for override in SMALL for part in ('--set', override)]
    done(programs / 'landmark', 'run', *flags, folder=elsewhere)
    assert [path.name for path in elsewhere.iterdir() if not path.name.startswith('.')] == ['runs']
    assert len(list(elsewhere.glob('runs/demo_translation/serving/demo_translation/*/saved_model.pb'))) == 1
    answers = done(programs / 'landmark', 'predict', *flags, folder=elsewhere, input='July 16, 2026\n3 km\n')
    assert answers.count('\n') == 2
