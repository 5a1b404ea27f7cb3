"""The driver of the stages: skip, resume, fail, publish; on disk and in an object store."""
import importlib
import os
import signal

import pytest
import tensorflow as tf

import pipelines
from data_prep import UserError
from pipelines.core import artifacts, cli, config, metadata, stores
from pipelines.core.pipeline import Pipeline
from pipelines.core.stage import Stage


def stage(execute, **values):
    return Stage(**{'name': 'prepare', 'execute': execute, 'needs': (), 'outputs': {'examples': 'Examples'},
                    'sections': ('data',), **values})


def write(text):
    def execute(context):
        with tf.io.gfile.GFile(os.path.join(context.outputs['examples'], 'file'), 'a') as file:
            file.write(text)
        context.properties['wrote'] = text
    return execute


@pytest.fixture
def open_pipeline(config_file, tmp_path):
    def make(*overrides, root=str(tmp_path / 'root')):
        return Pipeline(config.load(config_file, overrides), root, [])
    return make


def content(outputs):
    with tf.io.gfile.GFile(os.path.join(outputs['examples'].uri, 'file')) as file:
        return file.read()


def test_what_did_not_change_is_skipped_and_what_did_is_not(open_pipeline):
    first = open_pipeline().run(stage(write('a')))
    again = open_pipeline()
    assert again.run(stage(write('b'))) == first and again.skipped == ['prepare']
    assert content(first) == 'a' and first['examples'].properties == {'wrote': 'a'}
    assert content(open_pipeline('data.max_length=9').run(stage(write('c')))) == 'c'
    assert content(open_pipeline('train.steps=9').run(stage(write('d')))) == 'a'  # not one of its sections
    assert content(open_pipeline().run(stage(write('e'), extra_inputs=lambda _: {'raw': 1}))) == 'e'


def test_work_that_fails_is_found_again_by_the_same_work_and_by_no_other(open_pipeline):
    def fail(context):
        write('half')(context)
        raise RuntimeError
    with pytest.raises(RuntimeError):
        open_pipeline().run(stage(fail))
    assert content(open_pipeline('data.max_length=9').run(stage(write(' other')))) == ' other'
    assert content(open_pipeline().run(stage(write(', whole')))) == 'half, whole'


def test_work_killed_between_its_rename_and_its_record_is_not_lost(open_pipeline, tmp_path):
    """A training run of days, say: it is found under the number it had, and goes on from there."""
    if not (child := os.fork()):
        metadata.Metadata.publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        open_pipeline().run(stage(write('first')))
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert [path.name for path in (tmp_path / 'root' / 'prepare').glob('[0-9]*')] == ['1']
    assert content(open_pipeline().run(stage(write(', then more')))) == 'first, then more'
    assert [path.name for path in (tmp_path / 'root' / 'prepare').glob('[0-9]*')] == ['2']


def test_an_artifact_that_is_gone_is_made_again(open_pipeline):
    first = open_pipeline().run(stage(write('a')))
    tf.io.gfile.rmtree(first['examples'].uri)
    assert content(open_pipeline().run(stage(write('b')))) == 'b'
    assert content(open_pipeline().run(stage(write('c'), is_up_to_date=lambda outputs: False))) == 'c'


def test_metadata_that_is_gone_overwrites_nothing(open_pipeline):
    first = open_pipeline().run(stage(write('a')))
    os.remove(stores.address(open_pipeline().root))
    assert content(open_pipeline().run(stage(write('b')))) == 'b' and content(first) == 'a'


def test_the_same_work_twice_at_once_is_refused(open_pipeline):
    def inner(context):
        open_pipeline().run(stage(write('b')))
    with pytest.raises(UserError, match='is running prepare with this configuration'):
        open_pipeline().run(stage(inner))


def test_a_run_left_running_by_a_dead_process_is_marked_failed(open_pipeline, tmp_path):
    pipeline = open_pipeline()
    execution = pipeline.metadata.begin('prepare', 'f', 's', 'c')
    host = execution.properties['process'].string_value.split()[0]
    execution.properties['process'].string_value = f'{host} 999999999'
    store = pipeline.metadata._store.read()
    store.put_executions([execution])
    pipeline.metadata.begin('prepare', 'f', 's', 'c')
    [dead] = store.get_executions_by_id([execution.id])
    assert dead.last_known_state == type(dead).FAILED


