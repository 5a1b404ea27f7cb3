"""A pytest plugin: Python's collector of garbage does not search what imports and the collection of tests made.

None of it is garbage, and there is a lot of it: to search it took 4 of the 16 s of a collection, and 1 s after
each file.
"""
import gc

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    result = yield  # tests/conftest.py switched it off before it imported anything
    gc.freeze()
    gc.enable()
    return result
