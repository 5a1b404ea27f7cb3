"""What a forked command calls first so that the stages it would start as processes are forked from it."""
import os
import subprocess
import sys
import types

from support import commands


def fork_stages() -> None:
    """Has `pipelines.reproduce` fork its stages: it starts a dozen of them, of which each would import for 7 s."""
    from pipelines import reproduce
    reproduce.subprocess = types.SimpleNamespace(run=_run)


def _run(args: list[str]) -> subprocess.CompletedProcess:
    """`subprocess.run` of `python -m …`, with this process's streams, folder and environment."""
    interpreter, flag, *module_and_arguments = args
    assert (interpreter, flag) == (sys.executable, '-m') and not commands.tensorflow_has_started()
    if not (pid := os.fork()):
        os._exit(commands.run_module(module_and_arguments))
    return subprocess.CompletedProcess(args, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
