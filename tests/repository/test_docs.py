"""Generated pages and the schema are up to date; the schema accepts shipped configurations and rejects typos."""
import importlib.util
import json
import re

import jsonschema
import pytest
import yaml

from support.commands import ROOT

SCHEMA = json.loads((ROOT / 'configs' / 'schema.json').read_text())
CONFIGS = sorted(path for path in (ROOT / 'configs').rglob('*.yaml') if 'reproduce' not in path.parts)


class Loader(yaml.SafeLoader):
    """YAML as editors read it: 1e-9 is a number."""


Loader.add_implicit_resolver('tag:yaml.org,2002:float', re.compile(r'^[-+]?\d+(\.\d*)?[eE][-+]?\d+$'),
                             list('-+0123456789'))


def errors(values):
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(values)]


def of_docs(name):
    """Import a module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / 'docs' / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope='module')
def generate():
    return of_docs('generate')


def test_generated_pages_are_up_to_date(generate):
    stale = [name for name, text in generate.pages().items() if (ROOT / name).read_text() != text]
    assert not stale, 'run `python docs/generate.py`'


def test_architectures_are_drawn_from_the_models():
    architectures = of_docs('architectures')
    images = {name: (ROOT / 'docs' / 'images' / f'{name}.svg').read_text() for name in architectures.DRAWINGS}
    assert images == {name: draw() for name, draw in architectures.DRAWINGS.items()}, 'run `python docs/draw.py`'
    assert images['vgg'].count('>3x3, 512<') == 4 * 4 + 6 + 8  # A, A-LRN, B and C; D; E


def test_a_comment_of_several_lines_is_a_keys_meaning_from_its_beginning(generate):
    from pipelines.core import sections
    said = {key.name: key.meaning for key in generate.keys(sections.TrainConfig)}
    assert said['curriculum'].startswith('First phases, such as') and said['curriculum'].endswith('as configured.')
    assert said['monitor'].startswith('Metric whose best checkpoint') and said['monitor'].endswith('last checkpoints.')


def test_a_key_without_a_meaning_is_refused(generate, monkeypatch):
    from keras_models.core import optimizers
    monkeypatch.setattr(generate, 'meanings', lambda cls, names: {})
    with pytest.raises(ValueError, match='learning_rate has no meaning'):
        generate.keys(optimizers.Descent)


@pytest.mark.parametrize('path', CONFIGS, ids=[path.stem for path in CONFIGS])
def test_a_shipped_configuration_is_of_the_schema(path):
    assert errors(yaml.load(path.read_text(), Loader)) == []  # noqa: S506 (a SafeLoader)


@pytest.mark.parametrize('values', [
    {'trian': {'steps': 1}}, {'train': {'step': 1}}, {'train': {'steps': 'many'}}, {'train': {'jit': 'maybe'}},
    {'model': {'module': 'keras_models.vgg', 'd_model': 512}}, {'data': {'module': 'os'}},
    {'model': {'module': 'keras_models.viton.try_on', 'alias': {'lambda_perecpt': 1}}}], ids=str)
def test_the_schema_refuses(values):
    assert errors(values)


def test_the_schema_leaves_a_module_of_ones_own_alone():
    assert errors({'model': {'module': 'keras_models.lenet', 'learning_rate': 0.02}}) == []
