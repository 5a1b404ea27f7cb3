"""A pytest plugin that fails skipped tests if `CI` is set, because CI must run everything."""
import os

import pytest


def _refuse(report) -> None:
    if report.skipped and os.environ.get('CI') and not hasattr(report, 'wasxfail'):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = 'failed', f'Nothing may be skipped where CI is set. {reason}'


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    _refuse(report)
    return report
