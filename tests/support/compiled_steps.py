"""Take one step of each system with and without XLA, and print the differences as JSON.

    python -m support.compiled_steps SYSTEM …

In a process of its own: XLA reads its flags once, and the tests set some (see `tensorflow_state`).
"""
import json
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

from keras_models import learning_machine
from support import learners


def training_step(name: str, make) -> list[float]:
    """How far the gradients of each network, and all losses, are apart: see `apart`."""
    batch = learners.batch(name)
    found = []
    for compiled in (False, True):
        it = make(name, compiled)
        gradients, losses, _ = it._compute(batch, tf.constant(learners.SEED), False)
        found.append({**gradients, 'losses': [losses[key][0] for key in sorted(losses)]})
    return [apart(found[0][key], found[1][key]) for key in found[0]]


def looking_up() -> list[float]:
    """The same of what four learning machines remember of a board."""
    machines = learning_machine.Machines(learning_machine.Config(machines=4, memory=60, cards=400, tape=40))
    arguments = tf.range(4), tf.zeros([4, machines.game.size], tf.int32)
    plain, compiled = (tf.nest.flatten(tf.function(machines._think, autograph=False, jit_compile=jit)(*arguments))
                       for jit in (False, True))
    return [apart(plain, compiled)]


def apart(ours, theirs) -> float:
    """The largest difference of two lists of tensors, as a share of the largest value of the tensor it is in.

    A hundredth of the largest value of all is added to that: a gradient may be zero but for rounding, as that of a bias
    that normalisation takes away again.
    """
    ours, theirs = ([np.asarray(each, np.float64) for each in list_] for list_ in (ours, theirs))
    sizes = [np.abs(each).max(initial=0) for each in ours]
    return float(max(np.abs(one - other).max(initial=0) / (size + max(sizes) / 100 or 1)
                     for one, other, size in zip(ours, theirs, sizes, strict=True)))


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as folder, learners.making(folder) as make:
        print(json.dumps({'flags': os.environ.get('XLA_FLAGS', ''), 'apart': {
            name: looking_up() if name == 'learning machine' else training_step(name, make)
            for name in sys.argv[1:]}}))
