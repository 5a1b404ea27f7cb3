"""Follow `docs/adding-a-paper.md` from scratch to a pushed model, and check which modules are refused."""
import importlib
import os
import re

import pytest

import keras_models
from data_prep import UserError
from pipelines.core import config, roles, shipped
from support.commands import ROOT, command

PAGE = (ROOT / 'docs' / 'adding-a-paper.md').read_text()
MODULE, SETTINGS, COMMAND = (re.findall(rf'```{kind}\n(.*?)```', PAGE, re.DOTALL)[0]
                             for kind in ('python', 'yaml', 'console'))


def find_papers_here():
    """As in a checkout that the module was added to."""
    keras_models.__path__.append(os.path.join(os.getcwd(), 'keras_models'))


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the page's module with changes, as a module of keras_models, and returns its configuration's path."""
    (tmp_path / 'keras_models').mkdir()
    monkeypatch.setattr(keras_models, '__path__', [*keras_models.__path__, str(tmp_path / 'keras_models')])
    names = []

    def written(*changes, settings=SETTINGS):
        text, name = MODULE, f'lenet_{len(names)}' if changes else 'lenet'
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        names.append(name)
        (tmp_path / 'keras_models' / f'{name}.py').write_text(text)
        (tmp_path / 'lenet.yaml').write_text(settings.replace('keras_models.lenet', f'keras_models.{name}'))
        importlib.invalidate_caches()
        return str(tmp_path / 'lenet.yaml')
    yield written
    for name in names:
        vars(keras_models).pop(name, None)
        importlib.sys.modules.pop(f'keras_models.{name}', None)


def test_the_page_leads_to_a_pushed_model(write, tmp_path):
    """A whole run, since the page promises one."""
    path = write()
    python, flag, *arguments = COMMAND.split()
    assert (python, flag, arguments[-1]) == ('python', '-m', os.path.basename(path))
    done = command(*arguments, cwd=tmp_path, before=find_papers_here)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '; BLESSED' in done.stdout and [*tmp_path.glob('runs/lenet/serving/lenet/*/saved_model.pb')]


@pytest.mark.parametrize('change, said', [
    (('build, loss_fn, optimizers =', 'def discriminator(config):\n    return {}\n\n\nbuild, loss_fn, optimizers ='),
     r'has discriminator, which nothing uses\. Did you mean discriminators\?'),
    (('UNIT, METRICS =', 'UNIT, METRIC ='), r'has METRIC, which nothing uses\. Did you mean METRICS\?'),
    (('build, loss_fn, optimizers =', 'build, loss, optimizers ='), 'has no loss_fn, so it cannot be a model section'),
    (('SERVING =', 'SERVED ='), 'has no SERVING'),
    (("'keras_models.image.serving'", "'keras_models.image.nothing'"), r"SERVING = 'keras_models\.image\.nothing', and "
                                                                        r'there is no such module'),
    (("'keras_models.image.serving'", "'os'"), "SERVING = 'os', and there is no such module of keras_models"),
    (("('image',)", "('text',)"), r'prepares data for the task image, and keras_models\.lenet_0 is for text')])
def test_a_mistake_in_a_module_is_refused_by_name(write, change, said):
    with pytest.raises(UserError, match=said):
        config.load(write(change))


def test_what_a_module_leaves_out_has_its_documented_default(write):
    spec = config.load(write()).model_spec
    assert spec.title.startswith('LeNet-5') and spec.serving_module == 'keras_models.image.serving'
    assert spec.discriminators(None) == spec.frozen(None) == {} and spec.files(None) == spec.notes(None) == []
    assert spec.pictures is spec.parameters is spec.warm_start is roles.scorer(spec) is None
    assert not spec.dense_layers_apart and spec.max_concurrent_batches == 1 and spec.exported_models == ('fuse',)


def test_data_and_models_that_ship_say_what_they_are():
    tasks = {path.stem: config.load(path.stem).data_spec.task for path in shipped.paths().values()}
    assert {*tasks.values()} == {'text', 'tree', 'image', 'try_on', 'play'}
    apart = {name for name in tasks if config.load(name).model_spec.dense_layers_apart}
    assert apart == {name for name, task in tasks.items() if task == 'image'}


def test_a_file_is_a_demo_only_if_it_says_so(tmp_path):
    """A demo's name and its child's file make none."""
    (tmp_path / 'demo_mine.yaml').write_text('extends: demo_images\n')
    assert config.load('demo_images').is_demo and config.load('demo_tryon_variations').is_demo
    assert not config.load(str(tmp_path / 'demo_mine.yaml')).is_demo
