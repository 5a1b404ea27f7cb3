"""Flink on this machine: a manager, a task manager of two slots, Beam's job server and a pool of Beam's workers.

The task manager is one because of the pool: each of them numbers Beam's workers from 1, and a pool that is told to
stop its number 1 stops that of another, too; the job then fails or waits for ever (Beam 2.72, with two task managers).
`make flink` fetches the Java libraries that this starts: Flink's, from PyPI, into `cluster`, and those of Beam's job
server, by Maven, into `job-server`.
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

from support.commands import environment
from support.ports import free_ports

_START_SECONDS = 120
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
      pool: the process whose children run the job's functions; None for Prism, whose job runs in the command's.
    """
    flags: list[str]
    pool: psutil.Process | None

    def kill_a_worker_that_writes(self, folder: str) -> bool:
        """Kill one that has a file below a folder of this name open, if there is any."""
        for worker in self.pool.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(f'/{folder}/' in file.path for file in worker.open_files()):
                    worker.kill()
                    return True
        return False


@contextlib.contextmanager
def flink(home: pathlib.Path, folder: pathlib.Path) -> Iterator[Cluster]:
    """Start a task manager of two slots. Logs go to `folder`."""
    rpc, rest, blobs = free_ports(3)
    (folder / 'config.yaml').write_text(json.dumps({
        'jobmanager.rpc.address': 'localhost', 'jobmanager.rpc.port': rpc, 'jobmanager.memory.process.size': '1200m',
        'rest.address': 'localhost', 'rest.port': rest, 'blob.server.port': blobs, 'taskmanager.host': 'localhost',
        'taskmanager.numberOfTaskSlots': 2, 'taskmanager.cpu.cores': 2.0, 'taskmanager.memory.task.heap.size': '400m',
        'taskmanager.memory.task.off-heap.size': '64m', 'taskmanager.memory.managed.size': '256m',
        'taskmanager.memory.framework.heap.size': '128m', 'taskmanager.memory.framework.off-heap.size': '128m',
        **{f'taskmanager.memory.{part}.{bound}': size for part, size in (('network', '256m'), ('jvm-overhead', '100m'))
           for bound in ('min', 'max')}, 'taskmanager.memory.jvm-metaspace.size': '256m',
        'restart-strategy.type': 'fixed-delay', 'restart-strategy.fixed-delay.attempts': 3}))
    with _Servers(folder) as servers:
        engine = f'{home}/cluster/pyflink/lib/*'
        servers.java('manager', engine, 'org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint',
                     '--configDir', folder)
        servers.wait_for(rest)
        servers.java('worker', engine, 'org.apache.flink.runtime.taskexecutor.TaskManagerRunner', '--configDir', folder)
        yield servers.take_jobs(f'{home}/job-server/*', 'org.apache.beam.runners.flink.FlinkJobServerDriver',
                                '--flink-master', f'localhost:{rest}')


class _Servers(contextlib.ExitStack):
    """Processes that end, with all that they started, when the block does."""

    def __init__(self, folder: pathlib.Path):
        super().__init__()
        # A pool starts its workers by the name `python`.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ['PATH']])
        self._folder, self._environment = folder, environment(PATH=path)
        self._started: list[tuple[subprocess.Popen, pathlib.Path]] = []

    def java(self, name: str, libraries: str, main: str, *args) -> None:
        self.start(name, 'java', *_OPEN, '-Xmx700m', '-Dorg.apache.logging.log4j.level=INFO',
                   '-cp', libraries, main, *args)

    def start(self, name: str, *command) -> int:
        log = self._folder / f'{name}.log'
        with open(log, 'wb') as out:
            process = subprocess.Popen([str(part) for part in command], stdout=out, stderr=out, cwd=self._folder,
                                       env=self._environment, start_new_session=True)
        self.callback(process.wait)
        self.callback(os.killpg, process.pid, signal.SIGKILL)
        self._started.append((process, log))
        return process.pid

    def wait_for(self, port: int) -> None:
        """Wait until something listens there."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(('localhost', port)):
                return
            for process, log in self._started:
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

    def take_jobs(self, libraries: str, main: str, *args) -> Cluster:
        """Start a job server and a pool of workers."""
        jobs, workers = free_ports(2)
        self.java('job-server', libraries, main, *args, '--job-port', jobs, '--artifact-port', 0,
                  '--expansion-port', 0, '--artifacts-dir', self._folder / 'artifacts')
        pool = self.start('pool', sys.executable, '-m', 'apache_beam.runners.worker.worker_pool_main',
                          '--service_port', workers)
        self.wait_for(jobs)
        self.wait_for(workers)
        return Cluster(['--runner', 'PortableRunner', '--job_endpoint', f'localhost:{jobs}', '--environment_type',
                        'EXTERNAL', '--environment_config', f'localhost:{workers}', '--parallelism', '2'],
                       psutil.Process(pool))
