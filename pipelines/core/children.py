"""Run stages by their own commands, in processes of their own, one or several at a time."""
import os
import shlex
import signal
import subprocess
import sys

from data_prep import UserError
from pipelines.core import machine


def run(command: str, title: str, beside_others: bool = False) -> None:
    """Run a command of this project to its end, on the cores of this thread.

    Args:
      title: what it is among several, printed before the command.
      beside_others: others run at the same time, so the title begins each of its lines.

    Raises:
      SystemExit: it failed, and has printed why.
      UserError: a signal ended it, such as for want of memory.
    """
    print(f'[{title}] {command}', flush=True)
    arguments = [sys.executable, *shlex.split(command)[1:]]
    code = _labelled(arguments, title) if beside_others else subprocess.run(arguments).returncode
    if code < 0:
        raise UserError(f'`{command}` was ended by {signal.Signals(-code).name}. If memory was short, '
                        'end other programs. Run the same command again; it resumes.')
    if code:
        sys.exit(code)


def shares(parts: int) -> list[list[int]]:
    """Divide the cores this process may use; with more parts than cores, some have a core that others have, too."""
    cores = machine.cores()
    return [cores[part::parts] or [cores[part % len(cores)]] for part in range(parts)]


def confine(left: list[list[int]]) -> None:
    """Take one of the shares that are left for this thread and all processes it starts, where the system can do that.

    TensorFlow starts as many threads in them as they may use cores.
    """
    if hasattr(os, 'sched_setaffinity'):  # macOS has none
        os.sched_setaffinity(0, left.pop())


def _labelled(arguments: list[str], title: str) -> int:
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors='replace') as child:
        for line in child.stdout or ():
            print(f'[{title}] {line.rstrip()}', flush=True)
    return child.returncode
