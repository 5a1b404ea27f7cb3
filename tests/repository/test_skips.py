"""The plugin that fails skipped tests in CI."""
import textwrap

import pytest

pytest_plugins = ['pytester']

SKIPPED = {
    'in_the_test': 'def test_x(): pytest.skip("no tool")',
    'by_a_mark': '@pytest.mark.skipif(True, reason="no tool")\ndef test_x(): pass',
    'in_a_fixture': '''
        @pytest.fixture
        def tool(): pytest.skip("no tool")
        def test_x(tool): pass''',
    'of_the_module': 'pytest.skip("no tool", allow_module_level=True)',
    'by_an_import': 'pytest.importorskip("no_such_tool", reason="no tool")\ndef test_x(): pass'}
OTHERS = 'def test_x(): pass\ndef test_y(): assert False\n@pytest.mark.xfail\ndef test_z(): assert False'


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs all these files, a run with the plugin alone. Returns what became of each, and its reason."""
    def run(**environment):
        monkeypatch.delenv('CI', raising=False)
        monkeypatch.setenv('PYTEST_DISABLE_PLUGIN_AUTOLOAD', '1')
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for name, text in {**SKIPPED, 'others': OTHERS}.items():
            pytester.makepyfile(**{f'test_{name}': f'import pytest\n{textwrap.dedent(text)}'})
        done = pytester.inline_run('-p', 'support.skips', '--continue-on-collection-errors')
        reports = [report for report in done.getreports() if report.outcome != 'passed']
        found = {report.nodeid: (report.outcome, str(report.longrepr)) for report in reports}
        return found, done.listoutcomes()
    return run


def test_where_ci_is_not_set_a_skip_is_a_skip(run):
    found, _ = run()
    assert [found.pop(f'test_others.py::test_{x}')[0] for x in 'yz'] == ['failed', 'skipped']
    assert {node.partition('.py')[0].removeprefix('test_') for node in found} == {*SKIPPED}
    assert all(outcome == 'skipped' and 'no tool' in why for outcome, why in found.values())


def test_where_ci_is_set_a_skip_fails_with_its_reason(run):
    """What is expected to fail is no skip, and what passes passes."""
    found, (passed, _, _) = run(CI='true')
    assert [report.nodeid for report in passed] == ['test_others.py::test_x']
    assert [found.pop(f'test_others.py::test_{x}')[0] for x in 'yz'] == ['failed', 'skipped']
    assert {node.partition('.py')[0].removeprefix('test_') for node in found} == {*SKIPPED}
    for outcome, why in found.values():
        assert outcome == 'failed' and 'no tool' in why
        assert why.startswith('Nothing may be skipped where CI is set.')
