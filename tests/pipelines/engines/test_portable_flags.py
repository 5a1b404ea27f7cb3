"""A job for Flink, Spark, Prism or a job service is refused by name where it would wait or fail on its workers."""
import os
import re
import socket
import types
from concurrent import futures

import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2 as job_api
from apache_beam.portability.api import beam_job_api_pb2_grpc as job_services
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer
from apache_beam.runners.portability.spark_runner import SparkJarJobServer
from apache_beam.utils import subprocess_server

from data_prep import UserError
from pipelines.engines import beam_flags, portable

FLINK, SPARK, PRISM, PORTABLE = (('--runner', f'{name}Runner') for name in ('Flink', 'Spark', 'Prism', 'Portable'))
SERVERS = FlinkJarJobServer, SparkJarJobServer
POOL = ('--environment_type', 'EXTERNAL', '--environment_config')


@pytest.fixture
def listening():
    """The address of something that accepts connections."""
    with socket.create_server(('127.0.0.1', 0)) as server:
        yield f'127.0.0.1:{server.getsockname()[1]}'


@pytest.fixture
def deaf():
    """An address where nothing listens: bound, so that nobody else takes it meanwhile."""
    with socket.socket() as holder:
        holder.bind(('127.0.0.1', 0))
        yield f'127.0.0.1:{holder.getsockname()[1]}'


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A `java` on PATH, and the job servers that Beam keeps; nothing starts them."""
    monkeypatch.setattr(subprocess_server.JavaJarServer, 'JAR_CACHE', str(tmp_path))
    for server in SERVERS:
        (tmp_path / os.path.basename(server(PipelineOptions([])).path_to_jar())).touch()
    (tmp_path / 'java').write_text('#!/bin/sh\n')
    (tmp_path / 'java').chmod(0o755)
    monkeypatch.setenv('PATH', str(tmp_path))


class JobServer(job_services.JobServiceServicer):
    """Describes a flag of each kind, as the job servers of Flink and Spark do."""

    def DescribePipelineOptions(self, request, context):
        kinds = job_api.PipelineOptionType
        return job_api.DescribePipelineOptionsResponse(options=[
            job_api.PipelineOptionDescriptor(name='number_of_execution_retries', type=kinds.INTEGER),
            job_api.PipelineOptionDescriptor(name='fail_on_checkpoints', type=kinds.BOOLEAN, default_value='false'),
            job_api.PipelineOptionDescriptor(name='runner', type=kinds.STRING)])  # which Beam knows, too


@pytest.fixture
def grpc_server():
    """A gRPC server without services, and its address."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port('127.0.0.1:0')
    server.start()
    yield server, f'127.0.0.1:{port}'
    server.stop(None).wait()


@pytest.fixture
def job_server(grpc_server):
    """The address of a job server."""
    server, address = grpc_server
    job_services.add_JobServiceServicer_to_server(JobServer(), server)
    return address


def refusal(*flags: str) -> str:
    with pytest.raises(UserError) as refused:
        beam_flags.check(list(flags), None, ())
    return str(refused.value)


@pytest.mark.parametrize('runner, flag, service', [
    (FLINK, '--flink_master', "Flink's REST service"), (SPARK, '--spark_master_url', 'Spark master'),
    (PORTABLE, '--job_endpoint', 'job service')], ids=['flink', 'spark', 'portable'])
def test_a_cluster_that_does_not_answer_is_refused(java, listening, deaf, runner, flag, service):
    scheme = 'spark://' if runner is SPARK else ''
    said = refusal(*runner, flag, scheme + deaf, *POOL, listening)
    assert re.fullmatch(rf"{flag} {scheme}{deaf}: no {service} answers there \(.*\)\.", said)


@pytest.mark.parametrize('address', ['cluster', 'cluster:x', 'cluster:99999', ':8081'])
def test_a_master_needs_a_host_and_a_port(java, listening, address):
    assert f'--flink_master {address} must be HOST:PORT' in refusal(*FLINK, '--flink_master', address, *POOL, listening)


@pytest.mark.parametrize('runner, flag', [(FLINK, '--flink_master'), (SPARK, '--spark_master_url'),
                                          (PORTABLE, '--job_endpoint')], ids=['flink', 'spark', 'portable'])
