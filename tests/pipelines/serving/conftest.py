"""A server of one pushed model a kind, for the tests of its pages."""
import pytest

from support import served, served_kinds


@pytest.fixture(scope='module')
def destinations(tmp_path_factory):
    return served_kinds.push_all(str(tmp_path_factory.mktemp('serving')))


@pytest.fixture(scope='module')
def server(destinations):
    with served.running(destinations) as running:
        yield running
