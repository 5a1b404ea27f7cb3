"""`train.precision`: layers compute in bfloat16 or float16; weights, losses and updates stay float32.

bfloat16: with XLA or on an accelerator this is Keras's mixed precision policy. A CPU's oneDNN graph has fast bfloat16
matrix products but slower elementwise kernels than in float32, so there TensorFlow's graph rewriter casts around the
products.

float16, for GPUs without bfloat16: Keras's policy, and its loss scaling (Micikevicius et al. 2018, 3.2), because small
gradients would be zero. The scale is halved and the update left out where a gradient overflows, and doubled after
`GROWTH` updates in a row without; it belongs to the optimizer's state, so checkpoints hold it.
"""
import contextlib
import os
import platform

import tensorflow as tf
from tensorflow import keras

from pipelines.core import machine

GROWTH = 2000  # updates in a row without an overflow after which the scale is doubled


@contextlib.contextmanager
def policy(precision: str, use_mixed_policy: bool):
    """Set Keras's policy for layers built in this context: computation in that precision, float32 variables.

    Args:
      use_mixed_policy: True (XLA, GPU, TPU) sets it; False leaves bfloat16 to the graph rewriter, see `rewriting`.
    """
    before = keras.mixed_precision.global_policy()
    mixed = precision == 'float16' or precision == 'bfloat16' and use_mixed_policy
    keras.mixed_precision.set_global_policy(f'mixed_{precision}' if mixed else 'float32')
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


@contextlib.contextmanager
def rewriting(precision: str, use_mixed_policy: bool):
    """Rewrite functions first called in this context to compute products in bfloat16, unless the policy does so."""
    key = 'auto_mixed_precision_onednn_bfloat16'
    before = tf.config.optimizer.get_experimental_options().get(key, False)
    wanted = precision == 'bfloat16' and not use_mixed_policy and not hindrance()
    tf.config.optimizer.set_experimental_options({key: wanted})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({key: before})


def hindrance(compiled: bool = False) -> str:
    """Return what keeps bfloat16 from having an effect on this processor, or an empty string if nothing does.

    Args:
      compiled: whether XLA compiles training. Without oneDNN it computes bfloat16 on any processor; validation, which
        is not compiled, would abort in a oneDNN that cannot.
    """
    if os.environ.get('TF_ENABLE_ONEDNN_OPTS', '').lower() in ('0', 'false'):
        return '' if compiled else 'TF_ENABLE_ONEDNN_OPTS switches oneDNN off'
    most = os.environ.get('ONEDNN_MAX_CPU_ISA', 'ALL').upper()
    if most not in ('ALL', 'DEFAULT') and not most.startswith('AVX512'):
        return f'ONEDNN_MAX_CPU_ISA holds oneDNN to {most}'  # which aborts when it is asked for bfloat16
    known = platform.machine() == 'x86_64' and machine.cpu()[1]
    return 'this processor has no AVX-512' if known and 'avx512f' not in known else ''


def scaling(optimizers: dict[str, keras.optimizers.Optimizer]) -> dict[str, keras.optimizers.Optimizer]:
    """Return the optimizers with loss scaling."""
    return {name: keras.mixed_precision.LossScaleOptimizer(optimizer, dynamic_growth_steps=GROWTH)
            for name, optimizer in optimizers.items()}


def scaled(optimizer: keras.optimizers.Optimizer, loss, normaliser):
    """Return what to differentiate: the loss, a sum, or with loss scaling its mean times the scale."""
    if not isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer):
        return loss
    return optimizer.get_scaled_loss(tf.math.divide_no_nan(loss, normaliser))


def unscaled(optimizer: keras.optimizers.Optimizer, gradients: list, normaliser) -> list:
    """Return the gradients of the sum from those of `scaled`."""
    if not isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer):
        return gradients
    return [gradient * normaliser for gradient in optimizer.get_unscaled_gradients(gradients)]
