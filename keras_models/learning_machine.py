"""The learning machine of 'Intelligent Machinery, A Heretical Theory' (Turing, about 1951).

A population of machines: one machine is a row of every tensor, and a step is taken by all of them at once. What a
machine is made of stands here part by part, each with the passage it comes from; how it is taught, and what a game is,
it does not know (`keras_models/school.py`, `keras_models/turing/games`).
"""
import dataclasses
import math
from typing import Literal, NamedTuple

import tensorflow as tf

from keras_models.turing import games

PLEASURE, PAIN = 1, -1  # the two keys
NONE = -1  # no key of an index, no time


@dataclasses.dataclass
class Config:
    """How the machines are built.

    Attributes:
      game, options: what they are taught, and its parameters (`keras_models/turing/games`).
      machines: in the population.
      memory: moments a machine remembers; beyond them the earliest are forgotten.
      cards: of every index; features that share one lie on one chain.
      looked_up: how far back along a chain a feature is looked up.
      tape: figures on a machine's random tape, whose ends are joined.
      constancy: how often a condition must have come with pleasure (or pain) and nothing else to be taken for it.
      rule: `majority` is the crude rule; `learned` weighs an indication by how often such were right.
      combined: indexes a machine makes for itself out of features of its others.
    """
    game: str = 'noughts'
    options: dict[str, int] = dataclasses.field(default_factory=dict)
    machines: int = 256
    memory: int = 4096
    cards: int = 4096
    looked_up: int = 16
    tape: int = 8192
    constancy: int = 3
    rule: Literal['majority', 'learned'] = 'learned'
    combined: int = 0

    def __post_init__(self):
        if self.looked_up < self.constancy:
            raise ValueError(f'looked_up {self.looked_up} is less than constancy {self.constancy}, so no condition '
                             'could ever be constant')
        if self.combined > 2:
            raise ValueError(f'combined is {self.combined}; a machine has features for 2 such indexes at most')


class Thought(NamedTuple):
    """What looking up the present situation gave, for every choice and index of situation and choice.

    Attributes:
      keys: int32 [n, A, J], the features looked up.
      good, bad: int32 [n, A, J], remembered moments of those features, by how they came out.
      votes: float32 [n, A], what the rule makes of them.
    """
    keys: tf.Tensor
    good: tf.Tensor
    bad: tf.Tensor
    votes: tf.Tensor


