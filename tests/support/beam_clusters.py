"""Flink and Spark on hosts of their own on this machine, with a pool of Beam's workers on each.

A host is a network namespace, so that each has its pool at one address, `localhost`: every task manager of Flink, or
worker of Spark, numbers Beam's workers from 1, and a pool that two of them share stops one's number 1 for the other's;
the job then fails or waits for ever (Beam 2.72). Manager and job server run on this machine itself.
`make flink` and `make spark` fetch the Java libraries that this starts: the engine's, from PyPI, into `cluster`, and
those of Beam's job server, by Maven, into `job-server`.
"""
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

from benchmarks.robustness import hosts
from support.commands import environment
from support.ports import free_ports

_START_SECONDS = 120
_HOSTS = 2  # each with one slot, or one core, so that both are used
_INTERNALS = ('java.io', 'java.lang', 'java.lang.invoke', 'java.lang.reflect', 'java.net', 'java.nio', 'java.text',
              'java.time', 'java.util', 'java.util.concurrent', 'java.util.concurrent.atomic',
              'java.util.concurrent.locks', 'sun.nio.ch')  # which Flink and Beam reach into
_OPEN = [*(f'--add-opens=java.base/{package}=ALL-UNNAMED' for package in _INTERNALS),
         '--add-exports=java.base/sun.net.util=ALL-UNNAMED']


@dataclasses.dataclass
class Cluster:
    """A cluster that takes jobs.

    Attributes:
      flags: those of Beam that send a job to it.
      pools: the processes whose children run the job's functions; none for Prism, whose job runs in the command's.
    """
    flags: list[str]
    pools: list[psutil.Process]

    def kill_a_worker_that_writes(self, folder: str) -> bool:
        """Kill one that has a file below a folder of this name open, if there is any."""
        for worker in (worker for pool in self.pools for worker in pool.children()):
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(f'/{folder}/' in file.path for file in worker.open_files()):
                    worker.kill()
                    return True
        return False


def examples(root: pathlib.Path) -> dict[str, bytes]:
    """Return the files of the one data set below a root."""
    [folder] = root.glob('prepare/*/examples')
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


@contextlib.contextmanager
def prism(program: pathlib.Path, folder: pathlib.Path) -> Iterator[Cluster]:
    """Name the program; a command starts it, and works itself."""
    yield Cluster(['--runner', 'PrismRunner', '--prism_location', str(program)], [])


@contextlib.contextmanager
def flink(home: pathlib.Path, folder: pathlib.Path) -> Iterator[Cluster]:
    """Start two task managers of one slot. Logs go to `folder`."""
    rpc, rest, blobs = free_ports(3)
    (folder / 'config.yaml').write_text(json.dumps({
        'jobmanager.rpc.address': hosts.HERE, 'jobmanager.rpc.port': rpc, 'jobmanager.memory.process.size': '1200m',
        'rest.address': hosts.HERE, 'rest.port': rest, 'blob.server.port': blobs,
        'taskmanager.numberOfTaskSlots': 1, 'taskmanager.cpu.cores': 1.0, 'taskmanager.memory.task.heap.size': '400m',
        'taskmanager.memory.task.off-heap.size': '64m', 'taskmanager.memory.managed.size': '256m',
        'taskmanager.memory.framework.heap.size': '128m', 'taskmanager.memory.framework.off-heap.size': '128m',
        **{f'taskmanager.memory.{part}.{bound}': size for part, size in (('network', '256m'), ('jvm-overhead', '100m'))
           for bound in ('min', 'max')}, 'taskmanager.memory.jvm-metaspace.size': '256m',
        'restart-strategy.type': 'fixed-delay', 'restart-strategy.fixed-delay.attempts': 3}))
    engine = f'{home}/cluster/pyflink/lib/*'
    with hosts.network(_HOSTS), _Servers(folder) as servers:
        servers.java('manager', engine, 'org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint',
                     '--configDir', folder)
        servers.wait_for(rest)
        for host in range(_HOSTS):
            servers.java(f'worker-{host}', engine, 'org.apache.flink.runtime.taskexecutor.TaskManagerRunner',
                         '--configDir', folder, f'-Dtaskmanager.host={hosts.address(host)}', host=host)
        yield servers.take_jobs(f'{home}/job-server/*', 'org.apache.beam.runners.flink.FlinkJobServerDriver',
                                '--flink-master', f'{hosts.HERE}:{rest}')


