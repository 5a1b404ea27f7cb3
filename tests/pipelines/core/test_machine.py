"""The kernels that are chosen for the hardware a command runs on."""
import os

import pytest

from pipelines.core import machine

VARIABLE = 'TF_ENABLE_ONEDNN_OPTS'


@pytest.mark.parametrize('given, expected', [('0', '0'), ('1', '1'), ('', '1' if 'avx2' in machine.cpu()[1] else None)])
def test_onednn_is_on_unless_the_environment_says_otherwise(monkeypatch, given, expected):
    monkeypatch.setenv(VARIABLE, given)  # also restores it afterwards
    if not given:
        monkeypatch.delenv(VARIABLE)
    machine.prefer_onednn()
    assert os.environ.get(VARIABLE) == expected
