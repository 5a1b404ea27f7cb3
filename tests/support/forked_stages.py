"""Make a forked command fork its stages instead of starting them as new processes."""
import multiprocessing
import subprocess
import sys
import types

from support import commands


def fork_stages() -> None:
    """Has a command fork the stages it starts: `reproduce` a dozen of them, of which each would import for 7 s."""
    from pipelines.core import children
    children.subprocess = types.SimpleNamespace(run=_run)


def _run(args: list[str]) -> subprocess.CompletedProcess:
    """`subprocess.run` of `python -m ...`, with this process's streams, folder and environment."""
    from pipelines.training import strategy
    interpreter, flag, *module_and_arguments = args
    # No forked child could use the devices and threads of a TensorFlow that has started.
    assert (interpreter, flag) == (sys.executable, '-m') and not strategy._started()
    child = multiprocessing.get_context('fork').Process(target=commands.run_module, args=[module_and_arguments])
    child.start()
    child.join()
    return subprocess.CompletedProcess(args, child.exitcode)
