"""The memory of learning machines: moments in chronological order, and the cards on which indexes note them.

A card belongs to one feature of one index. It keeps how many of its moments came out well and badly, the outcomes of
the latest, and the time of the last, from which the times before are found: reading a card costs the same however much
is remembered.
"""
import math
from typing import NamedTuple

import tensorflow as tf

PLEASURE, PAIN = 1, -1  # the two keys
NONE = -1  # no feature, no time, no word
MOVED, HEARD, SAID = range(3)  # kinds of moments
SURPRISE = math.log(2000)  # outcomes of which there is one in so many are a surprise


class Lately(NamedTuple):
    """The latest outcomes of a feature, int32 of one shape: how many there are, and which of them were good, as bits
    with the latest first; how many of the latest were alike, below 0 if bad."""
    known: tf.Tensor
    bits: tf.Tensor
    run: tf.Tensor

    def counts(self) -> tuple[tf.Tensor, tf.Tensor]:
        """How many were good, and how many bad."""
        good = tf.cast(tf.raw_ops.PopulationCount(x=self.bits), tf.int32)
        return good, self.known - good

    def then(self, signal, most: int) -> 'Lately':
        """With one more outcome, 1 or -1; `most` are kept.

        A run of equal outcomes is kept alone once those before make it a surprise, by Laplace's rule of succession:
        else who was right for long would have to be corrected for long.
        """
        run = tf.where(self.run * signal > 0, self.run, 0) + signal
        known, bits = tf.minimum(self.known + 1, most), 2 * self.bits + tf.cast(signal > 0, tf.int32)
        length = tf.minimum(tf.abs(run), known)
        good, bad = Lately(known, _last(bits, known), run).counts()
        alike = tf.cast(tf.where(run > 0, good, bad) - length, tf.float32)
        odds = (tf.cast(known - length, tf.float32) + 2) / (alike + 1)
        known = tf.where(tf.cast(length, tf.float32) * tf.math.log(odds) > SURPRISE, length, known)
        return Lately(known, _last(bits, known), run)


def _last(bits, count):
    """The lowest bits."""
    return tf.bitwise.bitwise_and(bits, tf.bitwise.left_shift(1, count) - 1)


