"""Commands that end early: by Ctrl-C, and by a closed pipe."""
import signal
import subprocess
import sys

import pytest

from support.commands import environment

SAID = 'interrupted: finished work is kept.\n'


def light(work, **options):
    """Runs `work`, a line of Python, as a command in a new process, which imports little."""
    code = f'import time\nfrom pipelines.core import cli\ndef work():\n    {work}\ncli.run_command(work)'
    return subprocess.Popen([sys.executable, '-c', code], env=environment(), text=True,
                            stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize('work', [
    pytest.param('while True: print("y")', id='while it prints'),
    pytest.param('print("y"); time.sleep(1)', id='as Python ends')])
def test_a_closed_pipe_ends_a_command_quietly(work):
    with light(work, stdout=subprocess.PIPE) as child:
        child.stdout.close()
        assert child.stderr.read() == ''
    assert child.returncode == 128 + signal.SIGPIPE == 141


def test_ctrl_c_is_one_line():
    with light('print("ready", flush=True); time.sleep(60)', stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == 'ready\n'
        child.send_signal(signal.SIGINT)
        assert child.stderr.read() == SAID
    assert child.returncode == 128 + signal.SIGINT == 130


def test_work_that_ends_by_itself():
    with light('print("done")', stdout=subprocess.PIPE) as child:
        assert (child.stdout.read(), child.stderr.read()) == ('done\n', '')
    assert child.returncode == 0
