"""Our trainer on given batches: a step of `python -m pipelines.train` without data or loop."""
import functools
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf

from data_prep.core import records
from pipelines.core import config
from pipelines.training import devices, precision, trainer

SEED = 0, 0  # nothing is drawn by it. No tensor: a trainer sets up TensorFlow's threads before there are any


class Trained(trainer.Trainer):
    """The trainer of a shipped configuration, on one device unless overrides say otherwise; `net` is its first network.

    Args:
      name: of the configuration.
      overrides: `section.key=value` strings.
    """

    def __init__(self, name: str, *overrides: str):
        resolved = config.load(name, ['train.strategy=one_device', *overrides])
        nothing = records.Manifest([], {}, {})
        with (mock.patch.object(records, 'read_manifest', return_value=nothing),
              tempfile.TemporaryDirectory() as folder):
            super().__init__(resolved, devices.choose(resolved), folder)
        self.net = next(iter(self.nets.values()))

    def _dataset(self, split: str):
        return None

    def shares(self, batch: dict[str, tf.Tensor]):
        """Return a batch of all replicas, divided as training divides it: rows go to the replicas in turn."""
        return self.strategy.experimental_distribute_values_from_function(lambda replica: {
            name: x[replica.replica_id_in_sync_group::replica.num_replicas_in_sync] for name, x in batch.items()})

    def undropped(self, batch: dict[str, tf.Tensor], *which: str) -> tuple[float, list[float]]:
        """Return a batch's mean loss without dropout, and the norms of its gradients by the variables named.

        XLA or bfloat16 are used if `step` uses them.
        """
        variables = {variable.name.removesuffix(':0'): variable for variable in self.net.trainable_variables}

        @functools.partial(tf.function, autograph=False, jit_compile=self.devices.jit)
        def learn(batch):
            with tf.GradientTape() as tape:
                losses, _ = self.model.loss_fn(self.nets, batch, tf.constant(SEED), False, self.config.model)
                [(total, normaliser)] = losses.values()
                mean = total / normaliser
            return mean, [tf.norm(tf.convert_to_tensor(gradient))
                          for gradient in tape.gradient(mean, [variables[name] for name in which])]
        with precision.rewriting(self.config.train.precision, self.devices.use_mixed_policy):
            mean, norms = learn(batch)
        return float(mean), [float(norm) for norm in norms]

    def step(self, batch) -> float:
        """Update the networks by a batch of one device, or by `shares` of one; return the first one's loss."""
        with precision.rewriting(self.config.train.precision, self.devices.use_mixed_policy):
            found = self._train(batch)
        return float(np.divide(*next(pair for name, pair in found.items() if name.startswith('loss/'))))
