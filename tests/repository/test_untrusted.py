"""SECURITY.md's promises about untrusted files: none of their code runs, and no path leaves their folder."""
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
import yaml

from data_prep import UserError
from data_prep.core import archives, records
from data_prep.people import pairs_files
from pipelines import infra_validate
from pipelines.core import artifacts, config, metadata, reading
from pipelines.core.stage import Context
from pipelines.serving import pusher, saved_model
from support import linters
from support.commands import ROOT

PACKAGES = 'pipelines', 'data_prep', 'keras_models', 'configs'
SOURCES = {str(path.relative_to(ROOT)): path.read_text() for path in (
    ROOT / 'setup.py', *(path for package in PACKAGES for path in (ROOT / package).rglob('*.py')))}
# Code that one of ruff's rules finds, in a file of the packages.
CAUGHT_BY_RUFF = [
    ('import pickle', 'TID251'), ('from dill import loads', 'TID251'), ('import torch', 'TID251'),
    ('import marshal', 'TID251'), ('import runpy', 'TID251'), ('from code import interact', 'TID251'),
    ('def f():\n    import pandas as pd', 'TID251'),
    ('eval(x)', 'S307'), ('exec(x)', 'S102'), ('breakpoint()', 'T100'),
    ('import os\nos.system(x)', 'S605'), ('import os\nos.popen(x)', 'S605'),
    ('import os\nos.execl(x, x)', 'S606'), ('import subprocess\nsubprocess.getoutput(x)', 'S605'),
    ('from subprocess import run\nrun(x, shell=True)', 'S602'),
    ('import tempfile\ntempfile.mktemp()', 'S306'), ('import shutil\nshutil.unpack_archive(x)', 'TID251'),
    ('import yaml\nyaml.load(x, yaml.Loader)', 'S506'), ('import yaml\nyaml.full_load(x)', 'TID251'),
    ('import tensorflow as tf\ntf.saved_model.load(x)', 'TID251'),
    ('from tensorflow import saved_model\nsaved_model.load(x)', 'TID251'),
    ('import cv2\ncv2.imread(x)', 'TID251'), ('from cv2 import imdecode', 'TID251'),
    ('from scipy import io\nio.loadmat(x)', 'TID251'), ('from pyarrow import parquet', 'TID251'),
    ('import pyarrow.ipc', 'TID251'), ('import pyarrow as pa\npa.ipc.open_file(x)', 'TID251')]
# Where a rule is switched off, and the test of what stands there. A reason is beside each.
EXCEPTIONS = {
    ('keras_models/weights/torch_file.py', 'TID251'): 'test_torch_file.py',
    ('pipelines/core/reading.py', 'S506'): 'test_untrusted.py',
    ('data_prep/image/annotations.py', 'TID251'): 'test_imagenet.py',
    ('data_prep/image/annotations.py', 'S314'): 'test_imagenet.py',
    ('pipelines/serving/saved_model.py', 'TID251'): 'test_untrusted.py',
    ('pipelines/infra_validate.py', 'TID251'): 'test_untrusted.py',
    ('keras_models/image/serving.py', 'TID251'): 'test_untrusted.py',
    ('pipelines/reporting/report.py', 'S704'): 'test_report.py',
    ('pipelines/reporting/reading.py', 'S704'): 'test_reading.py',
    ('pipelines/reporting/learning_curve.py', 'S704'): 'test_learning_curve_reading.py',
    ('pipelines/reporting/data_section.py', 'S704'): 'test_report.py',
    ('pipelines/serving/kit/rest_client.py', 'S310'): 'test_serving_kit.py'}
# What no rule of ruff says: built-in functions, methods of anything, and what arguments decide.
BUILTINS = {'compile', '__import__', 'input'}
METHODS = {'load_model', 'model_from_json', 'model_from_config', 'model_from_yaml', 'load_weights',
           'deserialize', 'get_file', 'extract', 'extractall'}
ALLOWED = {'pipelines/training/teacher.py: input'}  # a line typed, which Python 3 does not run
CAUGHT_BY_THE_WALK = [
    ('compile(x, x, "exec")', 'compile'), ('__import__(x)', '__import__'), ('input()', 'input'),
    ('run(x, shell=flag)', 'shell'), ('np.load(f)', 'np.load'), ('numpy.load(f, "r")', 'np.load'),
    ('np.load(f, allow_pickle=flag)', 'allow_pickle'), ('keras.models.load_model(f)', 'load_model'),
    ('net.load_weights(f)', 'load_weights'), ('keras.layers.deserialize(c)', 'deserialize'),
    ('tar.extract(x)', 'extract'), ('tarfile.open(x).extractall()', 'extractall')]
HARMLESS = ['re.compile(x)', 'np.load(f, allow_pickle=False)', 'run(x, shell=False)', 'tf.io.read_file(f)']


