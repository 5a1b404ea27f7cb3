"""Imports of the commands: almost none for `--help`, and only the necessary ones for a stage."""
import os
import subprocess
import sys

import pytest

from pipelines.core import artifacts, config, roles, stage
from support.commands import ROOT, command, imported_modules, imported_packages

# What each stage uses of the packages that take long to import, some of them by way of another: TensorFlow Data
# Validation and Model Analysis are Beam jobs, and what Model Analysis imports is not ours to choose.
USES = {
    'prepare': {'apache_beam', 'tensorflow_data_validation', 'sentencepiece'},
    'train': {'orbit', 'rich'},
    'export': {'tensorflow_text', 'tensorflow_serving'},
    'evaluate': {'apache_beam', 'tensorflow_model_analysis', 'tensorflow_data_validation', 'sklearn', 'tensorflow_text',
                 'sacrebleu', 'matplotlib', 'jinja2', 'rich', 'babel'},
    'infra_validate': set(),  # the fresh process it starts loads the model
    'push': {'jinja2', 'tensorflow_serving'},  # the messages of its configuration files
}
HEAVY = set().union(*USES.values(), {'tensorflow_addons', 'babel', 'torch', 'ctranslate2', 'seaborn'})
QUICK = ['train.steps=2', 'train.checkpoint_every=2', 'train.validate_every=2', 'train.log_every=2',
         'train.average_checkpoints=1', 'input.buckets=[16]', 'evaluate.thresholds={bleu: {min: 0}}']


@pytest.fixture(autouse=True)
def _told(monkeypatch):
    monkeypatch.setenv('PYTHONPROFILEIMPORTTIME', '1')


@pytest.mark.parametrize('name', [
    *stage.STAGES, 'run', 'predict', 'lineage', 'educate', 'import_weights', 'learning_curve', 'reproduce'])
def test_help_answers_without_tensorflow(name):
    """In 0.1 s, where importing TensorFlow takes 4."""
    found = imported_packages(command(f'pipelines.{name}', '--help', new_process=True))
    assert 'argparse' in found and not found & {'tensorflow', 'numpy', 'official', 'keras', *HEAVY}


# Training is what a changed closure would repeat at the highest cost. All six take 38 s, most of it imports.
STAGES = [pytest.param(name, marks=[] if name == 'train' else pytest.mark.slow) for name in stage.STAGES]


@pytest.fixture(scope='module')
def imported(config_file, tmp_path_factory, request) -> dict[str, set[str]]:
    """The modules imported by each stage that a test of this run asks for; those before it only leave their outputs."""
    asked = [item.callspec.params['name'] for item in request.session.items if 'imported' in item.fixturenames]
    flags = ['--config', config_file, '--pipeline_root', str(tmp_path_factory.mktemp('root')),
             *(part for each in QUICK for part in ('--set', each))]
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('PYTHONPROFILEIMPORTTIME', '1')
        for name in stage.STAGES[:1 + max(map(stage.STAGES.index, asked))]:
            done = command(f'pipelines.{name}', *flags, new_process=name in asked)
            assert done.returncode == 0, done.stderr[-2000:]
            found |= {name: imported_modules(done)} if name in asked else {}
    return found


@pytest.mark.parametrize('name', STAGES)
def test_a_stage_imports_what_it_uses(name, imported):
    assert {module.split('.')[0] for module in imported[name]} & HEAVY == USES[name]


@pytest.mark.parametrize('name', STAGES)
def test_a_stage_hashes_what_it_imports(name, imported, config_file):
    """All of the project that a stage imported is in its closure, less what is named here with the reason."""
    loaded = config.load(config_file)

    def closure(roots):
        return {*artifacts.closure(roots)}
    own = {module for module in imported[name] if module.split('.')[0] in artifacts.PACKAGES
           and artifacts._imports(module)[0] != artifacts._NO_CODE}
    found = stage.get(name)
    hashed = closure([*found.modules, *roles.sources(loaded, found.roles)])
    # The configuration is read by these modules' dataclasses; the values themselves are in the fingerprint.
    read = closure(roles.sources(loaded, ('data', 'model', 'serving')))
    # `FRAME` says the reason for each; what only it imports looks up, prints and draws as it does.
    # Statistics are drawn by the report's section about data; by the checkpoints, every stage knows train's inputs.
    frame = {*artifacts.FRAME} | closure(['data_prep.core.records', 'data_prep.core.files', 'data_prep.core.statistics',
                                          'pipelines.evaluation.scorers', 'pipelines.training.checkpoints'])
    # Whether this process follows another is asked of every stage, so the tops of their modules are imported.
    commands = {*(f'pipelines.{each}' for each in stage.STAGES), 'pipelines.serving.layout',
                'pipelines.training.strategy'}
    assert sorted(own - hashed - read - frame - commands) == []
    assert {'pipelines.core.config', 'pipelines.core.roles'} <= own and hashed & own


def test_a_configuration_imports_nothing_heavy():
    code = ('from pipelines.core import config; '
            '[config.load(f"demo_{name}") for name in ("translation", "images", "tryon")]')
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, env={**os.environ, 'CUDA_VISIBLE_DEVICES': ''},
                          capture_output=True, text=True, timeout=300)
    assert not imported_packages(done) & HEAVY
