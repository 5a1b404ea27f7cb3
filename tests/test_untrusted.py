"""What SECURITY.md says of files that others made: nothing in them runs, and nothing leads out of their folder."""
import ast
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
import tensorflow as tf

from data_prep import UserError, archives, records, tryon_files
from pipelines import artifacts, config, infra_validate, predict, pusher
from pipelines.stage import Context
from support.commands import ROOT

SOURCES = [path for package in ('pipelines', 'data_prep', 'keras_models', 'configs')
           for path in sorted((ROOT / package).rglob('*.py'))] + [ROOT / 'setup.py']
MODULES = {'pickle', '_pickle', 'cPickle', 'dill', 'cloudpickle', 'joblib', 'shelve', 'marshal', 'jsonpickle', 'torch',
           'pandas', 'code', 'codeop', 'runpy'}
ARROW = {'ipc', 'parquet', 'feather', 'dataset', 'PythonObject'}  # CVE-2023-47248 is in these readers
CALLS = {'eval', 'exec', 'compile', '__import__', 'input', 'breakpoint'}
# Methods, whatever they are called on.
METHODS = {
    'unsafe_load', 'full_load', 'load_all', 'unsafe_load_all', 'full_load_all',  # yaml
    'load_model', 'model_from_json', 'model_from_config', 'model_from_yaml', 'load_weights', 'deserialize', 'get_file',
    'system', 'popen', 'spawnl', 'spawnv', 'execv', 'execl', 'getoutput', 'getstatusoutput', 'mktemp',
    'extract', 'extractall', 'unpack_archive', 'imread', 'imdecode', 'read_pickle', 'run_path', 'run_module'}
# What is dangerous and stands where it must, checked by the tests named.
ALLOWED = {
    ('keras_models/torch_file.py', 'import pickletools'),  # takes a pickle apart and runs nothing: test_torch_file.py
    ('pipelines/teacher.py', 'input'),  # a line typed, which Python 3 does not run
    ('pipelines/config.py', 'yaml.load'),  # with a SafeLoader: below
    ('data_prep/image_labels.py', 'loadmat'),  # ILSVRC's meta.mat: numbers and text, no MATLAB code
    ('pipelines/predict.py', 'saved_model.load'),  # behind check_hashes: below
    ('pipelines/infra_validate.py', 'saved_model.load'),
    ('keras_models/classification.py', 'saved_model.load')}  # inference.fuse


