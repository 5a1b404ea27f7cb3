"""Decide whether XLA compiles the step when `train.jit` is auto."""
from pipelines.core.config import Config

# Throughput of a training step compiled by XLA over that of TensorFlow's graph with oneDNN, in float32 on two cores
# (Zen 4): `python benchmarks/speed/side_by_side.py --only xla_transformer_step … --out DIR`. There the graph's
# operations ran one at a time; beside each other, as now, they are faster. Accelerators were not measured: on GPUs XLA
# is the fast path, on TPUs the only one.
ON_CPU = {'keras_models.transformer': 0.81,
          'keras_models.alexnet': 0.60,
          'keras_models.vgg': 0.66,
          'keras_models.localisation': 0.66,  # D with 8 images, as in vgg's contest
          'keras_models.prelu_net': 0.80,
          'keras_models.viton.try_on': 0.64,  # its segmentation generator
          'keras_models.school': 2.3}  # table look-ups: `python benchmarks/speed/machine_moves.py`


def decided(config: Config, accelerated: bool) -> bool:
    """Return whether a training step of this model is compiled by XLA on this device.

    Args:
      accelerated: whether the device is a GPU or a TPU.
    """
    if config.train.jit == 'auto':
        return accelerated or ON_CPU.get(config.model_spec.name, 0) > 1
    return bool(config.train.jit)
