"""Write a JobSet, multi-worker training on Kubernetes: every worker gets TF_CONFIG, and a preempted one costs no retry.

Of the three, JobSet serves TensorFlow: Kubeflow's TFJob is no longer developed, and its successor, Kubeflow Trainer,
makes JobSets without TF_CONFIG (https://github.com/kubeflow/trainer/issues/2443).

A preempted worker saves and exits with the trainer's own code, as the others do when one is lost. Then all are started
again, any number of times, and resume. Every other failure counts towards `cluster.retries`. Fields:
https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/.
"""
import json
from typing import Any

import yaml

from data_prep import UserError
from pipelines.engines import cluster
from pipelines.engines.cluster import Target

PORT = 2222  # of every worker
_FOLDER, _FILE = '/etc/landmark', 'pipeline.yaml'  # of the configuration in a container


def write(path: str, config: Any, target: Target, workers: int, preempted: int) -> None:
    """Write the manifest: a ConfigMap of the configuration, and a JobSet that prepares once and then trains.

    Args:
      path: the file, `*.yaml`.
      config: the resolved configuration.
      workers: their number; the first is the chief.
      preempted: exit code of a worker that saved and is to be started again.

    Raises:
      UserError: the workers cannot run with these names and values; the message holds all of them.
    """
    found = cluster.problems('--manifest', path, config, target)
    if 'train' in config.model_spec.stages:
        found.append(f'{config.model_spec.name} is not trained by gradient steps')
    if found:
        raise UserError('; '.join(found) + '.')
    name = cluster.name_of(config)
    values = yaml.safe_dump(config.values, sort_keys=False, allow_unicode=True)
    documents = [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name}, 'data': {_FILE: values}},
                 _jobset(name, config.cluster, target, workers, preempted)]
    with open(path, 'w', encoding='utf-8') as file:
        yaml.safe_dump_all(documents, file, sort_keys=False, allow_unicode=True)


def _jobset(name: str, settings: Any, target: Target, workers: int, preempted: int) -> dict:
    prepare = {'backoffLimit': settings.retries, 'template': {'spec': _pod(
        name, settings, target, 'prepare', ['--set', 'train.strategy=one_device'])}}
    training = _pod(name, settings, target, 'train', ['--strategy', 'multi_worker_mirrored'])
    [container] = training['containers']
    container['env'] += _tf_config(name, workers)
    if settings.accelerator:
        container['resources']['limits'][settings.accelerator] = str(settings.accelerators)
    worker = {
        'completionMode': 'Indexed', 'completions': workers, 'parallelism': workers, 'backoffLimit': 0,
        'podFailurePolicy': {'rules': [
            {'action': 'FailJob', 'onExitCodes': {'containerName': 'train', 'operator': 'In', 'values': [preempted]}},
            {'action': 'FailJob', 'onPodConditions': [{'type': 'DisruptionTarget', 'status': 'True'}]}]},
        'template': {'spec': training}}
    return {
        'apiVersion': 'jobset.x-k8s.io/v1alpha2', 'kind': 'JobSet', 'metadata': {'name': name}, 'spec': {
            'network': {'enableDNSHostnames': True, 'subdomain': name},
            'failurePolicy': {
                'maxRestarts': settings.retries, 'restartStrategy': 'BlockingRecreate',  # old workers meet no new ones
                'rules': [{'name': 'preempted', 'action': 'RestartJobSetAndIgnoreMaxRestarts',
                           'targetReplicatedJobs': ['worker'], 'onJobFailureReasons': ['PodFailurePolicy']}]},
            'replicatedJobs': [
                {'name': 'prepare', 'replicas': 1, 'template': {'spec': prepare}},
                {'name': 'worker', 'replicas': 1, 'dependsOn': [{'name': 'prepare', 'status': 'Complete'}],
                 'template': {'spec': worker}}]}}


def _pod(name: str, settings: Any, target: Target, stage: str, flags: list[str]) -> dict:
    """Return the pod that runs a stage's command, with the configuration mounted."""
    limits = {key: str(value) for key, value in (('cpu', settings.cpu), ('memory', settings.memory)) if value}
    return {
        'restartPolicy': 'Never', 'terminationGracePeriodSeconds': settings.grace_seconds,
        'volumes': [{'name': 'configuration', 'configMap': {'name': name}}],
        'containers': [{
            'name': stage, 'image': target.image, 'resources': {'limits': limits},
            'command': ['python3', '-m', f'pipelines.{stage}', '--config', f'{_FOLDER}/{_FILE}', '--pipeline_root',
                        target.root, *flags],
            'volumeMounts': [{'name': 'configuration', 'mountPath': _FOLDER, 'readOnly': True}],
            'env': [{'name': key, 'value': value} for key, value in target.environment.items()]}]}


def _tf_config(name: str, workers: int) -> list[dict]:
    """Return TF_CONFIG of every worker, and the index that Kubernetes puts in the place of $(WORKER)."""
    index = {'fieldRef': {'fieldPath': "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    addresses = [f'{name}-worker-0-{number}.{name}:{PORT}' for number in range(workers)]
    value = json.dumps({'cluster': {'worker': addresses}, 'task': {'type': 'worker', 'index': '$(WORKER)'}})
    return [{'name': 'WORKER', 'valueFrom': index},
            {'name': 'TF_CONFIG', 'value': value.replace('"$(WORKER)"', '$(WORKER)')}]  # a number
