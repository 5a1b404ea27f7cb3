"""`train.precision: bfloat16`: layers compute in bfloat16; weights, losses and updates stay float32.

Compiled by XLA or on an accelerator that is Keras's policy. A CPU's oneDNN graph has fast bfloat16 matrix products, but
slower elementwise kernels than float32's, so there TensorFlow's graph rewriter puts casts around the products.
"""
import contextlib
import pathlib
import platform

import tensorflow as tf
from tensorflow import keras


@contextlib.contextmanager
def policy(precision: str, use_mixed_policy: bool):
    """Layers built within compute in bfloat16, if `use_mixed_policy` (XLA, GPU, TPU); their variables are float32 always."""
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy('mixed_bfloat16' if precision == 'bfloat16' and use_mixed_policy else 'float32')
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


@contextlib.contextmanager
def rewriting(precision: str, use_mixed_policy: bool):
    """Functions first called within have their products in bfloat16, where layers are not built so."""
    key = 'auto_mixed_precision_onednn_bfloat16'
    before = tf.config.optimizer.get_experimental_options().get(key, False)
    tf.config.optimizer.set_experimental_options({key: precision == 'bfloat16' and not use_mixed_policy})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({key: before})


def rewritten() -> bool:
    """Whether the rewriter does anything here: of x86 processors it leaves those without AVX-512 alone."""
    processor = pathlib.Path('/proc/cpuinfo')
    return platform.machine() != 'x86_64' or not processor.exists() or 'avx512f' in processor.read_text()
