"""Networks are built for any number of replicas."""
import tensorflow as tf

from pipelines.core import config
from support import commands


def build(replicas: int) -> None:
    """In a new process: builds networks with a seed among their inputs, which no replica has a part of."""
    [cpu] = tf.config.list_physical_devices('CPU')
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    mirrored = tf.distribute.MirroredStrategy([f'CPU:{number}' for number in range(replicas)])
    for name, overrides in (('demo_translation', []), ('demo_images', ['model.classes=10'])):
        resolved = config.load(name, overrides)
        with mirrored.scope():
            nets = resolved.model_spec.build(resolved.model)
        shapes = [value.shape for net in nets.values() for value in net.inputs if value.name == 'seed']
        assert shapes and all(shape == [2] for shape in shapes)


def test_three_replicas():
    assert commands.exit_code(build, 3) == 0