def findings(tree: ast.AST) -> set[str]:
    """Every call in a syntax tree that could run what a file says and that ruff lets pass."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        found |= {name for name in ('shell', 'allow_pickle') if keywords.get(name, 'False') != 'False'}
        if isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
            found.add(node.func.id)
        if isinstance(node.func, ast.Attribute):
            name, of = node.func.attr, ast.unparse(node.func.value)
            if name in METHODS:
                found.add(name)
            if name in ('load', 'save') and of in ('np', 'numpy') and keywords.get('allow_pickle') != 'False':
                found.add(f'np.{name}')
    return found


def test_nothing_that_runs_what_a_file_says():
    found = {f'{name}: {what}' for name, text in SOURCES.items() for what in findings(ast.parse(text))}
    assert found == ALLOWED


def test_the_walk_finds_what_it_is_for():
    for text, what in CAUGHT_BY_THE_WALK:
        assert what in findings(ast.parse(text)), text
    assert not [text for text in HARMLESS if findings(ast.parse(text))]


def test_ruff_finds_what_it_is_for(tmp_path):
    (tmp_path / 'pipelines').mkdir()
    for number, (text, _) in enumerate(CAUGHT_BY_RUFF):
        (tmp_path / 'pipelines' / f'{number}.py').write_text(f'{text}\n')
    found = linters.ruff(tmp_path)
    for number, (text, code) in enumerate(CAUGHT_BY_RUFF):
        assert (str(number), code) in found, text


def test_every_exception_from_a_rule_is_named_here():
    assert not [name for name, text in SOURCES.items() if re.search(r'ruff: *noqa|noqa(?!: [A-Z])', text)]
    found = {(name, code) for name, text in SOURCES.items()
             for codes in re.findall(r'# noqa: ([A-Z\d, ]+)', text)
             for code in re.findall(r'\b(?:S|T|TID)\d+', codes)}
    assert found == set(EXCEPTIONS)
    assert {*EXCEPTIONS.values()} <= {path.name for path in (ROOT / 'tests').rglob('test_*.py')}
    assert issubclass(reading._Loader, yaml.SafeLoader)


DATA = 'data: {module: data_prep.wmt, samples: cldr}'


@pytest.mark.parametrize('text, said', [
    ('!!python/object/apply:os.system ["touch ran"]', 'is not YAML'),
    ('train: !!python/name:os.system', 'is not YAML'),
    ('data: {module: os}', 'data.module must be a module of data_prep'),
    ('data: {module: data_prep.../os}', 'data.module must be a module of data_prep'),
    (f'{DATA}\nmodel: {{module: keras_models.os}}', 'there is no module keras_models.os'),
    (f'{DATA}\nmodel: {{module: data_prep.wmt}}', 'model.module must be a module of keras_models'),
    ('data: {module: data_prep.core.archives}', 'has no Config'),
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
    store = metadata.Metadata(str(root / 'metadata.sqlite'), 'tiny')
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
    assert saved_model.load(str(exported)).description == {'model_module': 'keras_models.transformer'}
    moved = shutil.copytree(tmp_path / 'root', tmp_path / 'moved')  # a whole root
    saved_model.load(str(moved / 'export' / '3' / 'model' / 'Format-Serving'))
    version = pusher.publish(str(exported), str(tmp_path / 'serving' / 'tiny'), {})
    saved_model.load(str(tmp_path / 'serving' / 'tiny'))
    saved_model.load(shutil.copytree(version, tmp_path / 'elsewhere'))  # its hashes go with it


@pytest.mark.parametrize('damage', [garbage, another_file, a_byte])
def test_an_exported_model_is_not_loaded_once_it_was_changed(exported, tmp_path, damage):
    damage(exported)
    with pytest.raises(UserError, match=r'is not loaded: its files are not those that were exported'):
        saved_model.load(str(exported))
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
        saved_model.load(version)


def test_a_saved_model_nobody_recorded_is_not_loaded(models, exported, tmp_path):
    for path in (models['?'], shutil.copytree(exported, tmp_path / 'root' / 'copied' / 'model' / 'Format-Serving')):
        with pytest.raises(UserError, match='is not loaded because nothing records its hashes'):
            saved_model.load(str(path))


@pytest.mark.parametrize('name', ['os', 'pipelines.train', 'keras_models', 'keras_models.', 'keras_models..os',
                                  'keras_models.x; import os'])
def test_a_model_names_modules_of_this_project_alone(name):
    class Loaded:
        description = {'model_module': name}
    with pytest.raises(UserError, match='is not a model of this project'):
        saved_model.run(Loaded(), ['x'])


@pytest.mark.parametrize('file', ['../outside.tfrecord', '/etc/passwd', 'Split-train/../../outside.tfrecord',
                                  'Split-train/a/../b.tfrecord', 'Split-../part.tfrecord'])
def test_a_manifest_names_no_file_outside_of_its_data_set(tmp_path, file):
    folder = tmp_path / 'examples'
    shards = []
    for path in (folder / 'Split-train' / 'part-0.tfrecord', tmp_path / 'outside.tfrecord'):
        writer = records.ShardWriter(str(path))
        writer.write(b'a record')
        shards.append(writer.close())
    records.write_manifest(str(folder), shards[:1], (), {'train': {'read': 1}}, {})
    assert records.open_split(str(folder), 'train').read([0]) == [b'a record']
    manifest = json.loads((folder / records.MANIFEST).read_text())
    manifest['splits']['train'] = [{**shards[1], 'file': file}]
    (folder / records.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UserError, match='manifest.json is damaged'):
        records.open_split(str(folder), 'train')


@pytest.mark.parametrize('name', ['../secret.jpg', 'a/../../secret.jpg', '/etc/secret.jpg', 'file:///etc/secret.jpg',
                                  'gs://bucket/secret.jpg'])
def test_a_pairs_file_names_no_picture_outside_of_its_folder(tmp_path, name):
    (tmp_path / 'pairs.txt').write_text(f'{name} a.jpg\na.jpg {name}\nb/../a.jpg a.jpg\n')
    first, second, inside = pairs_files.pairs(str(tmp_path / 'pairs.txt'))
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
