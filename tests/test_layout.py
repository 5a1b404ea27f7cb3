"""The rules the folders keep."""
import ast
import importlib
import pathlib

import pytest

from pipelines import config, stage
from support.commands import ROOT

MODULES = [path for package in ('data_prep', 'keras_models', 'pipelines') for path in (ROOT / package).rglob('*.py')]


def imports(path: pathlib.Path, top_level_only=False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found.update(alias.name.split('.')[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split('.')[0])
    return found


@pytest.mark.parametrize('path', MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_flow_one_way(path):
    package = path.relative_to(ROOT).parts[0]
    forbidden = {'data_prep': {'keras_models', 'pipelines'}, 'keras_models': {'data_prep', 'pipelines'},
                 'pipelines': set()}[package]
    found = imports(path)
    assert not found & forbidden
    if 'apache_beam' in found:
        assert package == 'data_prep' or path.name in ('metrics.py', 'prepare.py', 'evaluate.py')
    if 'tensorflow_addons' in found:
        assert path == ROOT / 'keras_models' / 'viton' / 'adversary.py'
    assert 'tests' not in found and 'shared' not in path.read_text().split('/')


@pytest.mark.parametrize('name', [*stage.STAGES, 'predict', 'features', 'run', 'import_weights', 'lineage',
                                  'reproduce'])
def test_a_command_starts_without_heavy_imports(name):
    """What a command imports before it has read its flags; the rest is imported where it is used."""
    heavy = {'tensorflow', 'apache_beam', 'tensorflow_model_analysis', 'official', 'orbit', 'keras', 'rich'}
    assert not imports(ROOT / 'pipelines' / f'{name}.py', top_level_only=True) & heavy


@pytest.mark.parametrize('path', sorted((ROOT / 'configs').glob('*.yaml')), ids=lambda path: path.name)
def test_every_shipped_configuration_loads_and_has_a_run_card(path):
    loaded = config.load(path.stem)
    assert loaded.name == path.stem
    head = [line for line in path.read_text().splitlines() if line.startswith('#')]
    card = '\n'.join(head)
    for word in ('command:', 'data:', 'time:', 'expect:'):
        assert word in card, f'{path.name}: the head comment lacks {word}'


def test_no_stage_is_missing_its_module():
    for name in stage.STAGES:
        found = stage.get(name)
        assert found.name == name and set(found.needs) <= set(stage.STAGES)
        assert callable(importlib.import_module(found.module).main)


def test_files_fit_one_thought_and_functions_a_screen():
    for path in MODULES:
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 70, f'{path}: {node.name}'
