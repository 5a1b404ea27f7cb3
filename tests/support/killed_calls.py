"""Kill a piece of work before any one of its calls that change a file system."""
import os
import signal
from collections.abc import Callable

import tensorflow as tf

CALLS = [(tf.io.gfile, 'makedirs'), (tf.io.gfile, 'copy'), (tf.io.gfile, 'rename'), (os, 'fsync'),
         (os, 'rename'), (tf.io.gfile, 'rmtree')]


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Runs `work` in a forked child that is killed before its call of this number. False: it made fewer."""
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL)
        return code != 0
    code = 70
    try:
        left = iter(range(number))

        def counted(call):
            def wrapped(*args, **kwargs):
                if next(left, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **kwargs)
            return wrapped
        for place, name in CALLS:
            setattr(place, name, counted(getattr(place, name)))
        work()
        code = 0
    finally:
        os._exit(code)