def findings(tree: ast.AST) -> set[str]:
    """Every call and import in a syntax tree that could run what a file says."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, 'module', None) or '']
            found |= {f'import {name}' for name in names if name.split('.')[0] in MODULES | {'pickletools'}}
            found |= {f'pyarrow {part}' for name in names for part in {*name.split('.')} & ARROW
                      if any(other.startswith('pyarrow') for other in names)}
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ('pa', 'pyarrow') and node.attr in ARROW:
            found.add(f'pyarrow {node.attr}')
        if not isinstance(node, ast.Call):
            continue
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            found.add(node.func.id)
        if keywords.get('shell', 'False') != 'False':
            found.add('shell')
        if keywords.get('allow_pickle', 'False') != 'False':
            found.add('allow_pickle')
        if isinstance(node.func, ast.Attribute):
            name, of = node.func.attr, ast.unparse(node.func.value)
            if name in METHODS or name == 'loadmat':
                found.add(name)
            if name == 'load' and of.split('.')[-1] in ('yaml', 'saved_model', 'saving', 'models'):
                found.add(f'{of.split(".")[-1]}.load')
            if name in ('load', 'save') and of in ('np', 'numpy') and keywords.get('allow_pickle') != 'False':
                found.add(f'np.{name}')
    return found


@pytest.mark.parametrize('path', SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_runs_what_a_file_says(path):
    name = str(path.relative_to(ROOT))
    assert findings(ast.parse(path.read_text())) <= {what for where, what in ALLOWED if where == name}


@pytest.mark.parametrize('text, what', [
    ('import pickle', 'import pickle'), ('from dill import loads', 'import dill'), ('eval(x)', 'eval'),
    ('os.system(x)', 'system'), ('run(x, shell=True)', 'shell'), ('np.load(f)', 'np.load'),
    ('np.load(f, allow_pickle=True)', 'allow_pickle'), ('yaml.load(f, L)', 'yaml.load'),
    ('yaml.full_load(f)', 'full_load'),
    ('keras.models.load_model(f)', 'load_model'), ('keras.layers.deserialize(c)', 'deserialize'),
    ('tf.saved_model.load(f)', 'saved_model.load'), ('tar.extractall()', 'extractall'), ('cv2.imread(f)', 'imread'),
    ('from pyarrow import parquet', 'pyarrow parquet'), ('import pyarrow.ipc', 'pyarrow ipc'),
    ('pa.ipc.open_file(f)', 'pyarrow ipc'), ('torch.load(f)', None), ('import torch', 'import torch')])
def test_the_search_finds_what_it_is_for(text, what):
    found = findings(ast.parse(text))
    assert what in found if what else not found  # torch.load needs its import


def test_every_use_that_is_allowed_is_still_there():
    for where, what in ALLOWED:
        assert what in findings(ast.parse((ROOT / where).read_text())), (where, what)


DATA = 'data: {module: data_prep.wmt, samples: cldr}'


@pytest.mark.parametrize('text, said', [
    ('!!python/object/apply:os.system ["touch ran"]', 'is not YAML'),
    ('train: !!python/name:os.system', 'is not YAML'),
    ('data: {module: os}', 'data.module must name a module of data_prep'),
    ('data: {module: data_prep.../os}', 'data.module must name a module of data_prep'),
    (f'{DATA}\nmodel: {{module: keras_models.os}}', 'there is no keras_models.os'),
    (f'{DATA}\nmodel: {{module: data_prep.wmt}}', 'model.module must name a module of keras_models'),
    ('data: {module: data_prep.archives}', 'has no Config'),
    (f'{DATA}\nmodel: {{module: keras_models.transformer}}\ntrain: {{restrictions: ["__import__(1)"]}}',
     'unknown key train.restrictions'),
    ('extends: {a: b}', 'extends must name another configuration')])
def test_a_configuration_runs_nothing(tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'hostile.yaml').write_text(text)
    with pytest.raises(UserError) as error:
        config.load(str(tmp_path / 'hostile.yaml'))
    assert said in str(error.value) and os.listdir(tmp_path) == ['hostile.yaml']


class Writer(tf.Module):
    """Writes a file when it is asked, as any SavedModel can."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, 'text')])
    def serve(self, text):
        tf.io.write_file(self.path, 'written')
        return {'text': text}


def test_a_saved_model_is_a_program(tmp_path):
    """Why hashes stand before loading one; SECURITY.md says what they do not do."""
    module, marker = Writer(str(tmp_path / 'marker')), tmp_path / 'marker'
    tf.saved_model.save(module, str(tmp_path / 'model'), signatures=module.serve)
    loaded = tf.saved_model.load(str(tmp_path / 'model'))
    assert not marker.exists()
    loaded.signatures['serving_default'](text=tf.constant(['x']))
    assert marker.read_text() == 'written'


@pytest.fixture
def exported(models, tmp_path):
    """A SavedModel as a pipeline leaves it: recorded in the root's metadata."""
    root = tmp_path / 'root'
    model = root / 'export' / '3' / 'model'
    saved = shutil.copytree(models['!'], model / 'Format-Serving')
    (saved / 'assets.extra' / 'landmark.json').write_text(json.dumps({'model_module': 'keras_models.transformer'}))
    store = artifacts.Metadata(str(root / 'metadata.sqlite'), 'tiny')
    # As one wrote it who named the root from another folder.
    store.publish(store.begin('export', 'f', 's', 'c'), [], {
        'model': ('Model', 'root/export/3/model', artifacts.digest(str(model)))}, {})
    return saved


