"""Memory of learning machines: moments in chronological order, and the cards of the indexes.

A card belongs to one feature of one index. It holds the counts of good and bad outcomes, the latest outcomes, and the
time of the last moment, which leads to the times before it. The cost of reading a card does not grow with memory.
"""
import math
from typing import NamedTuple

import tensorflow as tf

PLEASURE, PAIN = 1, -1  # the two keys
NONE = -1  # no feature, no time, no word
MOVED, HEARD, SAID = range(3)  # kinds of moments
SURPRISE = math.log(2000)  # a run of outcomes with a chance below 1 in 2,000 is a surprise


class Lately(NamedTuple):
    """The latest outcomes of a feature, int32 of one shape.

    Attributes:
      known: their number.
      bits: 1 where an outcome was good; the lowest bit is the latest.
      run: length of the latest run of equal outcomes, negative if they were bad.
    """
    known: tf.Tensor
    bits: tf.Tensor
    run: tf.Tensor

    def counts(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the number of good and of bad outcomes."""
        good = tf.cast(tf.raw_ops.PopulationCount(x=self.bits), tf.int32)
        return good, self.known - good

    def then(self, signal, most: int) -> 'Lately':
        """Return the outcomes with one more, 1 or -1, of which the latest `most` are kept.

        If a run of equal outcomes is a surprise after those before it, by Laplace's rule of succession, only the run is
        kept. Otherwise a choice that was right for long would need as many corrections.
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
    """Return the lowest `count` bits."""
    return tf.bitwise.bitwise_and(bits, tf.bitwise.left_shift(1, count) - 1)


class Memory(tf.Module):
    """Memories of a population. A `tag`, an int32 of 31 bits, stands for a feature of an index.

    Each machine has one moment and one card beyond its capacity, where values to be discarded are written.

    Args:
      machines: size of the population.
      moments: capacity of a machine in moments.
      cards: capacity of a machine in cards.
      size: numbers per scene.
      places: features per moment, each NONE or a tag; the features of one index always have the same place.
      lately: number of latest outcomes of a feature that count for a choice.
    """

    def __init__(self, machines: int, moments: int, cards: int, size: int, places: int, lately: int):
        super().__init__()

        def numbers(name, shape, dtype=tf.int32, fill=0):
            return tf.Variable(tf.fill(shape, tf.cast(fill, dtype)), trainable=False, name=name)
        self.moments, self.cards, self.places, self.lately = moments, cards, places, lately
        many, boxes = machines * (moments + 1), machines * (cards + 1)
        self.time = numbers('time', [machines])  # number of moments so far
        self.felt = numbers('felt', [machines])  # moments before this time have their outcome
        self.kind = numbers('kind', [many], tf.int8)
        self.scene = numbers('scene', [many, size], tf.int16)
        self.choice = numbers('choice', [many])  # a move or a word
        self.outcome = numbers('outcome', [many], tf.int8)
        self.noted = numbers('noted', [many * places], fill=NONE)  # the card of each feature
        self.before = numbers('before', [many * places], fill=NONE)  # the previous time on that card
        self.used = numbers('used', [machines])  # number of cards in use
        self.tag = numbers('tag', [boxes], fill=NONE)
        self.good = numbers('good', [boxes])  # all good outcomes
        self.bad = numbers('bad', [boxes])
        self.known = numbers('known', [boxes])  # this and the next two: see `Lately`
        self.bits = numbers('bits', [boxes])
        self.run = numbers('run', [boxes])
        self.latest = numbers('latest', [boxes], fill=NONE)

    @staticmethod
    def bytes(moments: int, cards: int, size: int, places: int) -> int:
        """Return the bytes that one machine needs."""
        return (moments + 1) * (1 + 2 * size + 4 + 1 + 8 * places) + (cards + 1) * 28

    def moment(self, rows, time, there):
        """Return kind, scene [..., size] and choice of moments, int32 [...] each, undefined where not `there`."""
        at = self._at(rows, time, there)
        return (tf.cast(tf.gather(self.kind, at), tf.int32), tf.cast(tf.gather(self.scene, at), tf.int32),
                tf.gather(self.choice, at))

    def _at(self, rows, time, there):
        """Return the index of a moment, that of the discarded one where not `there`."""
        return rows * (self.moments + 1) + tf.where(there, time, self.moments)

    def _box(self, rows, like):
        """Return the index of each machine's first card, [n, 1, …] with the rank of `like`."""
        return tf.reshape(rows, [-1] + [1] * (like.shape.rank - 1)) * (self.cards + 1)

    def find(self, rows, tags):
        """Return the indexes of features' cards, int32 [n, …], that of the discarded card where there is none."""
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
        """Return the counts of good and bad outcomes among the latest of features, int32 [n, …]."""
        card, there = self.find(rows, tags)
        parts = self.known, self.bits, self.run
        return Lately(*(tf.where(there, part.sparse_read(card), 0) for part in parts)).counts()

    def count(self, rows, tags) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the counts of good and bad outcomes among all moments of features, int32 [n, …]."""
        card, there = self.find(rows, tags)
        good, bad = (tf.where(there, count.sparse_read(card), 0) for count in (self.good, self.bad))
        return good, bad

    def places_for(self, rows, tags):
        """Return the indexes of the present or future cards of features, int32 [n, k], different for all of a row."""
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
        """Add a moment, and note its time on the cards of its features.

        Args:
          choice: int32 [n], a move or a word.
          scene: int32 [n, size], the position at that moment.
          tags: int32 [n, places], NONE where the moment has no feature of an index.
          card: result of `places_for`.
          active: bool [n], the machines that have this moment; the tags of the others are NONE.

        Raises:
          tf.errors.InvalidArgumentError: a memory is full. Not raised under XLA, which ignores assertions.
        """
        time = tf.gather(self.time, rows)
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all((time < self.moments) | ~active), [
                f'model.memory: a machine has filled its memory of {self.moments:,} moments; give it more'])]):
            at = self._at(rows, time, active)
        for variable, value in ((self.kind, tf.fill(tf.shape(at), kind)), (self.choice, choice), (self.scene, scene)):
            variable.scatter_update(tf.IndexedSlices(tf.cast(value, variable.dtype), at))
        self._note(rows, time, at[:, None] * self.places + tf.range(self.places), tags, card)
        self.time.scatter_add(tf.IndexedSlices(tf.cast(active, tf.int32), rows))

    def _note(self, rows, time, places, tags, card) -> None:
        """Note a time, int32 [n], on the cards of features, and the cards at their places: int32 [n, k] each."""
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
        """Note all moments on the cards of a new index.

        Args:
          place: place of its features in a moment.
          parts: int32 [n, k], places of the features that its features are made of.
          feature: function of k tags [n] that returns the new tag, [n].
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
        """Give the moments since the last feeling their outcome: 1 good, -1 bad, 0 none, int32 [n]."""
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
        """Count an outcome, int32 [n, 1], 0 for none, on cards, int32 [n, places], numbered within each machine."""
        card = self._box(rows, card) + tf.where((card >= 0) & (signal != 0), card, self.cards)
        signal = tf.broadcast_to(signal, tf.shape(card))
        for count, sign in ((self.good, PLEASURE), (self.bad, PAIN)):
            count.scatter_add(tf.IndexedSlices(tf.cast(signal == sign, tf.int32), card))
        parts = self.known, self.bits, self.run
        lately = Lately(*(part.sparse_read(card) for part in parts)).then(signal, self.lately)
        for variable, value in zip(parts, lately):
            variable.scatter_update(tf.IndexedSlices(value, card))

    def recall(self, rows, places, tags):
        """Return the moments that `look_up` counts.

        Args:
          places: int32 [J], places of the features in a moment.
          tags: int32 [n, J], the features.

        Returns:
          Times, the latest first, and outcomes, int32 [n, J, lately] each; NONE and 0 where there is no moment.
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