class Machines(tf.Module):
    """A population. `rows` [n] int32 says which machines a call is about, each at most once.

    `jit` compiles looking up by XLA, without which nine tenths of a lesson's time goes into it: as one loop over chains
    it is 2.3 to 4 times faster on a CPU. A lesson as a whole is not compiled: XLA would copy all memories for each.

    Indexes are numbered: `condition` and `word` (of what is presented), `thought` (of what the machine itself was about
    to do), then the J of situation and choice: the game's `features` and those the machine combines.
    """
    CONDITION, WORD, THOUGHT, FIRST = range(4)

    def __init__(self, config: Config):
        super().__init__()
        self.config, self.game, self.jit = config, games.make(config.game, config.options), False
        self.indexes = ('condition', 'word', 'thought', *self.game.features,
                        *(f'combined {n + 1}' for n in range(config.combined)))
        self._places = tf.constant([3 ** j for j in range(len(self.indexes) - self.FIRST)])  # of a thought as a number
        n, moments, tables = config.machines, config.machines * (config.memory + 1), len(self.indexes)

        def numbers(name, shape, dtype=tf.int32, fill=0):
            return tf.Variable(tf.fill(shape, tf.cast(fill, dtype)), trainable=False, name=name)
        # The memory. Every machine has one moment more than it remembers, where what is to be lost is written.
        self.time = numbers('time', [n])  # moments lived through
        self.scene = numbers('scene', [moments, self.game.size], tf.int16)
        self.choice = numbers('choice', [moments])  # a move; from `game.moves` on, a word that was heard
        self.outcome = numbers('outcome', [moments], tf.int8)
        self.felt = numbers('felt', [n])  # the moments before this one have their outcome
        # The indexes: the latest time on every card, and with each moment the time before on the same card.
        self.card = numbers('card', [n * tables * (config.cards + 1)], fill=NONE)
        self.key = numbers('key', [moments * tables], fill=NONE)
        self.before = numbers('before', [moments * tables], fill=NONE)
        self.pair = numbers('pair', [n, config.combined, 2])
        self.right = numbers('right', [n, tables - self.FIRST])  # how often an index spoke for what came out well,
        self.wrong = numbers('wrong', [n, tables - self.FIRST])  # and otherwise
        # The random element.
        self.tape = numbers('tape', [n * config.tape], tf.int8)
        self.read = numbers('read', [n])  # figures used

    # "The machine would incorporate a memory … a list of all the statements that had been made to it or by it, and all
    # the moves it had made … in chronological order."

    def _moment(self, rows, time, there):
        """Where a moment lies in memory; what is not there lies in the one more."""
        capacity = self.config.memory
        return rows * (capacity + 1) + tf.where(there, time % capacity, capacity)

    def moment(self, rows, time, there):
        """What was before the machine, int16 [n, P], and what it chose, int32 [n]; anything where not `there`."""
        at = self._moment(rows, time, there)
        return tf.gather(self.scene, at), tf.gather(self.choice, at)

    def remember(self, rows, keys, choice, scene, active) -> None:
        """Adds a moment, and its time to the cards of its features.

        Args:
          keys: int32 [n, indexes]; NONE where an index has nothing to say of this moment.
          choice: int32 [n].
          scene: int32 [n, P], what was before it.
          active: bool [n]: the machines that live through it.
        """
        tables, time = len(self.indexes), tf.gather(self.time, rows)
        at = self._moment(rows, time, active)
        cards = self._card(rows[:, None], tf.range(tables), tf.where(active[:, None], keys, NONE))  # [n, indexes]
        places = at[:, None] * tables + tf.range(tables)
        for variable, value, where in (
                (self.before, self.card.sparse_read(cards), places), (self.key, keys, places),
                (self.card, tf.broadcast_to(time[:, None], tf.shape(keys)), cards), (self.choice, choice, at),
                (self.outcome, tf.zeros_like(at), at), (self.scene, scene, at)):
            variable.scatter_update(tf.IndexedSlices(tf.cast(value, variable.dtype), where))
        self.time.scatter_add(tf.IndexedSlices(tf.cast(active, tf.int32), rows))

    # "Besides this straightforward memory there would be a number of 'indexes of experiences' … giving the 'times' at
    # which they had been used, so that they could be looked up in the memory."

    def _card(self, rows, index, keys):
        cards = self.config.cards
        return ((rows * len(self.indexes) + index) * (cards + 1)) + tf.where(keys >= 0, keys % cards, cards)

    def look_up(self, rows, index, keys):
        """The outcomes of remembered moments that have these features.

        Args:
          index: int32 [J], which indexes.
          keys: int32 [n, A, J].

        Returns:
          How many were good, and how many bad: int32 [n, A, J] each.
        """
        look_up = tf.function(self._look_up, autograph=False, jit_compile=True) if self.jit else self._look_up
        return look_up(rows, index, keys)

    def _look_up(self, rows, index, keys):
        def count(k, time, good, bad):
            _, same, outcome, before = self._follow(rows, index, keys, time)
            return (k + 1, before, good + tf.cast(same & (outcome > 0), tf.int32),
                    bad + tf.cast(same & (outcome < 0), tf.int32))
        nothing, start = tf.zeros_like(keys), self.card.sparse_read(self._card(rows[:, None, None], index, keys))
        return tf.while_loop(lambda k, time, *_: (k < self.config.looked_up) & tf.reduce_any(time >= 0), count,
                             (0, start, nothing, nothing))[2:]

    def recall(self, rows, index, keys):
        """The moments themselves that `look_up` counts.

        Returns:
          Times, latest first, and outcomes: int32 [n, A, J, looked_up] each; NONE and 0 where there is no such moment.
        """
        time, found = self.card.sparse_read(self._card(rows[:, None, None], index, keys)), []
        for _ in range(self.config.looked_up):
            there, same, outcome, before = self._follow(rows, index, keys, time)
            told = there & same & (outcome != 0)
            found.append((tf.where(told, time, NONE), tf.where(told, outcome, 0)))
            time = before
        times, outcomes = (tf.stack(part, -1) for part in zip(*found))
        order = tf.argsort(times, direction='DESCENDING', stable=True)
        return tuple(tf.gather(part, order, axis=3, batch_dims=3) for part in (times, outcomes))

    def _follow(self, rows, index, keys, time):
        """A step back along chains from `time` [n, A, J]: whether it is remembered, whether its moment has the feature,
        how it came out, and the time before."""
        tables = len(self.indexes)
        rows = rows[:, None, None]
        there = (time >= 0) & (time >= tf.gather(self.time, rows) - self.config.memory)
        at = self._moment(rows, time, there)
        same = there & (self.key.sparse_read(at * tables + index) == keys)
        before = tf.where(there, self.before.sparse_read(at * tables + index), NONE)
        return there, same, tf.cast(self.outcome.sparse_read(at), tf.int32), before

    # "Whenever a choice has to be made as to what to do next, features of the present situation are looked up in the
    # indexes available, and the previous choice in the similar situations, and the outcome, good or bad, is discovered.
    # The new choice is made accordingly." "At first probably some quite crude rule will suffice, e.g. to do whichever
    # has the greatest number of votes in its favour."

    def think(self, rows, board) -> Thought:
        """Looks a situation up, int32 [n, P], with every choice."""
        keys = self._combined(rows, self.game.keys(board))  # [n, A, J]
        good, bad = self.look_up(rows, tf.range(self.FIRST, len(self.indexes)), keys)
        if self.config.rule == 'majority':
            votes = tf.cast(tf.reduce_sum(good - bad, 2), tf.float32)
        else:
            favour = tf.cast(good - bad, tf.float32) / tf.cast(good + bad + 1, tf.float32)
            votes = tf.reduce_sum(favour * self._weights(rows)[:, None], 2)
        return Thought(keys, good, bad, votes)

    # "At a very late stage of education the whole question of procedure in such cases will probably have been
    # investigated by the machine itself, by means of some kind of index" of a memory that would "include important
    # parts of the configuration of the machine at each moment, or in other words it would begin to remember what its
    # thoughts had been."

    def _weights(self, rows):
        """How much oftener each index was right than wrong: float32 [n, J]."""
        right, wrong = (tf.cast(tf.gather(count, rows) + 1, tf.float32) for count in (self.right, self.wrong))
        return right / wrong

    def _investigate(self, rows, moments, signal) -> None:
        """Compares what was thought of choices with how they came out.

        Args:
          moments: int32 [n], where they lie in memory.
          signal: int32 [n].
        """
        pattern = self.key.sparse_read(moments * len(self.indexes) + self.THOUGHT)[:, None]  # [n, 1]
        thought = tf.where(pattern >= 0, pattern // self._places % 3 - 1, 0)  # [n, J]
        for count, came_out in ((self.right, signal), (self.wrong, -signal)):
            agreed = (thought == came_out[:, None]) & (signal != 0)[:, None] & (thought != 0)
            count.scatter_add(tf.IndexedSlices(tf.cast(agreed, tf.int32), rows))

    # "New forms of index might be introduced on account of special features observed in the indexes already used."

    def combine(self) -> None:
        """Every machine makes its combined indexes anew: of features of the index that was right most often for its
        errors, the exact situation aside, and of the next ones; and enters in them all it remembers."""
        rows, combined = tf.range(self.config.machines), self.config.combined
        weights = self._weights(rows)[:, 1:len(self.game.features)]
        order = 1 + tf.math.top_k(weights, combined + 1).indices  # [n, combined + 1]
        self.pair.assign(tf.stack([tf.repeat(order[:, :1], combined, 1), order[:, 1:]], 2))
        for count in (self.right, self.wrong):  # what the indexes before them earned was not theirs
            count[:, -combined:].assign(tf.zeros([self.config.machines, combined], tf.int32))
        made = len(self.indexes) - combined + tf.range(combined)
        cards = tf.reshape(self.card, [self.config.machines, len(self.indexes), -1])
        self.card.assign(tf.reshape(tf.concat([cards[:, :-combined], tf.fill(tf.shape(cards[:, -combined:]), NONE)], 1),
                                    [-1]))

        def enter(time):
            there = (time >= 0) & (time < self.time)
            at = (self._moment(rows, time, there) * len(self.indexes))[:, None]
            first, second = (self.key.sparse_read(at + self.FIRST + self.pair[..., side]) for side in (0, 1))
            keys = tf.where(there[:, None] & (first >= 0) & (second >= 0), mix(first, second), NONE)
            cards = self._card(rows[:, None], made, keys)
            before = self.card.sparse_read(cards)
            for variable, value, where in ((self.key, keys, at + made), (self.before, before, at + made),
                                           (self.card, tf.tile(time[:, None], [1, combined]), cards)):
                variable.scatter_update(tf.IndexedSlices(value, where))
            return (time + 1,)
        tf.while_loop(lambda time: tf.reduce_any(time < self.time), enter,
                      [tf.maximum(0, self.time - self.config.memory)])

    def _combined(self, rows, keys):
        """The game's features and those of two of them: int32 [n, A, J]."""
        if not self.config.combined:
            return keys
        first, second = (tf.gather(keys, tf.gather(self.pair, rows)[..., side], axis=2, batch_dims=1)
                         for side in (0, 1))
        return tf.concat([keys, mix(first, second)], 2)

    # "Each machine should be supplied with a tape bearing a random series of figures, e.g. 0 and 1 in equal quantities,
    # and this series of figures should be used in the choices made by the machine."

    def supply_tapes(self, seed: int) -> None:
        """Gives every machine a tape of its own."""
        bits = tf.random.stateless_uniform(self.tape.shape, [seed, 0], 0, 2, tf.int32)
        self.tape.assign(tf.cast(bits, tf.int8))

    def fake(self, rows, places, figures) -> None:
        """Puts figures at places of the tapes, counted from its start: the choices made there are this one.

        "By faking the choices made one would be able to control the development of the machine to some extent."
        """
        at = rows[:, None] * self.config.tape + places
        self.tape.scatter_update(tf.IndexedSlices(tf.broadcast_to(tf.cast(figures, tf.int8), tf.shape(at)), at))

    def decide(self, rows, best, active):
        """One of the best choices, bool [n, A], by halving them until one is left: a figure of the tape a halving.

        Returns:
          The choices, int32 [n], and how many figures of the tape are used by then, int32 [n].
        """
        low, high = tf.zeros_like(rows), tf.reduce_sum(tf.cast(best, tf.int32), 1)
        read = tf.gather(self.read, rows)
        for _ in range(math.ceil(math.log2(best.shape[1]))):
            open_ = active & (high - low > 1)
            figure = self.tape.sparse_read(rows * self.config.tape + read % self.config.tape)
            middle = (low + high) // 2
            low, high = (tf.where(open_ & (figure == 1), middle, low), tf.where(open_ & (figure == 0), middle, high))
            read += tf.cast(open_, tf.int32)
        order = tf.cumsum(tf.cast(best, tf.int32), 1) - 1
        return tf.argmax(tf.cast(best & (order == low[:, None]), tf.int32), 1, tf.int32), read

    # "I suggest that there should be two keys which can be manipulated by the schoolmaster, and which represent the
    # ideas of pleasure and pain."

    def feel(self, rows, signal) -> None:
        """What was done since the last time anything was felt comes out so: PLEASURE, PAIN or 0, int32 [n]."""
        time, felt = tf.gather(self.time, rows), tf.gather(self.felt, rows)
        waiting = tf.where(signal == 0, 0, tf.minimum(time - felt, self.config.memory))

        def assign(k):
            at = self._moment(rows, time - 1 - k, k < waiting)
            self.outcome.scatter_update(tf.IndexedSlices(tf.cast(signal, tf.int8), at))
            self._investigate(rows, at, tf.where(k < waiting, signal, 0))
            return (k + 1,)
        most = tf.reduce_max(waiting)
        tf.while_loop(lambda k: k < most, assign, [0])
        self.felt.scatter_update(tf.IndexedSlices(tf.where(signal == 0, felt, time), rows))

    # "At later stages in education the machine would recognise certain other conditions as desirable owing to their
    # having been constantly associated in the past with pleasure, and likewise certain others as undesirable."

    def recognise(self, rows, index: int, key):
        """What a condition, int32 [n], has always come with: PLEASURE, PAIN, or 0."""
        good, bad = (count[:, 0, 0] for count in self.look_up(rows, tf.constant([index]), key[:, None, None]))
        enough = good + bad >= self.config.constancy
        return tf.cast(enough & (bad == 0), tf.int32) - tf.cast(enough & (good == 0), tf.int32)

    # What a machine does.

    def move(self, rows, board, active):
        """Sees a position, feels what it stands for, chooses a move and remembers it. Returns moves, int32 [n]."""
        condition, none = self.game.condition(board), tf.fill(tf.shape(rows), NONE)
        self.feel(rows, tf.where(active, self.recognise(rows, self.CONDITION, condition), 0))
        thought = self.think(rows, board)
        choice, read = self.decide(rows, favourites(thought.votes, self.game.legal(board)), active)
        self.read.scatter_update(tf.IndexedSlices(read, rows))
        keys, good, bad = (tf.gather(part, choice, axis=1, batch_dims=1) for part in thought[:3])  # [n, J]
        pattern = tf.reduce_sum((tf.sign(good - bad) + 1) * self._places, 1)
        keys = tf.concat([tf.stack([condition, none, pattern], 1), keys], 1)
        self.remember(rows, keys, choice, board, active)
        return choice

    def hear(self, rows, word, board, active) -> None:
        """A word of the schoolmaster's, int32 [n], while a position is before it."""
        self.feel(rows, tf.where(active, self.recognise(rows, self.WORD, word), 0))
        keys = tf.where(tf.range(len(self.indexes)) == self.WORD, word[:, None], NONE)
        self.remember(rows, keys, self.game.moves + word, board, active)

    # "The mechanic who has constructed the machine … may put it back to one of its previous positions and ask the
    # schoolmaster to repeat his lessons from that point on."

    def put_back(self, rows, earlier: 'Machines') -> None:
        """Makes machines what the same rows of another population of this construction are."""
        n = self.config.machines
        for now, then in zip(self.variables, earlier.variables):
            if not tf.size(now):  # pairs of machines that combine nothing
                continue
            several = tf.concat([[n], [tf.size(then) // n]], 0)
            values = tf.tensor_scatter_nd_update(tf.reshape(now, several), rows[:, None],
                                                 tf.gather(tf.reshape(then, several), rows))
            now.assign(tf.reshape(values, now.shape))

    def alone(self, row: int) -> 'Machines':
        """One machine as a population of its own."""
        construction = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(Config)}
        one = Machines(Config(**{**construction, 'machines': 1}))
        for own, all_ in zip(one.variables, self.variables):
            own.assign(tf.reshape(tf.reshape(all_, [self.config.machines, -1])[row], own.shape))
        return one


def favourites(votes, legal):
    """The legal choices with the greatest number of votes: bool [n, A]."""
    votes = tf.where(legal, votes, -math.inf)
    return legal & (votes == tf.reduce_max(votes, 1, keepdims=True))


def mix(a, b):
    """One feature of two, int32 of 31 bits: a hash, under which two of 2^31 features meet by chance."""
    # The constants are those of MurmurHash3's finaliser (Appleby), whose multiplications wrap around.
    x = tf.bitwise.bitwise_xor(a * -1640531535 + b, tf.bitwise.right_shift(a, 15))
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.bitwise_and(tf.bitwise.right_shift(x, 16), 0xFFFF)) * -2048144789
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.bitwise_and(tf.bitwise.right_shift(x, 13), 0x7FFFF)) * -1028477387
    return tf.bitwise.bitwise_and(x, 0x7FFFFFFF)