@contextlib.contextmanager
def spark(home: pathlib.Path, folder: pathlib.Path) -> Iterator[Cluster]:
    """Start two workers of one core. Logs go to `folder`."""
    port, page = free_ports(2)
    engine = f'{home}/cluster/pyspark/jars/*'
    with hosts.network(_HOSTS), _Servers(folder) as servers:
        # What Spark's own scripts, which `pip install pyspark` has no use for, would set.
        servers.environment |= {'SPARK_HOME': f'{home}/cluster/pyspark', 'SPARK_SCALA_VERSION': '2.12',
                                'SPARK_LOCAL_IP': hosts.HERE}
        servers.java('manager', engine, 'org.apache.spark.deploy.master.Master', '--host', hosts.HERE, '--port', port,
                     '--webui-port', page)
        servers.wait_for(port)
        for host in range(_HOSTS):
            servers.environment['SPARK_LOCAL_IP'] = hosts.address(host)
            servers.java(f'worker-{host}', engine, 'org.apache.spark.deploy.worker.Worker', '--host',
                         hosts.address(host), '--cores', 1, '--memory', '1g', '--work-dir', folder / f'work-{host}',
                         f'spark://{hosts.HERE}:{port}', host=host)
        servers.environment['SPARK_LOCAL_IP'] = hosts.HERE
        yield servers.take_jobs(f'{home}/job-server/*:{engine}', 'org.apache.beam.runners.spark.SparkJobServerDriver',
                                '--spark-master-url', f'spark://{hosts.HERE}:{port}')


class _Servers(contextlib.ExitStack):
    """Processes that end, with all that they started, when the block does.

    Attributes:
      environment: of those that are started from now on.
    """

    def __init__(self, folder: pathlib.Path):
        super().__init__()
        # A pool starts its workers by the name `python`.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ['PATH']])
        self._folder, self.environment = folder, environment(PATH=path)
        self._started: list[tuple[subprocess.Popen, pathlib.Path]] = []

    def java(self, name: str, libraries: str, main: str, *args, host: int | None = None) -> None:
        self.start(name, 'java', *_OPEN, '-Xmx700m', '-Dorg.apache.logging.log4j.level=INFO',
                   '-cp', libraries, main, *args, host=host)

    def start(self, name: str, *command, host: int | None = None) -> int:
        """Start a command on a host, or on this machine. Returns its process's number."""
        words = [str(part) for part in command]
        log = self._folder / f'{name}.log'
        with open(log, 'wb') as out:
            process = subprocess.Popen(words if host is None else hosts.on(host, *words), stdout=out, stderr=out,
                                       cwd=self._folder, env=self.environment, start_new_session=True)
        self.callback(process.wait)
        self.callback(os.killpg, process.pid, signal.SIGKILL)
        self._started.append((process, log))
        return process.pid

    def wait_for(self, port: int, address: str = hosts.HERE) -> None:
        """Wait until something listens there."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection((address, port)):
                return
            for process, log in self._started:
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

    def take_jobs(self, libraries: str, main: str, *args) -> Cluster:
        """Start a job server, and a pool of workers on each host."""
        jobs, workers = free_ports(2)
        self.java('job-server', libraries, main, *args, '--job-host', hosts.HERE, '--job-port', jobs,
                  '--artifact-port', 0, '--expansion-port', 0, '--artifacts-dir', self._folder / 'artifacts')
        pools = [self.start(f'pool-{host}', sys.executable, '-m', 'apache_beam.runners.worker.worker_pool_main',
                            '--service_port', workers, host=host) for host in range(_HOSTS)]
        self.wait_for(jobs)
        for host in range(_HOSTS):
            self.wait_for(workers, hosts.address(host))
        return Cluster(['--runner', 'PortableRunner', '--job_endpoint', f'{hosts.HERE}:{jobs}', '--environment_type',
                        'EXTERNAL', '--environment_config', f'localhost:{workers}', '--parallelism', str(_HOSTS)],
                       [psutil.Process(pool) for pool in pools])
