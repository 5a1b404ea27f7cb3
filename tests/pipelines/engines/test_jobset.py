"""Training on a Kubernetes cluster without one: manifest, refusals, and its containers' commands on this machine."""
import json
import os
import re
import signal

import pytest
import yaml

from pipelines import train
from pipelines.core import config
from pipelines.core.sections import TrainConfig
from pipelines.engines import jobset
from pipelines.training import strategy
from pipelines.training.loop import PREEMPTED
from support.commands import command, environment, start
from support.ports import free_ports

GOOD = {'image': 'registry.example/landmark:1', 'pipeline_root': 'gs://bucket/runs/my', 'workers': '3'}
SHORT = ['train.steps=60', 'train.validate_every=60', 'input.buckets=[16]', 'model.P_drop=0']


def written(folder, overrides=(), **flags) -> tuple[dict, dict]:
    """Write the manifest as a user does. Returns its configuration and its JobSet."""
    file = folder / 'job.yaml'
    train.main(['--manifest', str(file), *(f'--{name}={value}' for name, value in {**GOOD, **flags}.items()),
                *(word for override in overrides for word in ('--set', override))])
    return tuple(yaml.safe_load_all(file.read_text()))


def containers(job: dict) -> dict[str, dict]:
    """The only container of each replicated job, by its name."""
    pods = [each['template']['spec']['template']['spec'] for each in job['spec']['replicatedJobs']]
    return {pod['containers'][0]['name']: pod['containers'][0] for pod in pods}


def variables(container: dict, worker: int) -> dict[str, str]:
    """A container's environment as Kubernetes makes it: $(NAME) stands for a variable before it."""
    found: dict[str, str] = {}
    for each in container['env']:
        value = each.get('value', str(worker))
        found[each['name']] = re.sub(r'\$\((\w+)\)', lambda name: found[name[1]], value)
    return found


def test_every_worker_has_its_place_in_the_cluster(tmp_path, monkeypatch):
    settings, job = written(tmp_path)
    name, workers = job['metadata']['name'], containers(job)['train']
    assert (settings['metadata']['name'], job['spec']['network']['subdomain']) == (name, name)
    for index in range(3):
        value = variables(workers, index)['TF_CONFIG']
        assert json.loads(value) == {'cluster': {'worker': [
            f'{name}-worker-0-{each}.{name}:{jobset.PORT}' for each in range(3)]},
            'task': {'type': 'worker', 'index': index}}  # JobSet's names of hosts
        monkeypatch.setenv('TF_CONFIG', value)
        strategy.check(TrainConfig(strategy='multi_worker_mirrored'))
        assert strategy.is_worker(TrainConfig(strategy='multi_worker_mirrored')) == bool(index)


def test_what_is_preempted_costs_no_retry_and_what_fails_does(tmp_path):
    _, job = written(tmp_path, ['cluster.retries=5', 'cluster.grace_seconds=300'])
    prepare, worker = job['spec']['replicatedJobs']
    assert worker['dependsOn'] == [{'name': prepare['name'], 'status': 'Complete'}]
    [rule] = job['spec']['failurePolicy']['rules']
    assert (rule['action'], rule['onJobFailureReasons']) == ('RestartJobSetAndIgnoreMaxRestarts', ['PodFailurePolicy'])
    assert job['spec']['failurePolicy']['maxRestarts'] == 5
    policy = worker['template']['spec']['podFailurePolicy']['rules']
    assert [each['action'] for each in policy] == ['FailJob'] * 2 and policy[0]['onExitCodes']['values'] == [PREEMPTED]
    assert policy[0]['onExitCodes']['containerName'] in containers(job)
    assert worker['template']['spec']['backoffLimit'] == 0  # one lost worker starts all again
    pod = worker['template']['spec']['template']['spec']
    assert pod['restartPolicy'] == 'Never' and pod['terminationGracePeriodSeconds'] == 300


def test_containers_have_what_the_configuration_asks(tmp_path):
    settings, job = written(tmp_path, ['cluster.cpu=4', 'cluster.memory=16Gi', 'cluster.accelerator=nvidia.com/gpu',
                                       'cluster.accelerators=3', 'name=A "new" one'])
    found = containers(job)
    assert found['prepare']['resources'] == {'limits': {'cpu': '4', 'memory': '16Gi'}}
    assert found['train']['resources'] == {'limits': {'cpu': '4', 'memory': '16Gi', 'nvidia.com/gpu': '3'}}
    file = tmp_path / 'pipeline.yaml'
    file.write_text(settings['data'][file.name])
    assert config.load(str(file)).cluster.accelerators == 3 and job['metadata']['name'] == 'landmark-a-new-one'


