"""`train.precision: bfloat16`: layers compute in bfloat16; weights, losses and updates stay float32.

With XLA or on an accelerator this is Keras's mixed precision policy. A CPU's oneDNN graph has fast bfloat16 matrix
products but slower elementwise kernels than in float32, so there TensorFlow's graph rewriter casts around the products.
"""
import contextlib
import os
import platform

import tensorflow as tf
from tensorflow import keras

from pipelines.core import machine


@contextlib.contextmanager
def policy(precision: str, use_mixed_policy: bool):
    """Set Keras's policy for layers built in this context: bfloat16 computation, float32 variables.

    Args:
      use_mixed_policy: True (XLA, GPU, TPU) sets it; False leaves bfloat16 to the graph rewriter, see `rewriting`.
    """
    before = keras.mixed_precision.global_policy()
    mixed = precision == 'bfloat16' and use_mixed_policy
    keras.mixed_precision.set_global_policy('mixed_bfloat16' if mixed else 'float32')
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


def hindrance() -> str:
    """Return what keeps the rewriter from having an effect here, or an empty string if nothing does."""
    if os.environ.get('TF_ENABLE_ONEDNN_OPTS', '').lower() in ('0', 'false'):
        return 'TF_ENABLE_ONEDNN_OPTS switches oneDNN off'
    most = os.environ.get('ONEDNN_MAX_CPU_ISA', 'ALL').upper()
    if most not in ('ALL', 'DEFAULT') and not most.startswith('AVX512'):
        return f'ONEDNN_MAX_CPU_ISA holds oneDNN to {most}'  # which aborts when it is asked for bfloat16
    known = platform.machine() == 'x86_64' and machine.cpu()[1]
    return 'this processor has no AVX-512' if known and 'avx512f' not in known else ''
