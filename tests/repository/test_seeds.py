"""A test's random numbers do not depend on earlier draws by its module, its fixtures or other tests."""
import random

import numpy as np
import pytest
import tensorflow as tf

found = []


def draws(tensors=True):
    numbers = [random.random(), np.random.random()]
    if not tensors:
        return numbers
    layer = tf.keras.layers.Dense(1)
    layer.build([None, 3])
    return [*numbers, float(tf.random.normal([])), *layer.kernel.numpy().ravel().tolist()]


AT_IMPORT = draws(tensors=False)  # TensorFlow starts in the tests


@pytest.fixture(scope='module', params=[0, 3])
def of_module(request):
    for _ in range(request.param):
        draws()
    return draws() if request.param == 0 else None


@pytest.fixture
def of_test(of_module):
    return draws()


@pytest.mark.parametrize('before', [0, 1, 5])
def test_every_test_module_and_fixture_begins_with_one_seed(of_module, of_test, before):
    first = draws()
    assert first[:2] == AT_IMPORT and first == of_test and of_module in (first, None)
    found.extend(draws() for _ in range(before))
    assert first not in found  # what comes later is not the same again
