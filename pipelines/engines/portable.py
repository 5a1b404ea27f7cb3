"""Check a job for Flink, Spark, Prism or another portable job service before any work.

Without these checks Beam waits for minutes, or for ever, for a cluster or a pool of workers that does not answer; or
it starts workers in its own image, which lacks this package. Options: https://beam.apache.org/documentation/runners/.
"""
import os
import shutil
import socket
import urllib.parse
from collections.abc import Collection

import grpc
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
    SparkRunnerOptions,
)
from apache_beam.portability.api import beam_job_api_pb2_grpc
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer
from apache_beam.runners.portability.job_server import JavaJarJobServer
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.portability.spark_runner import SparkJarJobServer

from data_prep import UserError

_HERE = ('[local]', '[auto]', '[collection]', '')  # masters for which Beam starts Flink on this machine
_LOOPBACK = ('localhost', '127.0.0.1', '::1')
_CONNECT_SECONDS = 5


def problems(options: PipelineOptions, runner: str) -> list[str]:
    """Describe every problem of a job for this runner, by its class's name; none for a runner that is not portable."""
    checks = {'FlinkRunner': _flink, 'SparkRunner': _spark, 'PrismRunner': _prism, 'PortableRunner': _job_service}
    if runner not in checks:
        return []
    given = options.view_as(PortableOptions).job_endpoint  # then Beam starts no job server for any of them
    return _job_service(options) if given else checks[runner](options)


def unknown_flags(options: PipelineOptions, names: Collection[str]) -> list[str]:
    """Return those of `names` that the job server of --job_endpoint does not know, either; all without one.

    Raises:
      UserError: what answers at --job_endpoint is not a job server.
      SystemExit: argparse's, a flag of the job server lacks its value or has one of the wrong type.
    """
    endpoint = options.view_as(PortableOptions).job_endpoint
    if not names or endpoint in (None, 'embed'):
        return sorted(names)
    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_CONNECT_SECONDS)
            known = JobServiceHandle(beam_job_api_pb2_grpc.JobServiceStub(channel), options).get_pipeline_options()
        except (grpc.FutureTimeoutError, grpc.RpcError) as error:
            given = ' and '.join(f'--{name}' for name in sorted(names))
            raise UserError(f'--job_endpoint {endpoint}: no job service answers there, which may know {given}. Start '
                            'one, or correct the address.') from error
    return sorted(name for name in names if f'beam:option:{name}:v1' not in known)


def _flink(options: PipelineOptions) -> list[str]:
    flink = options.view_as(FlinkRunnerOptions)
    master, found = flink.flink_master, _job_server('flink', flink.flink_job_server_jar, FlinkJarJobServer, options)
    if master in _HERE:
        return found
    return found + _answers('--flink_master', master, "Flink's REST service") + _workers(options, master)


def _spark(options: PipelineOptions) -> list[str]:
    spark = options.view_as(SparkRunnerOptions)
    master, found = spark.spark_master_url, _job_server('spark', spark.spark_job_server_jar, SparkJarJobServer, options)
    if master.startswith('local'):
        return found
    return found + _answers('--spark_master_url', master, 'Spark master') + _workers(options, master)


def _prism(options: PipelineOptions) -> list[str]:
    path = options.view_as(PrismRunnerOptions).prism_location
    if path and '://' not in path and not os.access(path, os.X_OK):
        return [f'--prism_location: {path} is not a program; build it with `make prism`']
    given = options.view_as(PortableOptions).environment_type  # by default, this process works
    return _workers(options, 'localhost') if given else []


def _job_service(options: PipelineOptions) -> list[str]:
    endpoint = options.view_as(PortableOptions).job_endpoint
    if endpoint == 'embed':
        return []
    if not endpoint:
        return ['--runner PortableRunner needs --job_endpoint HOST:PORT, the address of a Beam job service']
    return _answers('--job_endpoint', endpoint, 'job service') + _workers(options, endpoint)


def _job_server(engine: str, jar: str | None, server: type[JavaJarJobServer], options: PipelineOptions) -> list[str]:
    """Check what Beam needs to start this engine's job server on this machine, and fetch the server as Beam would."""
    if jar and '://' not in jar and not os.path.isfile(jar):
        return [f'--{engine}_job_server_jar: there is no file {jar}']
    remedy = 'give a running job server with --runner PortableRunner --job_endpoint HOST:PORT'
    if not shutil.which('java'):
        return [f'--runner {engine.title()}Runner needs Java for its job server, and there is no `java` on PATH; '
                f'install one, or {remedy}']
    address = server(options).path_to_jar()
    try:
        server.local_jar(address, options.view_as(JobServerOptions).jar_cache_dir)
    except (RuntimeError, OSError):  # Beam's for one it cannot fetch; urllib's
        return [f'--runner {engine.title()}Runner: its job server could not be fetched from {address}; name one with '
                f'--{engine}_job_server_jar, or {remedy}']
    return []


def _workers(options: PipelineOptions, cluster: str) -> list[str]:
    """Check that workers will have this package.

    Args:
      options: Beam's.
      cluster: where the job is sent. The address of a pool is read there: `localhost` is each machine of the cluster.
    """
    portable = options.view_as(PortableOptions)
    kind, config = portable.environment_type, portable.environment_config
    if kind == 'EXTERNAL':
        host, port = _split(config)
        if host in _LOOPBACK and port and _split(cluster)[0] not in _LOOPBACK:
            return []
        return _answers('--environment_config', config, 'pool of workers', ' Start `python -m '
                        'apache_beam.runners.worker.worker_pool_main --service_port PORT` on each machine')
    if kind in (None, 'DOCKER') and not config:
        return ["--environment_type is missing, and Beam's own image lacks this package; give --environment_type "
                'EXTERNAL --environment_config HOST:PORT for a pool of workers, or DOCKER and an image that has it']
    return []


def _answers(flag: str, address: str | None, service: str, remedy: str = '') -> list[str]:
    """Check that something listens at HOST:PORT, with or without a scheme."""
    host, port = _split(address)
    if not host or not port:
        return [f'{flag} {address or ""}'.rstrip() + f' must be HOST:PORT, the address of a {service}']
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return [f'{flag} {address}: no {service} answers there ({error})' + (f'.{remedy}' if remedy else '')]
    return []


def _split(address: str | None) -> tuple[str | None, int | None]:
    """Return host and port of an address with or without a scheme; None where it has none."""
    address = address or ''
    try:
        parts = urllib.parse.urlsplit(address if '://' in address else f'//{address}')
        return parts.hostname, parts.port
    except ValueError:  # a port that is not a number up to 65535
        return None, None
