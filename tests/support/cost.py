"""A pytest plugin that reports the cost of each test file: CPU seconds and its worker's peak memory.

CPU seconds are those of the worker and of the processes it started or had forked. They are a report: no test fails
on them.
"""
import collections
import pathlib
import resource

import pytest

from support import commands

_spent = collections.defaultdict(float)  # file -> CPU seconds, in the process that prints the table
_peaks = collections.defaultdict(float)  # worker -> peak resident GiB
_left = {}  # file -> resident GiB of its worker after it
_before = 0.0


def _seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used) + commands.cpu_seconds()


def pytest_collection_finish() -> None:
    global _before
    _before = _seconds()


is_forked = pytest_collection_finish  # a process forked for a file begins with no seconds of its own


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    global _before
    report = (yield).get_result()
    now = _seconds()
    report.cpu_seconds, _before = now - _before, now
    pages = int(pathlib.Path('/proc/self/statm').read_text().split()[1])
    report.gib = pages * resource.getpagesize() / 2**30
    report.peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def pytest_runtest_logreport(report) -> None:
    _spent[report.location[0]] += getattr(report, 'cpu_seconds', 0)
    _left[report.location[0]] = getattr(report, 'gib', 0)
    worker = getattr(report, 'worker_id', 'main')
    _peaks[worker] = max(_peaks[worker], getattr(report, 'peak_gib', 0))


def pytest_terminal_summary(terminalreporter, config) -> None:
    if hasattr(config, 'workerinput') or not _spent:
        return
    terminalreporter.section('CPU seconds of each file, and GiB of its worker after it')
    for file, seconds in sorted(_spent.items(), key=lambda pair: -pair[1]):
        if seconds >= 0.5:
            terminalreporter.write_line(f'{seconds:7.1f} {_left[file]:4.1f}  {pathlib.PurePath(file).name}')
    peaks = ', '.join(f'{worker} {peak:.1f} GiB' for worker, peak in sorted(_peaks.items()))
    terminalreporter.write_line(f'{sum(_spent.values()):7.1f}  in all; peak memory: {peaks}')