class Memory(tf.Module):
    """The memories of a population. A `tag`, an int32 of 31 bits, stands for a feature of an index.

    Every machine has one moment and one card more than it can fill, where what is to be lost is written.

    Args:
      machines: in the population.
      moments: a machine has room for.
      cards: a machine has.
      size: numbers in what is before a machine.
      places: features of a moment, some of which may be NONE. One index has always the same place.
      lately: of the moments of a feature, those that count for a choice.
    """

    def __init__(self, machines: int, moments: int, cards: int, size: int, places: int, lately: int):
        super().__init__()

        def numbers(name, shape, dtype=tf.int32, fill=0):
            return tf.Variable(tf.fill(shape, tf.cast(fill, dtype)), trainable=False, name=name)
        self.moments, self.cards, self.places, self.lately = moments, cards, places, lately
        many, boxes = machines * (moments + 1), machines * (cards + 1)
        self.time = numbers('time', [machines])  # moments lived through
        self.felt = numbers('felt', [machines])  # those before this one have their outcome
        self.kind = numbers('kind', [many], tf.int8)
        self.scene = numbers('scene', [many, size], tf.int16)
        self.choice = numbers('choice', [many])  # a move or a word
        self.outcome = numbers('outcome', [many], tf.int8)
        self.noted = numbers('noted', [many * places], fill=NONE)  # on which card, and
        self.before = numbers('before', [many * places], fill=NONE)  # the time before on it
        self.used = numbers('used', [machines])  # cards
        self.tag = numbers('tag', [boxes], fill=NONE)
        self.good = numbers('good', [boxes])  # all that came out so
        self.bad = numbers('bad', [boxes])
        self.known = numbers('known', [boxes])  # these three: see `Lately`
        self.bits = numbers('bits', [boxes])
        self.run = numbers('run', [boxes])
        self.latest = numbers('latest', [boxes], fill=NONE)

    @staticmethod
    def bytes(moments: int, cards: int, size: int, places: int) -> int:
        """What one machine takes."""
        return (moments + 1) * (1 + 2 * size + 4 + 1 + 8 * places) + (cards + 1) * 28

    def moment(self, rows, time, there):
        """Kind, scene [..., size], choice, all of int32 [...]; anything where not `there`."""
        at = self._at(rows, time, there)
        return (tf.cast(tf.gather(self.kind, at), tf.int32), tf.cast(tf.gather(self.scene, at), tf.int32),
                tf.gather(self.choice, at))

    def _at(self, rows, time, there):
        """Where a moment lies; what is not there lies in the one more."""
        return rows * (self.moments + 1) + tf.where(there, time, self.moments)

    def _box(self, rows, like):
        """Where the cards of machines, int32 [n], begin: [n, 1, ...], as many dimensions as `like`."""
        return tf.reshape(rows, [-1] + [1] * (like.shape.rank - 1)) * (self.cards + 1)

    def find(self, rows, tags):
        """Where the cards of features lie, int32 [n, ...]; those without one lie at the machine's card more."""
        box = self._box(rows, tags)

        def step(card, looking):
            tag = self.tag.sparse_read(box + card)
            looking = looking & (tag != tags) & (tag != NONE)
            return tf.where(looking, (card + 1) % self.cards, card), looking
        card, _ = tf.while_loop(lambda card, looking: tf.reduce_any(looking), step,
                                (tf.maximum(tags, 0) % self.cards, tags >= 0))
        there = (tags >= 0) & (self.tag.sparse_read(box + card) == tags)
        return box + tf.where(there, card, self.cards), there

    def look_up(self, rows, tags) -> tuple[tf.Tensor, tf.Tensor]:
        """How the latest moments of features, int32 [n, ...], came out: so many good, so many bad."""
        card, there = self.find(rows, tags)
        parts = self.known, self.bits, self.run
        return Lately(*(tf.where(there, part.sparse_read(card), 0) for part in parts)).counts()

    def count(self, rows, tags) -> tuple[tf.Tensor, tf.Tensor]:
        """The same of all moments."""
        card, there = self.find(rows, tags)
        good, bad = (tf.where(there, count.sparse_read(card), 0) for count in (self.good, self.bad))
        return good, bad

    def places_for(self, rows, tags):
        """Where the cards of features are or are to be, int32 [n, k]. No two of a machine take the same."""
        several = tf.range(tags.shape[1])
        box, earlier = self._box(rows, tags), several[:, None] > several

        def step(card, looking):
            tag = self.tag.sparse_read(box + card)
            empty = looking & (tag == NONE)
            rival = (earlier & empty[:, None]) | ~looking[:, None]  # [n, k, l]: l is before k in taking a card
            taken = tf.reduce_any(rival & (card[:, :, None] == card[:, None]), 2)
            looking = looking & (tag != tags) & ~(empty & ~taken)
            return tf.where(looking, (card + 1) % self.cards, card), looking
        card, _ = tf.while_loop(lambda card, looking: tf.reduce_any(looking), step,
                                (tf.where(tags >= 0, tags % self.cards, self.cards), tags >= 0))
        return box + card

    def remember(self, rows, kind: int, choice, scene, tags, card, active) -> None:
        """Adds a moment, and notes its time on the cards of its features.

        Args:
          choice: int32 [n].
          scene: int32 [n, size], what was before it.
          tags: int32 [n, places]; NONE where an index has nothing to say of this moment.
          card: of `places_for`.
          active: bool [n]: the machines that live through it; the others' tags are NONE.

        Raises:
          tf.errors.InvalidArgumentError: a memory is full, and says so. Not under XLA, which knows no assertions.
        """
        time = tf.gather(self.time, rows)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all((time < self.moments) | ~active), [
                f'model.memory: a machine has lived through {self.moments:,} moments and has no room for more; '
                'give it more'])]):
            at = self._at(rows, time, active)
        for variable, value in ((self.kind, tf.fill(tf.shape(at), kind)), (self.choice, choice), (self.scene, scene)):
            variable.scatter_update(tf.IndexedSlices(tf.cast(value, variable.dtype), at))
        self._note(rows, time, at[:, None] * self.places + tf.range(self.places), tags, card)
        self.time.scatter_add(tf.IndexedSlices(tf.cast(active, tf.int32), rows))

    def _note(self, rows, time, places, tags, card) -> None:
        """Notes a time, int32 [n], on cards of features, and these at their places in memory: int32 [n, k] each."""
        new = tf.reduce_sum(tf.cast((tags >= 0) & (self.tag.sparse_read(card) == NONE), tf.int32), 1)
        room = tf.gather(self.used, rows) + new < self.cards
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(room), [
                f'model.cards: the indexes of a machine have filled its {self.cards:,} cards; give it more'])]):
            self.used.scatter_add(tf.IndexedSlices(new, rows))
        noted = tf.where(tags >= 0, card - self._box(rows, card), NONE)
        for variable, value, where in (
                (self.before, self.latest.sparse_read(card), places), (self.noted, noted, places),
                (self.tag, tags, card), (self.latest, tf.broadcast_to(time[:, None], tf.shape(tags)), card)):
            variable.scatter_update(tf.IndexedSlices(value, where))

    def enter(self, rows, place: int, parts, feature) -> None:
        """Notes all that is remembered on the cards of a new index.

        Args:
          place: of its features in a moment.
          parts: int32 [n, k], the places of those that its features are made of.
          feature: (k tags [n]) -> the tag of the new one, [n].
        """
        def note(time):
            there = time < tf.gather(self.time, rows)
            at = self._at(rows, time, there)[:, None] * self.places
            noted = self.noted.sparse_read(at + parts)
            tags = self.tag.sparse_read(self._box(rows, noted) + tf.where(noted >= 0, noted, self.cards))
            made = tf.where(there & tf.reduce_all(tags >= 0, 1), feature(*tf.unstack(tags, axis=1)), NONE)[:, None]
            card = self.places_for(rows, made)
            self._note(rows, tf.fill(tf.shape(rows), time), at + place, made, card)
            outcome = tf.gather(self.outcome, self._at(rows, time, there))
            self._count(rows, tf.where(made >= 0, card - self._box(rows, card), NONE),
                        tf.cast(outcome, tf.int32)[:, None])
            return (time + 1,)
        most = tf.reduce_max(tf.gather(self.time, rows))
        tf.while_loop(lambda time: time < most, note, [0])

    def feel(self, rows, signal) -> None:
        """What was done since the last time anything was felt comes out so: 1 well, -1 badly, 0 is no outcome."""
        time, felt = tf.gather(self.time, rows), tf.gather(self.felt, rows)
        waiting = tf.where(signal == 0, 0, time - felt)

        def assign(k):
            there = k < waiting
            at = self._at(rows, felt + k, there)
            self.outcome.scatter_update(tf.IndexedSlices(tf.cast(signal, tf.int8), at))
            self._count(rows, self.noted.sparse_read(at[:, None] * self.places + tf.range(self.places)),
                        tf.where(there, signal, 0)[:, None])
            return (k + 1,)
        most = tf.reduce_max(waiting)
        tf.while_loop(lambda k: k < most, assign, [0])
        self.felt.scatter_update(tf.IndexedSlices(tf.where(signal == 0, felt, time), rows))

    def _count(self, rows, card, signal) -> None:
        """Counts an outcome, int32 [n, 1], on cards of each machine's own, [n, places]; 0 is none."""
        card = self._box(rows, card) + tf.where((card >= 0) & (signal != 0), card, self.cards)
        signal = tf.broadcast_to(signal, tf.shape(card))
        for count, sign in ((self.good, PLEASURE), (self.bad, PAIN)):
            count.scatter_add(tf.IndexedSlices(tf.cast(signal == sign, tf.int32), card))
        parts = self.known, self.bits, self.run
        lately = Lately(*(part.sparse_read(card) for part in parts)).then(signal, self.lately)
        for variable, value in zip(parts, lately):
            variable.scatter_update(tf.IndexedSlices(value, card))

    def recall(self, rows, places, tags):
        """The moments that `look_up` counts, as far as the latest.

        Args:
          places: int32 [J], of the features in a moment.
          tags: int32 [n, J].

        Returns:
          Times, the latest first, and outcomes: int32 [n, J, lately] each; NONE and 0 where there is no such moment.
        """
        card, there = self.find(rows, tags)
        felt, known = tf.gather(self.felt, rows)[:, None], tf.where(there, self.known.sparse_read(card), 0)

        def earlier(time):
            at = self._at(rows[:, None], time, time >= 0)
            return tf.where(time >= 0, self.before.sparse_read(at * self.places + places), NONE)
        time, times, outcomes = tf.where(there, self.latest.sparse_read(card), NONE), [], []
        time, = tf.while_loop(lambda time: tf.reduce_any(time >= felt),
                              lambda time: (tf.where(time >= felt, earlier(time), time),), (time,))
        for count in range(self.lately):
            time = tf.where(count < known, time, NONE)
            times.append(time)
            outcomes.append(tf.where(time >= 0, tf.cast(self.outcome.sparse_read(
                self._at(rows[:, None], time, time >= 0)), tf.int32), 0))
            time = earlier(time)
        return tf.stack(times, -1), tf.stack(outcomes, -1)
