"""Learning after export: the state of a session is a string of its own, so a served version never changes."""
import hashlib

import numpy as np
import tensorflow as tf

from keras_models.learning_machine import Machines

_ROWS = np.zeros(1, np.int32)  # not a tensor, because importing this must not start TensorFlow


class Pupil(tf.Module):
    """A copy of an exported machine that goes on learning within a session.

    A session holds the numbers that differ from the exported machine, so it grows with what was learned in it and not
    with the machine. Calls run one after the other, because they share the copy's variables.

    Args:
      machine: a population of one, as exported; it never changes.
    """

    def __init__(self, machine: Machines):
        super().__init__()
        self._machine, self._copy = machine, machine.alone(0)
        digest = hashlib.sha256(b''.join(variable.numpy().tobytes() for variable in machine.variables))
        self._version = digest.hexdigest()
        self._begun = tf.io.encode_base64(self._changes())  # the two are still equal
        self._names = tf.constant([machine.game.name(move) for move in range(machine.game.moves)])

    @tf.function(input_signature=[tf.TensorSpec([], tf.string, 'session'), tf.TensorSpec([], tf.int32, 'outcome'),
                                  tf.TensorSpec([], tf.string, 'position')], autograph=False)
    def learn(self, session, outcome, position):
        """Give an outcome to what the machine did since the last one, then let it move.

        Args:
          session: string of the previous call; empty begins a session.
          outcome: above 0 is pleasure, below 0 pain, and 0 none.
          position: position to move in; empty for no move.

        Returns:
          `session`, base64, and `move`, empty if there is none or the game is over.

        Raises:
          tf.errors.InvalidArgumentError: the position is not one, the session is of another version, or a memory is
            full.
        """
        # tf.CriticalSection makes its mutex outside the graph, where an export does not see it. An error frees it.
        lock = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name=self._version))
        with tf.control_dependencies([lock]):
            answer = self._learn(session, outcome, position)
        with tf.control_dependencies([*answer.values()]):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        return answer

    def _learn(self, session, outcome, position):
        copy, game = self._copy, self._machine.game
        self._restore(tf.where(session == '', self._begun, session))
        copy.feel(_ROWS, tf.sign(outcome)[None])
        wanted = position != ''
        text = tf.where(wanted, position, game.write(game.start(tf.constant([0, 0]), 1))[0])
        board = tf.ensure_shape(game.read(text[None]), [1, game.size])
        active = wanted & ~game.result(board)[0]
        move = copy.move(_ROWS, board, active)
        return {'session': tf.io.encode_base64(self._changes()),
                'move': tf.where(active, tf.gather(self._names, move), '')[0]}

    def _changes(self):
        """Serialise the places and values of numbers that differ from the exported machine."""
        parts = [self._version]
        for exported, now in zip(self._machine.variables, self._copy.variables):
            places = tf.where(tf.reshape(exported != now, [-1]))
            parts += [tf.io.serialize_tensor(each) for each in (places, tf.gather_nd(tf.reshape(now, [-1]), places))]
        return tf.io.serialize_tensor(tf.stack(parts))

    def _restore(self, session) -> None:
        """Put the copy into the state of a session."""
        parts = tf.io.parse_tensor(tf.io.decode_base64(session), tf.string)
        variables = self._machine.variables
        with tf.control_dependencies([tf.debugging.Assert(
                tf.equal(tf.size(parts), 1 + 2 * len(variables)) & tf.reduce_all(parts[:1] == self._version),
                ['session is of another version of this machine; begin a new one'])]):
            parts = tf.identity(parts)
        for number, (exported, now) in enumerate(zip(variables, self._copy.variables)):
            places = tf.ensure_shape(tf.io.parse_tensor(parts[1 + 2 * number], tf.int64), [None, 1])
            values = tf.ensure_shape(tf.io.parse_tensor(parts[2 + 2 * number], exported.dtype), [None])
            flat = tf.tensor_scatter_nd_update(tf.reshape(exported, [-1]), places, values)
            now.assign(tf.reshape(flat, exported.shape))
