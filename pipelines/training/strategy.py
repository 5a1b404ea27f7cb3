"""Build the tf.distribute.Strategy for `--strategy`, refusing at once what cannot work here."""
import json
import os
import socket
from urllib.parse import urlparse

import tensorflow as tf
from tensorflow.python.eager import context

from data_prep import UserError
from pipelines.core.sections import TrainConfig


def make(config: TrainConfig) -> tf.distribute.Strategy:
    """Return the strategy of a configuration. Call it before anything else touches devices.

    `mirrored` uses all GPUs; without a GPU it splits the CPU into two logical devices, each with half of the cores,
    which narrow Transformers use better than one device does. `multi_worker_mirrored` reads TF_CONFIG; `tpu` reads the
    address in `train.tpu`.

    Raises:
      UserError: no TPU can be reached, or TF_CONFIG is missing or malformed.
    """
    check(config)
    if config.strategy == 'tpu':
        return _tpu(config.tpu)
    gpus = tf.config.list_physical_devices('GPU')
    if not gpus:
        keep_order_of_sums()
    if config.strategy == 'mirrored':
        if not gpus:
            share_cores(2)
            two_logical_cpus()
            return tf.distribute.MirroredStrategy(['CPU:0', 'CPU:1'])
        return tf.distribute.MirroredStrategy()
    if config.strategy == 'multi_worker_mirrored':
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf.distribute.OneDeviceStrategy('GPU:0' if gpus else 'CPU:0')


def check(config: TrainConfig) -> None:
    """Raise `UserError` if no TPU is named or reachable, or TF_CONFIG is missing or malformed."""
    if config.strategy == 'multi_worker_mirrored':
        _check_tf_config()
    if config.strategy == 'tpu':
        if not config.tpu and not os.environ.get('TPU_NAME'):
            raise UserError('--strategy tpu: no TPU is named. Give its address with --set train.tpu=grpc://HOST:8470, '
                            'its name, or `local` on a TPU VM.')
        _probe(config.tpu)


def is_worker(config: TrainConfig) -> bool:
    """Return whether this process is a worker other than the chief, to which it leaves files and records.

    The chief is the task of type chief, or worker 0 if there is none. Without TF_CONFIG this process only reads what a
    cluster has trained.
    """
    if config.strategy != 'multi_worker_mirrored' or 'TF_CONFIG' not in os.environ:
        return False
    value = json.loads(os.environ['TF_CONFIG'])
    task = value['task']['type'], value['task']['index']
    return task != (('chief', 0) if 'chief' in value['cluster'] else ('worker', 0))


def of_chief(strategy: tf.distribute.Strategy, values: list, dtype: tf.DType) -> list:
    """Return the chief's values on every worker; each gives as many, and those of other workers are ignored."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return values
    said = strategy.experimental_distribute_values_from_function(  # replica 0 is the chief's
        lambda context: tf.zeros(len(values), dtype) if context.replica_id_in_sync_group else
        tf.constant(values, dtype))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, said, None).numpy().tolist()


def keep_order_of_sums() -> None:
    """Disable the graph optimizer's memory optimization, so that results repeat; no effect once devices are in use.

    It turns a large sum (AddN) into additions to one buffer, in the order in which the terms arrive. With it none of 7
    more backward passes of the ALIAS generator at 192 x 128 equalled the first of the process, without it all did,
    although operations run beside each other. One at a time, a step of 4 + 4 layers of width 128 takes 25% more.
    """
    if not _started():
        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.memory_optimization = config.graph_options.rewrite_options.NO_MEM_OPT
        context.context()._config = config  # noqa: SLF001 (no public function disables it)


def share_cores(parts: int) -> None:
    """Divide the cores of a machine without GPU among operations when `parts` run at once.

    Has no effect once devices are in use.
    """
    if parts > 1 and not _started() and not tf.config.list_physical_devices('GPU'):
        tf.config.threading.set_intra_op_parallelism_threads(max(1, (os.cpu_count() or 1) // parts))


def two_logical_cpus() -> None:
    """Split the CPU in two, unless devices are already in use (tests split it earlier)."""
    if len(tf.config.list_logical_devices('CPU') if _started() else []) == 2:
        return
    [cpu] = tf.config.list_physical_devices('CPU')
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    except RuntimeError as error:
        raise UserError('--strategy mirrored needs two logical CPUs here, but TensorFlow has started with one. '
                        'Start a new process.') from error


def _started() -> bool:
    return context.context()._initialized  # noqa: SLF001 (no public function tells without starting it)


def accelerated(strategy: tf.distribute.Strategy) -> bool:
    """Return whether the strategy's replicas run on GPUs or TPUs."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return True
    return any('GPU' in device.upper() for device in strategy.extended.worker_devices)


def _tpu(address: str) -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address or None)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError, ImportError, RuntimeError) as error:
        raise UserError(f'--strategy tpu: no TPU answers at {address or "TPU_NAME"} '
                        f'({str(error).strip().splitlines()[0]}). Check train.tpu.') from error
    return tf.distribute.TPUStrategy(resolver)


def _probe(address: str) -> None:
    """Check that somebody listens at an address; otherwise the resolver would hang for minutes."""
    if '://' not in address and ':' not in address:
        return
    url = urlparse(address if '://' in address else f'grpc://{address}')
    try:
        if not url.hostname:
            raise OSError('it names no host')
        with socket.create_connection((url.hostname, url.port or 8470), timeout=5):
            pass
    except (OSError, ValueError) as error:
        raise UserError(f'--strategy tpu: nothing listens at {address} ({error}). Check train.tpu.') from error


def _check_tf_config() -> None:
    text = os.environ.get('TF_CONFIG')
    example = '\'{"cluster": {"worker": ["HOST:PORT", …]}, "task": {"type": "worker", "index": 0}}\''
    if not text:
        raise UserError(f'--strategy multi_worker_mirrored needs TF_CONFIG in the environment: {example}.')
    try:
        value = json.loads(text)
        value['cluster'][value['task']['type']][value['task']['index']]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UserError(f'TF_CONFIG is malformed ({type(error).__name__}: {error}). Write {example}.') from error
