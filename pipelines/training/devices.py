"""Choose a run's hardware once: distribution strategy, XLA, and how bfloat16 is computed."""
import dataclasses

import tensorflow as tf

from pipelines.core.config import Config
from pipelines.training import jit, precision, strategy


@dataclasses.dataclass(frozen=True)
class Devices:
    """Hardware of a training run.

    Attributes:
      strategy: how replicas are distributed.
      jit: whether XLA compiles the forward and backward pass. Gradients are applied outside of it, the only form that
        works with several replicas.
      use_mixed_policy: True: bfloat16 by Keras's mixed precision (XLA, GPU, TPU); False: by the graph rewriter, see
        `precision`.
    """
    strategy: tf.distribute.Strategy
    jit: bool
    use_mixed_policy: bool

    @property
    def replicas(self) -> int:
        return self.strategy.num_replicas_in_sync


def choose(config: Config, compiled: bool | None = None) -> Devices:
    """Choose the devices for a configuration. Call it before anything else touches devices.

    Args:
      compiled: whether XLA compiles; overrides `train.jit`.

    Raises:
      UserError: as `strategy.make`.
    """
    made = strategy.make(config.train)
    accelerated = strategy.accelerated(made)
    compiled = jit.decided(config, accelerated) if compiled is None else compiled
    return Devices(made, compiled, accelerated or compiled and not precision.hindrance(compiled))


def prepare(devices: Devices, config: Config) -> None:
    """Make runs reproducible to the bit, and warn if bfloat16 has no effect on this processor."""
    if not devices.jit:
        # XLA refuses max-pooling's gradient with it; on CPUs and TPUs its results repeat anyway.
        tf.config.experimental.enable_op_determinism()
    if config.train.precision == 'bfloat16' and not devices.use_mixed_policy and (why := precision.hindrance()):
        print(f'train: {why}, so train.precision: bfloat16 has no effect.', flush=True)
