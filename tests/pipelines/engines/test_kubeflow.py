"""Pipelines for Kubeflow and Vertex AI without either: the compiled file, refusals, and a run on this machine."""
import json
import re
import subprocess
import sys

import pytest
import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from benchmarks.robustness import kill_points, kubeflow_sweep
from pipelines import run
from pipelines.core import config, stage
from pipelines.engines import cluster, kubeflow
from support.commands import ROOT, environment

IMAGE = 'us-central1-docker.pkg.dev/my-project/images/landmark:1'
GOOD = {'image': IMAGE, 'pipeline_root': 'gs://bucket/runs/my'}
VERTEX = {**GOOD, 'vertex_project': 'my-project', 'vertex_region': 'us-central1'}


def compiled(folder, overrides=(), beam=(), **flags) -> dict:
    """Compile as a user does. Returns the file's contents."""
    file = folder / 'pipeline.yaml'
    run.main(['--compile', str(file), *(f'--{name}={value}' for name, value in flags.items()), *beam,
              *(word for override in overrides for word in ('--set', override))])
    return yaml.safe_load(file.read_text())


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    """The demo's pipeline, its message by kfp's definition, and its steps and their containers by stage."""
    text = compiled(tmp_path_factory.mktemp('compiled'), ['cluster.cpu=4', 'cluster.memory=16Gi', 'name=A "new" one',
                    'cluster.accelerator=nvidia.com/gpu', 'cluster.accelerators=2', 'cluster.retries=5'],
                    ['--direct_num_workers', '2'], **GOOD)
    message = json_format.ParseDict(text, pipeline_spec_pb2.PipelineSpec())
    steps = {name.replace('-', '_'): task for name, task in text['root']['dag']['tasks'].items()}
    containers = {name: text['deploymentSpec']['executors'][text['components'][task['componentRef']['name']][
        'executorLabel']]['container'] for name, task in steps.items()}
    return text, message, steps, containers


def test_each_stage_is_a_step_after_those_it_needs(written):
    _, message, steps, _ = written
    assert message.pipeline_info.name == 'landmark-a-new-one' and {*steps} == {*stage.STAGES}
    for name, step in steps.items():
        assert {need.replace('-', '_') for need in step.get('dependentTasks', [])} == {*stage.get(name).needs}


def test_a_step_has_what_the_configuration_asks(written):
    """And no cache: Kubeflow does not see raw files, sources or destinations; a stage does."""
    _, _, steps, containers = written
    for name, step in steps.items():
        assert step['retryPolicy']['maxRetryCount'] == 5 and not step['cachingOptions'].get('enableCache')
        resources = containers[name]['resources']
        assert (resources['resourceCpuLimit'], resources['resourceMemoryLimit']) == ('4', '16Gi')
        assert ('accelerator' in resources) == (name == 'train') and containers[name]['image'] == IMAGE
    assert containers['train']['resources']['accelerator'] == {
        'count': '2', 'resourceCount': '2', 'resourceType': 'nvidia.com/gpu', 'type': 'nvidia.com/gpu'}


def test_a_step_runs_the_command_of_its_stage(written):
    text, _, steps, _ = written
    given = {name: {key: value.get('runtimeValue', {}).get('constant', value.get('componentInputParameter'))
                    for key, value in step['inputs']['parameters'].items()} for name, step in steps.items()}
    assert given == {name: {'command': name, 'config': 'config', 'root': 'root', 'flags': [
        '--direct_num_workers', '2'] if name == 'prepare' else []} for name in stage.STAGES}
    assert text['root']['inputDefinitions']['parameters']['root']['defaultValue'] == GOOD['pipeline_root']


@pytest.mark.parametrize('flag, code', [('--help', 0), ('--no_such_flag', 2)])
def test_a_step_ends_as_its_command_does(written, tmp_path, flag, code):
    """The container's own command, with the parameters Kubeflow would give it."""
    container = written[3]['train']
    inputs = {'command': 'train', 'config': '{}', 'root': 'root', 'flags': [flag]}
    given = json.dumps({'inputs': {'parameterValues': inputs},
                        'outputs': {'outputFile': str(tmp_path / 'output.json')}})
    words = [*container['command'], *(given if word == '{{$}}' else word for word in container['args'])]
    done = subprocess.run([word.replace('python3', sys.executable) for word in words], env=environment(),
                          capture_output=True, text=True)
    assert done.returncode == code and 'python -m pipelines.train' in done.stdout + done.stderr


