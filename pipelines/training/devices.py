"""What a run computes on and how, decided once: the distribution strategy, XLA, and where bfloat16 comes from."""
import dataclasses

import tensorflow as tf

from pipelines.core.config import Config
from pipelines.training import jit, precision, strategy


@dataclasses.dataclass(frozen=True)
class Devices:
    """What a training run computes on.

    Attributes:
      strategy: how replicas are distributed.
      jit: whether XLA compiles forward and backward pass. Gradients are applied outside of it, the one form that works
        with several replicas.
      use_mixed_policy: whether bfloat16 is Keras's policy (XLA, GPU, TPU) or left to the graph rewriter, see
        `precision`.
    """
    strategy: tf.distribute.Strategy
    jit: bool
    use_mixed_policy: bool

    @property
    def replicas(self) -> int:
        return self.strategy.num_replicas_in_sync


def choose(config: Config, compiled: bool | None = None) -> Devices:
    """Returns what a configuration is trained on. Call before anything else touches devices.

    Args:
      compiled: whether XLA compiles, in place of what `train.jit` says.

    Raises:
      UserError: as `strategy.make`.
    """
    made = strategy.make(config.train)
    accelerated = strategy.accelerated(made)
    compiled = jit.decided(config, accelerated) if compiled is None else compiled
    return Devices(made, compiled, compiled or accelerated)


def prepare(devices: Devices, config: Config) -> None:
    """Makes a run repeat to the bit, and says where bfloat16 changes nothing."""
    if not devices.jit:
        # XLA refuses max-pooling's gradient under it; what it compiles for CPUs and TPUs repeats anyway.
        tf.config.experimental.enable_op_determinism()
    if config.train.precision == 'bfloat16' and not devices.use_mixed_policy and not precision.rewritten():
        print('train: this processor has no AVX-512, so that train.precision: bfloat16 changes nothing.', flush=True)