def test_artifacts_lie_in_any_object_store_and_lineage_where_writers_are_safe(open_pipeline, tmp_path, monkeypatch):
    with pytest.raises(UserError, match='cannot lie in ram://, where one writer can overwrite another. Set LANDMARK'):
        open_pipeline(root='ram://bucket/root').run(stage(write('a')))
    monkeypatch.setenv(stores.ADDRESS, str(tmp_path / 'lineage.sqlite'))
    outputs = open_pipeline(root='ram://bucket/root').run(stage(write('a')))
    assert outputs['examples'].uri.startswith('ram://bucket/root/prepare/') and content(outputs) == 'a'
    assert open_pipeline(root='ram://bucket/root').run(stage(write('b'))) == outputs
    assert metadata.root_of(outputs['examples'].uri) == 'ram://bucket/root'


def test_a_damaged_metadata_file_is_named(open_pipeline, tmp_path):
    os.makedirs(tmp_path / 'root')
    (tmp_path / 'root' / 'metadata.sqlite').write_bytes(b'not a database at all' * 100)
    with pytest.raises(UserError, match='cannot be opened as the metadata store'):
        open_pipeline().run(stage(write('a')))


@pytest.mark.parametrize('error, sentence', [
    (tf.errors.ResourceExhaustedError(None, None, '{{function_node x}} /run/ckpt; No space left on device [Op:SaveV2]'),
     '/run/ckpt; No space left on device. Free some space and run the same command again; it resumes where it '
     'stopped.'),
    (OSError(30, 'Read-only file system', '/run'),
     '/run: Read-only file system. Give a writable folder, with --pipeline_root.')])
def test_a_disk_that_takes_nothing_is_a_sentence_however_a_library_wraps_it(error, sentence, capsys):
    def work():
        try:
            raise error
        except Exception as cause:
            raise RuntimeError('a library failed') from cause
    with pytest.raises(SystemExit) as left:
        cli.run_command(work)
    assert left.value.code == 2 and capsys.readouterr().err == f'error: {sentence}\n'


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Writes modules of a package of the project's, and gives the hash of one of them."""
    monkeypatch.setattr(pipelines, '__path__', [*pipelines.__path__, str(tmp_path)])

    def hashed(**modules):
        for name, text in modules.items():
            (tmp_path / f'{name}.py').write_text(text)
        importlib.invalidate_caches()
        artifacts._imports.cache_clear()
        return artifacts.source_hash(['pipelines.probe'])
    yield hashed
    artifacts._imports.cache_clear()


def test_source_follows_imports_and_ignores_layout(source):
    above = 'from pipelines import probed\n\n\ndef work(x):\n    return probed.RATE * x\n'
    first = source(probe=above, probed='RATE = 0.5\n')
    assert source(probe='# A comment.\nfrom pipelines import (\n    probed)\ndef work( x ):  # another\n'
                        '    return (probed.RATE\n            * x)\n') == first
    assert source(probed='\n\nRATE = (0.5)  # as it was\n') == first
    assert source(probed='RATE = 0.25\n') != first  # in a module that it imports
    assert source(probed='RATE = 0.5\n') == first
    assert source(probe=above.replace('*', '+')) != first
    inside = 'def work(x):\n    from pipelines.probed import RATE\n    return RATE * x\n'
    within = source(probe=inside)
    assert source(probed='RATE = 0.25\n') != within  # and in one that it imports only when it runs
    for line in ('import pipelines.probed\n', 'from pipelines.probed import RATE\n'):
        assert source(probe=line, probed='RATE = 0.25\n') != source(probe=line, probed='RATE = 0.5\n')
    # it imports it no more
    assert source(probe='import math\n', probed='RATE = 1\n') == source(probed='RATE = 2\n')


def test_source_of_the_frame_is_no_part_of_a_stage(source):
    """A better message there must not cost a training run; all else that a stage imports is a part of it."""
    plain = source(probe='import math\n')
    assert source(probe='import math\nfrom pipelines.core import stage\n') != plain  # the probe itself has changed
    text, imported = artifacts._imports('pipelines.train')
    assert {'pipelines.training.trainer', 'pipelines.core.stage'} <= imported and '#' not in text
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        imports = artifacts._imports
        patch.setattr(artifacts, '_imports', lambda module: seen.append(module) or imports(module))
        artifacts.source_hash(['pipelines.train'])
    assert {'pipelines.train', 'pipelines.training.trainer', 'data_prep.core.records',
            'keras_models.core.layers'} <= {*seen}
    assert not {*seen} & {*artifacts.FRAME} and len(seen) == len({*seen})
