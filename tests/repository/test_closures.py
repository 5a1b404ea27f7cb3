"""A stage's hash covers everything that determines its output, and nothing else."""
import ast
import importlib.util

import grimp
import pytest

from pipelines.core import artifacts, config, roles, stage
from support.commands import ROOT

CONFIGS = ['demo_translation', 'treebank_sample_parsing', 'demo_images', 'vgg_d_imagenet_localisation', 'demo_tryon',
           'learning_machine_nim']
DRAWING = {'matplotlib', 'PIL', 'rich', 'jinja2', 'babel'}
BEAM = {'apache_beam', 'tensorflow_data_validation', 'tensorflow_model_analysis'}
# What no module in a stage's closure imports: packages, and parts of the project.
FOREIGN = {
    'prepare': {'keras_models', 'orbit', 'matplotlib', 'jinja2', 'tensorflow_model_analysis'},
    'train': DRAWING | BEAM | {'tensorflow_serving'},
    'educate': DRAWING | BEAM | {'tensorflow_serving'},
    'export': DRAWING | BEAM | {'orbit', 'jinja2'},
    'evaluate': {'matplotlib', 'PIL', 'jinja2', 'orbit', 'babel'},
    'infra_validate': DRAWING | BEAM | {'orbit'},
    'push': {'matplotlib', 'PIL', 'orbit', 'keras_models', *BEAM},
}


def closure(name: str, loaded) -> dict[str, str]:
    found = stage.get(name, loaded)
    return artifacts.closure([*found.modules, *roles.sources(loaded, found.roles)])


def imported(module: str) -> set[str]:
    """The top-level packages a module imports, also inside functions."""
    tree = ast.parse(open(importlib.util.find_spec(module).origin, encoding='utf-8').read())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {name.split('.')[0] for name in names}


@pytest.mark.parametrize('name', stage.STAGES)
def test_no_foreign_room_enters_a_stage(name):
    """Training holds no serving, Beam, drawing or progress code, a data set no model, an export no Beam."""
    for each in CONFIGS:
        loaded = config.load(each)
        found, real = closure(name, loaded), stage.name_of(name, loaded)
        for module in found:
            foreign = imported(module) & FOREIGN[real]
            assert not foreign, f'{each}: {real} hashes {module}, which imports {foreign}'
        if name == 'train':
            away = {loaded.model_spec.serving_module, loaded.model_spec.scorer_module, loaded.data_spec.job_module}
            assert not away & {*found}
            assert not [module for module in found if 'progress' in module or module.endswith('.job')]


def test_the_closure_of_training_is_this_one():
    """A module that enters or leaves it is looked at here: editing it trains every Transformer again."""
    assert {*closure('train', config.load('demo_translation'))} == {
        'data_prep', 'data_prep.core.archives', 'data_prep.core.files', 'data_prep.core.input_pipeline',
        'data_prep.core.records', 'data_prep.core.splits', 'data_prep.core.templates', 'data_prep.core.tfrecord',
        'data_prep.text.ids', 'data_prep.text.schema', 'data_prep.text.subwords', 'data_prep.text.wordpieces',
        'data_prep.wmt', 'keras_models', 'keras_models.core.layers', 'keras_models.core.losses',
        'keras_models.core.optimizers', 'keras_models.core.rematerialisation', 'keras_models.transformer',
        'keras_models.weights.checkpoint_file', 'pipelines.train', 'pipelines.training.best',
        'pipelines.training.checkpoints', 'pipelines.training.curriculum', 'pipelines.training.devices',
        'pipelines.training.ema', 'pipelines.training.facts', 'pipelines.training.hybrid_parallel',
        'pipelines.training.jit', 'pipelines.training.loop', 'pipelines.training.precision',
        'pipelines.training.strategy', 'pipelines.training.trainer'}


@pytest.fixture
def edited(monkeypatch):
    """Hashes a stage with one module's text changed by a function."""
    imports, text = artifacts._imports, artifacts._text

    def hashed(name, loaded, module, change) -> str:
        def changed(path):
            return change(text(path)) if path == importlib.util.find_spec(module).origin else text(path)
        with monkeypatch.context() as patch:
            patch.setattr(artifacts, '_text', changed)
            patch.setattr(artifacts, '_imports', lambda each: (
                imports.__wrapped__(each) if each == module else imports(each)))
            return artifacts.sha256(closure(name, loaded))
    return hashed


def test_a_constant_counts_in_every_module_and_a_docstring_in_none(edited):
    for each, name in (('demo_tryon', 'train'), ('demo_images', 'export'), ('demo_translation', 'evaluate')):
        loaded = config.load(each)
        found = closure(name, loaded)
        before = artifacts.sha256(found)
        for module in found:
            assert edited(name, loaded, module, lambda text: f'{text}\nANOTHER = 1\n') != before, module
            assert edited(name, loaded, module, lambda text: text.replace('"""', '"""Said otherwise. ', 1)
                          + '\n# A comment.\n') == before, module


@pytest.mark.parametrize('module', [
    'keras_models.text.translator', 'pipelines.reporting.report', 'pipelines.core.progress', 'data_prep.text.job',
    'pipelines.evaluate', 'keras_models.scores.fid'])
def test_other_parts_do_not_train_again(edited, module):
    for each in ('demo_translation', 'demo_tryon'):
        loaded = config.load(each)
        before = artifacts.sha256(closure('train', loaded))
        assert edited('train', loaded, module, lambda text: f'{text}\nANOTHER = 1\n') == before


def test_docstrings_of_everything_are_left_out_and_other_text_is_not():
    plain = 'def f():\n    return "a"\nclass C:\n    def g(self):\n        return 1\n'
    told = ('"""M."""\ndef f():\n    """F."""\n    return "a"\nclass C:\n    """C."""\n'
            '    def g(self):\n        "G."\n        return 1\n')
    dumps = [artifacts._tree(ast.parse(text)) for text in (plain, told, plain.replace('"a"', '"b"'))]
    assert dumps[0] == dumps[1] != dumps[2]


def test_what_is_copied_into_an_output_counts_as_it_is():
    """`export --to ctranslate2` leaves `translate.py`, comments and all."""
    modules = stage.get('export-ctranslate2').modules
    before = artifacts.sha256(artifacts.closure(modules))
    assert 'pipelines.serving.kit.translate' in artifacts.closure(modules)
    text = artifacts._text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts, '_text', lambda path: text(path) + '# A comment.\n' * path.endswith('translate.py'))
        artifacts._imports.cache_clear()
        assert artifacts.sha256(artifacts.closure(modules)) != before
    artifacts._imports.cache_clear()


def test_no_modules_import_each_other_in_a_circle():
    """Imports inside functions count. A package's own modules may import it, for it is imported before them."""
    graph = grimp.build_graph('data_prep', 'keras_models', 'pipelines')
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            chain = graph.find_shortest_chain(other, module)
            assert chain is None, f'{module} imports {other}: {" -> ".join(chain)}'


def test_only_roles_look_into_a_module_by_name():
    for path in (ROOT / 'pipelines').rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ('hasattr', 'getattr'):
                asked = ast.unparse(node.args[0])
                assert not any(word in asked for word in ('module', 'spec')), f'{path}:{node.lineno}: {asked}'
