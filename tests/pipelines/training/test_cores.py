"""Division of CPU cores between operations, set before TensorFlow starts."""
import io
import os
import sys
from unittest import mock

import pytest
import tensorflow as tf

from pipelines.core import sections
from pipelines.training import strategy
from support import commands


def share(cores, parts, gpus, threads):
    """In a new process: asks for parts of so many cores, and how many threads an operation then gets."""
    with mock.patch.object(os, 'cpu_count', lambda: cores), mock.patch.object(
            tf.config, 'list_physical_devices', lambda kind: gpus if kind == 'GPU' else []):
        strategy.share_cores(parts)
        assert tf.config.threading.get_intra_op_parallelism_threads() == threads


@pytest.mark.parametrize('cores, parts, gpus, threads', [
    pytest.param(8, 4, [], 2, id='a quarter each'), pytest.param(8, 3, [], 2, id='rounded down'),
    pytest.param(2, 4, [], 1, id='one at least'), pytest.param(None, 4, [], 1, id='nobody knows how many'),
    pytest.param(8, 1, [], 0, id='one thing at a time'), pytest.param(8, 4, ['GPU:0'], 0, id='beside a GPU')])
def test_each_operation_gets_its_part(cores, parts, gpus, threads):
    assert commands.exit_code(share, cores, parts, gpus, threads) == 0


def share_late():
    tf.constant(1)
    before = tf.config.threading.get_intra_op_parallelism_threads()
    strategy.share_cores(4)  # TensorFlow itself would raise RuntimeError
    assert tf.config.threading.get_intra_op_parallelism_threads() == before


def test_once_devices_are_in_use_nothing_changes():
    assert commands.exit_code(share_late) == 0


def share_unseen(*args):
    sys.stderr = io.StringIO()  # its traceback is expected
    share(*args)


def test_the_check_above_can_fail():
    assert commands.exit_code(share_unseen, 8, 4, [], 3) == 1


def keep_order():
    strategy.keep_order_of_sums()
    tf.constant(1)
    options = tf.__internal__.eager_context.get_config().graph_options.rewrite_options
    assert options.memory_optimization == options.NO_MEM_OPT


def test_the_graph_optimizer_leaves_large_sums_as_they_are():
    """Read the process's configuration, by which the graph of every function is optimized."""
    assert commands.exit_code(keep_order) == 0


def mirror():
    with mock.patch.object(os, 'cpu_count', lambda: 8):
        made = strategy.make(sections.TrainConfig(strategy='mirrored'))
    assert made.num_replicas_in_sync == 2
    assert tf.config.threading.get_intra_op_parallelism_threads() == 4
    keep_order()


def test_each_logical_device_gets_half_of_the_cores():
    assert commands.exit_code(mirror) == 0
