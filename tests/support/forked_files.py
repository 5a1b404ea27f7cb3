"""A pytest plugin that runs, under xdist, each test file in a forked process of its own.

What tests leave, a process keeps: a traced trainer 20 to 30 MB, the largest Transformer 1 GiB of oneDNN's pool with no
Python object alive. Workers that ran file after file grew to 5.8 GiB, and to search so much for garbage took them up
to 9 s a file. A file thus also finds nothing that another has left. With `-n 0` everything runs in one process, as
debuggers want it.

The worker collects the tests and starts nothing: a TensorFlow that has started hangs when it is forked.
"""
import multiprocessing
import os
import signal
import traceback
from multiprocessing import connection

import pytest
from _pytest.runner import runtestprotocol

from pipelines.training import strategy
from support import commands, cost

_child = None


class Child:
    """A process that runs the tests of one file.

    Args:
      items: all tests of the session, by their names.
    """

    def __init__(self, items: dict[str, pytest.Item], config: pytest.Config):
        self._ours, theirs = multiprocessing.Pipe()
        self._pid = os.fork()
        if not self._pid:
            self._ours.close()
            _serve(theirs, items, config)
        theirs.close()

    def run(self, item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
        """Runs one test there. Returns its reports; if the process dies of it, one that says by what."""
        self._ours.send((item.nodeid, nextitem and nextitem.nodeid))
        try:
            return [item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
                    for data in self._ours.recv()]
        except EOFError:
            return [pytest.TestReport(item.nodeid, item.location, {}, 'failed',
                                      f'the process of the tests of {item.path.name} died: {self.end()}', 'call')]

    def end(self) -> str:
        """Waits until the process has ended. Returns how."""
        self._ours.close()
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return f'exit code {code}' if code >= 0 else signal.Signals(-code).name


def _serve(pipe: connection.Connection, items: dict[str, pytest.Item], config: pytest.Config) -> None:
    """The process: runs the tests it is sent the names of, until no other follows."""
    commands.is_forked()
    cost.is_forked()
    code, following = 1, True
    try:
        while following:
            name, following = pipe.recv()
            reports = runtestprotocol(items[name], log=False, nextitem=items.get(following))
            pipe.send([config.hook.pytest_report_to_serializable(config=config, report=report) for report in reports])
        code = 0
    except BaseException:
        traceback.print_exc()  # of this loop; a test's is in its report
    finally:
        os._exit(code)  # what the worker registered for its own end is not for this one


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    global _child
    if not hasattr(item.config, 'workerinput'):
        return None
    if not _child:
        assert not strategy._started(), 'collecting the tests started TensorFlow'
        item.config._tmp_path_factory.getbasetemp()  # one for all
        commands.start_server()
        _child = Child({each.nodeid: each for each in item.session.items}, item.config)
    of_this_file = nextitem if nextitem and nextitem.path == item.path else None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _child.run(item, of_this_file):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    if not of_this_file:
        _child.end()
        _child = None
    return True
