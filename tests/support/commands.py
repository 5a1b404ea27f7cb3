"""Run the project's commands in their own processes.

A new process imports for 4 to 12 s before it does anything, and the suite runs some 150 of them. `command` and `start`
therefore fork from a server that has imported every library and started none: TensorFlow's context, its threads and its
devices come into being in the child, as in a process typed by a user (a whole `pipelines.run` takes 19.5 s in place of
26.7). What depends on the imports themselves asks for a `new_process`; test_start.py does, for every command.
"""
import io
import multiprocessing
import multiprocessing.forkserver
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from multiprocessing import reduction

ROOT = pathlib.Path(__file__).parents[2]
TIMEOUT = 900  # seconds; nothing is measured by it, it only ends what hangs

_processes = multiprocessing.get_context('forkserver')


def environment(**more: str) -> dict[str, str]:
    """The environment of every command: this process's, the project importable, no GPU."""
    return {**os.environ, 'PYTHONPATH': f'{ROOT}{os.pathsep}{ROOT / "tests"}', 'CUDA_VISIBLE_DEVICES': '', **more}


def command(*args: str, cwd=None, input: str | bytes = '', new_process: bool = False,
            env: dict[str, str] | None = None,
            before: Callable[[], None] | None = None) -> subprocess.CompletedProcess:
    """Runs `python -m <args>` to its end. Returns its exit code and what it printed, as text.

    Args:
      args: a module and its arguments.
      cwd: the folder it runs in; this process's by default.
      input: its standard input.
      new_process: starts an interpreter of its own instead of forking one.
      env: its environment variables in place of `environment()`.
      before: see `start`; of forked commands only.
    """
    if new_process:
        return subprocess.run([sys.executable, '-m', *args], cwd=cwd, env=env or environment(), capture_output=True,
                              text=True, timeout=TIMEOUT, input=input)
    child = start(*args, cwd=cwd, input=input, env=env, before=before)
    out, errors = child.communicate()
    return subprocess.CompletedProcess(args, child.returncode, out, errors)


def imported_modules(done: subprocess.CompletedProcess) -> set[str]:
    """Those a process imported, which was started with PYTHONPROFILEIMPORTTIME."""
    assert done.returncode == 0, done.stderr[-2000:]
    return {line.split('|')[-1].strip() for line in done.stderr.splitlines() if line.startswith('import time:')}


def imported_packages(done: subprocess.CompletedProcess) -> set[str]:
    return {name.split('.')[0] for name in imported_modules(done)}


def start(*args: str, cwd=None, input: str | bytes = '', env: dict[str, str] | None = None,
          before: Callable[[], None] | None = None) -> 'Started':
    """Starts `python -m <args>` and returns at once.

    Args:
      before: a function of a module that the child calls first, as to watch or break what the command uses.
    """
    return Started(args, cwd, input, env or environment(), before)


def exit_code(function: Callable, *args) -> int:
    """Runs a function of a module in a process of its own, whose TensorFlow has not started.

    Returns:
      Its exit code; if a signal ended it, minus the signal's number.
    """
    start_server()
    process = _processes.Process(target=function, args=args)
    process.start()
    process.join(TIMEOUT)
    if process.exitcode is None:
        process.kill()
        raise subprocess.TimeoutExpired([function.__name__, *args], TIMEOUT)
    return process.exitcode


class Started:
    """A command that runs, with the methods and attributes of `subprocess.Popen` that tests use."""

    def __init__(self, args, cwd, input: str | bytes, env: dict[str, str], before):
        start_server()
        given, self.stderr = tempfile.TemporaryFile(), tempfile.TemporaryFile('w+', encoding='utf-8')
        given.write(input.encode() if isinstance(input, str) else input)
        given.seek(0)
        out, into = os.pipe()
        self.stdout = open(out, encoding='utf-8')
        descriptors = [_Descriptor(fd) for fd in (given.fileno(), into, self.stderr.fileno())]
        server = multiprocessing.forkserver._forkserver._forkserver_address
        self.args, self._process = args, _processes.Process(target=_run, args=(
            descriptors, [str(each) for each in args], str(cwd or os.getcwd()), env, server, before))
        self._process.start()
        os.close(into)
        given.close()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float = TIMEOUT) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self) -> tuple[str, str]:
        """Waits for the end. Returns what was not read yet of standard output, and all of standard error."""
        out = self.stdout.read()
        self.wait()
        self.stdout.close()
        self.stderr.seek(0)
        return out, self.stderr.read()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def __enter__(self) -> 'Started':
        return self

    def __exit__(self, *_) -> None:
        if self.returncode is None:
            self.kill()
        self.wait()
        self.stdout.close()


def cpu_seconds() -> float:
    """CPU seconds of all ended commands of this process, with those that they started."""
    if not (server := multiprocessing.forkserver._forkserver._forkserver_pid):
        return 0.0
    fields = pathlib.Path(f'/proc/{server}/stat').read_text().rpartition(')')[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf('SC_CLK_TCK')  # utime, stime, cutime, cstime


def start_server() -> None:
    """Starts the server, once, with the environment of `environment()`, which preloading depends on."""
    if multiprocessing.forkserver._forkserver._forkserver_address:
        return
    _processes.set_forkserver_preload(['support.preloaded'])
    before = dict(os.environ)
    os.environ.update(environment())
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


def is_forked() -> None:
    """In a process forked after the server was started: uses that server, which is not its child."""
    multiprocessing.forkserver._forkserver.ensure_running = lambda: None


class _Descriptor:
    """A file descriptor that survives the way to a forked process."""

    def __init__(self, number: int):
        self.number = number

    def __reduce__(self):
        return _take, (reduction.DupFd(self.number),)


def _take(passed) -> int:
    return passed.detach()


def fork_fresh_processes() -> None:
    """Has infra validation fork the fresh process that loads a model: a new one imports for 5 CPU seconds before that.

    test_start.py and test_infra_validate.py start new ones.
    """
    from pipelines import infra_validate
    infra_validate.subprocess = types.SimpleNamespace(run=_run_forked, TimeoutExpired=subprocess.TimeoutExpired)


def _run_forked(args: list[str], timeout: float, **captured) -> subprocess.CompletedProcess:
    """`subprocess.run` of `python -m ...`, with this process's folder and the environment of `environment()`."""
    interpreter, flag, *module_and_arguments = args
    assert (interpreter, flag) == (sys.executable, '-m') and captured == {'capture_output': True, 'text': True}
    with start(*module_and_arguments) as child:
        child.wait(timeout)
        return subprocess.CompletedProcess(args, child.returncode, *child.communicate())


def _run(descriptors: list[int], args: list[str], cwd: str, env: dict[str, str], server: str, before) -> None:
    """The child: `python -m <args>` with these standard streams, folder and environment."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = io.TextIOWrapper(os.fdopen(0, 'rb'), encoding='utf-8', line_buffering=True)
    sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(number, 'wb'), encoding='utf-8', line_buffering=True)
                              for number in (1, 2))
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path[:] = [cwd, *env['PYTHONPATH'].split(os.pathsep), *(path for path in sys.path if path not in (
        cwd, '', str(ROOT), str(ROOT / 'tests')))]
    multiprocessing.forkserver._forkserver._forkserver_address = server
    is_forked()
    fork_fresh_processes()
    if before:
        before()
    run_module(args)


def run_module(args: list[str]) -> None:
    """Runs `python -m <args>` in this process."""
    sys.argv = [*args]
    warnings.filterwarnings('ignore', category=RuntimeWarning, module='runpy')  # it is imported already
    runpy.run_module(args[0], run_name='__main__', alter_sys=True)