def garbage(saved):
    """No SavedModel at all: a reader that loads it first says so, one that looks at hashes first says that."""
    (saved / 'saved_model.pb').write_bytes(b'garbage')


def another_file(saved):
    (saved / 'assets').mkdir(exist_ok=True)
    (saved / 'assets' / 'more').write_text('x')


def a_byte(saved):
    path = saved / 'variables' / 'variables.data-00000-of-00001'
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_what_was_recorded_is_loaded(exported, tmp_path):
    assert predict.load(str(exported)).description == {'model_module': 'keras_models.transformer'}
    moved = shutil.copytree(tmp_path / 'root', tmp_path / 'moved')  # a whole root
    predict.load(str(moved / 'export' / '3' / 'model' / 'Format-Serving'))
    version = pusher.publish(str(exported), str(tmp_path / 'serving' / 'tiny'), {})
    predict.load(str(tmp_path / 'serving' / 'tiny'))
    predict.load(shutil.copytree(version, tmp_path / 'elsewhere'))  # its hashes go with it


@pytest.mark.parametrize('damage', [garbage, another_file, a_byte])
def test_an_exported_model_is_not_loaded_once_it_was_changed(exported, tmp_path, damage):
    damage(exported)
    with pytest.raises(UserError, match=r'is not loaded: its files are not those that were exported'):
        predict.load(str(exported))
    work = Context(None, {'model': artifacts.Artifact(1, 'Model', str(exported.parent), 'd', {})},
                   {'infra_blessing': str(tmp_path / 'blessing')}, [], {}, None)
    with pytest.raises(UserError, match='is not loaded'):
        infra_validate.execute(work)
    assert not os.listdir(tmp_path / 'blessing')


@pytest.mark.parametrize('damage', [garbage, another_file, a_byte])
def test_a_pushed_model_is_not_loaded_once_it_was_changed(exported, tmp_path, damage):
    version = pusher.publish(str(exported), str(tmp_path / 'serving'), {})
    damage(tmp_path / 'serving' / os.path.basename(version))
    with pytest.raises(UserError, match=f'{version} is damaged: '):
        predict.load(version)


def test_a_saved_model_nobody_recorded_is_not_loaded(models, exported, tmp_path):
    for path in (models['?'], shutil.copytree(exported, tmp_path / 'root' / 'copied' / 'model' / 'Format-Serving')):
        with pytest.raises(UserError, match='is not loaded, for nothing says which files it should have'):
            predict.load(str(path))


@pytest.mark.parametrize('name', ['os', 'pipelines.train', 'keras_models', 'keras_models.', 'keras_models..os',
                                  'keras_models.x; import os'])
def test_a_model_names_modules_of_this_project_alone(name):
    class Loaded:
        description = {'model_module': name}
    with pytest.raises(UserError, match='is no model of this project'):
        predict.run(Loaded(), ['x'])


@pytest.mark.parametrize('file', ['../outside.tfrecord', '/etc/passwd', 'Split-train/../../outside.tfrecord',
                                  'Split-train/a/../b.tfrecord', 'Split-../part.tfrecord'])
def test_a_manifest_names_no_file_outside_of_its_data_set(tmp_path, file):
    folder = tmp_path / 'examples'
    shards = []
    for path in (folder / 'Split-train' / 'part-0.tfrecord', tmp_path / 'outside.tfrecord'):
        writer = records.ShardWriter(str(path))
        writer.write(b'a record')
        shards.append(writer.close())
    manifest = records.write_manifest(str(folder), shards[:1], (), {'train': {'read': 1}}, {})
    assert records.open_split(str(folder), 'train').read([0]) == [b'a record']
    manifest['splits']['train'] = [{**shards[1], 'file': file}]
    (folder / records.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match='manifest.json is damaged'):
        records.open_split(str(folder), 'train')


