"""A pytest plugin that resets the state of TensorFlow, NumPy and `random` before every test and fixture.

Without it a test's numbers would depend on which tests its worker ran before: their draws, their number of collective
operations, the determinism that a training run switches on, the graphs that stay in memory.
"""
import contextlib
import ctypes
import gc
import os
import random

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils
from tensorflow.python.eager import context
from tensorflow.python.framework.config import disable_op_determinism

from pipelines.core import cli
from pipelines.training import strategy

SEED = 0
# The rewriter takes as long over a graph that runs twice as building it did; LLVM over half of XLA's time. What a
# graph computes is the same; tests of the rewriter itself use the fixture `rewritten_graphs`, and
# test_compiled_steps.py runs a compiled step of every system with XLA's own flags.
QUICK_XLA = '--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true'


def pytest_configure() -> None:
    os.environ.setdefault('XLA_FLAGS', QUICK_XLA)
    os.environ.setdefault('TF_NUM_INTRAOP_THREADS', '1')  # two that wait for each other take a quarter more CPU time
    cli.prepare_libraries()
    strategy.keep_order_of_sums()
    tf.config.threading.set_inter_op_parallelism_threads(1)  # workers share the cores
    strategy.two_logical_cpus()
    rewrite_graphs(False)


def rewrite_graphs(on: bool) -> None:
    tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': not on})


@pytest.fixture(scope='module')
def rewritten_graphs():
    """For tests of what TensorFlow's graph rewriter does, bfloat16 above all."""
    rewrite_graphs(True)
    yield
    rewrite_graphs(False)


@contextlib.contextmanager
def eagerly():
    """Within, functions run operation by operation: tracing try-on networks takes four times as long as one step."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


@pytest.fixture
def eager():
    with eagerly():
        yield


def renumber() -> None:
    """Before a strategy whose reductions have other shapes than an earlier one's: TensorFlow numbers both alike."""
    cross_device_utils.INSTANCE_KEY_START_NUMBER += 10_000


def _seeded(step):
    """Runs a hook's rest from `SEED` on, and puts the draws of `random` and NumPy back where they were."""
    before = random.getstate(), np.random.get_state(), context.global_seed()
    tf.keras.utils.set_random_seed(SEED)
    try:
        return (yield)
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        tf.random.set_seed(before[2])


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):  # where modules are imported
    return (yield from _seeded(collector))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    return (yield from _seeded(fixturedef))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    return (yield from _seeded(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    result = yield
    tf.keras.backend.clear_session()
    tf.config.run_functions_eagerly(False)
    tf.keras.mixed_precision.set_global_policy('float32')
    disable_op_determinism()
    renumber()
    last = nextitem is None or nextitem.path != item.path
    if last and not hasattr(item.config, 'workerinput'):  # else the process ends here: support/forked_files.py
        gc.collect()  # graphs refer to themselves, and glibc keeps what they leave
        ctypes.CDLL(None).malloc_trim(0)
    return result
