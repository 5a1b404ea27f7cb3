"""Rules for the layout of the source folders."""
import ast
import importlib
import re
import subprocess
import sys
import tomllib

import pytest

from pipelines.core import config, shipped, stage
from support import linters
from support.commands import ROOT

MODULES = [path for package in ('data_prep', 'keras_models', 'pipelines') for path in (ROOT / package).rglob('*.py')]


HEAVY = 'import tensorflow\n'


def test_a_command_starts_without_heavy_imports(tmp_path):
    """TID253 checks what each of these files imports before it has read its flags, and no other file."""
    commands = [*stage.STAGES, 'predict', 'features', 'run', 'import_weights', 'lineage', 'reproduce', 'fetch', 'serve',
                'init', 'learning_curve', 'photos']
    (tmp_path / 'pipelines').mkdir()
    for name in (*commands, 'trainer'):
        (tmp_path / 'pipelines' / f'{name}.py').write_text(HEAVY)
    (tmp_path / 'pipelines' / 'run.py').write_text(f'def main():\n    {HEAVY}')
    assert {name for name, code in linters.ruff(tmp_path) if code == 'TID253'} == {*commands} - {'run'}


def test_imports_flow_one_way(tmp_path):
    """Each of import-linter's contracts is broken by an import that it is there for."""
    (tmp_path / 'pyproject.toml').write_text((ROOT / 'pyproject.toml').read_text())
    allowed = re.findall(r'"([a-z_.]+) -> (\w+)"', (ROOT / 'pyproject.toml').read_text())
    wrong = [('data_prep.core.records', 'pipelines.core.config'), ('keras_models.vgg', 'data_prep.core.records'),
             ('pipelines.train', 'apache_beam'), ('keras_models.vgg', 'tensorflow_addons'),
             ('pipelines.run', 'tests.conftest'), ('pipelines.training.jit', 'pipelines.reporting.contact_sheet'),
             ('pipelines.core.stage', 'pipelines.training.loop'), ('data_prep.core.files', 'data_prep.image.readers'),
             ('keras_models.core.losses', 'keras_models.vgg')]
    contracts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['importlinter']['contracts']
    named = [(name, 'os') for contract in contracts for key in ('source_modules', 'forbidden_modules')
             for name in contract.get(key, ()) if '.' in name]  # which must be there
    named += [(f'{container}.{name}', 'os') for contract in contracts for container in contract.get('containers', ())
              for layer in contract['layers'] for name in layer.split(' | ')]
    for importer, imported in allowed + wrong + named:
        path = tmp_path / f'{importer.replace(".", "/")}.py'
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (path.parent, tmp_path / importer.split('.')[0]):
            (folder / '__init__.py').touch()
        with path.open('a') as file:
            file.write(f'import {imported}\n')
    (tmp_path / 'pipelines' / 'core' / 'config.py').touch()
    report = linters.broken_contracts(tmp_path)
    assert 'Contracts: 0 kept, 8 broken' in report
    for importer, imported in wrong:
        assert re.search(rf'{importer} -> {imported.split(".")[0]}', report), (importer, imported)


def test_every_shipped_configuration_loads_and_has_a_run_card():
    for path in shipped.paths().values():
        assert config.load(path.stem).name == path.stem
        card = '\n'.join(line for line in path.read_text().splitlines() if line.startswith('#'))
        for word in ('command:', 'data:', 'time:', 'expect:'):
            assert word in card, f'{path.name}: the head comment lacks {word}'


def test_no_stage_is_missing_its_module():
    for name in stage.STAGES:
        found = stage.get(name)
        assert found.name == name and set(found.needs) <= set(stage.STAGES)
        [module] = found.modules
        assert callable(importlib.import_module(module).main)


def test_files_fit_one_thought_and_functions_a_screen():
    for path in MODULES:
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 70, f'{path}: {node.name}'


@pytest.mark.parametrize('old', sorted((ROOT / 'benchmarks').glob('*.py')), ids=lambda path: path.stem)
def test_a_benchmark_is_found_by_its_old_path(old):
    if old.stem != 'moved':
        [new] = re.findall(r"run\('(.*)'\)", old.read_text())
        assert new.endswith(f'/{old.name}') and (ROOT / 'benchmarks' / new).is_file()


def test_the_old_path_of_a_benchmark_names_the_new_one():
    command = [sys.executable, 'benchmarks/kill_points.py', '--help']
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith('usage: kill_points.py')
    assert 'benchmarks/robustness/kill_points.py' in done.stderr
