"""The same job on Beam's portable job service, with workers in their own processes."""
import os
import signal
import subprocess
import sys
import time

import pytest

from data_prep.core import raw_files
from data_prep.text import job as text_job
from pipelines.core import config
from support.commands import ROOT, command

SHARDS = ['data.pairs_per_block=200', 'data.pairs_per_shard=1000']  # several blocks a shard, several shards


@pytest.fixture
def job_service(tmp_path):
    """The port of a job service that runs in a process and a folder of its own, and its process id."""
    port_file = tmp_path / 'service' / 'port'
    with open(tmp_path / 'service.log', 'w') as log:
        service = subprocess.Popen(
            [sys.executable, '-m', 'apache_beam.runners.portability.local_job_service_main', '--port_file', port_file],
            cwd='/', env={**os.environ, 'PYTHONPATH': str(ROOT)}, stdout=log, stderr=subprocess.STDOUT)
    try:
        while not (port_file.exists() and port_file.read_text().strip()):  # it is made before it is written
            assert service.poll() is None, (tmp_path / 'service.log').read_text()
            time.sleep(0.1)
        yield port_file.read_text(), service.pid
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(30)


def files(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


@pytest.mark.slow  # test_beam_promises.py has many workers write the same bytes
def test_separate_workers_write_the_bytes_of_the_direct_runner(config_file, job_service, tmp_path):
    port, service = job_service
    started, imported = tmp_path / 'started', tmp_path / 'imported'
    worker = (f'echo $$ >> {started}; exec {sys.executable} -X importtime '
              f'-m apache_beam.runners.worker.sdk_worker_main 2>> {imported}')
    elsewhere = tmp_path / 'elsewhere'
    elsewhere.mkdir()
    done = command('pipelines.prepare', '--config', config_file, *(part for pair in SHARDS for part in ('--set', pair)),
                   '--pipeline_root', str(tmp_path / 'root'), '--runner', 'PortableRunner',
                   '--job_endpoint', f'localhost:{port}', '--environment_type', 'beam:env:harness_subprocess_python:v1',
                   '--environment_config', worker, cwd=elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(elsewhere.iterdir())

    direct = tmp_path / 'direct'
    direct.mkdir()
    text_job.run(config.load(config_file, SHARDS).data, str(direct), [])
    [examples] = (tmp_path / 'root').glob('prepare/*/examples')
    made = files(examples)
    assert made.pop(raw_files.LIST)  # which the stage adds
    assert made == files(direct)
    assert len(list(direct.glob('Split-train/*.tfrecord'))) == 3 and (direct / 'manifest.json').exists()

    workers = {int(line) for line in started.read_text().split()}
    assert workers and service not in workers  # each the shell that became a worker
    assert 'data_prep.text.job' in imported.read_text()  # and it was they who ran the job's functions
