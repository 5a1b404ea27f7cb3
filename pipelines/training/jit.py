"""`train.jit: auto`: what the measurements say of a model on a device."""
from pipelines.core.config import Config

# A training step's rate compiled by XLA over that of TensorFlow's graph with oneDNN, in float32 on two cores (Zen 4):
# `python benchmarks/side_by_side.py --only xla_transformer_step … --out DIR`. On accelerators XLA is the fast path, and
# the only one on TPUs; there was none to measure it on.
ON_CPU = {'keras_models.transformer': 0.81,
          'keras_models.alexnet': 0.60,
          'keras_models.vgg': 0.66,
          'keras_models.localisation': 0.66,  # D of 8 pictures, as the contest of vgg has it
          'keras_models.prelu_net': 0.80,
          'keras_models.viton.try_on': 0.64,  # its segmentation generator
          'keras_models.school': 2.3}  # looking up: `python benchmarks/machine_moves.py`


def decided(config: Config, accelerated: bool) -> bool:
    """Whether a training step of this model is compiled by XLA on this device.

    Args:
      accelerated: whether the device is a GPU or a TPU.
    """
    if config.train.jit == 'auto':
        return accelerated or ON_CPU.get(config.model_spec.name, 0) > 1
    return bool(config.train.jit)
