"""Random element of learning machines: a tape of figures, and choices that are faked."""
import math

import tensorflow as tf

FREE = -1  # the choice at this place is not faked


class Tape(tf.Module):
    """Tapes of a population, which hold as many 0 as 1 and are read in a circle.

    A choice between `k` equal ones reads figures as a binary number, and reads again if the number is k or more, so
    each has probability 1/k. A choice without an alternative reads nothing.

    Args:
      machines: size of the population.
      length: figures per tape, an even number.
      places: number of choices, from a machine's first, that can be faked and are recorded.
    """

    def __init__(self, machines: int, length: int, places: int):
        super().__init__()

        def numbers(name, shape, dtype=tf.int32, fill=0):
            return tf.Variable(tf.fill(shape, tf.cast(fill, dtype)), trainable=False, name=name)
        self.length, self.places, self._machines = length, places, machines
        self.figures = numbers('figures', [machines * length], tf.int8)
        self.read = numbers('read', [machines])  # number of figures read
        self.made = numbers('made', [machines])  # number of choices between equal ones
        # Each machine has one place more, for all later choices.
        self.insisted = numbers('insisted', [machines * (places + 1)], fill=FREE)
        self.first = numbers('first', [machines * (places + 1)], fill=FREE)  # the choices at these places,
        self.among = numbers('among', [machines * (places + 1)])  # and the number of equal ones

    def supply(self, seed: int) -> None:
        """Give every machine a tape of its own."""
        draws = tf.random.stateless_uniform([self._machines, self.length], [seed, 0], alg='philox')
        figures = tf.cast(tf.argsort(draws) < self.length // 2, tf.int8)
        self.figures.assign(tf.reshape(figures, [-1]))

    def insist(self, rows, places, choices) -> None:
        """Fake choices, int32 [n, F], at places, int32 [F], counted from 0 over choices between equal ones.

        "By faking the choices made one would be able to control the development of the machine to some extent."
        """
        where = rows[:, None] * (self.places + 1) + places
        self.insisted.scatter_update(tf.IndexedSlices(tf.broadcast_to(choices, tf.shape(where)), where))

    def draw(self, rows, best, active):
        """Return one of the best choices, bool [n, A], and the number of figures read by then, int32 [n] each."""
        many = tf.reduce_sum(tf.cast(best, tf.int32), 1)
        most = math.ceil(math.log2(max(2, best.shape[1])))
        figures = tf.reduce_sum(tf.cast(many[:, None] > 2 ** tf.range(most), tf.int32), 1)  # digits of the number
        place = figures[:, None] - 1 - tf.range(most)
        worth = tf.where(place >= 0, 2 ** tf.maximum(0, place), 0)  # of each digit, the first the highest

        def attempt(read, number, drawing):
            at = (rows * self.length)[:, None] + (read[:, None] + tf.range(most)) % self.length
            found = tf.reduce_sum(tf.cast(self.figures.sparse_read(at), tf.int32) * worth, 1)
            number = tf.where(drawing, found, number)
            return read + tf.where(drawing, figures, 0), number, drawing & (number >= many)
        read, number, _ = tf.while_loop(
            lambda read, number, drawing: tf.reduce_any(drawing), attempt,
            (tf.gather(self.read, rows), tf.zeros_like(rows), active & (many > 1)),
            maximum_iterations=self.length)  # a tape may repeat itself without ever giving a number below k
        order = tf.cumsum(tf.cast(best, tf.int32), 1) - 1
        drawn = best & (order == (number % tf.maximum(many, 1))[:, None])
        return tf.argmax(tf.cast(drawn, tf.int32), 1, tf.int32), read

    def choose(self, rows, best, active):
        """Draw one of the best choices, or take the faked one, and advance the tape; return it, int32 [n]."""
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
        """Return the first choices between equal ones and the number of equal ones, int32 [machines, places] each."""
        return tuple(tf.reshape(part, [self._machines, -1])[:, :-1] for part in (self.first, self.among))
