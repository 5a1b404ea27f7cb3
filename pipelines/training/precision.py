"""`train.precision: bfloat16`: layers compute in bfloat16; weights, losses and updates stay float32.

With XLA or on an accelerator this is Keras's mixed precision policy. A CPU's oneDNN graph has fast bfloat16 matrix
products but slower elementwise kernels than in float32, so there TensorFlow's graph rewriter casts around the products.
"""
import contextlib
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
    tf.config.optimizer.set_experimental_options({key: precision == 'bfloat16' and not use_mixed_policy})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({key: before})


def rewritten() -> bool:
    """Return whether the rewriter has an effect here; it skips x86 processors without AVX-512."""
    return platform.machine() != 'x86_64' or not machine.cpu()[1] or 'avx512f' in machine.cpu()[1]