@pytest.mark.parametrize('flags, overrides, said', [
    ({'image': ''}, [], '--image is missing'),
    ({'pipeline_root': 'runs/my'}, [], "--pipeline_root 'runs/my' must be an address"),
    ({'manifest': 'job.json'}, [], "--manifest 'job.json' must end in .yaml"),
    ({}, ['cluster.memory=16 GB'], "cluster.memory '16 GB' must be written like 16Gi"),
    ({}, ['train.init_from=here'], "train.init_from 'here' is a file of this machine"),
    ({'config': 'learning_machine_nim'}, [], 'keras_models.school is not trained by gradient steps')])
def test_what_a_cluster_could_not_run_is_refused_by_name(flags, overrides, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        written(tmp_path, overrides, **flags)
    assert left.value.code == 2 and said in capsys.readouterr().err


def test_without_tf_config_only_other_stages_run(monkeypatch):
    monkeypatch.delenv('TF_CONFIG', raising=False)
    assert not strategy.is_worker(TrainConfig(strategy='multi_worker_mirrored'))


@pytest.mark.cluster  # two workers, started twice
def test_the_commands_train_and_a_preempted_worker_leaves_with_the_code_of_the_policy(config_file, tmp_path):
    root = tmp_path / 'root'
    settings, job = written(tmp_path, SHORT, config=config_file, pipeline_root=str(root), workers=2)
    (tmp_path / 'pipeline.yaml').write_text(settings['data']['pipeline.yaml'])
    hosts = json.loads(variables(containers(job)['train'], 0)['TF_CONFIG'])['cluster']['worker']

    def run(name, worker=0, ports=()):
        words = [word.replace('/etc/landmark', str(tmp_path)) for word in containers(job)[name]['command'][2:]]
        env = variables(containers(job)[name], worker)
        for host, port in zip(hosts, ports):
            env = {key: value.replace(host, f'127.0.0.1:{port}') for key, value in env.items()}
        return start(*words, cwd=tmp_path, env=environment(**env))
    assert run('prepare').communicate() and not list(root.glob('train'))
    ports = free_ports(2)
    children = [run('train', index, ports) for index in range(2)]
    for line in children[0].stdout:
        if 'step 15' in line:
            break
    os.kill(children[1].pid, signal.SIGTERM)
    assert {child.communicate() and child.returncode for child in children} == {PREEMPTED}
    ports = free_ports(2)
    children = [run('train', index, ports) for index in range(2)]
    said = children[0].communicate()[0]
    assert [child.wait() for child in children] == [0, 0] and 'resuming at step' in said
    exported = command('pipelines.export', '--config', str(tmp_path / 'pipeline.yaml'), '--pipeline_root', str(root),
                       '--set', 'train.strategy=multi_worker_mirrored')
    assert exported.returncode == 0, exported.stderr


def strict(schema: dict) -> dict:
    """A CRD's schema as JSON Schema that also refuses unknown fields, which a cluster would drop with a warning."""
    if schema.get('x-kubernetes-int-or-string'):
        return {'type': ['integer', 'string']}
    found = {key: value for key, value in schema.items() if key in ('type', 'enum', 'required', 'maxItems', 'pattern')}
    if 'properties' in schema:
        found |= {'properties': {name: strict(each) for name, each in schema['properties'].items()},
                  'additionalProperties': False}
    for key in ('items', 'additionalProperties'):
        if isinstance(schema.get(key), dict):
            found[key] = strict(schema[key])
    return found


@pytest.mark.cluster  # needs JobSet's definition, which `make jobset` downloads
def test_the_manifest_keeps_jobset_s_published_schema(tmp_path):
    import jsonschema
    if not os.path.exists(path := os.environ.get('JOBSET_CRD', '')):
        pytest.skip('JOBSET_CRD names no definition of JobSet; `make jobset` downloads it')
    with open(path, encoding='utf-8') as file:
        [version] = yaml.safe_load(file)['spec']['versions']
    schema = strict(version['schema']['openAPIV3Schema'])
    schema['properties']['metadata'] = {'type': 'object'}  # the cluster's own
    _, job = written(tmp_path, ['cluster.cpu=4', 'cluster.accelerator=nvidia.com/gpu'])
    assert job['apiVersion'].endswith(f'/{version["name"]}')
    jsonschema.validate(job, schema)
    job['spec']['failurePolicy']['maxRestart'] = 1
    with pytest.raises(jsonschema.ValidationError, match='maxRestart'):
        jsonschema.validate(job, schema)
