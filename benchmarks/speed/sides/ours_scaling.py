"""The same training step on one device, on two logical devices and by two workers."""
import contextlib
import json
import os
import socket
import subprocess
import sys

import inputs
import numpy as np
import side
import tensorflow as tf
import trained

RATE = f'model.learning_rate={inputs.RATE}'
NETS = {  # a configuration, what is other here, and a batch; nothing is dropped, so that all must find the same losses
    'transformer': ('wmt14_en_de_base', ['model.N=3', 'model.d_model=256', 'model.d_ff=1024', 'model.h=4',
                                         'data.vocab_size=8000', 'model.P_drop=0.0']),
    'vgg': ('vgg_a_tiny_imagenet', ['model.dropout=0.0', 'model.classes=20', 'train.precision=float32', RATE]),
    'alexnet': ('alexnet_imagenet', ['model.dropout=0.0', RATE]),
    'tiny': ('vgg_a_tiny_imagenet', ['model.dropout=0.0', 'model.classes=20', 'model.width=0.05', 'model.crop=32',
                                     'train.precision=float32', RATE]),
}


def trainer(net: str, strategy: str, batch: int,
            dense_layers: str = 'every_device') -> tuple[trained.Trained, dict[str, tf.Tensor]]:
    """Return a net's trainer, drawn from one seed, and a batch of so many rows for all replicas."""
    name, overrides = NETS[net]
    made = trained.Trained(name, *overrides, f'train.strategy={strategy}',
                           f'train.dense_layers={dense_layers}')
    if net == 'transformer':
        length, V = 64, made.config.model.vocab_size
        given = {'inputs': inputs.sentences(batch, length, V), 'targets': inputs.sentences(batch, length, V, seed=4)}
    else:
        labels = inputs.labels(batch) % made.config.model.classes
        given = {'image': inputs.pictures(batch, made.config.model.crop), 'label': labels}
    return made, {key: tf.constant(value) for key, value in given.items()}


def step(net: str, strategy: str, batch: int, threads: int = 0, dense_layers: str = 'every_device') -> side.Work:
    """Return the work; a unit is a step of the whole batch.

    `threads`: number an operation may use, in every process; 0 leaves it to TensorFlow, which takes all cores.
    """
    if threads:
        os.environ['TF_NUM_INTRAOP_THREADS'] = str(threads)
    other = second_worker() if strategy == 'multi_worker_mirrored' else None
    made, given = trainer(net, strategy, batch, dense_layers)
    given = made.shares(given)

    def once():
        if other:
            other.stdin.write('step\n')
            other.stdin.flush()
        losses.append(made.step(given))
        return 1
    losses: list[float] = []
    for _ in range(3):
        once()
    return side.Work({'losses': np.array(losses)}, once)


def second_worker() -> subprocess.Popen:
    """Make this process the first of two workers, and start the other, which does a step for every line it reads."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(('127.0.0.1', 0))
        cluster = {'worker': [f'127.0.0.1:{each.getsockname()[1]}' for each in sockets]}

    def role(index: int) -> str:
        return json.dumps({'cluster': cluster, 'task': {'type': 'worker', 'index': index}})
    os.environ['TF_CONFIG'] = role(0)
    return subprocess.Popen([sys.executable, '-W', 'ignore', *sys.argv, 'second=true'], stdin=subprocess.PIPE,
                            stdout=subprocess.DEVNULL, text=True, env={**os.environ, 'TF_CONFIG': role(1)})


def follow(net: str, strategy: str, batch: int) -> None:
    """Run the second worker until the first one leaves."""
    made, given = trainer(net, strategy, batch)
    given = made.shares(given)
    for _ in sys.stdin:
        made.step(given)
    os._exit(0)  # TensorFlow would first wait for the worker that has gone


if __name__ == '__main__':
    if sys.argv[-1] == 'second=true':
        values = dict(pair.split('=', 1) for pair in sys.argv[3:-1])
        follow(values['net'], values['strategy'], int(values['batch']))
    else:
        side.serve({'step': step})