@pytest.mark.parametrize('name, overrides', [
    ('demo_translation', ['data.folder="a\\nb ü 😀"', 'model.epsilon=1e-9']), ('vgg_a_imagenet', []),
    ('treebank_sample_parsing', []), ('demo_tryon', []), ('learning_machine_nim', [])])
def test_a_step_reads_the_configuration_that_was_compiled(tmp_path, name, overrides):
    first = config.load(name, overrides)
    file = tmp_path / 'pipeline.yaml'
    mounted = {'data.folder': '/data'} if any(first.data.files(split) for split in first.data_spec.splits) else {}
    more = [f'{key}={value}' for key, value in mounted.items()]
    run.main(['--compile', str(file), *(f'--{key}={value}' for key, value in GOOD.items()), '--config', name,
              *(word for override in [*overrides, *more] for word in ('--set', override))])
    parameters = yaml.safe_load(file.read_text())['root']['inputDefinitions']['parameters']
    file.write_text(parameters['config']['defaultValue'])
    assert config.load(str(file)).values == config.load(name, [*overrides, *more]).values


def test_the_learning_machine_is_educated(tmp_path):
    steps = compiled(tmp_path, config='learning_machine_nim', **GOOD)['root']['dag']['tasks']
    assert steps['train']['inputs']['parameters']['command']['runtimeValue']['constant'] == 'educate'


@pytest.mark.parametrize('flags, overrides, said', [
    ({'image': None}, [], '--image is missing'),
    ({'image': 'My Image'}, [], "--image 'My Image' is not the name of an image"),
    ({'image': 'landmark:1'}, [], "--image 'landmark:1' names no registry for Vertex AI"),
    ({'pipeline_root': None}, [], '--pipeline_root is missing; give a folder that all containers reach'),
    ({'pipeline_root': 's3://bucket/runs'}, [], "--pipeline_root 's3://bucket/runs' must be gs://BUCKET/FOLDER"),
    ({'vertex_project': None}, [], '--vertex_project is missing'),
    ({'vertex_project': '123456789012'}, [], '--vertex_project 123456789012 is a project number'),
    ({'vertex_region': 'us-central1-a'}, [], '--vertex_region us-central1-a is a zone; give its region, us-central1'),
    ({}, ['cluster.accelerator=nvidia.com/gpu'], "cluster.accelerator 'nvidia.com/gpu' must be written like NVIDIA"),
    ({}, ['cluster.accelerators=3'], 'cluster.accelerators 3 must be one of 1, 2, 4, 8, 16'),
    ({}, ['cluster.cpu=4 cores'], "cluster.cpu '4 cores' must be written like 4 or 500m"),
    ({}, ['cluster.memory=16 GB'], "cluster.memory '16 GB' must be written like 16Gi"),
    ({}, ['push.destination=/models'], "push.destination '/models' is a file of this machine; give gs://BUCKET/FILE"),
    ({}, ['train.init_from=[/gcs/b/a, b]'], "train.init_from 'b' is a file of this machine"),
    ({'config': 'multi30k_en_de'}, [], "data.train 'train.en.gz' is a file of this machine; give gs://BUCKET/FILE or"),
    ({'strategy': 'multi_worker_mirrored'}, [], 'train.strategy multi_worker_mirrored needs several machines'),
    ({'compile': 'pipeline.json'}, [], "--compile 'pipeline.json' must end in .yaml"),
    ({'compile': 'nowhere/pipeline.yaml'}, [], "--compile 'nowhere/pipeline.yaml': there is no folder nowhere"),
])
def test_what_vertex_ai_could_not_run_is_refused_by_name(flags, overrides, said, capsys):
    given = {**VERTEX, 'compile': 'p.yaml', **flags}
    words = [f'--{name}={value}' for name, value in given.items() if value is not None]
    with pytest.raises(SystemExit) as left:
        run.main([*words, *(word for override in overrides for word in ('--set', override))])
    assert left.value.code == 2 and said in capsys.readouterr().err