@pytest.mark.parametrize('name', ['../secret.jpg', 'a/../../secret.jpg', '/etc/secret.jpg', 'file:///etc/secret.jpg',
                                  'gs://bucket/secret.jpg'])
def test_a_pairs_file_names_no_picture_outside_of_its_folder(tmp_path, name):
    (tmp_path / 'pairs.txt').write_text(f'{name} a.jpg\na.jpg {name}\nb/../a.jpg a.jpg\n')
    first, second, inside = tryon_files.pairs(str(tmp_path / 'pairs.txt'))
    assert first.reason == second.reason == f'{name} leads out of its folder' and not inside.reason


def member(name, kind=tarfile.REGTYPE):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, '/etc/passwd' * (kind != tarfile.REGTYPE), 1
    return entry


def test_nothing_in_an_archive_leads_out_of_it(tmp_path, monkeypatch):
    hostile = {'../out.jpg': tarfile.REGTYPE, '/etc/out.jpg': tarfile.REGTYPE, 'cat/link.jpg': tarfile.SYMTYPE,
               'cat/hard.jpg': tarfile.LNKTYPE, 'cat/device.jpg': tarfile.CHRTYPE}
    with tarfile.open(tmp_path / 'a.tar', 'w') as tar:
        for name, kind in {**hostile, 'cat/1.jpg': tarfile.REGTYPE}.items():
            tar.addfile(member(name, kind), io.BytesIO(b'x') if kind == tarfile.REGTYPE else None)
    monkeypatch.chdir(tmp_path)
    with open('a.tar', 'rb') as stream:
        found = list(archives.ranges(stream, 'a.tar'))
    assert [each.name for each in found if not each.reason] == ['cat/1.jpg']
    assert {each.name for each in found if each.reason} == {*hostile}
    with open('a.tar', 'rb') as stream, pytest.raises(UserError, match='has no file'):
        list(archives.members(stream, 'a.tar', ['cat/link.jpg']))
    assert os.listdir(tmp_path) == ['a.tar']


def test_what_unpacks_to_hundreds_of_times_its_size_is_refused():
    packed, zeros = io.BytesIO(), bytes(1 << 24)
    with gzip.GzipFile(fileobj=packed, mode='wb', compresslevel=1) as file:
        for _ in range(24):  # 384 MiB in 1.7
            file.write(zeros)
    made = 0
    for read in (archives.unpacked, archives.plain):
        packed.seek(0)
        with pytest.raises(UserError, match='more than 200 times as large'):
            for part in read(packed, 'bomb.tar.gz' if read is archives.unpacked else 'bomb.txt.gz'):
                made = len(part)
    assert made <= 1 << 20  # at once


def test_the_lock_has_a_hash_for_everything_and_takes_nothing_else(tmp_path):
    text = (ROOT / 'requirements.lock').read_text()
    assert '://' not in text
    entries = re.split(r'\n(?=\S)', '\n'.join(line for line in text.splitlines() if not line.startswith('#')))
    assert len(entries) > 250
    for entry in entries:
        first, *hashes = entry.split(' \\\n')
        assert re.fullmatch(r'[A-Za-z0-9._-]+==[A-Za-z0-9._+!]+', first), first
        assert hashes and all(re.fullmatch(r'    --hash=sha256:[0-9a-f]{64}', line.rstrip()) for line in hashes), first
    recipe = subprocess.run(['make', '-n', '-C', str(ROOT), 'install', f'VENV={tmp_path}', f'PYTHON={sys.executable}'],
                            capture_output=True, text=True).stdout
    assert '--require-hashes --no-deps --requirement requirements.lock' in recipe


def test_every_tool_of_the_tests_is_locked_as_it_is_installed():
    from importlib import metadata
    locked = dict(re.findall(r'^([\w.-]+)==([\w.+!]+)', (ROOT / 'requirements.lock').read_text(), re.M))
    for name in ('tensorflow', 'keras', 'apache-beam', 'numpy', 'protobuf', 'ml-metadata', 'pytest'):
        assert metadata.version(name) == locked[name], name