def test_workers_of_a_cluster_must_have_this_package(java, listening, deaf, runner, flag):
    address = f'spark://{listening}' if runner is SPARK else listening
    assert '--environment_type is missing' in refusal(*runner, flag, address)
    assert '--environment_type is missing' in refusal(*runner, flag, address, '--environment_type', 'DOCKER')
    assert 'worker_pool_main' in refusal(*runner, flag, address, *POOL, deaf)
    for workers in ((*POOL, listening), ('--environment_type', 'DOCKER', '--environment_config', 'here/image:1')):
        given = [*runner, flag, address, *workers]
        assert beam_flags.check(given, None, ()) == given


def test_a_pool_at_localhost_is_each_machine_s_own(java, listening, deaf, monkeypatch):
    """Only a cluster on this machine has its pool here. Names are resolved to this machine, which has no other."""
    pool = 'localhost:' + deaf.rpartition(':')[2]
    elsewhere = listening.replace('127.0.0.1', 'flink.example')
    monkeypatch.setattr(socket, 'create_connection', lambda address, timeout, connect=socket.create_connection:
                        connect(('127.0.0.1', address[1]), timeout))
    assert 'worker_pool_main' in refusal(*FLINK, '--flink_master', listening, *POOL, pool)
    given = [*FLINK, '--flink_master', elsewhere, *POOL, pool]
    assert beam_flags.check(given, None, ()) == given


@pytest.mark.parametrize('given', [FLINK, PRISM, (*SPARK, '--spark_master_url', 'local[2]'),
                                   (*PORTABLE, '--job_endpoint', 'embed')], ids=['flink', 'prism', 'spark', 'embed'])
def test_what_beam_starts_on_this_machine_needs_no_workers_named(java, given):
    assert beam_flags.check(list(given), None, ()) == list(given)


@pytest.mark.parametrize('runner, flag', [(FLINK, '--flink_master'), (SPARK, '--spark_master_url')],
                         ids=['flink', 'spark'])
def test_a_job_server_needs_java_and_its_file(java, deaf, tmp_path, monkeypatch, runner, flag):
    jar = f'--{runner[1].removesuffix("Runner").lower()}_job_server_jar'
    assert f'{jar}: there is no file {tmp_path}/none.jar' in refusal(*runner, jar, f'{tmp_path}/none.jar')
    absent = f'http://{deaf}/server.jar'
    assert f'its job server could not be fetched from {absent}; name one' in refusal(*runner, jar, absent)
    monkeypatch.setenv('PATH', str(tmp_path / 'empty'))
    assert 'needs Java' in refusal(*runner)


def test_prism_must_be_a_program(tmp_path):
    path = tmp_path / 'prism'
    path.write_text('not one')
    assert f'--prism_location: {path} is not a program' in refusal(*PRISM, '--prism_location', str(path))
    path.chmod(0o755)
    assert beam_flags.check([*PRISM, '--prism_location', str(path)], None, ())


@pytest.mark.parametrize('runner', [PORTABLE, FLINK, SPARK], ids=['portable', 'flink', 'spark'])
def test_flags_of_a_job_server_are_those_it_describes(listening, job_server, runner):
    """Without Java: Beam starts no job server where one is named."""
    given = [*runner, '--job_endpoint', job_server, *POOL, listening]
    its = ['--number_of_execution_retries', '3', '--fail_on_checkpoints']
    assert beam_flags.check([*given, *its], None, ()) == [*given, *its]
    assert '--number_of_retries is a flag of neither' in refusal(*given, '--number_of_retries', '3')
    assert 'number_of_execution_retries: invalid int value' in refusal(*given, '--number_of_execution_retries', 'three')
    assert '--number_of_execution_retries is a flag of neither' in refusal(*its)  # of the DirectRunner


def test_flags_of_a_job_server_need_one_that_answers(listening, deaf, grpc_server, monkeypatch):
    monkeypatch.setattr(portable, '_CONNECT_SECONDS', 0.5)
    # Beam asks five times, a second apart.
    monkeypatch.setattr(portable_runner, 'time', types.SimpleNamespace(sleep=lambda seconds: None))
    _, another_service = grpc_server
    for address in (deaf, listening, another_service):
        said = refusal(*PORTABLE, '--job_endpoint', address, '--number_of_execution_retries', '3')
        assert said == (f'--job_endpoint {address}: no job service answers there, which may know '
                        '--number_of_execution_retries. Start one, or correct the address.')


@pytest.mark.parametrize('runner', ['DaskRunner', 'apache_beam.runners.dask.dask_runner.DaskRunner'])
def test_dask_is_refused_because_it_mixes_outputs(runner):
    assert 'elements of all its outputs' in refusal('--runner', runner, '--dask_client_address', 'localhost:8786')