def problems(target, overrides=(), beam=()):
    return kubeflow.problems('p.yaml', config.load(None, overrides), target, [*beam])


def test_kubeflow_takes_what_vertex_ai_does_not():
    for root in ('s3://bucket/runs', '/mounted/runs'):
        assert not problems(cluster.Target('landmark:1', root), [
            'push.destination=/models', 'cluster.accelerator=nvidia.com/gpu'])
    found = problems(cluster.Target('landmark:1', 'runs/my'), [
        'cluster.accelerator=NVIDIA_TESLA_T4', 'push.destination=m'], ['--runner', 'DataflowRunner'])
    assert [sentence.split(' ')[0] for sentence in found] == [
        '--pipeline_root', 'cluster.accelerator', 'push.destination', '--sdk_container_image']


def test_a_step_knows_the_store_of_lineage_and_no_password(tmp_path, monkeypatch):
    monkeypatch.setenv('LANDMARK_METADATA', 'mysql://landmark@db.example:3306/landmark')
    monkeypatch.setenv('LANDMARK_METADATA_PASSWORD', 'correct horse')
    monkeypatch.setenv('LANDMARK_METADATA_PASSWORD_FILE', '/run/secrets/landmark')
    text = compiled(tmp_path, **GOOD)
    assert 'correct horse' not in str(text)
    for executor in text['deploymentSpec']['executors'].values():
        assert {each['name']: each['value'] for each in executor['container']['env']} == {
            'LANDMARK_METADATA': 'mysql://landmark@db.example:3306/landmark',
            'LANDMARK_METADATA_PASSWORD_FILE': '/run/secrets/landmark'}


def test_the_image_holds_the_project_with_its_extras():
    """It cannot be built here: that needs a Docker engine."""
    text = (ROOT / 'pipelines' / 'engines' / 'stage.Dockerfile').read_text()
    copied = [source for line in re.findall(r'^COPY (?!--from)(.*)$', text, re.M) for source in line.split()[:-1]]
    assert {path.parent.name for path in ROOT.glob('*/__init__.py')} - {'tests'} <= {*copied}
    assert all((ROOT / source).exists() for source in copied)
    assert re.findall(r'python:(\d\.\d+)', text) == [f'{sys.version_info.major}.{sys.version_info.minor}'] * 2
    extras = re.findall(r'^# .*EXTRAS=([a-z,]+)|^ARG EXTRAS=(.+)$', text, re.M)
    assert all(f"'{name}':" in (ROOT / 'setup.py').read_text() for pair in extras for name in ','.join(
        filter(None, pair)).split(','))


def test_compile_has_flags_of_its_own(capsys):
    with pytest.raises(SystemExit) as left:
        run.main(['--image', IMAGE])
    assert left.value.code == 2 and 'need --compile FILE' in capsys.readouterr().err


@pytest.mark.cluster  # a whole pipeline of twelve processes, killed and run again
def test_a_killed_pipeline_ends_as_an_undisturbed_one(tmp_path):
    """Short benchmarks/robustness/kubeflow_sweep.py: one kill, while the second of six steps works."""
    kill_points.make_pairs(tmp_path / 'raw')
    settings, whole = tmp_path / 'kills.yaml', tmp_path / 'whole'
    settings.write_text(kill_points.CONFIG.format(folder=tmp_path / 'raw'))
    whole.mkdir()
    kill_points.finish('run', ['--config', str(settings)], whole)
    file = kubeflow_sweep.compile_pipeline(settings, tmp_path)
    found = kubeflow_sweep.point(file, settings, whole, tmp_path / 'point', 15)
    assert found['killed'] and found['good'], found


@pytest.mark.cluster  # imports all of Vertex AI's client
def test_vertex_ai_takes_the_file(tmp_path):
    """As far as its own client checks it, before anything is sent."""
    from google.auth import credentials
    from google.cloud import aiplatform
    compiled(tmp_path, **VERTEX)
    job = aiplatform.PipelineJob('my', str(tmp_path / 'pipeline.yaml'), pipeline_root=f'{GOOD["pipeline_root"]}/vertex',
                                 project='my-project', location='us-central1',
                                 credentials=credentials.AnonymousCredentials())
    assert re.fullmatch(r'landmark-demo-translation-\d{14}', job.job_id)
