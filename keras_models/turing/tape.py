"""The random element of learning machines: a tape of figures, and choices that somebody insists on."""
import math

import tensorflow as tf

FREE = -1  # nobody insists on the choice at this place


class Tape(tf.Module):
    """The tapes of a population, whose ends are joined; they hold as many 0 as 1.

    A choice between `k` equal ones reads figures as a binary number and, where that is k or more, the next ones: each
    of them falls with a chance of 1/k. Where there is nothing to choose nothing is read.

    Args:
      machines: in the population.
      length: figures of a tape, an even number.
      places: choices, from a machine's first, that may be insisted on and are kept.
    """

    def __init__(self, machines: int, length: int, places: int):
        super().__init__()

        def numbers(name, shape, dtype=tf.int32, fill=0):
            return tf.Variable(tf.fill(shape, tf.cast(fill, dtype)), trainable=False, name=name)
        self.length, self.places, self._machines = length, places, machines
        self.figures = numbers('figures', [machines * length], tf.int8)
        self.read = numbers('read', [machines])  # figures used
        self.made = numbers('made', [machines])  # choices between equal ones
        # Of every machine one place more, for all later choices.
        self.insisted = numbers('insisted', [machines * (places + 1)], fill=FREE)
        self.first = numbers('first', [machines * (places + 1)], fill=FREE)  # the choices that were made at places,
        self.among = numbers('among', [machines * (places + 1)])  # and of how many that were equal

    def supply(self, seed: int) -> None:
        """Gives every machine a tape of its own."""
        draws = tf.random.stateless_uniform([self._machines, self.length], [seed, 0], alg='philox')
        figures = tf.cast(tf.argsort(draws) < self.length // 2, tf.int8)
        self.figures.assign(tf.reshape(figures, [-1]))

    def insist(self, rows, places, choices) -> None:
        """Fakes choices, int32 [n, F], at places of the machines' lives, int32 [F]: those between equal ones, from 0.

        "By faking the choices made one would be able to control the development of the machine to some extent."
        """
        where = rows[:, None] * (self.places + 1) + places
        self.insisted.scatter_update(tf.IndexedSlices(tf.broadcast_to(choices, tf.shape(where)), where))

    def draw(self, rows, best, active):
        """One of the best choices, bool [n, A], and how many figures are used by then: int32 [n] each."""
        many = tf.reduce_sum(tf.cast(best, tf.int32), 1)
        most = math.ceil(math.log2(max(2, best.shape[1])))
        figures = tf.reduce_sum(tf.cast(many[:, None] > 2 ** tf.range(most), tf.int32), 1)  # a number of these is read
        place = figures[:, None] - 1 - tf.range(most)
        worth = tf.where(place >= 0, 2 ** tf.maximum(0, place), 0)  # of a figure in a number, the first the most

        def attempt(read, number, drawing):
            at = (rows * self.length)[:, None] + (read[:, None] + tf.range(most)) % self.length
            found = tf.reduce_sum(tf.cast(self.figures.sparse_read(at), tf.int32) * worth, 1)
            number = tf.where(drawing, found, number)
            return read + tf.where(drawing, figures, 0), number, drawing & (number >= many)
        read, number, _ = tf.while_loop(
            lambda read, number, drawing: tf.reduce_any(drawing), attempt,
            (tf.gather(self.read, rows), tf.zeros_like(rows), active & (many > 1)),
            maximum_iterations=self.length)  # for a tape that repeats itself before it falls on any
        order = tf.cumsum(tf.cast(best, tf.int32), 1) - 1
        drawn = best & (order == (number % tf.maximum(many, 1))[:, None])
        return tf.argmax(tf.cast(drawn, tf.int32), 1, tf.int32), read

    def choose(self, rows, best, active):
        """Draws, or takes what is insisted on, and moves the tape on: int32 [n]."""
        choice, read = self.draw(rows, best, active)
        many, made = tf.reduce_sum(tf.cast(best, tf.int32), 1), tf.gather(self.made, rows)
        open_ = active & (many > 1)
        where = rows * (self.places + 1) + tf.minimum(made, self.places)
        kept = open_ & (made < self.places)
        insisted = self.insisted.sparse_read(where)
        choice = tf.where(kept & (insisted != FREE), insisted, choice)
        for variable, value in ((self.first, choice), (self.among, many)):
            variable.scatter_update(tf.IndexedSlices(tf.where(kept, value, variable.sparse_read(where)), where))
        self.read.scatter_update(tf.IndexedSlices(read, rows))
        self.made.scatter_add(tf.IndexedSlices(tf.cast(open_, tf.int32), rows))
        return choice

    def beginnings(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The first choices between equal ones, and of how many each was: int32 [machines, places]."""
        return tuple(tf.reshape(part, [self._machines, -1])[:, :-1] for part in (self.first, self.among))
